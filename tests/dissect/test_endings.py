"""Ends of connections: who ended first, what is left then, and the border to the next connection."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import (
    ConnectionClosed,
    ConnectionEnding,
    ConnectionOpened,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt import Disconnect
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.net.segment import ACK, FIN
from tests.dissect.scenes import SCENE, check_scene, kinds, mixed_tape, opened
from tests.dissect.talk import PINGREQ, PUBLISH_1, SECOND, START, Talk, Tape, names, only, read
from tests.each import each
from tests.tables import cases_of

ENDINGS = """
the client ends first
    1883 | opened; close client | opened tcp; > connect 4; < connack 5; ending 6; closed fin by client, then fin 7
the server ends first
    1883 | opened; close server | opened tcp; > connect 4; < connack 5; ending 6; closed fin by server, then fin 7
the client resets
    1883 | opened; reset client | opened tcp; > connect 4; < connack 5; ending 6; closed reset by client
the server resets both sides at once
    1883 | opened; reset server | opened tcp; > connect 4; < connack 5; ending 6; closed reset by server
a reset answers the client's end
    1883 | opened; fin client; reset server |
    opened tcp; > connect 4; < connack 5; ending 6; closed fin by client, then reset 7
the capture ends
    1883 | opened | opened tcp; > connect 4; < connack 5; closed capture_end by nobody
the capture ends after one side did
    1883 | opened; fin server | opened tcp; > connect 4; < connack 5; ending 6; closed fin by server
the endpoints are used again
    1883 | opened; again |
    opened tcp; > connect 4; < connack 5; closed port_reused by nobody; opened tcp; closed capture_end by nobody
a disconnect is told apart from who closed
    1883 | opened; > disconnect; close server |
    opened tcp; > connect 4; < connack 5; > disconnect 6; ending 7;
      closed fin by server, then fin 8, disconnected by client
a reset of the client, which sent FIN, is no end of the server
    1883 | opened; fin client; +100; reset client | opened tcp; > connect 4; < connack 5; ending 6; closed fin by client
a reset of the server, which sent FIN, is no end of the client
    1883 | opened; fin server; +100; reset server | opened tcp; > connect 4; < connack 5; ending 6; closed fin by server
a reset of the server that answers a FIN is its end
    1883 | opened; fin client; +100; reset server |
    opened tcp; > connect 4; < connack 5; ending 6; closed fin by client, then reset 7
a reset of the client that answers a FIN is its end
    1883 | opened; fin server; +100; reset client |
    opened tcp; > connect 4; < connack 5; ending 6; closed fin by server, then reset 7
a packet breaks off, and its sender ends: it is to blame
    1883 | opened; > raw 32090003612f6200036f; fin client |
    opened tcp; > connect 4; < connack 5; > publish ? truncated unfinished 7; ending 7; closed fin by client
the last packet before the end comes before the end
    1883 | opened; > raw 32090003612f6200036f; close |
    opened tcp; > connect 4; < connack 5; > publish ? truncated unfinished 7; ending 7; closed fin by client, then fin 8
a packet breaks off, and the capture ends: nobody knows
    1883 | opened; > raw 32090003612f6200036f |
    opened tcp; > connect 4; < connack 5; > unparsed 10 capture_end 6 in publish; closed capture_end by nobody
a packet breaks off with a reset: the rest may be on its way
    1883 | opened; > raw 32090003612f6200036f; reset server |
    opened tcp; > connect 4; < connack 5; ending 7; > unparsed 10 reset 7 in publish; closed reset by server
a packet breaks off, and the endpoints are used again
    1883 | opened; > raw 32090003612f6200036f; again |
    opened tcp; > connect 4; < connack 5; > unparsed 10 port_reused 7 in publish; closed port_reused by nobody;
      opened tcp; closed capture_end by nobody
a packet breaks off, and only the other side ended
    1883 | opened; > raw 32090003612f6200036f; fin server |
    opened tcp; > connect 4; < connack 5; ending 7; > unparsed 10 capture_end 7 in publish; closed fin by server
"""


@pytest.mark.parametrize(("setting", "story", "expected"), cases_of(ENDINGS, *SCENE[:3]))
def test_who_ended_and_what_is_left(setting: str, story: str, expected: list[str]) -> None:
    check_scene(setting, story, expected)


def test_what_tcp_did_is_told_at_the_end() -> None:
    talk = opened()
    again = talk.tape.segments[3]
    talk.tape.segments.append(dataclasses.replace(again, frame=6, timestamp_ns=again.timestamp_ns + SECOND))
    talk.close()

    connection = only(talk.events(), ConnectionClosed)[0].connection

    tcp = connection.details["tcp"]
    assert isinstance(tcp, dict)
    assert tcp["client_to_server"]["retransmitted_segments"] == 1
    assert tcp["server_to_client"]["retransmitted_segments"] == 0


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("ff ff ff", "packet_type_reserved"),
        ("f0", "packet_type_reserved"),
        ("0f ff", "packet_type_reserved"),
        ("36 05", "qos_invalid"),
        ("61", "fixed_header_flags"),
        ("c0 05", "remaining_length_wrong"),
        ("40 03 00", "remaining_length_wrong"),
        ("30 05", ""),
        ("62", ""),
    ],
)
@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_packet_is_malformed_where_its_first_byte_is(rest: str, reason: str, reset: bool) -> None:
    """Whatever the capture does not have of it: no packet of MQTT 3.1.1 begins so."""
    talk = opened()
    talk.client(bytes.fromhex(rest))
    if reset:
        talk.reset("server")

    events = talk.events()

    assert [event.malformed.reason for event in only(events, MalformedEvent)] == [reason] * bool(reason)
    assert len(only(events, UnparsedEvent)) == (not reason)


@pytest.mark.parametrize(
    ("rest", "reason"),
    [("0a c0", "packet_type_reserved"), ("f0", "packet_type_reserved"), ("36 05", "truncated"), ("c0", "truncated")],
)
def test_a_sender_that_closes_inside_a_packet_of_a_reserved_type(rest: str, reason: str) -> None:
    talk = opened()
    talk.client(bytes.fromhex(rest))
    talk.close()

    assert [event.malformed.reason for event in only(talk.events(), MalformedEvent)] == [reason]


def test_a_packet_without_its_most_important_bytes_is_unparsed() -> None:
    talk = opened()
    talk.client(b"\x82\x06\0\x05", missing=4)
    talk.client(PINGREQ)

    events = talk.events()

    (event,) = only(events, UnparsedEvent)
    assert (event.unparsed.reason, event.unparsed.packet_type, event.unparsed.missing) == ("gap", 8, 4)
    assert kinds(events)[-1] == "pingreq"


def test_the_same_endpoints_used_again_are_another_connection() -> None:
    tape = Tape()
    first = opened(tape=tape, level=5).tell("close")
    tape.wait(1)
    second = first.again()
    second.tell("> connect client=other; > publish; close server")

    events = read(tape)

    assert [event.connection.number for event in only(events, ConnectionClosed)] == [0, 1]
    assert [(e.connection.number, e.connection.client_identifier) for e in only(events, PacketEvent)] == [
        (0, "dev"), (0, "dev"), (1, "other"), (1, "other"),
    ]  # fmt: skip
    assert [event.connection.version.text for event in only(events, ConnectionClosed)] == ["5.0", "3.1.1"]


def test_several_captures_in_one_run_keep_their_names_and_their_numbers_go_on() -> None:
    tape, two = Tape("one.pcap"), Tape("two.pcap", START + 3600 * SECOND)
    first = opened(tape=tape)
    second = Talk(two)
    second.position = dict(first.position)
    second.client(PUBLISH_1)
    opened(tape=two, client_port=50_001).tell("close")

    events = list(dissect_segments([*tape.segments, *two.segments]))

    packets = only(events, PacketEvent)
    assert [(e.capture, e.frame, e.connection.number, e.number) for e in packets] == [
        ("one.pcap", 4, 0, 0),
        ("one.pcap", 5, 0, 1),
        ("two.pcap", 1, 0, 2),
        ("two.pcap", 5, 1, 3),
        ("two.pcap", 6, 1, 4),
    ]
    assert packets[2].connection.capture == "one.pcap"


def test_notices_of_the_capture_pass_through_at_their_place() -> None:
    talk = opened()
    drops, error = CaptureDrops("a.pcap", 0, 9, 1), CaptureError("a.pcap", "it ends inside a frame", 99, 5)

    events = list(dissect_segments([*talk.tape.segments[:4], drops, *talk.tape.segments[4:], error]))

    assert names(events) == [
        "ConnectionOpened", "PacketEvent", "CaptureDrops", "PacketEvent", "CaptureError", "ConnectionClosed",
    ]  # fmt: skip
    assert drops in events
    assert error in events


def test_each_connection_opens_and_closes_once_around_its_events() -> None:
    state: dict[int, str] = {}
    for event in dissect_segments(mixed_tape().segments):
        number = event.connection.number  # type: ignore[union-attr]
        if isinstance(event, ConnectionOpened):
            assert number not in state
            assert number == len(state)
            state[number] = "open"
        elif isinstance(event, ConnectionClosed):
            assert state[number] == "open"
            state[number] = "closed"
        else:
            assert state[number] == "open"

    assert set(state.values()) == {"closed"}
    assert len(state) == 4


OTHER = {"client": "server", "server": "client"}


@dataclass
class Truth:
    """How a connection really ended."""

    by: str
    how: str
    frame: int
    also: str | None
    """How the other side ended, ``None`` where it did not."""
    polite: bool


def ending(chance: random.Random) -> tuple[Talk, Truth]:
    """A connection that ends somehow: FIN or RST of one side, then one, the other or both again, or nothing."""
    talk = opened()
    first = chance.choice(("client", "server"))
    second = OTHER[first]
    polite = first == "client" and chance.random() < 0.5
    if polite:
        talk.client(Disconnect())
    if chance.random() < 1 / 3:
        return talk, Truth(first, "reset", talk.reset(first), None, polite)
    frame = talk.fin(first)
    if chance.random() < 0.7:
        talk.ack(second)
    if chance.random() < 0.3:
        talk.position[first] -= 1
        talk.tape.wait(0.3)
        talk.fin(first)
    if second == "server" and chance.random() < 0.3:
        talk.server(PUBLISH_1)
    also = chance.choice((None, "fin", "reset"))
    talk.tape.wait(chance.choice((0.0005, 0.01, 1, 6, 30, 100)))
    if also == "fin":
        talk.fin(second)
    elif also == "reset":
        talk.reset(second)
    if chance.random() < 0.3:
        talk.tape.wait(2)
        talk.reset(first)
    return talk, Truth(first, "fin", frame, also, polite)


@each("seed", range(200))
def test_the_first_end_is_told_as_it_was(seed: int) -> None:
    talk, truth = ending(random.Random(seed))

    events = talk.events()

    (closed,) = only(events, ConnectionClosed)
    (connection_ending,) = only(events, ConnectionEnding)
    connection = closed.connection
    other = connection.also_closed
    assert (connection.closed_how, connection.closed_by) == (truth.how, truth.by)
    assert (connection.closed_frame, connection_ending.frame, closed.frame) == (truth.frame,) * 3
    assert (None if other is None else other.how) == truth.also
    assert (connection.disconnect_by == "client") is truth.polite


def test_an_end_waits_for_what_its_side_said_behind_a_hole() -> None:
    """DISCONNECT was captured, and so was FIN: that a segment before is lost makes neither of them later."""
    talk = opened()
    lost = talk.position["client"]
    talk.tell("lose client 40; > disconnect")
    # The server acknowledges less than the client has sent.
    ahead, talk.position["client"] = talk.position["client"], lost
    talk.ack("server")
    talk.position["client"] = ahead
    frame = talk.fin("client")
    talk.position["client"] = lost
    talk.tape.add(talk.keys["server"], talk.position["server"], lost, FIN | ACK, b"", 0)
    talk.position["client"] = ahead + 1
    talk.position["server"] += 1
    talk.tell("ack client; ack server")

    events = talk.events()

    (connection_ending,) = only(events, ConnectionEnding)
    goodbye = next(event for event in only(events, PacketEvent) if isinstance(event.packet, Disconnect))
    assert (connection_ending.frame, connection_ending.connection.closed_by) == (frame, "client")
    assert events.index(goodbye) < events.index(connection_ending)
    assert names(events)[-2:] == ["ConnectionEnding", "ConnectionClosed"]
