"""From a conversation to TCP segments as a capture would have them, and what its marks expect.

MQTT over WebSocket in examples of rules.

    conversation(
        "text frames",
        *web_opened(),
        client(framed(Pingreq(), opcode=TEXT)),
        server(framed(Pingresp(), masked=False)),
    )

Frames with one packet each are packets of a step; an upgrade and frames without a whole packet are `silent` steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.examples import CLIENT, Conversation, Step, client, make_connect, server, silent
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Connect
from mqttscope.net.http_upgrade import accept_for
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN, Segment, direction_key
from mqttscope.net.websocket import BINARY, unmask

V5 = ProtocolVersion.V5
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
    """Request and response."""
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
    """A frame without a whole packet: a ping of the WebSocket itself, or part of a packet."""
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
    """How far it says to have received the other's stream."""


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
    if step.close == "reset":
        wire.send(side, RST | ACK)
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
    """What the marks say: number of the packet in the capture (``None`` for the connection) and field."""
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
    """The conversation with every step whole, and cut into pieces of several sizes."""
    for chunk in (0, 1, 2, 5):
        yield segments(conversation, chunk)
