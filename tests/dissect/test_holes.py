"""Bytes that the capture lost, framing that was lost, and packets that are found again."""

from __future__ import annotations

import pytest

from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.flow_state import MQTT, SEARCHING, FlowState
from mqttscope.events import GapEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt import Publish
from tests.dissect.scenes import SCENE, check_scene, kinds, opened
from tests.dissect.talk import PINGREQ, PINGRESP, V5, Talk, connect, names, only, wire
from tests.tables import cases_of

HOLES = """
a gap is an event and marks its direction
    1883 | opened; > pingreq; lose client 10; < pingresp; > publish & pingreq; +10; < puback; close |
    opened tcp; > connect 4; < connack 5; > pingreq 6; < pingresp 7; > gap 10 not_captured; > publish a/b 8;
      > pingreq 8; < puback 9; ending 10; closed fin by client, then fin 11 |
    3.1.1 by CONNECT; .4:50000 to .2:1883; by TCP handshake; connected as dev; gaps 1 10; client gapped
framing that is lost is found again
    1883 | opened; > raw 30ffffffff01727562626973687275626269736872756262697368; > publish; > pingreq |
    opened tcp; > connect 4; < connack 5; > publish ? remaining_length_too_long unfinished 6;
      > unparsed 22 resynchronised 6; > publish a/b 7; > pingreq 8; closed capture_end by nobody |
    3.1.1 by CONNECT; .4:50000 to .2:1883; by TCP handshake; connected as dev; client gapped; client waits for 3
packets found late keep the frames that completed them
    1883 |
    ack client; ack server; > raw 656e64206f662061207061796c6f616432090003; > raw 612f6200036f6e; < puback; > pingreq;
      < pingresp; > pingreq |
    opened tcp; > unparsed 16 resynchronised 3; > publish a/b 4; < puback 5; > pingreq 6; < pingresp 7; > pingreq 8;
      closed capture_end by nobody |
    3.1.1 guessed by a PUBLISH that is well formed in 3.1.1 only; .4:50000 to .2:1883; guessed by port; opening;
      client gapped; no handshake
packets behind a gap keep the frames that completed them
    1883 | opened; lose client 9; < pingresp; > publish; +10; > pingreq; > pingreq |
    opened tcp; > connect 4; < connack 5; < pingresp 6; > gap 9 not_captured; > publish a/b 7; > pingreq 8; > pingreq 9;
      closed capture_end by nobody |
    3.1.1 by CONNECT; .4:50000 to .2:1883; by TCP handshake; connected as dev; gaps 1 9; client gapped;
      client waits for 3
a lost CONNECT is known from acknowledgments where the SYN is lost as well
    1883 |
    lose client 1; lose server 1; ack client; lose server -1; server_opens; lose client 20; ack server; < connack;
      ack client; > pingreq |
    opened tcp; < connack 4; > gap 20 not_captured; > pingreq 6; closed capture_end by nobody |
    3.1.1 guessed by a CONNACK that is well formed in 3.1.1 only; .4:50000 to .2:1883; by TCP handshake; connected;
      gaps 1 20; client gapped
a lost CONNACK is known from acknowledgments where its SYN is lost as well
    1883 |
    client_opens; lose server 1; ack client; > connect; lose server 4; ack client; > pingreq; < pingresp; ack client |
    opened tcp; > connect 3; > pingreq 5; < gap 4 not_captured; < pingresp 7; closed capture_end by nobody |
    3.1.1 by CONNECT; .4:50000 to .2:1883; by TCP handshake; connecting as dev; gaps 1 4; server gapped
"""


@pytest.mark.parametrize(("setting", "story", "expected", "known"), cases_of(HOLES, *SCENE))
def test_what_is_said_of_holes(setting: str, story: str, expected: list[str], known: list[str]) -> None:
    check_scene(setting, story, expected, known)


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

    (event,) = only(events, UnparsedEvent)
    assert (event.unparsed.reason, event.unparsed.length) == ("too_large", 5006)
    assert kinds(events) == ["connect", "connack", "pingreq"]


def test_what_waits_is_given_up_while_nothing_comes() -> None:
    talk = opened().tell("lose client 10; > pingreq; ack server")
    dissector = Dissector()
    events = [event for segment in talk.tape.segments for event in dissector.feed(segment)]

    later = list(dissector.advance(talk.tape.segments[-1].timestamp_ns + 10**9))

    assert not only(events, GapEvent)
    assert [event.length for event in only(later, GapEvent)] == [10]
