"""JSON Lines, schema 1: one event per line, the stable interface for scripts (``docs/jsonl.md``)."""

from __future__ import annotations

import json.encoder
import re
from typing import Any

import orjson

from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt.constants import REASON_CODES, Direction, PacketType
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.view import PAYLOAD_LIMIT, binary, malformed_view, printable, properties_view, redacted, text, view
from mqttscope.net.frame import CaptureError
from mqttscope.report.base import Clock, Sink, may_hold_password, without_query_values
from mqttscope.session.connection import Connection

SCHEMA = 1
_C2S = Direction.CLIENT_TO_SERVER
_NAMES = {int(kind): kind.name.lower() for kind in PacketType}
_FLAGS = tuple(
    f'"dup":{"true" if bits & 8 else "false"},"qos":{bits >> 1 & 3},"retain":{"true" if bits & 1 else "false"}'
    for bits in range(16)
)
_TOPICS_KEPT = 10_000
_TOPIC_KEPT_CHARACTERS = 256
_PREFIXES_KEPT = 20_000
_quote = json.encoder.encode_basestring


_HARMFUL = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
"""Control and format characters, line and paragraph separators: what a terminal or a reader of lines may obey."""


def harmless(line: bytes) -> bytes:
    r"""JSON with control and format characters as ``\uXXXX``: the same values, nothing for a terminal to obey."""
    shown = line.decode()
    if shown[:-1].isprintable():
        return line  # quicker than the search, and true of nearly all lines
    return _HARMFUL.sub(_escaped, shown).encode()


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def dumps(value: Any) -> bytes:
    """Compact JSON."""
    return orjson.dumps(value)


class JsonLines:
    """Writes every event as one line.

    The part of a line that names the connection is the same for all its packets, so it is made once per direction and
    kept until the connection changes.
    """

    def __init__(
        self, sink: Sink, *, payload_limit: int = PAYLOAD_LIMIT, show_secrets: bool = False, show_raw: bool = False
    ) -> None:
        self.sink = sink
        self.payload_limit = payload_limit
        self.show_secrets = show_secrets
        self.show_raw = show_raw or show_secrets
        """Whether the bytes of damaged packets are shown as they are, a password in them included."""
        self._clock = Clock()
        self._capture = ""
        self._capture_json = '""'
        self._topics: dict[str, str] = {}
        self._prefixes: dict[int, tuple[int, str]] = {}
        self._second: int | None = None
        self._time = ""

    def feed(self, event: Event) -> None:
        """Write one event."""
        line = self.packet(event) if type(event) is PacketEvent else self.other(event)
        if line is not None:
            self.sink.write(line if line.isascii() and b"\x7f" not in line else harmless(line))

    def close(self) -> None:
        """Nothing is held back."""

    def packet(self, event: PacketEvent) -> bytes:
        """The line of a packet."""
        packet = event.packet
        kind = packet.packet_type
        raw = packet.raw
        length = len(raw) + packet.missing
        header = 2 if raw[1] < 0x80 else _header(raw)
        name = _NAMES[kind]
        head = (
            f'{self._head("packet", event)},"packet":{event.number},"type":"{name}","length":{length},'
            f'"remaining_length":{length - header},"{name}":'
        )
        # Nearly all lines are publishes and their acknowledgements: these are written without building objects first.
        if kind == 3:
            return self._publish(head, packet, event.connection.version, event.topic)  # type: ignore[arg-type]
        if 4 <= kind <= 7 and not packet.properties and packet.header_flags is None:  # type: ignore[attr-defined]
            return f"{head}{_acknowledgement(packet, event.connection.version)}}}\n".encode()
        shown = view(packet, event.connection.version, limit=self.payload_limit, show_secrets=self.show_secrets)
        return head.encode() + dumps(shown) + b"}\n"

    def _publish(self, head: str, packet: Publish, version: int, topic: str | None) -> bytes:
        """The line of a PUBLISH: what `view` gives, as JSON."""
        payload = packet.payload
        name = packet.topic_name
        shown = self._topics.get(name) or self._topic(name)
        resolved = shown
        if topic is None:
            resolved = "null"
        elif topic is not name:
            resolved = self._topics.get(topic) or self._topic(topic)
        identifier: int | str | None = packet.packet_identifier
        if identifier is None:
            identifier = "null"
        block = ""
        if version == 5:
            properties = packet.properties
            block = '"properties":{},'
            if properties is not None and properties.items:
                block = f'"properties":{dumps(properties_view(properties, self.payload_limit)).decode()},'
        if not packet.missing and len(payload) <= self.payload_limit:
            content = printable(payload)
            if content is not None:
                return (
                    f'{head}{{{_FLAGS[packet.raw[0] & 15]},"topic_name":{shown},"packet_identifier":{identifier},'
                    f'{block}"payload":{{"length":{len(payload)},"text":{dumps(content).decode()}}}}},"topic":{resolved}}}\n'
                ).encode()
        value = dumps(binary(payload, self.payload_limit, packet.missing)).decode()
        missing = f',"missing":{packet.missing}' if packet.missing else ""
        return (
            f'{head}{{{_FLAGS[packet.raw[0] & 15]},"topic_name":{shown},"packet_identifier":{identifier},{block}'
            f'"payload":{value}}},"topic":{resolved}{missing}}}\n'
        ).encode()

    def _topic(self, topic: str) -> str:
        """JSON of a topic; topics recur, so the latest are kept."""
        kept = self._topics.get(topic)
        if kept is None:
            if len(self._topics) >= _TOPICS_KEPT:
                self._topics.clear()
            kept = dumps(text(topic)).decode()
            if len(topic) <= _TOPIC_KEPT_CHARACTERS:
                self._topics[topic] = kept
        return kept

    def _head(self, name: str, event: Any) -> str:
        """Everything before the packet number: capture, frame, time, connection, direction."""
        connection: Connection = event.connection
        capture = event.capture
        if capture is not self._capture:
            self._capture, self._capture_json = capture, dumps(text(capture)).decode()
        client = event.direction is _C2S
        key = connection.number * 2 + client
        kept = self._prefixes.get(key)
        if kept is None or kept[0] != connection.revision:
            if len(self._prefixes) >= _PREFIXES_KEPT:
                self._prefixes.clear()
            kept = connection.revision, _connection_part(connection, event.direction)
            self._prefixes[key] = kept
        second, nanosecond = divmod(event.timestamp_ns, 1_000_000_000)
        if second != self._second:
            self._second = second
            self._time = self._clock.iso(event.timestamp_ns).partition(".")[0]
        return (
            f'{{"schema":{SCHEMA},"event":"{name}","capture":{self._capture_json},"frame":{event.frame},'
            f'"timestamp":"{self._time}.{nanosecond:09d}Z","timestamp_ns":{event.timestamp_ns},{kept[1]}'
        )

    def other(self, event: Event) -> bytes | None:
        """The line of any other event, ``None`` for one that has none."""
        if isinstance(event, MalformedEvent):
            return self._malformed(event)
        if isinstance(event, GapEvent):
            return f'{self._head("gap", event)},"length":{event.length},"reason":"{event.reason}"}}\n'.encode()
        if isinstance(event, UnparsedEvent):
            found = event.unparsed
            shown: dict[str, Any] = {"length": found.length, "reason": found.reason, "missing": found.missing}
            if found.packet_type is not None:
                shown["packet_type"] = found.packet_type
            if self.show_raw or not may_hold_password(event):
                raw = found.raw if self.show_raw else redacted(found.raw, event.connection.version)
                shown["raw"] = binary(raw, self.payload_limit)
            else:
                shown["raw"] = {"length": len(found.raw), "redacted": True}
            return f"{self._head('unparsed', event)},{dumps(shown).decode()[1:]}\n".encode()
        if isinstance(event, ConnectionOpened | ConnectionClosed):
            return dumps(self.connection(event)) + b"\n"
        if isinstance(event, CaptureError):
            error = {"schema": SCHEMA, "event": "capture_error", "capture": text(event.capture)}
            error |= {"message": text(event.message), "offset": event.offset, "frames": event.frames}
            return dumps(error) + b"\n"
        return None

    def _malformed(self, event: MalformedEvent) -> bytes:
        found = event.malformed
        version = event.connection.version
        kind = event.type
        shown: dict[str, Any] = {
            "packet": event.number,
            "type": kind,
            "length": len(found.raw) + found.missing,
            "malformed": malformed_view(found, version, limit=self.payload_limit, show_secrets=self.show_raw),
        }
        if not self.show_raw and may_hold_password(event):
            shown["malformed"] |= {"raw": "2a" * min(len(found.raw), self.payload_limit), "redacted": True}
        if found.packet is not None and kind is not None:
            shown[kind] = view(
                found.packet,
                version,
                limit=self.payload_limit,
                show_secrets=self.show_secrets,
                only=found.fields_read,
            )
            if kind == "publish":
                shown["topic"] = None if event.topic is None else text(event.topic)
        return f"{self._head('malformed', event)},{dumps(shown).decode()[1:]}\n".encode()

    def connection(self, event: ConnectionOpened | ConnectionClosed) -> dict[str, Any]:
        """The object of a connection that opened or closed."""
        connection = event.connection
        closed = isinstance(event, ConnectionClosed)
        shown: dict[str, Any] = {
            "schema": SCHEMA,
            "event": "connection_closed" if closed else "connection_opened",
            "capture": text(event.capture),
            "frame": event.frame,
            "timestamp": self._clock.iso(event.timestamp_ns),
            "timestamp_ns": event.timestamp_ns,
            "connection": connection.number,
            "client": connection.client,
            "server": connection.server,
            "transport": connection.transport,
            "handshake_seen": connection.handshake_seen,
            "roles_known": connection.roles_known,
            "roles_evidence": connection.roles_evidence,
        }
        details = dict(connection.details)
        counters = details.pop("tcp", None)
        path = details.get("path")
        if not self.show_secrets and isinstance(path, str):
            details["path"] = without_query_values(path)
        if details:
            shown[connection.transport] = _plain(details)
        if counters is not None:
            shown["tcp"] = counters
        if closed:
            self._prefixes.pop(connection.number * 2, None)
            self._prefixes.pop(connection.number * 2 + 1, None)
            identifier = connection.client_identifier
            shown |= {
                "client_identifier": None if identifier is None else text(identifier),
                "version": connection.version.text,
                "version_known": connection.version_known,
                "version_evidence": connection.version_evidence,
                "how": connection.closed_how,
                "by": connection.closed_by,
                "disconnect_by": connection.disconnect_by,
                "disconnect_reason": connection.disconnect_reason,
                "packets": {
                    "client_to_server": connection.client_side.packets,
                    "server_to_client": connection.server_side.packets,
                },
                "bytes": {
                    "client_to_server": connection.client_side.bytes,
                    "server_to_client": connection.server_side.bytes,
                },
                "gaps": connection.gaps,
                "gap_bytes": connection.gap_bytes,
            }
        return shown


def _acknowledgement(packet: Any, version: int) -> str:
    """What `view` gives for PUBACK, PUBREC, PUBREL and PUBCOMP without properties, as JSON."""
    if version < 5:
        return f'{{"packet_identifier":{packet.packet_identifier}}}'
    code = packet.reason_code or 0
    reason = REASON_CODES.get(code, "Unknown")
    return (
        f'{{"packet_identifier":{packet.packet_identifier},"reason_code":{code},"reason":"{reason}","properties":{{}}}}'
    )


def _plain(value: Any) -> Any:
    """Details of the transport: text from the wire may not be UTF-8."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _connection_part(connection: Connection, direction: Direction) -> str:
    identifier = connection.client_identifier
    return dumps(
        {
            "connection": connection.number,
            "client": connection.client,
            "server": connection.server,
            "direction": str(direction),
            "client_identifier": None if identifier is None else text(identifier),
            "version": connection.version.text,
            "version_known": connection.version_known,
        }
    ).decode()[1:-1]


def _header(raw: bytes) -> int:
    """Length of a fixed header."""
    at = 1
    while raw[at] & 0x80:
        at += 1
    return at + 1
