"""Conversations that several tests look at, and short forms of their events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.flow_state import FlowState
from mqttscope.events import (
    ConnectionClosed,
    ConnectionEnding,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt import Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.mqtt.constants import type_name
from mqttscope.session.connection import Connection
from tests.dissect.talk import (
    CONNACK,
    PINGREQ,
    PINGRESP,
    PUBACK_3,
    PUBLISH_1,
    SUBACK_5,
    SUBSCRIBE_5,
    V3_1_1,
    V5,
    Talk,
    Tape,
    connect,
    only,
    publish,
    wire,
)
from tests.mqtt.octets import framed, string
from tests.net.framing import frame, request, response
from tests.net.hellos import ALPN_OFFER, SNI, VERSIONS, client_hello, record
from tests.tables import steps

HELLO = record(22, client_hello(SNI, VERSIONS))
MQTT_HELLO = record(22, client_hello(SNI, ALPN_OFFER, VERSIONS))
HTTP = b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n"
HTTP_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


MASK = b"\x01\x02\x03\x04"


def opened(port: int = 1883, level: int = 4, tape: Tape | None = None, client_port: int = 50_000) -> Talk:
    """A conversation up to CONNACK: five frames."""
    talk = Talk(tape, port, client_port).handshake()
    talk.client(connect(level))
    talk.server(CONNACK, version=V5 if level == 5 else V3_1_1)
    return talk


def kinds(events: list[Event]) -> list[str | None]:
    return [event.type for event in events if isinstance(event, PacketEvent | MalformedEvent)]


def frames(events: list[Event]) -> list[tuple[str | None, int]]:
    return [(event.type, event.frame) for event in events if isinstance(event, PacketEvent | MalformedEvent)]


def websocket() -> Talk:
    talk = Talk(port=8080).handshake()
    talk.client(request())
    talk.server(response())
    talk.client(frame(wire(connect()), key=MASK))
    talk.server(frame(wire(CONNACK)))
    return talk


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
    talks[0].tell("lose client 30; < pingresp")
    tape.wait(5)
    talks[0].client(publish("t"), version=V5)
    talks[1].client(wire(PUBLISH_1)[:5])
    talks[1].close()
    talks[0].reset("server")
    joined.client(wire(PUBLISH_1)[:5])
    return tape


def render(event: Event) -> str:
    """An event in words: of a packet its frame, of a PUBLISH its topic, of an end who was first and what else ended."""
    if isinstance(event, ConnectionOpened):
        return f"opened {event.connection.transport}"
    if isinstance(event, ConnectionEnding):
        return f"ending {event.frame}"
    if isinstance(event, ConnectionClosed):
        other = event.connection.also_closed
        also = f", then {other.how} {other.frame}" if other else ""
        text = f", disconnected by {event.connection.disconnect_by}" if event.connection.disconnect_by else ""
        return f"closed {event.connection.closed_how} by {event.connection.closed_by or 'nobody'}{also}{text}"
    assert isinstance(event, PacketEvent | MalformedEvent | GapEvent | UnparsedEvent)
    side = ">" if event.direction == "client_to_server" else "<"
    if isinstance(event, GapEvent):
        return f"{side} gap {event.length} {event.reason}"
    if isinstance(event, UnparsedEvent):
        kind = event.unparsed.packet_type
        return f"{side} unparsed {event.unparsed.length} {event.unparsed.reason} {event.frame}" + (
            f" in {type_name(kind)}" if kind else ""
        )
    fault = ""
    if isinstance(event, MalformedEvent):
        fault = f"{event.malformed.reason} " + ("" if event.malformed.complete else "unfinished ")
    topic = f"{event.topic or '?'} " if event.type == "publish" else ""
    return f"{side} {event.type} {topic}{fault}{event.frame}"


def facts(connection: Connection) -> list[str]:
    """The state of a connection at its end, in words: version, roles, phase, and where something is missing."""
    sides = (("client", connection.client_side), ("server", connection.server_side))
    return [
        f"{connection.version.text} {'by' if connection.version_known else 'guessed by'} {connection.version_evidence}",
        f"{connection.client} to {connection.server}".replace("192.0.2", ""),
        f"{'by' if connection.roles_known else 'guessed by'} {connection.roles_evidence}",
        str(connection.phase) + (f" as {connection.client_identifier}" if connection.client_identifier else ""),
        *([f"gaps {connection.gaps} {connection.gap_bytes}"] if connection.gaps else []),
        *(f"{name} gapped" for name, side in sides if side.gapped),
        *(f"{name} waits for {identifier}" for name, side in sides for identifier in side.exchanges),
        *([] if connection.handshake_seen else ["no handshake"]),
    ]


def told(setting: str, story: str) -> Talk:
    """A talk in words; its setting is a port, a port of the client and a version, as far as they are unusual.

    ``opened`` stands for the handshake, CONNECT and CONNACK.
    """
    numbers = [int(word) for word in setting.split() if word.isdecimal()]
    port, client_port = (*numbers, *(1883, 50_000)[len(numbers) :])
    version = V5 if "5.0" in setting else V3_1_1
    story = story.replace("opened", f"handshake; > connect {version.text}; < connack")
    return Talk(None, port, client_port).tell(story, version=version)


def check_scene(setting: str, story: str, expected: list[str], known: list[str] | None = None) -> None:
    """The events of one connection; packets are counted, and each has time and capture of its frame."""
    talk = told(setting, story)
    events = talk.events()
    packets = [event for event in events if isinstance(event, PacketEvent | MalformedEvent)]

    assert [render(event) for event in events] == expected
    assert known is None or facts(only(events, ConnectionOpened)[0].connection) == known
    assert [event.number for event in packets] == list(range(len(packets)))
    for place in (*packets, *(event.connection.also_closed for event in only(events, ConnectionClosed))):
        if place is not None:
            segment = talk.tape.segments[place.frame - 1]
            assert (place.timestamp_ns, place.capture) == (segment.timestamp_ns, segment.capture)


SCENE = (str, str, steps, steps)
"""The columns of a table of scenes: setting, story, events, and what is known."""


def shown(event: Event) -> object:
    """An event in comparable form, with the state as it is when the event is read."""
    if isinstance(event, PacketEvent | MalformedEvent | GapEvent | UnparsedEvent | ConnectionOpened | ConnectionClosed):
        return repr(event)
    return event


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
            todo += [(f"{path}.{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
        elif isinstance(value, dict):
            todo += [(f"{path}[{key!r}]", part) for key, part in value.items()]
            todo += [(f"{path} key", key) for key in value]
        elif isinstance(value, list | tuple):
            todo += [(f"{path}[{index}]", part) for index, part in enumerate(value)]


def dialogue_of(talk: Talk, dissector: Dissector) -> FlowState | None:
    entry = dissector.flows.entry(talk.keys["client"])
    assert entry is not None
    context = entry[0].context
    assert context is None or isinstance(context, FlowState)
    return context


def types(talk: Talk, options: Options | None = None) -> list[str]:
    return [event.type for event in only(talk.events(options), PacketEvent)]


class Joined:
    """Conversations that begin in the middle: no handshake, no CONNECT."""

    @staticmethod
    def v311(port: int) -> Talk:
        return Talk(port=port).tell("> publish & subscribe; < puback & suback; > pingreq; < pingresp")

    @staticmethod
    def v5(port: int) -> Talk:
        talk = Talk(port=port)
        talk.client(publish("t", topic_alias=1), SUBSCRIBE_5, version=V5)
        talk.server(SUBACK_5, PINGRESP, version=V5)
        talk.client(PINGREQ, publish("", topic_alias=1), version=V5)
        return talk
