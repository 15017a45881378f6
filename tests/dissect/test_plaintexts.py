"""Where the dissector reads what was decrypted: with the bytes that completed it, or at once if these have passed."""

from __future__ import annotations

from mqttscope.dissect import Dissector, Options, dissect_segments
from mqttscope.events import ConnectionClosed, Event, PacketEvent
from mqttscope.net.flow import Flow
from mqttscope.net.frame import Plaintext, UndecryptedSession
from mqttscope.net.segment import FIN, Segment
from tests.dissect.scenes import HELLO
from tests.dissect.talk import CONNACK, PINGREQ, Talk, connect, only, wire
from tests.net.hellos import record, server_hello

SECRET = record(23, bytes(40))
"""A record with content that the tests choose."""


def secured(port: int = 8883, client_port: int = 50_000) -> Talk:
    """A TLS connection with a record of each side, closed by the client with its last one."""
    talk = Talk(port=port, client_port=client_port).handshake()
    talk.client(HELLO)
    talk.server(record(22, server_hello()))
    talk.client(SECRET)
    talk.server(SECRET)
    talk.client(SECRET)
    talk.close()
    return talk


def plaintext(talk: Talk, segment: Segment, data: bytes) -> Plaintext:
    """The content that a segment of the talk completed."""
    first = talk.tape.segments[0]
    by_client = segment.key == talk.keys["client"]
    offset = segment.sequence - (1001 if by_client else 5001)
    place = (segment.frame, segment.timestamp_ns, segment.capture)
    return Plaintext((talk.keys["client"], first.frame, first.capture), by_client, data, offset, *place)


def contents(talk: Talk) -> list[Plaintext]:
    """The content of the three records."""
    segments = [segment for segment in talk.tape.segments if segment.payload == SECRET]
    texts = (wire(connect()), wire(CONNACK), wire(PINGREQ))
    return [plaintext(talk, segment, text) for segment, text in zip(segments, texts, strict=True)]


def read(items: list[Segment | Plaintext | UndecryptedSession], dissector: Dissector | None = None) -> list[Event]:
    return list(dissect_segments(items, dissector=dissector or Dissector(Options(decrypting=True))))


def told(events: list[Event]) -> list[tuple[str, int]]:
    """The packets and the end of the connection, with their frames."""
    return [
        (event.type if isinstance(event, PacketEvent) else "closed", event.frame)
        for event in events
        if isinstance(event, PacketEvent | ConnectionClosed)
    ]


def test_each_comes_with_the_bytes_that_completed_it() -> None:
    """All of them were there before the first segment."""
    talk = secured()

    events = read([*contents(talk), *talk.tape.segments])

    assert told(events) == [("connect", 6), ("connack", 7), ("pingreq", 8), ("closed", 9)]
    assert [type(event).__name__ for event in events][:2] == ["ConnectionOpened", "PacketEvent"]


def test_it_comes_at_once_if_its_bytes_have_passed() -> None:
    talk = secured()
    first, second, third = contents(talk)

    events = read([*talk.tape.segments[:7], second, first, *talk.tape.segments[7:8], third, *talk.tape.segments[8:]])

    assert told(events) == [("connack", 7), ("connect", 6), ("pingreq", 8), ("closed", 9)]


def test_it_comes_before_the_end_of_its_flow() -> None:
    """Also where the end is in the segment that completed it, and in one that came before that."""
    talk = secured()
    segments = talk.tape.segments
    late, ending = segments[7], segments[8]
    assert ending.flags & FIN
    *texts, last = contents(talk)
    for frame, (segment, other) in enumerate(((late, ending), (ending, late)), 8):
        segment.frame, other.frame = 8, 9
        last.frame = late.frame

        events = read([*texts, *segments[:7], last, segment, other, *segments[9:]])

        assert told(events)[2:] == [("pingreq", frame), ("closed", ending.frame)]


def test_plaintext_of_another_flow_with_the_same_ports_is_not_read_here() -> None:
    talk = secured()
    first, *_ = contents(talk)
    key, frame, capture = first.flow
    first.flow = (key, frame + 1, capture)

    assert told(read([first, *talk.tape.segments])) == [("closed", 9)]


def test_reasons_are_counted_and_some_connections_named() -> None:
    dissector = Dissector(Options(decrypting=True))
    talk = secured()
    reason = UndecryptedSession(contents(talk)[0].flow, "no keys", has_keys=False)

    events = read([*talk.tape.segments[:8], reason, *talk.tape.segments[8:]], dissector)

    assert dissector.undecrypted == {"no keys": 1}
    assert dissector.undecrypted_names == {"no keys": ["connection 0 (192.0.2.4:50000 to 192.0.2.2:8883)"]}
    assert [event.connection.details["undecrypted"] for event in only(events, ConnectionClosed)] == ["no keys"]


def test_a_flow_that_is_not_listed_is_named_by_its_endpoints_if_it_has_keys() -> None:
    for has_keys, names in ((True, ["192.0.2.4:50000 to 192.0.2.2:443"]), (False, [])):
        dissector = Dissector(Options(decrypting=True))
        talk = secured(port=443)
        reason = UndecryptedSession(contents(talk)[0].flow, "no luck", has_keys)

        assert read([*talk.tape.segments[:8], reason, *talk.tape.segments[8:]], dissector) == []
        assert dissector.undecrypted_names.get("no luck", []) == names


def test_nothing_waits_for_flows_that_are_over() -> None:
    dissector = Dissector(Options(decrypting=True))
    talk = secured()
    flow = Flow(talk.keys["client"], True, 0, 1, "a.pcap", 0, 1, "a.pcap")
    assert contents(talk)[0].flow == flow.identity

    read([*contents(talk), UndecryptedSession(flow.identity, "no luck", True), *talk.tape.segments], dissector)

    assert not dissector._plaintexts
    assert not dissector._reasons
