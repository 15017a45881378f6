"""Order, numbers, frames and topics of events, and that both ways through the dissector agree."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, Options, dissect, dissect_segments, segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.net.frame import CaptureDrops, CaptureError, Frame
from mqttscope.net.segment import Segment
from tests.conftest import ROOT
from tests.dissect.scenes import MASK, SCENE, check_scene, frames, mixed_tape, opened, shown, websocket
from tests.dissect.talk import PINGREQ, PUBLISH_1, V5, Talk, Tape, connect, names, only, read, wire
from tests.each import each
from tests.mqtt.octets import framed, string
from tests.net.framing import frame
from tests.tables import cases_of

CAPTURES = sorted(path.parent.name for path in (ROOT / "captures").glob("*/capture.pcapng"))


def ip_header(segment: Segment, body: bytes, fragment: int = 0, identification: int = 1) -> bytes:
    key = segment.key
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), identification, fragment, 64, 6, 0)
    return head + key[:8] + body


def tcp(segment: Segment) -> bytes:
    ports = segment.key[8:12]
    rest = struct.pack(">LLBBHHH", segment.sequence, segment.acknowledgment, 0x50, segment.flags, segment.window, 0, 0)
    return ports + rest + segment.payload


def in_frame(number: int, segment: Segment, data: bytes, link_type: int = 101) -> Frame:
    return Frame(number, segment.timestamp_ns, link_type, data, len(data), segment.capture)


def conversation() -> list[Segment]:
    talk = Talk().handshake().tell("> connect; < connack; close")
    return talk.tape.segments


def raw_frames(link_type: int = 101) -> list[Frame]:
    return [in_frame(segment.frame, segment, ip_header(segment, tcp(segment)), link_type) for segment in conversation()]


def test_frames_become_the_segments_they_hold() -> None:
    assert list(segments(raw_frames())) == conversation()


def test_frames_give_the_events_of_their_segments() -> None:
    assert list(map(repr, dissect(raw_frames()))) == list(map(repr, dissect_segments(conversation())))


@each("name", CAPTURES)
def test_both_entrances_give_the_same_events_of_a_capture(name: str) -> None:
    source = [ROOT / "captures" / name / "capture.pcapng"]

    whole = [repr(event) for event in dissect(open_capture(source))]
    entered_later = [repr(event) for event in dissect_segments(list(segments(open_capture(source))))]

    assert whole == entered_later
    assert whole


def test_there_are_captures_to_compare() -> None:
    assert len(CAPTURES) >= 70


def test_fragments_are_put_together_and_belong_to_the_frame_that_completed_them() -> None:
    new_frames: list[Frame] = []
    for segment in conversation():
        body = tcp(segment)
        if not segment.payload:
            new_frames.append(
                in_frame(len(new_frames) + 1, segment, ip_header(segment, body, identification=segment.frame))
            )
            continue
        first, rest = body[:16], body[16:]
        new_frames.append(in_frame(len(new_frames) + 1, segment, ip_header(segment, rest, 2, segment.frame)))
        new_frames.append(in_frame(len(new_frames) + 1, segment, ip_header(segment, first, 0x2000, segment.frame)))

    events = only(dissect(new_frames), PacketEvent)

    assert [(event.type, event.frame) for event in events] == [("connect", 5), ("connack", 7)]


def test_what_holds_no_tcp_is_counted_by_reason() -> None:
    new_frames = raw_frames()
    udp = bytearray(new_frames[0].data)
    udp[9] = 17
    new_frames[1:1] = [
        Frame(90, 0, 101, bytes(udp), len(udp), "a.pcap"),
        Frame(91, 0, 101, b"\x45\0", 60, "a.pcap"),
        Frame(92, 0, 1, b"\0" * 12 + b"\x08\x06" + b"\0" * 28, 42, "a.pcap"),
    ]
    skipped: Counter[str] = Counter()
    noted: list[tuple[str, str, int]] = []

    events = list(dissect(new_frames, skipped=skipped))
    list(segments(new_frames, note_skipped=lambda *arguments: noted.append(arguments)))

    assert names(events) == ["ConnectionOpened", "PacketEvent", "PacketEvent", "ConnectionEnding", "ConnectionClosed"]
    assert skipped == {"not_tcp": 1, "truncated": 1, "not_ip": 1}
    assert noted == [("a.pcap", reason, 1) for reason in ("not_tcp", "truncated", "not_ip")]


def test_fragments_that_stay_alone_are_counted() -> None:
    new_frames = raw_frames()
    body = tcp(conversation()[3])
    new_frames.append(
        in_frame(len(new_frames) + 1, conversation()[3], ip_header(conversation()[3], body[:24], 0x2000, 77))
    )
    skipped: Counter[str] = Counter()
    noted: list[tuple[str, str, int]] = []

    assert (
        list(segments(new_frames, skipped, note_skipped=lambda *arguments: noted.append(arguments))) == conversation()
    )
    assert skipped == {"incomplete_fragments": 1}
    assert noted == [(new_frames[0].capture, "incomplete_fragments", 1)]


def test_a_link_type_that_cannot_be_read_is_one_error_per_capture() -> None:
    new_frames = [Frame(number, 0, 147, b"\0" * 60, 60, name) for name in ("a.pcap", "b.pcap") for number in (1, 2, 3)]
    new_frames.insert(1, Frame(2, 0, 1, b"\0" * 60, 60, "a.pcap"))
    skipped: Counter[str] = Counter()

    errors = only(dissect(new_frames, skipped=skipped), CaptureError)

    assert [(error.capture, error.frames, error.offset) for error in errors] == [
        ("a.pcap", 0, None),
        ("b.pcap", 0, None),
    ]
    assert all("147" in error.message for error in errors)
    assert skipped["unsupported_link_type"] == 6


def test_notices_stay_in_their_place() -> None:
    new_frames = raw_frames()
    drops = CaptureDrops("a.pcap", 0, None, 3)

    events = list(dissect([*new_frames[:4], drops, *new_frames[4:]]))

    assert names(events) == [
        "ConnectionOpened", "PacketEvent", "CaptureDrops", "PacketEvent", "ConnectionEnding", "ConnectionClosed",
    ]  # fmt: skip


def test_options_and_dissector_are_handed_on() -> None:
    dissector = Dissector(Options(detect=False))
    options = Options(ports={1883: "tls"})

    assert only(dissect(raw_frames(), dissector=dissector), ConnectionOpened)
    assert dissector.packets == 2
    assert only(dissect(raw_frames(), options), PacketEvent)[0].connection.transport == "tcp"


ORDER = """
a packet belongs to the frame that completed it
    1883 |
    opened; > raw 320900; > raw 03612f6200036f6e; > pingreq & pingreq; > raw c0003209; > raw 0003612f6200036f6ec000 |
    opened tcp; > connect 4; < connack 5; > publish a/b 7; > pingreq 8; > pingreq 8; > pingreq 9; > publish a/b 10;
      > pingreq 10; closed capture_end by nobody |
    3.1.1 by CONNECT; .4:50000 to .2:1883; by TCP handshake; connected as dev; client waits for 3
topics are resolved per direction and time
    1883 5.0 |
    opened; > publish client/1 topic_alias=1; < publish server/1 topic_alias=1;
      > publish - topic_alias=1 & publish client/2 topic_alias=1 & publish - topic_alias=1;
      < publish - topic_alias=1 & publish - topic_alias=9 |
    opened tcp; > connect 4; < connack 5; > publish client/1 6; < publish server/1 7; > publish client/1 8;
      > publish client/2 8; > publish client/2 8; < publish server/1 9; < publish ? 9; closed capture_end by nobody |
    5.0 by CONNECT; .4:50000 to .2:1883; by TCP handshake; connected as dev
a second CONNECT of another version is read in it
    1883 5.0 |
    handshake; > connect 3.1.1; < raw 20020000; > connect 5.0 client=again; < connack; > publish a topic_alias=3 |
    opened tcp; > connect 4; < connack 5; > connect 6; < connack 7; > publish a 8; closed capture_end by nobody |
    5.0 by CONNECT; .4:50000 to .2:1883; by TCP handshake; connected as again
a packet that breaks its layout is not applied
    1883 | opened; > raw 820600050020 6162 |
    opened tcp; > connect 4; < connack 5; > subscribe field_overrun unfinished 6; closed capture_end by nobody |
    3.1.1 by CONNECT; .4:50000 to .2:1883; by TCP handshake; connected as dev
"""


@pytest.mark.parametrize(("setting", "story", "expected", "known"), cases_of(ORDER, *SCENE))
def test_frames_numbers_and_topics(setting: str, story: str, expected: list[str], known: list[str]) -> None:
    check_scene(setting, story, expected, known)


def test_packets_and_connections_are_numbered_in_the_order_of_appearance() -> None:
    tape = Tape()
    first = Talk(tape, 9999, 40_001).handshake()
    other = Talk(tape, 22, 40_002).handshake()
    second = Talk(tape, 1883, 40_003).handshake()
    other.client(b"SSH-2.0-x\r\n")
    second.client(connect())
    first.client(connect())
    second.client(framed(0x36, string("a"), b"\0\x07"))
    first.client(PINGREQ)

    events = read(tape)

    assert [event.connection.number for event in only(events, ConnectionOpened)] == [0, 1]
    packets = [event for event in events if isinstance(event, PacketEvent | MalformedEvent)]
    assert [(event.number, event.connection.number, event.type) for event in packets] == [
        (0, 0, "connect"),
        (1, 1, "connect"),
        (2, 0, "publish"),
        (3, 1, "pingreq"),
    ]
    assert isinstance(packets[2], MalformedEvent)


def test_an_event_is_yielded_before_its_packet_is_applied() -> None:
    talk = opened().tell("> publish; < puback; > subscribe & pingreq; < suback")
    seen = []
    for event in dissect_segments(talk.tape.segments):
        if isinstance(event, PacketEvent):
            side = event.connection.client_side
            seen.append((event.type, event.connection.phase, side.packets, sorted(side.exchanges), side.ping_packet))

    assert seen == [
        ("connect", "opening", 0, [], None),
        ("connack", "connecting", 1, [], None),
        ("publish", "connected", 1, [], None),
        ("puback", "connected", 2, [3], None),
        ("subscribe", "connected", 2, [], None),
        ("pingreq", "connected", 3, [7], None),
        ("suback", "connected", 4, [7], 5),
    ]


def test_version_and_client_identifier_are_known_when_connect_is_shown() -> None:
    talk = opened(level=5)

    for event in dissect_segments(talk.tape.segments):
        if isinstance(event, PacketEvent):
            assert event.connection.client_identifier == "dev"
            assert event.connection.version is V5


def test_a_malformed_packet_is_shown_before_it_is_applied_too() -> None:
    talk = opened()
    talk.client(framed(0x36, string("a"), b"\0\x07", b"x"))
    seen = []
    for event in dissect_segments(talk.tape.segments):
        if isinstance(event, MalformedEvent):
            seen.append((event.topic, dict(event.connection.client_side.exchanges)))
            connection = event.connection

    assert seen == [("a", {})]
    assert list(connection.client_side.exchanges) == [7]


def test_other_packets_have_no_topic() -> None:
    assert [event.topic for event in only(opened().events(), PacketEvent)] == [None, None]


def test_packets_in_a_websocket_are_framed_by_mqtt_and_not_by_its_frames() -> None:
    talk = websocket()
    raw = wire(PUBLISH_1)
    talk.client(frame(raw[:3], key=MASK))
    split = talk.client(frame(raw[3:] + wire(PINGREQ), key=MASK))
    talk.close()

    events = talk.events()

    assert frames(events)[2:] == [("publish", split), ("pingreq", split)]
    assert names(events)[-1] == "ConnectionClosed"


def test_a_websocket_that_loses_its_framing_says_how_much_was_not_read() -> None:
    talk = websocket()
    talk.client(frame(wire(PUBLISH_1)[:4], key=MASK))
    talk.client(b"\xf3\xff" + b"x" * 20)
    talk.client(b"y" * 5)
    talk.close()

    events = talk.events()

    assert [(event.unparsed.reason, event.unparsed.length) for event in only(events, UnparsedEvent)] == [
        ("websocket", 4), ("websocket", 22), ("websocket", 5),
    ]  # fmt: skip
    assert not only(events, MalformedEvent)
    connection = only(events, ConnectionClosed)[0].connection
    assert connection.client_side.gapped
    problems = connection.details["problems"]
    assert isinstance(problems, list)
    assert problems[0]["reason"] == "reserved_opcode"


def test_a_websocket_that_breaks_off_says_so_once() -> None:
    talk = websocket()
    talk.client(frame(wire(PUBLISH_1), key=MASK)[:-2])
    talk.fin("client")

    events = talk.events()

    problems = only(events, ConnectionClosed)[0].connection.details["problems"]
    assert isinstance(problems, list)
    assert [problem["reason"] for problem in problems] == ["truncated_frame"]
    assert [str(event.malformed.reason) for event in only(events, MalformedEvent)] == ["truncated"]


def test_the_quick_way_and_the_long_way_give_the_same_events() -> None:
    tape = mixed_tape()
    slow = Dissector()

    quick = [shown(event) for event in dissect_segments(tape.segments)]
    long = [shown(event) for segment in tape.segments for event in slow.feed(segment)]
    long += [shown(event) for event in slow.close()]

    assert quick == long
    assert set(names(list(dissect_segments(tape.segments)))) == {
        "ConnectionOpened", "PacketEvent", "MalformedEvent", "GapEvent", "UnparsedEvent", "ConnectionEnding",
        "ConnectionClosed",
    }  # fmt: skip
