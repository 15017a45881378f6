"""Heads of HTTP: the same length, what opens a WebSocket, and nothing else that was said."""

from __future__ import annotations

from mqttscope.net.http_upgrade import parse_request, parse_response
from mqttscope.redact.addresses import Addresses
from mqttscope.redact.http import HeadRedactor
from mqttscope.redact.kinds import TreatmentChoice
from mqttscope.redact.packets import PacketRedactor
from mqttscope.redact.pseudonyms import Pseudonyms
from tests.each import each
from tests.net.heads import request, response


def heads(choice: TreatmentChoice | None = None) -> HeadRedactor:
    names = Pseudonyms(b"key")
    return HeadRedactor(names, Addresses(names), PacketRedactor(names, choice or TreatmentChoice()))


def replaced(head: bytes) -> bytes:
    raw = heads().replaced(head)
    assert len(raw) == len(head)
    assert raw.count(b"\n") == head.count(b"\n")
    return raw


def test_a_good_exchange_stays_one() -> None:
    for head, parse in ((request(), parse_request), (response(), parse_response)):
        before, after = parse(head), parse(replaced(head))
        assert before is not None
        assert after is not None
        assert (before.remarks, before.extensions) == (after.remarks, after.extensions)


@each(
    "field, expected, secret",
    [
        ("Cookie: session=tok3nvalue; other=x9y8z7", b"Cookie: ", b"tok3nvalue"),
        ("Authorization: Bearer abcdefghijk", b"Authorization: ", b"abcdefghijk"),
        ("Host: broker.plant-seven.example:8080", b":8080", b"plant"),
        ("Host: 192.168.77.20:8080", b":8080", b"192.168.77.20"),
        ("Origin: https://portal.plant.example", b"Origin: https://", b"portal"),
        ("X-Plant-Secret: seventeen", b": ", b"Plant"),
        ("User-Agent: PlantPanel/7.1 (boiler)", b"User-Agent: ", b"boiler"),
        ("Sec-WebSocket-Protocol: mqtt, tokeninhere", b"Sec-WebSocket-Protocol: mqtt, ", b"tokeninhere"),
        (
            "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
            b"permessage-deflate; client",
            b"secret",
        ),
        ("Sec-WebSocket-Key: not-a-key-but-a-token", b"Sec-WebSocket-Key: ", b"token"),
        ("Upgrade: h2c", b"Upgrade: h2c", b"secret"),
        (" folded secretline", b" ", b"secretline"),
        ("no colon but secretline", b" ", b"secretline"),
    ],
)
def test_fields(field: str, expected: bytes, secret: bytes) -> None:
    raw = replaced(b"GET /mqtt HTTP/1.1\r\n" + field.encode() + b"\r\n\r\n")

    assert expected in raw
    assert secret not in raw


@each(
    "line, expected, secret",
    [
        ("GET /plant7/mqtt?token=verysecret HTTP/1.1", b"/mqtt?", b"verysecret"),
        ("GET /boiler/ws HTTP/1.1", b"/ws HTTP/1.1", b"boiler"),
        ("HTTP/1.1 101 Switching Protocols", b"HTTP/1.1 101 Switching Protocols", b"secret"),
        ("HTTP/1.1 403 plant seven says no", b"HTTP/1.1 403 ", b"plant"),
        ("GET /x secretline", b"GET /", b"secretline"),
        ("secretline", b"", b"secretline"),
    ],
)
def test_first_lines(line: str, expected: bytes, secret: bytes) -> None:
    raw = replaced(line.encode() + b"\r\n\r\n")

    assert expected in raw
    assert secret not in raw


def test_equal_hosts_stay_equal() -> None:
    work = heads()

    assert work.host(b"broker.example:443")[:-4] == work.host(b"broker.example")
    assert work.host(b"broker.example") != b"broker.example"
    assert heads(TreatmentChoice.of(["host-names"])).host(b"broker.example") == b"broker.example"


def test_whatever_comes_keeps_its_length() -> None:
    for head in (
        b"",
        b"\r\n",
        b"\n\n",
        b"GET",
        b"GET / HTTP/1.1",
        b":\r\n:\r\n\r\n",
        bytes(range(256)),
        b"a\x0bb\x0cc\r\n\r\n",
    ):
        assert len(heads().replaced(head)) == len(head)
