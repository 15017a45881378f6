"""The entrance for frames, and that it gives what the entrance for segments gives."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, Options, dissect, dissect_segments, segments
from mqttscope.events import ConnectionOpened, PacketEvent
from mqttscope.net.frame import CaptureDrops, CaptureError, Frame
from mqttscope.net.segment import Segment
from tests.conftest import ROOT
from tests.dissect.talk import CONNACK, Talk, connect, names, only

CAPTURES = sorted(path.parent.name for path in (ROOT / "captures").glob("*/capture.pcapng"))


def ip_header(segment: Segment, body: bytes, fragment: int = 0, identification: int = 1) -> bytes:
    key = segment.key
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), identification, fragment, 64, 6, 0)
    return head + key[:8] + body


def tcp(segment: Segment) -> bytes:
    ports = segment.key[8:12]
    rest = struct.pack(">LLBBHHH", segment.sequence, segment.acknowledgment, 0x50, segment.flags, segment.window, 0, 0)
    return ports + rest + segment.payload


def frame(number: int, segment: Segment, data: bytes, link_type: int = 101) -> Frame:
    return Frame(number, segment.timestamp_ns, link_type, data, len(data), segment.capture)


def conversation() -> list[Segment]:
    talk = Talk().handshake()
    talk.client(connect())
    talk.server(CONNACK)
    talk.close()
    return talk.tape.segments


def raw_frames(link_type: int = 101) -> list[Frame]:
    return [frame(one.frame, one, ip_header(one, tcp(one)), link_type) for one in conversation()]


def test_frames_become_the_segments_they_hold() -> None:
    assert list(segments(raw_frames())) == conversation()


def test_frames_give_the_events_of_their_segments() -> None:
    assert list(map(repr, dissect(raw_frames()))) == list(map(repr, dissect_segments(conversation())))


@pytest.mark.parametrize("name", CAPTURES)
def test_both_entrances_give_the_same_events_of_a_capture(name: str) -> None:
    source = [ROOT / "captures" / name / "capture.pcapng"]

    whole = [repr(event) for event in dissect(open_capture(source))]
    entered_later = [repr(event) for event in dissect_segments(list(segments(open_capture(source))))]

    assert whole == entered_later
    assert whole


def test_there_are_captures_to_compare() -> None:
    assert len(CAPTURES) >= 70


def test_fragments_are_put_together_and_belong_to_the_frame_that_completed_them() -> None:
    made: list[Frame] = []
    for one in conversation():
        body = tcp(one)
        if not one.payload:
            made.append(frame(len(made) + 1, one, ip_header(one, body, identification=one.frame)))
            continue
        first, rest = body[:16], body[16:]
        made.append(frame(len(made) + 1, one, ip_header(one, rest, 2, one.frame)))
        made.append(frame(len(made) + 1, one, ip_header(one, first, 0x2000, one.frame)))

    events = only(dissect(made), PacketEvent)

    assert [(event.type, event.frame) for event in events] == [("connect", 5), ("connack", 7)]


def test_what_holds_no_tcp_is_counted_by_reason() -> None:
    made = raw_frames()
    udp = bytearray(made[0].data)
    udp[9] = 17
    made[1:1] = [
        Frame(90, 0, 101, bytes(udp), len(udp), "a.pcap"),
        Frame(91, 0, 101, b"\x45\0", 60, "a.pcap"),
        Frame(92, 0, 1, b"\0" * 12 + b"\x08\x06" + b"\0" * 28, 42, "a.pcap"),
    ]
    skipped: Counter[str] = Counter()

    events = list(dissect(made, skipped=skipped))

    assert names(events) == ["ConnectionOpened", "PacketEvent", "PacketEvent", "ConnectionEnding", "ConnectionClosed"]
    assert skipped == {"not_tcp": 1, "truncated": 1, "not_ip": 1}


def test_fragments_that_stay_alone_are_counted() -> None:
    made = raw_frames()
    body = tcp(conversation()[3])
    made.append(frame(len(made) + 1, conversation()[3], ip_header(conversation()[3], body[:24], 0x2000, 77)))
    skipped: Counter[str] = Counter()

    assert list(segments(made, skipped)) == conversation()
    assert skipped == {"incomplete_fragments": 1}


def test_a_link_type_that_cannot_be_read_is_one_error_per_capture() -> None:
    made = [Frame(number, 0, 147, b"\0" * 60, 60, name) for name in ("a.pcap", "b.pcap") for number in (1, 2, 3)]
    made.insert(1, Frame(2, 0, 1, b"\0" * 60, 60, "a.pcap"))
    skipped: Counter[str] = Counter()

    errors = only(dissect(made, skipped=skipped), CaptureError)

    assert [(error.capture, error.frames, error.offset) for error in errors] == [
        ("a.pcap", 0, None),
        ("b.pcap", 0, None),
    ]
    assert all("147" in error.message for error in errors)
    assert skipped["unsupported_link_type"] == 6


def test_notices_stay_in_their_place() -> None:
    made = raw_frames()
    drops = CaptureDrops("a.pcap", 0, None, 3)

    events = list(dissect([*made[:4], drops, *made[4:]]))

    assert names(events) == [
        "ConnectionOpened", "PacketEvent", "CaptureDrops", "PacketEvent", "ConnectionEnding", "ConnectionClosed",
    ]  # fmt: skip


def test_options_and_dissector_are_handed_on() -> None:
    dissector = Dissector(Options(detect=False))
    options = Options(ports={1883: "tls"})

    assert only(dissect(raw_frames(), dissector=dissector), ConnectionOpened)
    assert dissector.packets == 2
    assert only(dissect(raw_frames(), options), PacketEvent)[0].connection.transport == "tcp"
