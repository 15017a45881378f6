"""Order, numbers, frames and ends of events; what the dissector keeps in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from enum import Enum

import pytest

from mqttscope.dissect import Dissector, Options, dissect_segments
from mqttscope.dissect.dialogue import SEARCHING, Dialogue
from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt import Disconnect, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.net.events import FlowClosed
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.net.housekeeping import LINGER_NS
from tests.dissect.talk import (
    CONNACK,
    PINGREQ,
    PINGRESP,
    PUBACK_3,
    PUBLISH_1,
    SECOND,
    START,
    SUBACK,
    SUBSCRIBE,
    V5,
    Talk,
    Tape,
    connect,
    names,
    only,
    publish,
    read,
    wire,
)
from tests.mqtt.octets import framed, string
from tests.net.framing import frame, request, response

MASK = b"\x01\x02\x03\x04"
PacketLike = PacketEvent | MalformedEvent


def opened(port: int = 1883, level: int = 4, tape: Tape | None = None, client_port: int = 50_000) -> Talk:
    """A conversation up to CONNACK: five frames."""
    talk = Talk(tape, port, client_port).handshake()
    talk.client(connect(level))
    talk.server(CONNACK, version=V5 if level == 5 else 4)  # type: ignore[arg-type]
    return talk


def kinds(events: list[Event]) -> list[str | None]:
    return [event.type for event in events if isinstance(event, PacketEvent | MalformedEvent)]


def frames(events: list[Event]) -> list[tuple[str | None, int]]:
    return [(event.type, event.frame) for event in events if isinstance(event, PacketEvent | MalformedEvent)]


def test_a_packet_belongs_to_the_frame_that_completed_it() -> None:
    talk = opened()
    raw = wire(PUBLISH_1)
    talk.client(raw[:3])
    last = talk.client(raw[3:])
    together = talk.client(PINGREQ, PINGREQ)
    half = talk.client(wire(PINGREQ), raw[:2])
    rest = talk.client(raw[2:] + wire(PINGREQ))

    assert frames(talk.events())[2:] == [
        ("publish", last),
        ("pingreq", together),
        ("pingreq", together),
        ("pingreq", half),
        ("publish", rest),
        ("pingreq", rest),
    ]


def test_events_carry_the_time_and_capture_of_their_frame() -> None:
    talk = opened()

    events = only(talk.events(), PacketEvent)

    assert [(event.capture, event.timestamp_ns) for event in events] == [
        ("a.pcap", START + 4_000_000),
        ("a.pcap", START + 5_000_000),
    ]


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
    talk = opened()
    talk.client(PUBLISH_1)
    talk.server(PUBACK_3)
    talk.client(SUBSCRIBE, PINGREQ)
    talk.server(SUBACK)
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


def test_a_packet_that_breaks_its_layout_is_not_applied() -> None:
    talk = opened()
    talk.client(framed(0x82, b"\0\x05", b"\0\x20ab"))

    (event,) = only(talk.events(), MalformedEvent)

    assert event.malformed.complete is False
    assert not event.connection.client_side.exchanges


def test_topics_are_resolved_per_direction_and_time() -> None:
    talk = opened(level=5)
    talk.client(publish("client/1", topic_alias=1), version=V5)
    talk.server(publish("server/1", topic_alias=1), version=V5)
    talk.client(publish("", topic_alias=1), publish("client/2", topic_alias=1), publish("", topic_alias=1), version=V5)
    talk.server(publish("", topic_alias=1), publish("", topic_alias=9), version=V5)

    events = [event for event in only(talk.events(), PacketEvent) if event.type == "publish"]

    assert [(event.direction[:6], event.topic) for event in events] == [
        ("client", "client/1"),
        ("server", "server/1"),
        ("client", "client/1"),
        ("client", "client/2"),
        ("client", "client/2"),
        ("server", "server/1"),
        ("server", None),
    ]


def test_other_packets_have_no_topic() -> None:
    assert [event.topic for event in only(opened().events(), PacketEvent)] == [None, None]


Finish = Callable[[Talk], object]


@pytest.mark.parametrize(
    ("finish", "how", "by"),
    [
        pytest.param(lambda talk: talk.close("client"), "fin", "client", id="the client ends first"),
        pytest.param(lambda talk: talk.close("server"), "fin", "server", id="the server ends first"),
        pytest.param(lambda talk: talk.reset("client"), "reset", "client", id="the client resets"),
        pytest.param(lambda talk: talk.reset("server"), "reset", "server", id="the server resets"),
        pytest.param(
            lambda talk: (talk.fin("client"), talk.reset("server")),
            "fin",
            "client",
            id="a reset answers the client's end",
        ),
        pytest.param(lambda talk: None, "capture_end", None, id="the capture ends"),
        pytest.param(lambda talk: talk.fin("server"), "fin", "server", id="the capture ends after one side did"),
        pytest.param(lambda talk: talk.again(), "port_reused", None, id="the endpoints are used again"),
    ],
)
def test_who_closed_and_how(finish: Finish, how: str, by: str | None) -> None:
    talk = opened()
    finish(talk)

    closed = only(talk.events(), ConnectionClosed)

    assert (closed[0].connection.closed_how, closed[0].connection.closed_by) == (how, by)


def test_a_disconnect_is_told_apart_from_who_closed() -> None:
    talk = opened()
    talk.client(Disconnect())
    talk.close("server")

    connection = only(talk.events(), ConnectionClosed)[0].connection

    assert (connection.disconnect_by, connection.closed_by, connection.phase) == ("client", "server", "disconnected")


def test_what_tcp_did_is_told_at_the_end() -> None:
    talk = opened()
    talk.tape.segments.append(dataclasses.replace(talk.tape.segments[3], frame=6))
    talk.close()

    connection = only(talk.events(), ConnectionClosed)[0].connection

    tcp = connection.details["tcp"]
    assert isinstance(tcp, dict)
    assert tcp["client_to_server"]["retransmitted_segments"] == 1
    assert tcp["server_to_client"]["retransmitted_segments"] == 0


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        pytest.param(lambda talk: talk.fin("client"), ("malformed", "truncated"), id="the sender ends: it is to blame"),
        pytest.param(lambda talk: None, ("unparsed", "capture_end"), id="the capture ends: nobody knows"),
        pytest.param(lambda talk: talk.reset("server"), ("unparsed", "reset"), id="reset: the rest may be on its way"),
        pytest.param(lambda talk: talk.again(), ("unparsed", "port_reused"), id="the endpoints are used again"),
        pytest.param(lambda talk: talk.fin("server"), ("unparsed", "capture_end"), id="only the other side ended"),
    ],
)
def test_a_packet_that_breaks_off(finish: Finish, expected: tuple[str, str]) -> None:
    talk = opened()
    talk.client(wire(PUBLISH_1)[:-1])
    finish(talk)

    events = talk.events()

    found = [("malformed", str(event.malformed.reason)) for event in only(events, MalformedEvent)]
    found += [("unparsed", event.unparsed.reason) for event in only(events, UnparsedEvent)]
    assert found == [expected]
    for event in only(events, UnparsedEvent):
        assert (event.unparsed.packet_type, event.unparsed.length) == (3, len(wire(PUBLISH_1)) - 1)


def test_the_last_packet_before_the_end_comes_before_the_end() -> None:
    talk = opened()
    talk.client(wire(PUBLISH_1)[:-1])
    talk.close()

    assert names(talk.events())[-2:] == ["MalformedEvent", "ConnectionClosed"]


def test_a_gap_is_an_event_and_marks_its_direction() -> None:
    talk = opened()
    talk.client(PINGREQ)
    talk.lose("client", 10)
    talk.server(PINGRESP)
    talk.client(PUBLISH_1, PINGREQ)
    talk.tape.wait(10)
    talk.server(PUBACK_3)
    talk.close()

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
    talk.tape.wait(10)
    talk.server(PINGRESP)

    events = talk.events()

    (packet,) = [event.packet for event in only(events, PacketEvent) if event.type == "publish"]
    assert isinstance(packet, Publish)
    assert (packet.payload, packet.missing) == (b"x" * 15, 35)
    assert [name for name in names(events) if name != "PacketEvent"][1] == "GapEvent"
    assert names(events).index("GapEvent") == names(events).index("ConnectionOpened") + 4
    assert kinds(events)[-2:] in (["pingreq", "pingresp"], ["pingresp", "pingreq"])
    assert not only(events, UnparsedEvent)


def test_a_packet_without_its_most_important_bytes_is_unparsed() -> None:
    talk = opened()
    talk.client(b"\x82\x06\0\x05", missing=4)
    talk.client(PINGREQ)

    events = talk.events()

    (found,) = only(events, UnparsedEvent)
    assert (found.unparsed.reason, found.unparsed.packet_type, found.unparsed.missing) == ("gap", 8, 4)
    assert kinds(events)[-1] == "pingreq"


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
    talk = Talk()
    talk.ack("client")
    talk.ack("server")
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
    talk = opened()
    talk.lose("client", 9)
    talk.server(PINGRESP)
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
    talk = Talk()
    talk.ack("client")
    talk.ack("server")
    talk.client(PUBLISH_1)
    dissector = Dissector()
    phases = []
    for segment in talk.tape.segments:
        list(dissector.feed(segment))
    entry = dissector.flows.direction(talk.keys["client"])
    assert entry is not None
    dialogue = entry[0].context
    assert isinstance(dialogue, Dialogue)
    phases.append((dialogue.phase, len(dialogue.client_arrivals)))
    done = len(talk.tape.segments)
    talk.server(PUBACK_3, PINGRESP)
    talk.client(PINGREQ)
    for segment in talk.tape.segments[done:]:
        list(dissector.feed(segment))
    phases.append((dialogue.phase, len(dialogue.client_arrivals) + len(dialogue.server_arrivals)))

    assert phases == [(SEARCHING, 1), ("mqtt", 0)]


def test_a_packet_above_the_limit_is_passed_over_and_said() -> None:
    talk = opened()
    talk.client(Publish(topic_name="a", payload=b"x" * 5000))
    talk.client(PINGREQ)

    events = talk.events(Options(max_packet_bytes=1000))

    (found,) = only(events, UnparsedEvent)
    assert (found.unparsed.reason, found.unparsed.length) == ("too_large", 5006)
    assert kinds(events) == ["connect", "connack", "pingreq"]


def test_a_second_connect_of_another_version_is_read_in_it() -> None:
    talk = opened()
    talk.client(connect(5, "again"))
    talk.server(b"\x20\x03\0\0\0")
    talk.client(publish(topic_alias=3), version=V5)

    events = only(talk.events(), PacketEvent)

    assert [event.type for event in events] == ["connect", "connack", "connect", "connack", "publish"]
    assert events[-1].connection.client_identifier == "again"
    assert events[-1].connection.version is V5


def test_the_same_endpoints_used_again_are_another_connection() -> None:
    tape = Tape()
    first = opened(tape=tape, level=5)
    first.close()
    tape.wait(1)
    second = first.again()
    second.client(connect(4, "other"))
    second.client(PUBLISH_1)
    second.close("server")

    events = read(tape)

    assert [event.connection.number for event in only(events, ConnectionClosed)] == [0, 1]
    assert [(e.connection.number, e.connection.client_identifier) for e in only(events, PacketEvent)] == [
        (0, "dev"), (0, "dev"), (1, "other"), (1, "other"),
    ]  # fmt: skip
    assert [event.connection.version.text for event in only(events, ConnectionClosed)] == ["5.0", "3.1.1"]


def test_several_captures_in_one_run_keep_their_names_and_their_numbers_go_on() -> None:
    one, two = Tape("one.pcap"), Tape("two.pcap", START + 3600 * SECOND)
    first = opened(tape=one)
    second = Talk(two)
    second.position = dict(first.position)
    second.client(PUBLISH_1)
    third = opened(tape=two, client_port=50_001)
    third.close()

    events = list(dissect_segments([*one.segments, *two.segments]))

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


def websocket() -> Talk:
    talk = Talk(port=8080).handshake()
    talk.client(request())
    talk.server(response())
    talk.client(frame(wire(connect()), key=MASK))
    talk.server(frame(wire(CONNACK)))
    return talk


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


def mixed_tape() -> Tape:
    """Every way through the dissector, interleaved."""
    tape = Tape()
    talks = [opened(tape=tape, client_port=41_000, level=5), opened(9999, tape=tape, client_port=41_001)]
    joined = Talk(tape, 1883, 41_002)
    other = Talk(tape, 22, 41_003).handshake()
    web = Talk(tape, 8080, 41_004).handshake()
    web.client(request())
    web.server(response())
    other.client(b"SSH-2.0-x\r\n")
    web.client(frame(wire(connect()), key=MASK))
    for number in range(3):
        talks[0].client(publish("t", topic_alias=number + 1), version=V5)
        joined.client(PUBLISH_1)
        talks[1].client(Publish(qos=2, topic_name="q", packet_identifier=9), wire(PINGREQ)[:1])
        talks[1].client(wire(PINGREQ)[1:])
        talks[1].server(Pubrec(9))
        joined.server(PUBACK_3)
        web.client(frame(wire(PUBLISH_1), key=MASK))
        talks[1].client(Pubrel(9), framed(0x36, string("a"), b"\0\x07"))
        talks[1].server(Pubcomp(9))
    talks[0].lose("client", 30)
    talks[0].server(PINGRESP)
    tape.wait(5)
    talks[0].client(publish("t"), version=V5)
    talks[1].client(wire(PUBLISH_1)[:5])
    talks[1].close()
    talks[0].reset("server")
    joined.client(wire(PUBLISH_1)[:5])
    return tape


def shown(event: Event) -> object:
    """An event in comparable form, with the state as it is when the event is read."""
    if isinstance(event, PacketEvent | MalformedEvent | GapEvent | UnparsedEvent | ConnectionOpened | ConnectionClosed):
        return repr(event)
    return event


def test_the_quick_way_and_the_long_way_give_the_same_events() -> None:
    tape = mixed_tape()
    slow = Dissector()

    quick = [shown(event) for event in dissect_segments(tape.segments)]
    long = [shown(event) for segment in tape.segments for event in slow.feed(segment)]
    long += [shown(event) for event in slow.close()]

    assert quick == long
    assert set(names(list(dissect_segments(tape.segments)))) == {
        "ConnectionOpened", "PacketEvent", "MalformedEvent", "GapEvent", "UnparsedEvent", "ConnectionClosed",
    }  # fmt: skip


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


def parts(root: object) -> Iterator[tuple[str, object]]:
    """Every value inside an object with the way to it; an object that was met before is not entered again."""
    todo: list[tuple[str, object]] = [("flow", root)]
    met: set[int] = set()
    while todo:
        path, value = todo.pop()
        yield path, value
        if id(value) in met:
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            met.add(id(value))
            todo += [(f"{path}.{one.name}", getattr(value, one.name)) for one in dataclasses.fields(value)]
        elif isinstance(value, dict):
            todo += [(f"{path}[{key!r}]", part) for key, part in value.items()]
            todo += [(f"{path} key", key) for key in value]
        elif isinstance(value, list | tuple):
            todo += [(f"{path}[{index}]", part) for index, part in enumerate(value)]


def test_flows_with_all_that_hangs_on_them_are_plain_data() -> None:
    tape = mixed_tape()
    dissector = Dissector()
    half = len(tape.segments) - 8
    for segment in tape.segments[:half]:
        list(dissector.feed(segment))

    assert len(dissector.flows.flows) == 5
    for flow in dissector.flows.flows.values():
        for path, value in parts(flow):
            plain = value is None or type(value) in (int, str, bytes, bool, list, dict, tuple, bytearray)
            assert plain or isinstance(value, Enum) or dataclasses.is_dataclass(value), f"{path} is a {type(value)}"


def test_many_short_connections_do_not_let_the_tables_grow() -> None:
    """A hundred thousand flows of all kinds, two a second."""
    dissector = Dissector()
    largest = 0
    reported = 0
    tape = Tape()
    for number in range(100_000):
        talk = Talk(tape, (1883, 9999, 22, 8883)[number % 4], 10_000 + number % 50_000)
        talk.position = {"client": 1000 + number * 7919, "server": 5000 + number * 104_729}
        if number % 4 == 2:
            talk.handshake()
            talk.client(b"SSH-2.0-x\r\n")
            talk.reset("server")
        elif number % 8 == 0:
            talk.handshake()
            talk.client(connect())
            talk.close()
        else:
            talk.refused()
        for segment in tape.segments:
            for event in dissector.feed(segment):
                reported += isinstance(event, ConnectionClosed)
        tape.segments.clear()
        tape.wait(0.5)
        if number % 1000 == 0:
            largest = max(largest, len(dissector.flows.flows))

    assert reported == 25_000
    assert largest < 3 * 2 * LINGER_NS // SECOND
    for flow in dissector.flows.flows.values():
        assert flow.context is None
    assert list(dissector.close()) == []
    assert not dissector.flows.flows
    assert dissector.flows.buffered_bytes == 0
    assert (dissector.connections, dissector.other_flows) == (25_000, 75_000)


def test_a_closed_flow_lets_go_of_its_dialogue_even_when_nobody_reads_on() -> None:
    talk = opened()
    talk.close()
    dissector = Dissector()
    for segment in talk.tape.segments[:-3]:
        list(dissector.feed(segment))
    closing = [event for segment in talk.tape.segments[-3:] for event in dissector.flows.feed(segment)]

    (end,) = [event for event in closing if isinstance(event, FlowClosed)]
    for event in closing:
        list(dissector.handle(event))

    assert end.flow.context is None
