"""Bytes that the capture lost, framing that was lost, and packets that are found again."""

from __future__ import annotations

from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.flow_state import MQTT, SEARCHING, FlowState
from mqttscope.events import (
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt import Publish
from tests.dissect.scenes import frames, kinds, opened
from tests.dissect.talk import (
    PINGREQ,
    PINGRESP,
    PUBACK_3,
    PUBLISH_1,
    START,
    V5,
    Talk,
    connect,
    names,
    only,
    read,
    wire,
)


def test_a_gap_is_an_event_and_marks_its_direction() -> None:
    talk = opened().tell("> pingreq; lose client 10; < pingresp; > publish & pingreq; +10; < puback; close")

    events = talk.events()

    (gap,) = only(events, GapEvent)
    assert (gap.length, gap.direction, gap.reason) == (10, "client_to_server", "not_captured")
    connection = gap.connection
    assert (connection.gaps, connection.gap_bytes) == (1, 10)
    assert (connection.client_side.gapped, connection.server_side.gapped) == (True, False)
    assert kinds(events).count("publish") == 1
    assert not only(events, UnparsedEvent)


def test_lost_bytes_of_a_payload_leave_a_packet_that_says_so() -> None:
    talk = opened()
    raw = wire(Publish(topic_name="a", payload=b"x" * 50))
    talk.client(raw[:20])
    talk.lose("client", len(raw) - 30)
    talk.server(PINGRESP)
    talk.client(raw[-10:], PINGREQ)
    talk.tell("+10; < pingresp")

    events = talk.events()

    (packet,) = [event.packet for event in only(events, PacketEvent) if event.type == "publish"]
    assert isinstance(packet, Publish)
    assert (packet.payload, packet.missing) == (b"x" * 15, 35)
    assert [name for name in names(events) if name != "PacketEvent"][1] == "GapEvent"
    assert names(events).index("GapEvent") == names(events).index("ConnectionOpened") + 4
    assert kinds(events)[-2:] in (["pingreq", "pingresp"], ["pingresp", "pingreq"])
    assert not only(events, UnparsedEvent)


def test_a_connect_of_which_only_the_beginning_was_captured_says_the_version() -> None:
    talk = Talk().handshake()
    raw = wire(connect(5, "a-long-client-identifier"))
    talk.client(raw[:16], missing=len(raw) - 16)
    talk.server(b"\x20\x03\0\0\0")

    events = talk.events()

    assert names(events) == ["ConnectionOpened", "GapEvent", "UnparsedEvent", "PacketEvent", "ConnectionClosed"]
    connection = only(events, PacketEvent)[0].connection
    assert (connection.version, connection.version_known, connection.version_evidence) == (V5, True, "CONNECT")
    assert connection.client_identifier is None


def test_framing_that_is_lost_is_found_again() -> None:
    talk = opened()
    bad = talk.client(b"\x30\xff\xff\xff\xff\x01", b"rubbish" * 3)
    good = talk.client(PUBLISH_1)
    later = talk.client(PINGREQ)

    events = talk.events()

    assert frames(events)[2:] == [("publish", bad), ("publish", good), ("pingreq", later)]
    assert only(events, MalformedEvent)[0].malformed.reason == "remaining_length_too_long"
    assert only(events, UnparsedEvent)[0].unparsed.reason == "resynchronised"
    assert only(events, UnparsedEvent)[0].connection.client_side.gapped


def test_packets_found_late_keep_the_frames_that_completed_them() -> None:
    talk = Talk().tell("ack client; ack server")
    raw = wire(PUBLISH_1)
    begun = talk.client(b"end of a payload", raw[:4])
    ended = talk.client(raw[4:])
    server = talk.server(PUBACK_3)
    ping = talk.client(PINGREQ)
    pong = talk.server(PINGRESP)
    last = talk.client(PINGREQ)
    dissector = Dissector()
    events = read(talk.tape, dissector=dissector)

    (unparsed,) = only(events, UnparsedEvent)
    assert (unparsed.frame, unparsed.unparsed.length) == (begun, 16)
    client = [(e.type, e.frame) for e in only(events, PacketEvent) if e.direction == "client_to_server"]
    assert client == [("publish", ended), ("pingreq", ping), ("pingreq", last)]
    assert [(e.type, e.frame) for e in only(events, PacketEvent) if e.direction != "client_to_server"] == [
        ("puback", server),
        ("pingresp", pong),
    ]
    assert [event.timestamp_ns for event in only(events, PacketEvent) if event.type == "puback"] == [
        START + server * 1_000_000
    ]


def test_packets_behind_a_gap_keep_the_frames_that_completed_them() -> None:
    talk = opened().tell("lose client 9; < pingresp")
    waiting = talk.client(PUBLISH_1)
    talk.tape.wait(10)
    found = talk.client(PINGREQ)
    after = talk.client(PINGREQ)

    events = talk.events()

    assert [(e.type, e.frame) for e in only(events, PacketEvent) if e.direction == "client_to_server"][1:] == [
        ("publish", waiting),
        ("pingreq", found),
        ("pingreq", after),
    ]


def test_a_dialogue_that_found_its_packets_keeps_nothing_of_the_search() -> None:
    talk = Talk().tell("ack client; ack server; > publish")
    dissector = Dissector()
    phases = []
    for segment in talk.tape.segments:
        list(dissector.feed(segment))
    entry = dissector.flows.entry(talk.keys["client"])
    assert entry is not None
    dialogue = entry[0].context
    assert isinstance(dialogue, FlowState)
    phases.append((dialogue.phase, len(dialogue.client_arrivals)))
    done = len(talk.tape.segments)
    talk.tell("< puback & pingresp; > pingreq")
    for segment in talk.tape.segments[done:]:
        list(dissector.feed(segment))
    phases.append((dialogue.phase, len(dialogue.client_arrivals) + len(dialogue.server_arrivals)))

    assert phases == [(SEARCHING, 1), (MQTT, 0)]


def test_a_packet_above_the_limit_is_passed_over_and_said() -> None:
    talk = opened()
    talk.client(Publish(topic_name="a", payload=b"x" * 5000))
    talk.client(PINGREQ)

    events = talk.events(Options(max_packet_bytes=1000))

    (found,) = only(events, UnparsedEvent)
    assert (found.unparsed.reason, found.unparsed.length) == ("too_large", 5006)
    assert kinds(events) == ["connect", "connack", "pingreq"]


def test_a_lost_connect_is_known_from_acknowledgments_where_the_syn_is_lost_as_well() -> None:
    talk = Talk()
    talk.position["client"] += 1  # the SYN is lost, and its answer was captured after what answers that
    talk.position["server"] += 1
    talk.ack("client")
    talk.position["server"] -= 1
    talk.tell("server_opens; lose client 20; ack server; < connack; ack client; > pingreq")

    assert [(gap.length, gap.reason) for gap in only(talk.events(), GapEvent)] == [(20, "not_captured")]


def test_a_lost_connack_is_known_from_acknowledgments_where_its_syn_is_lost_as_well() -> None:
    talk = Talk().tell("client_opens")
    talk.position["server"] += 1
    talk.tell("ack client; > connect; lose server 4; ack client; > pingreq; < pingresp; ack client")

    assert [(gap.length, gap.reason) for gap in only(talk.events(), GapEvent)] == [(4, "not_captured")]


def test_what_waits_is_given_up_while_nothing_comes() -> None:
    talk = opened().tell("lose client 10; > pingreq; ack server")
    dissector = Dissector()
    told = [event for segment in talk.tape.segments for event in dissector.feed(segment)]

    later = list(dissector.advance(talk.tape.segments[-1].timestamp_ns + 10**9))

    assert not only(told, GapEvent)
    assert [event.length for event in only(later, GapEvent)] == [10]
