"""TLS whose segments are captured out of order, twice, overlapping, or with bytes missing: what is read of it.

Each connection of a capture has a session of its own, so that one tshark reads many orders.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from random import Random

import pytest

from mqttscope.capture import tls, tls_tshark
from mqttscope.capture.keylog import Keys
from mqttscope.capture.tls import Decryption, Passed, TlsSession
from mqttscope.dissect import Dissector, Options, dissect_segments
from mqttscope.events import Event, GapEvent, PacketEvent
from mqttscope.net.checksum import RIGHT, WRONG
from mqttscope.net.flow import Flow
from mqttscope.net.frame import CaptureError, Plaintext, UndecryptedSession
from mqttscope.net.segment import SYN, Segment, advance
from tests.capture.test_tls import VERSIONS, publish
from tests.dissect.secure import TLS_1_2, TLS_1_3, Secure
from tests.dissect.talk import CONNACK, PINGREQ, PINGRESP, SUBACK, SUBSCRIBE, Talk, connect, only
from tests.each import some

pytestmark = pytest.mark.tshark
FIRST_PORT = 20_000


def conversation(secure: Secure, port: int, chunk: int) -> tuple[Talk, list[list[Segment]]]:
    """A conversation, and its segments with data: flights, each of one side."""
    secure.session = None
    talk = Talk(port=8883, client_port=port).handshake()
    inside = secure.connection(talk, chunk=chunk)
    inside.say("client", connect())
    inside.say("server", CONNACK)
    inside.say("client", SUBSCRIBE, publish(120), PINGREQ, records=2)
    inside.say("server", SUBACK, publish(90), PINGRESP, records=3)
    inside.say("client", publish(10))
    talk.close()
    flights: list[list[Segment]] = []
    for segment in talk.tape.segments:
        if segment.payload and flights and flights[-1][0].key == segment.key:
            flights[-1].append(segment)
        elif segment.payload:
            flights.append([segment])
    return talk, flights


PACKETS = {
    "client_to_server": ["connect", "subscribe", "publish", "pingreq", "publish"],
    "server_to_client": ["connack", "suback", "publish", "pingresp"],
}


def recorded(talk: Talk, flights: Iterable[Segment]) -> list[Segment]:
    """The connection with these segments with data, between its handshake and its end."""
    bare = [segment for segment in talk.tape.segments if not segment.payload]
    return [*bare[:3], *flights, *bare[3:]]


def whole_of(talk: Talk, flights: list[list[Segment]]) -> list[Segment]:
    """The connection as it was."""
    return recorded(talk, (segment for flight in flights for segment in flight))


def tape(connections: Iterable[list[Segment]]) -> list[Segment]:
    """One capture of all connections, one after the other."""
    segments = [segment for connection in connections for segment in connection]
    start_ns = segments[0].timestamp_ns
    return [
        replace(segment, frame=number, timestamp_ns=start_ns + number * 1_000_000)
        for number, segment in enumerate(segments, 1)
    ]


def decrypted(segments: list[Segment], keys: bytes) -> list[Passed]:
    return list(Decryption(Keys(keys)).join(iter(segments)))


def events(items: list[Passed]) -> list[Event]:
    return list(dissect_segments(items, dissector=Dissector(Options(decrypting=True))))


def reasons(items: list[Passed]) -> list[str]:
    return [item.reason for item in items if isinstance(item, UndecryptedSession)]


def kinds(items: list[Passed]) -> dict[int, dict[str, list[str]]]:
    """The types of the packets of each connection and direction, in order."""
    texts: dict[int, dict[str, list[str]]] = {}
    for event in events(items):
        if isinstance(event, PacketEvent):
            directions = texts.setdefault(event.connection.number, {name: [] for name in PACKETS})
            directions[str(event.direction)].append(event.type)
        assert not isinstance(event, GapEvent)
    return texts


def expect_all(connections: list[list[Segment]], secure: Secure) -> None:
    """All packets of each connection are read, once and in order."""
    items = decrypted(tape(connections), secure.keylog.read_bytes())
    assert reasons(items) == []
    assert kinds(items) == dict.fromkeys(range(len(connections)), PACKETS)


@VERSIONS
def test_every_order_of_the_segments_of_both_sides(version: ssl.TLSVersion) -> None:
    """The last long flights, of four segments and of four, captured while they cross each other."""
    secure, connections = Secure(version), []
    for number, (first, second) in enumerate(
        zip(permutations(range(4)), reversed([*permutations(range(4))]), strict=True)
    ):
        talk, flights = conversation(secure, FIRST_PORT + number, 90)
        *before, up, down, last = flights
        up, down = in_four(up), in_four(down)
        crossed = [
            segment
            for pair in zip([up[at] for at in first], [down[at] for at in second], strict=True)
            for segment in pair
        ]
        connections.append(recorded(talk, [*(segment for flight in before for segment in flight), *crossed, *last]))

    expect_all(connections, secure)


def in_four(flight: list[Segment]) -> list[Segment]:
    """The flight in four segments, which do not end where records do."""
    data = b"".join(segment.payload for segment in flight)
    size = -(-len(data) // 4)
    return [
        replace(flight[0], sequence=advance(flight[0].sequence, start), payload=data[start : start + size])
        for start in range(0, len(data), size)
    ]


@VERSIONS
def test_damaged_segments_are_not_decrypted(version: ssl.TLSVersion) -> None:
    """Each segment was damaged on the way, and its sender sent it again."""
    secure = Secure(version)
    talk, flights = conversation(secure, FIRST_PORT, 90)
    segments = [
        replace(segment, checksum=checksum, payload=payload)
        for segment in whole_of(talk, flights)
        for checksum, payload in [(WRONG, damaged(segment.payload)), (RIGHT, segment.payload)]
        if checksum == RIGHT or payload
    ]

    expect_all([segments], secure)


def damaged(payload: bytes) -> bytes:
    """The bytes with one bit flipped."""
    return payload[:-1] + bytes([payload[-1] ^ 4]) if payload else b""


def disordered(flight: list[Segment], random: Random) -> list[Segment]:
    """The segments of a flight in another order, some of them twice, and some that overlap two of them."""
    more = [segment for segment in flight if random.random() < 0.3]
    for first, second in pairwise(flight):
        if random.random() < 0.3:
            cut = random.randrange(len(first.payload))
            both = first.payload[cut:] + second.payload[: random.randrange(len(second.payload) + 1)]
            more.append(replace(first, sequence=advance(first.sequence, cut), payload=both))
    return random.sample([*flight, *more], len(flight) + len(more))


@VERSIONS
def test_any_order_within_a_flight_with_duplicates_and_overlaps(version: ssl.TLSVersion) -> None:
    """Also of the handshake."""
    secure, random, connections = Secure(version), Random(7), []
    for number in range(60):
        talk, flights = conversation(secure, FIRST_PORT + number, random.randrange(3, 200))
        shuffled = (segment for flight in flights for segment in disordered(flight, random))
        connections.append(recorded(talk, shuffled))

    expect_all(connections, secure)


@VERSIONS
def test_frames_of_two_queues(version: ssl.TLSVersion) -> None:
    """The answer is captured before what it answers: tshark gets the hellos first all the same."""
    secure, connections = Secure(version), []
    for number in range(4):
        talk, flights = conversation(secure, FIRST_PORT + number, 300)
        order = [*range(len(flights))]
        order[number : number + 2] = reversed(order[number : number + 2])
        connections.append(recorded(talk, [segment for at in order for segment in flights[at]]))

    expect_all(connections, secure)


@VERSIONS
def test_a_hello_in_tiny_segments(version: ssl.TLSVersion) -> None:
    secure = Secure(version)
    connections = []
    for number, size in enumerate((1, 2, 5, 6)):
        talk, flights = conversation(secure, FIRST_PORT + number, size)
        connections.append(whole_of(talk, flights))

    expect_all(connections, secure)


@VERSIONS
def test_a_connection_with_the_same_ports_and_one_that_sends_its_hello_again(version: ssl.TLSVersion) -> None:
    """A hello that is sent again begins no session; one of another connection on the same ports does."""
    secure = Secure(version)
    talk, flights = conversation(secure, FIRST_PORT, 0)
    first = recorded(
        talk, [*flights[0], *flights[0], *(segment for flight in flights[1:] for segment in flight), *flights[0]]
    )
    second, flights = conversation(secure, FIRST_PORT, 0)
    again = [
        replace(
            segment, sequence=advance(segment.sequence, 10**6), acknowledgment=advance(segment.acknowledgment, 10**6)
        )
        for segment in whole_of(second, flights)
    ]
    items = decrypted(tape([first, again]), secure.keylog.read_bytes())

    assert kinds(items) == {0: PACKETS, 1: PACKETS}
    assert reasons(items) == []


def without(segments: list[Segment], lost: Segment) -> list[Segment]:
    """The capture without a segment."""
    return [segment for segment in segments if segment is not lost]


@VERSIONS
@pytest.mark.parametrize(("flight", "side"), some([(-3, "client"), (-2, "server")], several=True))
def test_what_follows_a_gap_is_said_to_be_not_decrypted(version: ssl.TLSVersion, flight: int, side: str) -> None:
    secure = Secure(version)
    talk, flights = conversation(secure, FIRST_PORT, 60)
    whole = whole_of(talk, flights)
    keys = secure.keylog.read_bytes()

    (complete,) = kinds(decrypted(tape([whole]), keys)).values()
    items = decrypted(tape([without(whole, flights[flight][0])]), keys)

    assert complete == PACKETS
    assert reasons(items) == [f"the {side} sent data after a gap"]
    (gap,) = only(events(items), GapEvent)
    assert gap.length == 60
    read = [event.packet.raw for event in only(events(items), PacketEvent)]
    everything = [event.packet.raw for event in only(events(decrypted(tape([whole]), keys)), PacketEvent)]
    assert 3 < len(read) < len(everything)
    assert all(packet in everything for packet in read)


@VERSIONS
@pytest.mark.parametrize(
    ("chunk", "flight", "place", "expected", "gaps"),
    [
        pytest.param(0, -1, -1, [], 1, id="at the end: the gap itself is reported where all gaps are"),
        pytest.param(100, 1, 0, ["bytes of the server are missing in the capture"], 1, id="in the handshake"),
    ],
)
def test_a_gap_elsewhere(
    version: ssl.TLSVersion, chunk: int, flight: int, place: int, expected: list[str], gaps: int
) -> None:
    secure = Secure(version)
    talk, flights = conversation(secure, FIRST_PORT, chunk)

    items = decrypted(tape([without(whole_of(talk, flights), flights[flight][place])]), secure.keylog.read_bytes())

    assert reasons(items) == expected
    assert len(only(events(items), GapEvent)) == gaps


@VERSIONS
def test_keys_that_are_not_in_the_key_log_and_keys_that_are_wrong(version: ssl.TLSVersion) -> None:
    secure, other = Secure(version), Secure(version)
    talk, flights = conversation(secure, FIRST_PORT, 0)
    conversation(other, FIRST_PORT, 0)
    whole = tape([whole_of(talk, flights)])
    keys = secure.keylog.read_bytes()
    wrong = b"".join(line[:-8] + b"00000000\n" for line in keys.splitlines() if line.split())

    none, wrongly, right = (decrypted(whole, lines) for lines in (other.keylog.read_bytes(), wrong, keys))

    assert reasons(none) == ["the key log has no keys for this session"]
    assert reasons(wrongly) == ["tshark could decrypt nothing with the keys that the key log has for this session"]
    assert reasons(right) == []


def test_keys_of_one_direction_alone() -> None:
    secure = Secure(TLS_1_3)
    talk, flights = conversation(secure, FIRST_PORT, 0)
    whole = tape([whole_of(talk, flights)])
    lines = secure.keylog.read_bytes().splitlines(keepends=True)

    items = decrypted(whole, b"".join(line for line in lines if not line.startswith(b"SERVER_")))

    assert reasons(items) == [
        "tshark could decrypt no data of the server with the keys that the key log has for this session"
    ]


@VERSIONS
def test_a_session_in_which_nothing_is_said_was_decrypted(version: ssl.TLSVersion) -> None:
    """Of its messages there is none to show, and nothing is wrong with its keys."""
    secure = Secure(version)
    talk = Talk(port=8883).handshake()
    secure.connection(talk)
    talk.close()

    items = decrypted(talk.tape.segments, secure.keylog.read_bytes())

    assert reasons(items) == []
    assert not any(isinstance(item, Plaintext) for item in items)


def test_a_hello_that_is_not_whole_proves_nothing() -> None:
    secure = Secure(TLS_1_2)
    talk, flights = conversation(secure, FIRST_PORT, 30)
    assert len(flights[0]) > 2

    items = decrypted([*talk.tape.segments[:3], *flights[0][:2]], secure.keylog.read_bytes())

    assert reasons(items) == []


def test_an_encrypted_client_hello_may_stand_for_another_session() -> None:
    flow = Flow(b"k" * 12, True, 0, 1, "a", 0, 1, "a")
    session = TlsSession(flow, True, 0, tls.Lane(), 0.0, is_decided=True)
    session.tls.client_hello = True

    assert session.reason(Keys()) == "the key log has no keys for this session"
    session.tls.encrypted_client_hello = True
    assert session.reason(Keys()) == (
        "the key log has no keys for this session with the random of its ClientHello, which may conceal an encrypted"
        " one"
    )


def test_secrets_that_come_later_in_the_captures() -> None:
    """They are looked for once a session has no keys."""
    secure = Secure()
    talk, flights = conversation(secure, FIRST_PORT, 0)
    whole = tape([whole_of(talk, flights)])
    asked: list[int] = []

    def later() -> bytes:
        asked.append(1)
        return secure.keylog.read_bytes()

    assert reasons(list(Decryption(Keys(), later).join(iter(whole)))) == []
    assert reasons(list(Decryption(Keys(), lambda: b"").join(iter(whole)))) != []
    assert asked == [1]


def test_sequence_numbers_that_wrap() -> None:
    secure = Secure()
    talk, flights = conversation(secure, FIRST_PORT, 50)
    shift = 2**32 - 6_000
    connections = [
        [
            replace(
                segment,
                sequence=advance(segment.sequence, shift),
                acknowledgment=advance(segment.acknowledgment, shift),
            )
            if not segment.flags & SYN or segment.acknowledgment
            else replace(segment, sequence=advance(segment.sequence, shift))
            for segment in whole_of(talk, flights)
        ]
    ]

    expect_all(connections, secure)


@VERSIONS
def test_a_connection_that_continues_after_a_reset(version: ssl.TLSVersion) -> None:
    """Both sides ignore it; what follows is decrypted as what came before."""
    secure, talk = Secure(version), Talk(port=8883).handshake()
    inside = secure.connection(talk)
    inside.say("client", connect())
    inside.say("server", CONNACK)
    talk.reset("server")
    for _ in range(2):
        inside.say("client", SUBSCRIBE)
        inside.say("server", SUBACK)
    talk.close()

    items = decrypted(talk.tape.segments, secure.keylog.read_bytes())

    read = [event.packet.raw for event in only(events(items), PacketEvent)]
    assert len(read) == 6
    assert [item.data for item in items if isinstance(item, Plaintext)] == read
    assert len({item.flow for item in items if isinstance(item, Plaintext)}) == 2
    assert reasons(items) == []


def test_not_too_much_waits_for_tshark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that says nothing stops the reading of a file until it is given up."""
    path = tmp_path / "tshark"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    monkeypatch.setattr(tls, "find_tshark", lambda: str(path))
    monkeypatch.setattr(tls, "decrypting", lambda *_: [str(path), "{keys}"])
    monkeypatch.setattr(tls, "MAX_AHEAD", 100)
    monkeypatch.setattr(tls_tshark, "STALL_SECONDS", 0.3)
    secure = Secure()
    talk, _ = conversation(secure, FIRST_PORT, 4)
    segments = talk.tape.segments
    assert len(segments) > 300
    used_segments: list[Segment] = []
    passed = most = 0
    faults: list[str] = []

    def source() -> Iterator[Segment]:
        for segment in segments:
            used_segments.append(segment)
            yield segment

    for item in Decryption(Keys(secure.keylog.read_bytes())).join(source()):
        passed += isinstance(item, Segment)
        faults += [item.message] if isinstance(item, CaptureError) else []
        most = max(most, len(used_segments) - passed)

    assert passed == len(segments)
    [fault] = faults
    assert "silent for 0 s" in fault
    assert 100 < most <= 100 + 64
