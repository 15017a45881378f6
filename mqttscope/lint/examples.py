"""Example conversations of rules, which are their tests and their documentation.

A rule has its `examples` as text, which `conversation_text` reads on first use:

    bad = examples(
        '''
        the client ignores the limit
            opened < maximum_qos=1; > publish a qos=2 id=1 !qos
        '''
    )

The functions of this module build conversations in Python, for tests and for examples that are shorter as a loop:

    conversation(
        "the client ignores the limit",
        *opened(V5, connack=Properties(maximum_qos=1)),
        client(Publish(qos=2, topic_name="a", packet_identifier=1)).marked("qos"),
    )

Steps follow each other; each side has received what the other sent before, unless a step is `crossing`.  A step is one
or more packets that arrive together, as packet objects or, for packets that an encoder cannot produce, as bytes.  A
mark names the field that the rule must blame (empty for the complete packet); the rule must find nothing else.

Several clients have several connections to the same server, `on` the second, the third and so on:

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

A frame with one packet is a packet of a step; an upgrade and frames without a complete packet are `silent` steps.

`segments` turns a conversation into the TCP segments of its capture, and `expected` returns the marked packets and
fields.
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
from mqttscope.session.connection import host_of, port_of

V5 = ProtocolVersion.V5
CLIENT = "client"
SERVER = "server"


class ExampleError(MqttscopeError, ValueError):
    """The text of an example is wrong; the message contains its file and line."""


@dataclass(slots=True, frozen=True)
class ExampleStep:
    """Something that one side does."""

    side: str
    """``client`` or ``server``."""
    packets: tuple[ControlPacket | bytes, ...] = ()
    after: float = 0.01
    """Seconds since the step before."""
    acknowledges: bool = False
    """Whether it only sends a TCP acknowledgment of everything received."""
    is_full: bool = False
    """Whether its segments announce a receive window of 0."""
    crosses: bool = False
    """Whether it is sent before the other side's last steps have arrived."""
    is_lost: bool = False
    """Whether it is missing from the capture."""
    silent: bool = False
    """Whether its bytes hold no packet: an HTTP upgrade, a WebSocket ping."""
    close: str = ""
    """How it ends the transport, if it does: ``fin``, ``reset``, or ``fin-reset``."""
    connection: int = 0
    """Number of its connection; each connection begins with its first step."""
    marks: tuple[tuple[int | None, str], ...] = ()
    """Index of the packet in the step (``None`` for the connection) and the field to blame."""

    def marked(self, *fields: str, at: int | None = -1) -> ExampleStep:
        """The step with fields that the rule must blame, in the last packet or the packet with that index.

        With ``None``, the rule must blame the connection: something that should have come before.
        """
        index = None if at is None else at if at >= 0 else len(self.packets) + at
        where = None if self.close or self.silent else index
        return replace(self, marks=(*self.marks, *((where, name) for name in fields)))


@dataclass(slots=True, frozen=True)
class ExampleConversation:
    """One connection from its beginning, or from its middle; or several connections to one server."""

    title: str
    steps: tuple[ExampleStep, ...]
    version: ProtocolVersion = V5
    """Version of packets before a CONNECT."""
    handshake: bool = True
    """Whether the capture contains the TCP handshake; otherwise it joins in the middle."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the rule that the example needs."""
    server: str = "10.0.0.2:1883"


def conversation(
    title: str,
    *steps: ExampleStep,
    version: ProtocolVersion | None = None,
    handshake: bool = True,
    settings: dict[str, Any] | None = None,
    server: str = "10.0.0.2:1883",
) -> ExampleConversation:
    """A conversation; by default with the version of its first CONNECT, or 5.0 without any CONNECT."""
    if version is None:
        packets = [packet for step in steps for packet in step.packets]
        version = next((packet.version for packet in packets if isinstance(packet, Connect)), V5)
    return ExampleConversation(title, steps, version, handshake, settings or {}, server)


ExamplePart = str | Callable[[], list[ExampleConversation]]


class Examples:
    """Examples of a class of rules, read on first access."""

    def __init__(self, parts: tuple[ExamplePart, ...]) -> None:
        self.parts = parts
        self.conversations: list[ExampleConversation] | None = None

    def __get__(self, instance: object, owner: type) -> list[ExampleConversation]:
        if self.conversations is None:
            conversations: list[ExampleConversation] = []
            for part in self.parts:
                conversations += _parse(part, owner) if isinstance(part, str) else part()
            self.conversations = conversations
        return self.conversations


def examples(*parts: ExamplePart) -> Any:
    """Examples as an attribute of a rule: texts, and functions that return lists of conversations.

    They are read on first access, which linting never needs.
    """
    return Examples(parts)


def _parse(text: str, owner: type) -> list[ExampleConversation]:
    """The conversations of a text in the file of a class; an error contains the file and the line in it."""
    # Imported late, since linting reads no examples, and by its name, since it imports this module.
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


def client(*packets: ControlPacket | bytes, after: float = 0.01) -> ExampleStep:
    return ExampleStep(CLIENT, packets, after)


def server(*packets: ControlPacket | bytes, after: float = 0.01) -> ExampleStep:
    return ExampleStep(SERVER, packets, after)


def crossing(step: ExampleStep) -> ExampleStep:
    """The step, sent before the other side's last steps have arrived."""
    return replace(step, crosses=True)


def lost(step: ExampleStep) -> ExampleStep:
    """The step, missing from the capture."""
    return replace(step, is_lost=True)


def silent(step: ExampleStep) -> ExampleStep:
    """The step, with bytes that hold no MQTT Control Packet."""
    return replace(step, silent=True)


def acknowledges(side: str, after: float = 0.01) -> ExampleStep:
    """A side sends only a TCP acknowledgment of everything received."""
    return ExampleStep(side, (), after, acknowledges=True)


def on(connection: int, *steps: ExampleStep) -> tuple[ExampleStep, ...]:
    """The steps, on the connection with this number, counted from 0."""
    return tuple(replace(step, connection=connection) for step in steps)


def closes(side: str, how: str = "fin", after: float = 0.01) -> ExampleStep:
    """A side ends the TCP connection: ``fin`` in good order, ``reset`` at once.

    With ``fin-reset`` it sends FIN, and then RST when more data arrives: a program that closes its socket.
    """
    return ExampleStep(side, (), after, close=how)


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
) -> tuple[ExampleStep, ExampleStep]:
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
    """Bytes of a packet in hexadecimal; each line may end with a comment after ``#``."""
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in text.splitlines()))


KEY = "dGhlIHNhbXBsZSBub25jZQ=="
_MASK = b"\x12\x34\x56\x78"


def upgrade_request(offered: str | None = "mqtt", path: str = "/mqtt") -> bytes:
    """The HTTP request for a WebSocket; ``offered`` is the list of subprotocols, ``None`` for no header."""
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
    """The HTTP response that accepts it; ``selected`` is the subprotocol, ``None`` for no header."""
    return _head(
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {accept_for(KEY)}",
        *_subprotocol(selected),
    )


def upgraded(offered: str | None = "mqtt", selected: str | None = "mqtt") -> tuple[ExampleStep, ExampleStep]:
    return silent(client(upgrade_request(offered))), silent(server(upgrade_response(selected)))


def framed(
    *content: ControlPacket | bytes,
    masked: bool = True,
    opcode: int = BINARY,
    fin: bool = True,
    version: ProtocolVersion = V5,
) -> bytes:
    """One frame with these packets or bytes; clients mask their frames, servers do not."""
    payload = b"".join(part if isinstance(part, bytes) else encode(part, version) for part in content)
    first, mark = fin << 7 | opcode, masked << 7
    if len(payload) < 126:
        head = bytes((first, mark | len(payload)))
    else:
        head = bytes((first, mark | 126)) + len(payload).to_bytes(2, "big")
    return head + _MASK + unmask(payload, _MASK) if masked else head + payload


def silent_frame(side: str, payload: bytes, *, opcode: int, fin: bool = True) -> ExampleStep:
    """A frame without a complete packet: a ping of the WebSocket itself, or part of a packet."""
    step = client if side == CLIENT else server
    return silent(step(framed(payload, masked=side == CLIENT, opcode=opcode, fin=fin)))


def web_opened(version: ProtocolVersion = V5) -> tuple[ExampleStep, ...]:
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
class _TcpSide:
    """TCP state of one side."""

    key: bytes
    sequence: int
    """Sequence number of its next byte."""
    acknowledges: int = 0
    """Its acknowledgment of the other side's bytes."""


@dataclass(slots=True)
class _Tape:
    """Captured segments of all connections."""

    capture: str
    now_ns: int = START_NS
    segments: list[Segment] = field(default_factory=list)


@dataclass(slots=True)
class _ConnectionWire:
    """Both sides of one connection."""

    tape: _Tape
    client: _TcpSide
    server: _TcpSide
    version: ProtocolVersion

    def send(
        self, side: _TcpSide, flags: int, payload: bytes = b"", *, captured: bool = True, window: int = 65_535
    ) -> None:
        """Send a segment; unless it is lost, the capture contains it."""
        if captured:
            tape = self.tape
            number = len(tape.segments) + 1
            sequence, acknowledges = side.sequence & 0xFFFFFFFF, side.acknowledges & 0xFFFFFFFF
            tape.segments.append(
                Segment(side.key, sequence, acknowledges, flags, window, payload, 0, number, tape.now_ns, tape.capture)
            )
        side.sequence += len(payload) + bool(flags & SYN) + bool(flags & FIN)


def step_bytes(step: ExampleStep, version: ProtocolVersion) -> tuple[list[bytes], ProtocolVersion]:
    """The bytes of each packet of a step, and the version used after it."""
    parts = []
    for packet in step.packets:
        if isinstance(packet, bytes):
            parts.append(packet)
            continue
        if isinstance(packet, Connect):
            version = packet.version
        parts.append(encode(packet, version))
    return parts, version


def segments(conversation: ExampleConversation, chunk: int = 0, capture: str = "example") -> list[Segment]:
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


def _connected(conversation: ExampleConversation, tape: _Tape, number: int) -> _ConnectionWire:
    """A connection that begins now."""
    address = bytes(int(part) for part in host_of(conversation.server).split("."))
    port = int(port_of(conversation.server))
    client_port = _CLIENT_PORT + number
    there = direction_key(bytes((10, 0, 0, 4)) + address, _ports(client_port, port))
    back = direction_key(address + bytes((10, 0, 0, 4)), _ports(port, client_port))
    wire = _ConnectionWire(tape, _TcpSide(there, 1_000), _TcpSide(back, 900_000), conversation.version)
    if conversation.handshake:
        wire.send(wire.client, SYN)
        wire.server.acknowledges = wire.client.sequence
        wire.send(wire.server, SYN | ACK)
        wire.client.acknowledges = wire.server.sequence
        wire.send(wire.client, ACK)
    wire.client.acknowledges, wire.server.acknowledges = wire.server.sequence, wire.client.sequence
    return wire


def _play(wire: _ConnectionWire, step: ExampleStep, data: bytes, chunk: int) -> None:
    side, other = (wire.client, wire.server) if step.side == CLIENT else (wire.server, wire.client)
    if not step.crosses:
        side.acknowledges = other.sequence
    if step.acknowledges:
        wire.send(side, ACK, window=0 if step.is_full else 65_535)
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
        # The other side's acknowledgment proves that the bytes arrived and only the capture lost them.
        other.acknowledges = side.sequence
        wire.send(other, ACK)
        wire.tape.now_ns += 1_000_000_000


def expected(conversation: ExampleConversation) -> list[tuple[int | None, str]]:
    """The marked places: number of the packet in the capture (``None`` for the connection) and field."""
    wanted: list[tuple[int | None, str]] = []
    number = 0
    for step in conversation.steps:
        wanted += ((None if index is None else number + index, name) for index, name in step.marks)
        if not step.is_lost and not step.silent:
            number += len(step.packets)
    return wanted


def _ports(source: int, destination: int) -> bytes:
    return source.to_bytes(2, "big") + destination.to_bytes(2, "big")


def chunkings(conversation: ExampleConversation) -> Iterator[list[Segment]]:
    """The segments of the conversation with every step in one piece, and cut into pieces of several sizes."""
    for chunk in (0, 1, 2, 5):
        yield segments(conversation, chunk)
