"""Lines of packets, which are nearly all of JSON Lines, written as text around parts that recur.

A line is what `mqtt.view.view` gives, as JSON behind an envelope.  Publishes, their acknowledgements and pings are
written without building objects first; a test holds both ways equal.
"""

from __future__ import annotations

from typing import Any

import orjson

from mqttscope.events import PacketEvent
from mqttscope.mqtt.constants import REASON_CODES, Direction, PacketType, ProtocolVersion
from mqttscope.mqtt.packets import Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.mqtt.properties import EMPTY, Properties
from mqttscope.mqtt.view import binary, printable, properties_view, text, view
from mqttscope.redact.packets import DISGUISED, hides_payload
from mqttscope.redact.tokens import SHORTEST, is_suspect, without_tokens
from mqttscope.redact.values import without_tokens_of
from mqttscope.report.base import Clock
from mqttscope.session.connection import Connection

SCHEMA = 1
TEXTS_KEPT = 10_000
"""Topics, and as many property blocks, whose JSON is kept."""
LONGEST_KEPT = 512
"""Characters of the longest JSON of a topic or a property block that is kept."""
CONNECTIONS_KEPT = 10_000
"""Connections whose part of the line is kept."""
STARTS_KEPT = 10_000
"""Beginnings of packets, by their first three bytes, whose part of the line is kept."""

_C2S = Direction.CLIENT_TO_SERVER
_S2C = Direction.SERVER_TO_CLIENT
_V5 = ProtocolVersion.V5
_SECOND = 1_000_000_000
_NAMES = {int(kind): kind.name.lower() for kind in PacketType}
_FLAGS = tuple(
    f'"dup":{"true" if bits & 8 else "false"},"qos":{bits >> 1 & 3},"retain":{"true" if bits & 1 else "false"}'
    for bits in range(16)
)
_ACKNOWLEDGEMENTS = frozenset((Puback, Pubrec, Pubrel, Pubcomp))
_PINGS = frozenset((Pingreq, Pingresp))


def dumps_text(value: Any) -> str:
    """Compact JSON."""
    return orjson.dumps(value).decode()


class PacketLines:
    """Makes the line of each packet, and the envelope of other events.

    What recurs is made once and kept, as far as the limits above allow: the second of the time, what names the
    connection (until that changes), what follows from the first bytes of the packet, topics and property blocks.
    """

    def __init__(self, payload_limit: int, *, show_secrets: bool) -> None:
        self.payload_limit = payload_limit
        self.show_secrets = show_secrets
        self._clock = Clock()
        self._capture: str | None = None
        self._opening = ""
        self._second: str | None = None
        self._time = ""
        self._connections: dict[int, _Introduction] = {}
        self._starts: dict[bytes, str] = {}
        self._topics: dict[str, str] = {}
        self._blocks: dict[tuple[tuple[int, Any], ...], str] = {}

    def line(self, event: PacketEvent) -> str:
        """The line of a packet."""
        packet = event.packet
        connection = event.connection
        if event.capture is not self._capture:
            self._open(event.capture)
        nanoseconds = str(event.timestamp_ns)
        fraction = nanoseconds[-9:] if nanoseconds[:-9] == self._second else self._turn(event.timestamp_ns)
        parts = self._connections.get(connection.number)
        if parts is None or parts[0] != connection.revision:
            parts = self._introduce(connection)
        raw = packet.raw
        start = self._starts.get(raw[:3])
        if start is None or packet.missing:
            start = self._start(raw, packet.missing)
        head = (
            f'{{"schema":1,"event":"packet",{self._opening}{event.frame},"timestamp":"{self._time}.{fraction}Z",'
            f'"timestamp_ns":{nanoseconds},{parts[1] if event.direction is _C2S else parts[2]},"packet":{event.number},'
            f'"type":"{start}'
        )
        if type(packet) is Publish and (name := packet.topic_name) not in DISGUISED and not connection.doubtful:
            topic = event.topic
            shown = resolved = self._topics.get(name) or self._topic(name)
            if topic is not name:
                resolved = "null" if topic is None else self._topics.get(topic) or self._topic(topic)
            identifier = packet.packet_identifier
            properties = ""
            if connection.version is _V5:
                block = packet.properties or EMPTY
                properties = self._blocks.get(block.items) or self._block(block)
            payload = packet.payload
            if packet.missing or len(payload) > self.payload_limit:
                if not self.show_secrets:
                    payload = without_tokens(payload, self.payload_limit)
                value = dumps_text(binary(payload, self.payload_limit, packet.missing))
                missing = f',"missing":{packet.missing}' if packet.missing else ""
                end = f'{value}}},"topic":{resolved}{missing}}}\n'
            else:
                content = printable(payload)
                if len(payload) >= SHORTEST and not self.show_secrets:
                    looked_at = payload.decode("latin-1") if content is None else content
                    if is_suspect(looked_at):
                        payload = without_tokens(payload)
                        content = printable(payload)
                shown_as = f'"hex":"{payload.hex()}"' if content is None else f'"text":{dumps_text(content)}'
                end = f'{{"length":{len(payload)},{shown_as}}}}},"topic":{resolved}}}\n'
            return (
                f'{head}{shown},"packet_identifier":{"null" if identifier is None else identifier},{properties}'
                f'"payload":{end}'
            )
        if packet.header_flags is None:
            if type(packet) in _ACKNOWLEDGEMENTS and not packet.properties:  # type: ignore[attr-defined]
                identifier = packet.packet_identifier  # type: ignore[attr-defined]
                if connection.version is not _V5:
                    return f'{head}{{"packet_identifier":{identifier}}}}}\n'
                code = packet.reason_code or 0  # type: ignore[attr-defined]
                return f'{head}{{"packet_identifier":{identifier},{_OUTCOMES[code]}'
            if type(packet) in _PINGS:
                return f"{head}{{}}}}\n"
        if type(packet) is Publish:
            return self._doubtful(head, event, packet)
        public = packet if self.show_secrets else without_tokens_of(packet, self.payload_limit)
        fields = view(public, connection.version, limit=self.payload_limit, show_secrets=self.show_secrets)
        return f"{head}{dumps_text(fields)}}}\n"

    def _doubtful(self, head: str, event: PacketEvent, packet: Publish) -> str:
        """The line of a PUBLISH whose payload may be the rest of a CONNECT."""
        hide = not self.show_secrets and hides_payload(packet, event.connection.side(event.direction).doubt)
        shown = packet if self.show_secrets else without_tokens_of(packet, self.payload_limit)
        fields = view(shown, event.connection.version, limit=self.payload_limit, hide_payload=hide)
        head = head[: head.rindex('"publish":')]
        topic = None if event.topic is None else text(event.topic)
        more: dict[str, Any] = {"publish": fields, "topic": topic}
        if packet.missing:
            more["missing"] = packet.missing
        return f"{head}{dumps_text(more)[1:]}\n"

    def envelope(self, name: str, event: Any) -> str:
        """What the line of an event that is no packet begins with: capture, frame, time, connection, direction."""
        if event.capture is not self._capture:
            self._open(event.capture)
        parts = self._introduce(event.connection)
        fraction = self._turn(event.timestamp_ns)
        return (
            f'{{"schema":{SCHEMA},"event":"{name}",{self._opening}{event.frame},"timestamp":"{self._time}.{fraction}Z",'
            f'"timestamp_ns":{event.timestamp_ns},{parts[1] if event.direction is _C2S else parts[2]}'
        )

    def forget(self, connection: Connection) -> None:
        """The connection has ended: no further line will name it."""
        self._connections.pop(connection.number, None)

    def _open(self, capture: str) -> None:
        self._capture = capture
        self._opening = f'"capture":{dumps_text(text(capture))},"frame":'

    def _turn(self, timestamp_ns: int) -> str:
        """Go to another second; returns the nanoseconds in it."""
        second, fraction = divmod(timestamp_ns, _SECOND)
        self._time = self._clock.iso(timestamp_ns).partition(".")[0]
        # Only then are all digits but the last nine the second as it is kept.
        self._second = str(second) if second > 0 else None
        return f"{fraction:09d}"

    def _introduce(self, connection: Connection) -> _Introduction:
        """The parts of a line that name the connection, for both directions."""
        kept = self._connections.get(connection.number)
        if kept is None or kept[0] != connection.revision:
            if len(self._connections) >= CONNECTIONS_KEPT:
                self._connections.clear()
            kept = connection.revision, _names(connection, _C2S), _names(connection, _S2C)
            self._connections[connection.number] = kept
        return kept

    def _start(self, raw: bytes, missing: int) -> str:
        """Type, lengths, and of a PUBLISH the flags: all of it follows from the first bytes, if nothing is missing."""
        header = 2
        while raw[header - 1] & 0x80:
            header += 1
        length = len(raw) + missing
        name = _NAMES[raw[0] >> 4]
        start = f'{name}","length":{length},"remaining_length":{length - header},"{name}":'
        if name == "publish":
            start += f'{{{_FLAGS[raw[0] & 15]},"topic_name":'
        if header <= 3 and not missing:
            if len(self._starts) >= STARTS_KEPT:
                self._starts.clear()
            self._starts[raw[:3]] = start
        return start

    def _topic(self, topic: str) -> str:
        made = dumps_text(text(topic))
        if len(made) <= LONGEST_KEPT:
            if len(self._topics) >= TEXTS_KEPT:
                self._topics.clear()
            self._topics[topic] = made
        return made

    def _block(self, block: Properties) -> str:
        made = f'"properties":{dumps_text(properties_view(block, self.payload_limit))},'
        # What a limit cut is short here, but may be long in the block.
        if len(made) <= LONGEST_KEPT and '"truncated"' not in made:
            if len(self._blocks) >= TEXTS_KEPT:
                self._blocks.clear()
            self._blocks[block.items] = made
        return made


_Introduction = tuple[int, str, str]
"""Revision of the connection it holds for, from the client, from the server."""

_OUTCOMES = tuple(
    f'"reason_code":{code},"reason":"{REASON_CODES.get(code, "Unknown")}","properties":{{}}}}}}\n'
    for code in range(256)
)
"""How an acknowledgement of 5.0 without properties ends, by reason code."""


def _names(connection: Connection, direction: Direction) -> str:
    identifier = connection.client_identifier
    return dumps_text(
        {
            "connection": connection.number,
            "client": connection.client,
            "server": connection.server,
            "direction": str(direction),
            "client_identifier": None if identifier is None else text(identifier),
            "version": connection.version.text,
            "version_known": connection.version_known,
        }
    )[1:-1]
