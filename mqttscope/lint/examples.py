"""Conversations: the examples of a rule, which are its tests and its documentation.

A rule has its `examples` as text, which `conversation_text` reads when somebody asks for them:

    bad = examples(
        '''
        the client ignores the limit
            opened < maximum_qos=1; > publish a qos=2 id=1 !qos
        '''
    )

The functions of this module make the same conversations in Python, for those that a loop says shorter, and for tests:

    conversation(
        "the client ignores the limit",
        *opened(V5, connack=Properties(maximum_qos=1)),
        client(Publish(qos=2, topic_name="a", packet_identifier=1)).marked("qos"),
    )

Steps follow each other; each side has received what the other sent before, unless a step is `crossing`.  A step is one
or more packets that arrive together, as packet objects or, where an encoder would have to lie, as their bytes.  A mark
names the field that the rule has to blame (empty for the complete packet); nothing else may be found by that rule.

What takes several clients has several connections to the same server, `on` the second, the third and so on:

    *opened(client_identifier="c1"),
    *on(1, *opened(client_identifier="c2"), client(Pingreq())),
    client(Pingreq(), after=30),

MQTT over WebSocket begins with an upgrade, and its packets are framed:

    conversation(
        "text frames",
        *web_opened(),
        client(framed(Pingreq(), opcode=TEXT)),
        server(framed(Pingresp(), masked=False)),
    )

Frames with one packet each are packets of a step; an upgrade and frames without a complete packet are `silent` steps.

`segments` makes of a conversation the TCP segments that a capture of it would have, and `expected` says what its marks
expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from linecache import getlines
from typing import Any

from mqttscope.errors import MqttscopeError
from mqttscope.mqtt import Connack, Connect, ControlPacket, Properties, ProtocolVersion, Will, encode
from mqttscope.net.http_upgrade import accept_for
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN, Segment, direction_key
from mqttscope.net.websocket import BINARY, unmask

V5 = ProtocolVersion.V5
CLIENT = "client"
SERVER = "server"


class ExampleError(MqttscopeError, ValueError):
    """The text of an example is wrong; the message names its file and line."""


@dataclass(slots=True, frozen=True)
class Step:
    """Something that one side does."""

    side: str
    """``client`` or ``server``."""
    packets: tuple[ControlPacket | bytes, ...] = ()
    after: float = 0.01
    """Seconds since the step before."""
    acknowledges: bool = False
    """It sends nothing but a TCP acknowledgment of all that came."""
    crosses: bool = False
    """Sent before the other side's last steps had arrived."""
    is_lost: bool = False
    """The capture does not have it."""
    silent: bool = False
    """Bytes that hold no packet: an HTTP upgrade, a WebSocket ping."""
    close: str = ""
    """Ends the transport instead: ``fin``, ``reset``, or ``fin-reset``."""
    connection: int = 0
    """Which of the connections it is on; each begins with its first step."""
    marks: tuple[tuple[int | None, str], ...] = ()
    """Index of the packet in the step (``None`` for the connection) and the field to blame."""

    def marked(self, *fields: str, at: int | None = -1) -> Step:
        """The rule is to blame these fields of the last packet, or of the packet with that index.

        With ``None`` it finds then what concerns the connection: what should have come before.
        """
        index = None if at is None else at if at >= 0 else len(self.packets) + at
        where = None if self.close or self.silent else index
        return replace(self, marks=(*self.marks, *((where, name) for name in fields)))


@dataclass(slots=True, frozen=True)
class Conversation:
    """One connection from its beginning, or from its middle; or several ones to one server."""

    title: str
    steps: tuple[Step, ...]
    version: ProtocolVersion = V5
    """How packets before a CONNECT are encoded."""
    handshake: bool = True
    """Whether the capture has the TCP handshake; without it the capture joins in the middle."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the rule that the example needs."""
    server: str = "10.0.0.2:1883"


def conversation(
    title: str,
    *steps: Step,
    version: ProtocolVersion | None = None,
    handshake: bool = True,
    settings: dict[str, Any] | None = None,
    server: str = "10.0.0.2:1883",
) -> Conversation:
    """A conversation; the version is that of its first CONNECT unless given (5.0 where there is none)."""
    if version is None:
        packets = [packet for step in steps for packet in step.packets]
        version = next((packet.version for packet in packets if isinstance(packet, Connect)), V5)
    return Conversation(title, steps, version, handshake, settings or {}, server)


ExamplePart = str | Callable[[], list[Conversation]]


class Examples:
    """Examples of a class of rules, read at the first access."""

    def __init__(self, parts: tuple[ExamplePart, ...]) -> None:
        self.parts = parts
        self.conversations: list[Conversation] | None = None

    def __get__(self, instance: object, owner: type) -> list[Conversation]:
        if self.conversations is None:
            conversations: list[Conversation] = []
            for part in self.parts:
                conversations += _parse(part, owner) if isinstance(part, str) else part()
            self.conversations = conversations
        return self.conversations


def examples(*parts: ExamplePart) -> Any:
    """Examples as an attribute of a rule: texts, and functions that return lists of conversations.

    They are read at the first access, which linting never needs.
    """
    return Examples(parts)


def _parse(text: str, owner: type) -> list[Conversation]:
    """The conversations of a text in the file of a class; an error names the file and the line in it."""
    # Imported late, since linting reads no examples, and by its name, since it builds on this module.
    parser: Any = import_module("mqttscope.lint.conversation_text")
    try:
        return parser.parse_conversations(text)  # type: ignore[no-any-return]
    except parser.ConversationTextError as error:
        path = getattr(import_module(owner.__module__), "__file__", None) or owner.__module__
        source = "".join(getlines(path))
        place = source.find(text)
        if place < 0:
            raise ExampleError(f"{path}: line {error.line} of an example text: {error.reason}") from error
        line = source.count("\n", 0, place) + error.line
        raise ExampleError(f"{path}:{line}: {error.reason}") from error


def client(*packets: ControlPacket | bytes, after: float = 0.01) -> Step:
    return Step(CLIENT, packets, after)


def server(*packets: ControlPacket | bytes, after: float = 0.01) -> Step:
    return Step(SERVER, packets, after)


def crossing(step: Step) -> Step:
    """The step was sent before what the other side sent last had arrived."""
    return replace(step, crosses=True)


def lost(step: Step) -> Step:
    """The step happened, but the capture does not have it."""
    return replace(step, is_lost=True)


def silent(step: Step) -> Step:
    """The bytes of the step hold no MQTT Control Packet."""
    return replace(step, silent=True)


def acknowledges(side: str, after: float = 0.01) -> Step:
    """A side acknowledges, on the level of TCP alone, what the other one has sent."""
    return Step(side, (), after, acknowledges=True)


def on(connection: int, *steps: Step) -> tuple[Step, ...]:
    """The steps are on another connection, counted from 0."""
    return tuple(replace(step, connection=connection) for step in steps)


def closes(side: str, how: str = "fin", after: float = 0.01) -> Step:
    """A side ends the TCP connection: ``fin`` in good order, ``reset`` at once.

    With ``fin-reset`` it sends FIN, and then RST for what the other side still sends: a program that closes its socket.
    """
    return Step(side, (), after, close=how)


def opened(
    version: ProtocolVersion = V5,
    *,
    client_identifier: str = "c1",
    clean_start: bool = True,
    keep_alive: int = 60,
    user_name: str | None = None,
    password: bytes | None = None,
    will: Will | None = None,
    connect: Properties | None = None,
    session_present: bool = False,
    connack: Properties | None = None,
) -> tuple[Step, Step]:
    """CONNECT and the CONNACK that accepts it."""
    request = make_connect(
        version,
        client_identifier=client_identifier,
        clean_start=clean_start,
        keep_alive=keep_alive,
        user_name=user_name,
        password=password,
        will=will,
        properties=connect,
    )
    answer = Connack(session_present=session_present, properties=connack)
    return client(request), server(answer)


def make_connect(version: ProtocolVersion = V5, **fields: Any) -> Connect:
    """A CONNECT with the protocol name and level of a version; `Connect` fields as keywords, client ``c1``."""
    name = "MQIsdp" if version is ProtocolVersion.V3_1 else "MQTT"
    fields.setdefault("client_identifier", "c1")
    fields.setdefault("keep_alive", 60)
    return Connect(protocol_name=name, protocol_level=version.value, **fields)


def hexadecimal(text: str) -> bytes:
    """Bytes of a packet written in hexadecimal, with a comment after ``#`` on each line if wanted."""
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in text.splitlines()))


KEY = "dGhlIHNhbXBsZSBub25jZQ=="
_MASK = b"\x12\x34\x56\x78"


def upgrade_request(offered: str | None = "mqtt", path: str = "/mqtt") -> bytes:
    """The HTTP request that asks for a WebSocket; ``offered`` is the list of subprotocols, ``None`` for no header."""
    return _head(
        f"GET {path} HTTP/1.1",
        "Host: broker.example",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {KEY}",
        "Sec-WebSocket-Version: 13",
        *_subprotocol(offered),
    )


def upgrade_response(selected: str | None = "mqtt") -> bytes:
    """The HTTP response that grants it; ``selected`` is the subprotocol, ``None`` for no header."""
    return _head(
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {accept_for(KEY)}",
        *_subprotocol(selected),
    )


def upgraded(offered: str | None = "mqtt", selected: str | None = "mqtt") -> tuple[Step, Step]:
    return silent(client(upgrade_request(offered))), silent(server(upgrade_response(selected)))


def framed(
    *content: ControlPacket | bytes,
    masked: bool = True,
    opcode: int = BINARY,
    fin: bool = True,
    version: ProtocolVersion = V5,
) -> bytes:
    """One frame with these packets or bytes; clients mask their frames, servers do not."""
    payload = b"".join(one if isinstance(one, bytes) else encode(one, version) for one in content)
    first, mark = fin << 7 | opcode, masked << 7
    if len(payload) < 126:
        head = bytes((first, mark | len(payload)))
    else:
        head = bytes((first, mark | 126)) + len(payload).to_bytes(2, "big")
    return head + _MASK + unmask(payload, _MASK) if masked else head + payload


def silent_frame(side: str, payload: bytes, *, opcode: int, fin: bool = True) -> Step:
    """A frame without a complete packet: a ping of the WebSocket itself, or part of a packet."""
    step = client if side == CLIENT else server
    return silent(step(framed(payload, masked=side == CLIENT, opcode=opcode, fin=fin)))


def web_opened(version: ProtocolVersion = V5) -> tuple[Step, ...]:
    """The upgrade, CONNECT and the CONNACK that accepts it, one packet in each frame."""
    return (
        *upgraded(),
        client(framed(make_connect(version), version=version)),
        server(framed(Connack(), masked=False, version=version)),
    )


def _subprotocol(names: str | None) -> list[str]:
    return [] if names is None else [f"Sec-WebSocket-Protocol: {names}"]


def _head(*lines: str) -> bytes:
    return "\r\n".join((*lines, "", "")).encode("ascii")


START_NS = 1_767_323_045_000_000_000
"""2026-01-02T03:04:05Z."""
_CLIENT_PORT = 51_234


@dataclass(slots=True)
class _Side:
    """TCP state of one side."""

    key: bytes
    sequence: int
    """Of its next byte."""
    acknowledges: int = 0
    """How far it acknowledges the other's stream."""


@dataclass(slots=True)
class _Tape:
    """What is captured of all connections."""

    capture: str
    now_ns: int = START_NS
    segments: list[Segment] = field(default_factory=list)


@dataclass(slots=True)
class _Wire:
    """Both sides of one connection."""

    tape: _Tape
    client: _Side
    server: _Side
    version: ProtocolVersion

    def send(self, side: _Side, flags: int, payload: bytes = b"", *, captured: bool = True) -> None:
        """Put a segment on the wire."""
        if captured:
            tape = self.tape
            number = len(tape.segments) + 1
            sequence, acknowledges = side.sequence & 0xFFFFFFFF, side.acknowledges & 0xFFFFFFFF
            tape.segments.append(
                Segment(side.key, sequence, acknowledges, flags, 65_535, payload, 0, number, tape.now_ns, tape.capture)
            )
        side.sequence += len(payload) + bool(flags & SYN) + bool(flags & FIN)


def step_bytes(step: Step, version: ProtocolVersion) -> tuple[list[bytes], ProtocolVersion]:
    """The bytes of each packet of a step, and the version spoken after it."""
    parts = []
    for packet in step.packets:
        if isinstance(packet, bytes):
            parts.append(packet)
            continue
        if isinstance(packet, Connect):
            version = packet.version
        parts.append(encode(packet, version))
    return parts, version


def segments(conversation: Conversation, chunk: int = 0, capture: str = "example") -> list[Segment]:
    """The TCP segments of a conversation, each step cut into segments of ``chunk`` bytes (0: not cut)."""
    tape = _Tape(capture)
    first = conversation.steps[0].connection if conversation.steps else 0
    wires = {first: _connected(conversation, tape, first)}
    for step in conversation.steps:
        tape.now_ns += round(step.after * 1_000_000_000)
        wire = wires.get(step.connection)
        if wire is None:
            wire = wires[step.connection] = _connected(conversation, tape, step.connection)
        parts, wire.version = step_bytes(step, wire.version)
        _play(wire, step, b"".join(parts), chunk)
    return tape.segments


def _connected(conversation: Conversation, tape: _Tape, number: int) -> _Wire:
    """A connection that begins now."""
    host, _, port = conversation.server.rpartition(":")
    address = bytes(int(part) for part in host.split("."))
    client_port = _CLIENT_PORT + number
    there = direction_key(bytes((10, 0, 0, 4)) + address, _ports(client_port, int(port)))
    back = direction_key(address + bytes((10, 0, 0, 4)), _ports(int(port), client_port))
    wire = _Wire(tape, _Side(there, 1_000), _Side(back, 900_000), conversation.version)
    if conversation.handshake:
        wire.send(wire.client, SYN)
        wire.server.acknowledges = wire.client.sequence
        wire.send(wire.server, SYN | ACK)
        wire.client.acknowledges = wire.server.sequence
        wire.send(wire.client, ACK)
    wire.client.acknowledges, wire.server.acknowledges = wire.server.sequence, wire.client.sequence
    return wire


def _play(wire: _Wire, step: Step, data: bytes, chunk: int) -> None:
    side, other = (wire.client, wire.server) if step.side == CLIENT else (wire.server, wire.client)
    if not step.crosses:
        side.acknowledges = other.sequence
    if step.acknowledges:
        wire.send(side, ACK)
    if step.close == "reset":
        wire.send(side, RST | ACK)
    elif step.close == "fin-reset":
        wire.send(side, FIN | ACK)
        wire.send(side, RST)
    elif step.close:
        wire.send(side, FIN | ACK)
        other.acknowledges = side.sequence
        wire.send(other, FIN | ACK)
        side.acknowledges = other.sequence
        wire.send(side, ACK)
    for start in range(0, len(data), chunk or max(len(data), 1)):
        wire.send(side, PSH | ACK, data[start : start + (chunk or len(data))], captured=not step.is_lost)
        wire.tape.now_ns += 1_000
    if step.is_lost:
        # The other side's acknowledgment proves that it was the capture that lost the bytes.
        other.acknowledges = side.sequence
        wire.send(other, ACK)
        wire.tape.now_ns += 1_000_000_000


def expected(conversation: Conversation) -> list[tuple[int | None, str]]:
    """What the marks expect: number of the packet in the capture (``None`` for the connection) and field."""
    wanted: list[tuple[int | None, str]] = []
    number = 0
    for step in conversation.steps:
        wanted += ((None if index is None else number + index, name) for index, name in step.marks)
        if not step.is_lost and not step.silent:
            number += len(step.packets)
    return wanted


def _ports(source: int, destination: int) -> bytes:
    return source.to_bytes(2, "big") + destination.to_bytes(2, "big")


def chunkings(conversation: Conversation) -> Iterator[list[Segment]]:
    """The conversation with every step in one piece, and cut into pieces of several sizes."""
    for chunk in (0, 1, 2, 5):
        yield segments(conversation, chunk)
