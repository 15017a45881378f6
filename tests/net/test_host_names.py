from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.net.headers import segment
from mqttscope.net.host_names import HostNames, answers, read_question
from mqttscope.net.segment import DnsMessage
from tests.net.dns import CNAME, POINTER, answer, asking, datagram, host, message, name, query, received, record
from tests.net.octets import VXLAN, ethernet, frame, gtp, ip4, udp, vlan

FOUR, SIX = "10.0.0.2", "fd00::2"
ASKED, OTHER = name("broker.example"), name("b.net")


def read(data: bytes) -> list[tuple[str, str]]:
    """The addresses in a message with their names, as text."""
    return [(".".join(map(str, packed)) if len(packed) == 4 else packed.hex(), text) for packed, text in answers(data)]


def alias(owner: bytes, target: bytes) -> bytes:
    return record(owner, CNAME, target)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(answer("broker.example", FOUR), [FOUR], id="address"),
        pytest.param(answer("broker.example", FOUR, "10.0.0.3"), [FOUR, "10.0.0.3"], id="several"),
        pytest.param(answer("broker.example", SIX), ["fd000000000000000000000000000002"], id="IPv6"),
        pytest.param(answer("bRoKeR.Example", FOUR), [FOUR], id="capital letters"),
        pytest.param(
            message(ASKED, alias(POINTER, OTHER), alias(OTHER, name("c.net")), host(FOUR, name("c.net"))),
            [FOUR], id="CNAME",
        ),
        pytest.param(
            message(ASKED, host(FOUR, OTHER), alias(POINTER, OTHER)), [FOUR], id="CNAME after its address"
        ),
        pytest.param(message(ASKED, host(FOUR, OTHER)), [], id="address of another name"),
        pytest.param(
            message(ASKED, alias(POINTER, OTHER), alias(OTHER, POINTER), host(FOUR, name("c.net"))), [], id="CNAME loop"

        ),
        pytest.param(message(ASKED, host(FOUR), flags=0x0100), [], id="question"),
        pytest.param(message(ASKED, host(FOUR), flags=0x8183), [], id="no such name"),
        pytest.param(message(ASKED, host(FOUR), flags=0xA800), [], id="update"),
        pytest.param(message(ASKED, host(FOUR), questions=2), [], id="two questions"),
        pytest.param(message(ASKED, record(POINTER, 1, b"\x0a\0\0\2", internet=3)), [], id="another class"),
        pytest.param(message(ASKED, record(POINTER, 1, b"\x0a\0\0\2\0")), [], id="address of five bytes"),
        pytest.param(message(ASKED, host(FOUR), count=0xFFFF), [FOUR], id="more announced"),
        pytest.param(message(ASKED, host(FOUR), host("10.0.0.3"))[:-3], [FOUR], id="cut"),
        pytest.param(message(ASKED, record(POINTER, 16, b"x", 60_000), host(FOUR)), [], id="record beyond the end"),
        pytest.param(message(POINTER, host(FOUR)), [], id="pointer to itself"),
        pytest.param(message(b"\1a\xc0\x40", host(FOUR)), [], id="pointer ahead"),
        pytest.param(message(b"\1a\xc0", host(FOUR)), [], id="half a pointer"),
        pytest.param(message(b"\x41" + b"a" * 65 + b"\0", host(FOUR)), [], id="label of 65 bytes"),
        pytest.param(message(b"\x3f" + b"a" * 63 + (b"\x3f" + b"a" * 63) * 4 + b"\0", host(FOUR)), [], id="long name"),
        pytest.param(message(b"\0", host(FOUR)), [], id="root"),
        pytest.param(answer("a b.example", FOUR), [], id="blank"),
        pytest.param(answer("br\xf6ker.example", FOUR), [], id="letter with dots"),
        pytest.param(answer("a\x1b[2J.example", FOUR), [], id="escape sequence"),
        pytest.param(message(b"\3a.b\7example\0", host(FOUR)), [], id="dot inside of a label"),
        pytest.param(b"", [], id="empty"),
        pytest.param(answer("broker.example", FOUR)[:11], [], id="cut header"),
    ],
)  # fmt: skip
def test_addresses_of_an_answer(data: bytes, expected: list[str]) -> None:
    assert read(data) == [(address, "broker.example") for address in expected]


@given(st.binary(max_size=200), st.binary(max_size=60))
def test_any_bytes_are_read_without_failure(data: bytes, asked: bytes) -> None:
    list(answers(data))
    list(answers(message(asked, data, count=0xFFFF)))


def test_a_hostile_message_costs_linear_time() -> None:
    """Many records, each with a name of as many pointers as fit: the bytes that are looked at are counted."""

    class Counted(bytes):
        looks = 0

        def __getitem__(self, key):  # type: ignore[no-untyped-def]
            Counted.looks += 1
            return super().__getitem__(key)

    chain = b"".join(struct.pack("!H", 0xC000 | at) for at in (12, *range(12, 12 + 2 * 4_000, 2)))
    data = Counted(message(b"\1a\0", record(b"\0", 16, chain), *[host(FOUR, b"\xdf\xfe")] * 4_000))
    list(answers(data))
    assert Counted.looks < len(data)


def test_names_in_frames() -> None:
    message = answer("broker.example", FOUR)
    plain = datagram(message)
    for data, link_type in (
        (plain, 101),
        (ethernet(0x0800, plain), 1),
        (ethernet(0x8100, vlan(7, 0x0800, plain)), 1),
        (ip4(b"\0\0\x08\0" + plain, 47), 101),
        (ip4(udp(4789, VXLAN + ethernet(0x0800, plain)), 17), 101),
        (ip4(gtp(plain), 17), 101),
        (datagram(message, "fd00::4"), 101),
    ):
        actual_segment = segment(frame(data, link_type))
        assert isinstance(actual_segment, DnsMessage), data.hex()
        assert actual_segment.reason == "not_tcp"
        assert len(actual_segment.client) in (4, 16)
        assert read(actual_segment.data) == [(FOUR, "broker.example")]
    assert not isinstance(segment(frame(datagram(message, port=54), 101)), DnsMessage)


def test_the_latest_answer_counts_and_that_of_the_client_itself_before_others() -> None:
    names = HostNames()
    a, b, server = (bytes((10, 0, 0, last)) for last in (4, 5, 2))
    assert names.name(a, server) is None
    names.feed(received(answer("one.example", FOUR), "10.0.0.4"))
    names.feed(received(answer("two.example", FOUR), "10.0.0.4"))
    assert names.name(a, server) == names.name(b, server) == "two.example"

    names.feed(received(answer("three.example", FOUR), "10.0.0.5"))
    assert names.name(a, server) == "two.example"
    assert names.name(b, server) == names.name(server, server) == "three.example"
    assert names.name(server, a) is None
    assert len(names) == 3


def test_addresses_of_both_versions_do_not_mix() -> None:
    names = HostNames()
    names.feed(received(answer("six.example", SIX), "10.0.0.4"))
    assert names.name(bytes.fromhex("fd000000000000000000000000000002"), b"\x0a\0\0\4") is None


@pytest.mark.parametrize("is_query", [True, False])
def test_a_query_and_its_response_have_one_client(is_query: bool) -> None:
    data = query("broker.example") if is_query else answer("broker.example", FOUR)
    message = segment(frame(asking(data) if is_query else datagram(data), 101))

    assert isinstance(message, DnsMessage)
    assert (message.client, message.server) == (bytes((192, 0, 2, 4)), bytes((192, 0, 2, 53)))
    asked = read_question(message.data)
    assert asked is not None
    assert (asked.name, asked.kind, asked.is_response, asked.code) == ("broker.example", 1, not is_query, 0)


@pytest.mark.parametrize(
    "data",
    [query("a b"), message(ASKED, questions=2), message(ASKED, flags=0x2800), b"", message(b"\1a\xc0")[:14]],
)
def test_what_is_no_question_for_a_host_name(data: bytes) -> None:
    assert read_question(data) is None
