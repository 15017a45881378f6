"""Bytes that could not be read as packets."""

from __future__ import annotations

from mqttscope.dissect import dissect_segments
from mqttscope.events import MalformedEvent, UnparsedEvent
from mqttscope.explain.model import Moment
from mqttscope.explain.story import Story
from mqttscope.explain.unread_bytes import MAX_STRAY, Stray
from tests.dissect.scenes import HTTP_ANSWER
from tests.dissect.talk import Talk
from tests.each import each

BEFORE = Moment(0, 1, "server", "PINGRESP")


def bytes_after_a_packet(data: bytes) -> Stray:
    talk = Talk().handshake()
    talk.tell("> connect; < connack")
    talk.server(b"\xd0\x00" + data)
    talk.close()
    events = [event for event in talk.events() if isinstance(event, MalformedEvent | UnparsedEvent)]
    return Stray.of(events[0], BEFORE)


@each("data, is_beginning", [(b"\x30\x09\x00", True), (b"\x00\x01\x02\x03\x04\x05", False)])
def test_stray_bytes_are_cut_and_may_begin_a_packet(data: bytes, is_beginning: bool) -> None:
    stray = bytes_after_a_packet(data)

    assert (stray.data, stray.is_beginning, stray.before) == (data[:MAX_STRAY], is_beginning, BEFORE)


def test_the_first_bytes_of_another_protocol_are_kept_for_each_side() -> None:
    talk = Talk().handshake()
    talk.client(b"GET / HTTP/1.1\r\n\r\n")
    talk.client(b"second")
    talk.server(HTTP_ANSWER)
    story: Story | None = None
    for event in dissect_segments(talk.tape.segments):
        if isinstance(event, UnparsedEvent):
            story = story or Story(event.connection)
            story.damaged(event)

    assert story is not None
    assert {side: (row.protocol, row.head[:4]) for side, row in story.foreign.items()} == {
        "client": ("HTTP", b"GET "), "server": ("HTTP", HTTP_ANSWER[:4]),
    }  # fmt: skip
