"""What connections begin with, and how a beginning is told from bytes that look like one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.net.beginnings import asks_for_connection, beginning_kind, begins, is_syn, known_kind, last_beginning
from mqttscope.net.flows import FlowTable
from mqttscope.net.reassembly import HalfStream
from tests.dissect.talk import connect, wire
from tests.net.script import HANDSHAKE, feed, parse

CONNECT = wire(connect())
CONNECT_3_1 = wire(connect(level=3))
SEGMENT = parse(["> A 101:x 501"])[0]


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (CONNECT, "CONNECT"),
        (CONNECT_3_1, "CONNECT"),
        (b"\x10\x80\x80\x80\x01" + CONNECT[2:], "CONNECT"),
        (b"\x10\x80\x80\x80\x80\x01" + CONNECT[2:], ""),
        (b"\x11" + CONNECT[1:], ""),
        (b"\x10\x0c\0\x04MQTS\x04", ""),
        (b"\x20\x02\0\0", "CONNACK"),
        (b"\x20\x02\x01\0", "CONNACK"),
        (b"\x20\x02\x02\0", ""),
        (b"\x20\x01\0\0", ""),
        (b"\x20\x02\0", ""),
        (b"\x16\x03\x01\x02\0\x01", "TLS"),
        (b"\x16\x03\x03\0\x4a\x02", "TLS"),
        (b"\x16\x03\x03\0\x4a\x0b", ""),
        (b"\x16\x03\x03\0\x4a", ""),
        (b"GET /mqtt HTTP/1.1", "HTTP"),
        (b"HTTP/1.1 101 Switching Protocols", "HTTP"),
        (b"HTTP/1.1 200 OK", ""),
        (b"", ""),
    ],
)
def test_the_kind_of_a_beginning(payload: bytes, kind: str) -> None:
    assert beginning_kind(payload) == kind


@pytest.mark.parametrize(
    ("known", "payload", "expected"),
    [
        (CONNECT, CONNECT, True),
        (CONNECT, CONNECT_3_1, True),
        (CONNECT, b"GET / HTTP/1.1", False),
        (CONNECT, b"\x20\x4e\0\0", False),
        (b"GET / HTTP/1.1", b"GET /other HTTP/1.1", True),
        (b"\xc0\0", CONNECT, True),
        (b"\xc0\0", b"\xc0\0", False),
    ],
)
def test_a_beginning_is_of_the_kind_of_the_known_stream(known: bytes, payload: bytes, expected: bool) -> None:
    """If the capture joined a stream in its middle, any kind is one."""
    segment = replace(SEGMENT, payload=payload)

    assert begins(HalfStream(history=[known]), segment) is expected
    assert begins(HalfStream(history=[b"later"], beginning=known), segment) is expected


def test_the_kind_of_a_stream_without_bytes_is_not_known() -> None:
    assert known_kind(HalfStream()) == ""


def test_a_syn_ack_is_no_syn() -> None:
    assert [is_syn(segment) for segment in parse(["> S 100", "< SA 500 101", "> A 101 501"])] == [True, False, False]


def test_a_syn_behind_a_pause_is_a_beginning_among_what_is_kept() -> None:
    assert last_beginning(parse(["< A 501:xy 106", "> S 100 t=1"])) == 1
    assert last_beginning(parse(["< A 501:xy 106", "> S 100"])) == 0


def test_copies_of_an_answer_ask_for_no_connection() -> None:
    flow = feed(FlowTable(), parse(HANDSHAKE))[0].flow

    assert not asks_for_connection(flow, parse(["< A 501:xy 106", "> A 106 503"]))
    assert asks_for_connection(flow, parse(["< SA 500 101"]))
