"""No matter when fuzzing found it, every finding stays repaired: the smallest input that showed each one."""

from __future__ import annotations

import gzip
import io
import json

import pytest

from mqttscope.capture.compressed import ByteSource
from mqttscope.mqtt import ProtocolVersion
from mqttscope.net.http_upgrade import FRAMES, Problem
from mqttscope.net.segment import ACK, SYN, Segment, direction_key, reverse_key
from mqttscope.net.tls_hello import TlsObserver, looks_like_tls
from mqttscope.net.websocket import Inflater, MessageData, WebSocket, WebSocketSide
from mqttscope.report.jsonl import EventJsonLines
from tests.dissect.talk import Talk
from tests.fuzz.laws import check_dissection
from tests.fuzz.target import load
from tests.net.framing import request, response
from tests.report.make import Lines

MQTT_KEY = direction_key(bytes((10, 0, 0, 1, 10, 0, 0, 2)), (50_000).to_bytes(2, "big") + (1883).to_bytes(2, "big"))


@pytest.mark.parametrize("step", [1, 2, 3, 7, 31])
def test_the_last_bytes_of_an_encrypted_alert_are_no_alert_in_clear(step: int) -> None:
    encrypted = b"\x15\x03\x03\x00\x1a" + bytes(range(200, 226))
    clear = b"\x15\x03\x03\x00\x02\x02\x28"
    observer = TlsObserver()
    for at in range(0, len(encrypted + clear), step):
        observer.feed(False, (encrypted + clear)[at : at + step])

    assert observer.alerts == [(False, 2, 40)]


def test_an_alert_of_which_the_capture_lost_a_byte_is_not_put_together_with_what_follows() -> None:
    observer = TlsObserver()
    observer.feed(False, b"\x15\x03\x03\x00\x02\x02")
    observer.gap(False, 1)
    observer.feed(False, b"\x15\x03\x03\x00\x02\x01\x00")

    assert observer.alerts == [(False, 1, 0)]


def test_whether_a_stream_is_tls_does_not_change_its_answer_with_more_bytes() -> None:
    too_long = bytes.fromhex("160301002001 05") + bytes(30)
    hello = bytes.fromhex("160301002001 00001c 03") + bytes(30)

    assert [looks_like_tls(too_long[:size]) for size in range(12)] == [None] * 7 + [False] * 5
    assert [looks_like_tls(hello[:size]) for size in range(12)] == [None] * 10 + [True] * 2


@pytest.mark.parametrize("forget", [False, True])
def test_a_compressed_message_that_ends_inside_a_block_is_an_error_and_leaves_nothing_to_the_next(forget: bool) -> None:
    whole = bytes.fromhex("f248cdc9c907c2")  # "Hello", then a fixed block that has just begun
    websocket = WebSocket(
        None, client=WebSocketSide(True), server=WebSocketSide(False, FRAMES, "agreed", inflater=Inflater(True))
    )

    parts = websocket.feed(False, b"\xc2" + bytes((len(whole) - 1,)) + whole[:-1])
    inflater = websocket.server.inflater
    assert inflater is not None
    if forget:
        inflater.zlib_object = None
    parts += websocket.feed(False, b"\xc2\x07" + bytes.fromhex("f248cdc9c90700"))

    assert [part.reason for part in parts if isinstance(part, Problem)] == ["inflate_error"]
    assert [part.data for part in parts if isinstance(part, MessageData) and part.frame_end] == [b"Hello"]
    assert inflater.window == b"Hello"
    assert inflater.zlib_object is None


def test_an_upgrade_that_is_not_utf_8_can_be_written_as_json() -> None:
    asked = request().replace(b"/mqtt ", b"/mqtt\xff ").replace(b"broker", b"\xfe")
    talk = Talk(port=8080).handshake()
    talk.client(asked.replace(b"Protocol: mqtt", b"Protocol: mqtt, \xfd"))
    talk.server(response())
    sink = Lines()
    reporter = EventJsonLines(sink)
    for event in talk.events():
        reporter.feed(event)

    opened = json.loads(sink.lines[0])
    assert opened["event"] == "connection_opened"
    assert opened["websocket"]["path"] == {"length": 6, "hex": b"/mqtt\xff".hex()}
    assert opened["websocket"]["host"] == "***"  # it may hold a name and a password


def test_damaged_gzip_gives_the_same_bytes_however_few_are_read_at_a_time() -> None:
    raw = b"".join(b"%d: plant/line/%d\n" % (number, number % 7) for number in range(60))
    packed = gzip.compress(raw, mtime=0)
    for at in range(12, len(packed) - 8, 3):
        damaged = packed[:at] + bytes((packed[at] ^ 0x55,)) + packed[at + 1 :]
        read = set()
        for chunk_size in (1, 7, 64, 1 << 18):
            source = ByteSource(io.BytesIO(damaged), chunk_size=chunk_size)
            read.add((source.fill(b"", 1 << 30), source.fault))
        assert len(read) == 1, f"byte {at}"


def test_a_cut_connect_of_an_unknown_version_says_the_same_on_the_short_and_the_general_way() -> None:
    connect = b"\x10\x0d\x00\x04MQTT\x09\x02\x00\x3c\x00\x01a"
    check_dissection(
        [
            Segment(MQTT_KEY, 0, 0, SYN, 9_000, b"", 0, 1, 1, "a"),
            Segment(reverse_key(MQTT_KEY), 0, 1, SYN | ACK, 9_000, b"", 0, 2, 2, "a"),
            Segment(MQTT_KEY, 1, 1, ACK, 9_000, connect[:9], 2, 3, 3, "a"),
            Segment(MQTT_KEY, 12, 1, ACK, 9_000, connect[11:] + b"\x00\x00\x00\x00", 0, 4, 4, "a"),
        ],
        ProtocolVersion.V5,
    )


MIDDLE_OF_A_BLOCK = (
    "0e06010025420532e063604e800bd44f2a4947455420ad28510010000000000000002d000042053240e303008000420442e703008000e10004"
)
FOUND: list[tuple[str, str, str]] = [
    ("websocket", "zlib kept the middle of a block over the end of a message", MIDDLE_OF_A_BLOCK),
]
"""Target, what it was, and the input in hexadecimal."""


@pytest.mark.parametrize(("target", "what", "data"), FOUND, ids=[f"{target}: {what}" for target, what, _ in FOUND])
def test_an_input_that_broke_a_law_keeps_it_now(target: str, what: str, data: str) -> None:
    load(target).check(bytes.fromhex(data))
