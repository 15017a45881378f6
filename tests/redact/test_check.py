"""Secrets are found in every encoding, wherever they lie in a capture."""

from __future__ import annotations

import html
import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

from mqttscope.mqtt import Publish
from mqttscope.net.frame import Frame
from mqttscope.redact.check import SHORTEST, SecretSearch, forms
from tests.dissect.scenes import MASK
from tests.dissect.talk import Talk, connect, wire
from tests.each import each
from tests.net.framing import deflate, frame, request, response
from tests.redact.redacting import taped, written

SECRET = 'pa"ss/wörd&7>?>>~~~'
RAW = SECRET.encode()


def found(data: bytes, *secrets: bytes) -> set[str]:
    check = SecretSearch(secrets or (RAW,))
    for at in range(0, len(data), 7):
        check.take_bytes(data[at : at + 7], at)
    return {hit.form for hit in check.close()}


@each(
    "encoded, form",
    [
        (RAW, "plain"),
        (RAW.upper(), "plain"),
        (quote(SECRET, safe="").encode(), "percent encoding"),
        (quote(SECRET, safe="").lower().encode(), "percent encoding"),
        ("".join(f"%{number:02X}" for number in RAW).encode(), "percent encoding"),
        (b64encode(RAW), "base64"),
        (b64encode(b"1" + RAW + b"x"), "base64"),
        (b64encode(b"22" + RAW + b"xy"), "base64"),
        (urlsafe_b64encode(b"22" + RAW), "base64"),
        (RAW.hex().encode(), "hexadecimal"),
        (RAW.hex().upper().encode(), "hexadecimal"),
        (RAW.hex(" ").encode(), "hexadecimal"),
        (RAW.hex(":").encode(), "hexadecimal"),
        (SECRET.encode("utf-16-le"), "UTF-16"),
        (SECRET.encode("utf-16-be"), "UTF-16"),
        (html.escape(SECRET).encode(), "HTML"),
        ("".join(f"&#{ord(text)};" for text in SECRET).encode(), "HTML"),
        ("".join(f"&#x{ord(text):X};" for text in SECRET).encode(), "HTML"),
        (json.dumps(SECRET).encode(), "JSON"),
        (json.dumps(SECRET).replace("/", "\\/").encode(), "JSON"),
        ("".join(f"\\u{ord(text):04X}" for text in SECRET).encode(), "JSON"),
    ],
)
def test_each_encoding_is_found_over_the_cuts_of_a_file(encoded: bytes, form: str) -> None:
    assert form in found(b"before " * 9 + encoded + b" after" * 9)
    assert found(b"before " * 9 + encoded[: len(encoded) // 2 - 1] + b" after" * 9) == set()


def test_all_three_alignments_of_base64_say_nothing_of_what_is_around() -> None:
    for around in (b"", b"a", b"bc", b"\xff\xff"):
        for after in (b"", b"\0", b"zz"):
            assert "base64" in found(b64encode(around + RAW + after))


def test_bytes_that_are_no_text_are_found_too() -> None:
    raw = bytes(range(200, 220))

    assert {form for form, _ in forms(raw)} == {"plain", "percent encoding", "hexadecimal", "base64"}
    assert found(b"x" + raw.hex().encode(), raw) == {"hexadecimal"}


def hits(frames: list[Frame], secret: bytes = RAW) -> dict[str, str]:
    check = SecretSearch((secret,))
    check.take_bytes(written(frames), 0)
    for single_frame in frames:
        check.take_frame(single_frame)
    return {hit.form: hit.place for hit in check.close()}


def test_a_secret_in_two_segments_is_found_in_the_stream() -> None:
    talk = Talk().handshake()
    talk.client(connect())
    whole = wire(Publish(topic_name="t", payload=RAW))
    talk.client(whole[:9])
    talk.client(whole[9:])
    talk.close()
    other = Talk(talk.tape, 22, 40_000).handshake()
    other.client(b"not mqtt")
    other.close()

    (place,) = hits(taped(talk.tape)).values()
    assert place.startswith("a TCP stream, up to frame ")
    assert hits(taped(talk.tape), b"nothing of it") == {}


@each("compressed", [True, False])
def test_a_secret_in_a_websocket_is_found_under_its_mask(compressed: bool) -> None:
    extra = "Sec-WebSocket-Extensions: permessage-deflate\r\n" if compressed else ""
    talk = Talk(port=8080).handshake()
    talk.client(request(extra))
    talk.server(response(extra))
    messages = [wire(connect()), wire(Publish(topic_name="t", payload=RAW))]
    for message in deflate(messages) if compressed else messages:
        talk.client(frame(message, 0xC2 if compressed else 0x82, MASK))
    talk.close()

    assert hits(taped(talk.tape)) == {"plain": next(iter(hits(taped(talk.tape)).values()))}
    assert "WebSocket" in hits(taped(talk.tape))["plain"]


def test_short_texts_are_not_looked_for() -> None:
    assert SHORTEST == 4
    assert found(b"abc" * 9, b"abc") == set()


def test_frames_of_a_compressed_file_are_looked_through() -> None:
    check = SecretSearch((RAW,))
    check.take_compressed(Frame(3, 0, 1, b"x" + RAW, 99, ""))

    assert [hit.place for hit in check.close()] == ["frame 3"]
