"""JSON Lines, schema 1: one event per line, the stable interface for scripts (``docs/jsonl.md``)."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from mqttscope.events import (
    ConnectionClosed,
    ConnectionEnding,
    ConnectionOpened,
    DiscardedEvent,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt.view import PAYLOAD_LIMIT, binary, malformed_view, text, view
from mqttscope.net.frame import CaptureError
from mqttscope.redact.addresses import without_secrets
from mqttscope.redact.packets import covered
from mqttscope.redact.text import public_details
from mqttscope.report.base import Clock, Sink, fields_shown, hidden_of
from mqttscope.report.packet_lines import SCHEMA, PacketLines, dumps_text
from mqttscope.session.connection import Connection

__all__ = ["SCHEMA", "JsonLines", "dumps", "harmless"]

_HARMFUL = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
"""Control and format characters, line and paragraph separators: what a terminal or a reader of lines may obey."""


def harmless(line: bytes) -> bytes:
    r"""JSON with control and format characters as ``\uXXXX``: the same values, nothing for a terminal to obey."""
    return _without_harm(line.decode()).encode()


def _without_harm(line: str) -> str:
    if (line.isascii() and "\x7f" not in line) or line[:-1].isprintable():
        return line  # quicker than the search, and true of nearly all lines
    return _HARMFUL.sub(_escaped, line)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def dumps(value: Any) -> bytes:
    """Compact JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:
        # Counts of drops and times between clocks that jump may need more than 64 bits.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


LINES_TOGETHER = 50
"""So many lines are written at once to a sink that gathers them anyway."""


class JsonLines:
    """Writes every event as one line.

    A sink may say by an attribute ``immediate`` that nobody waits for single lines; else each is written at once.
    """

    def __init__(self, sink: Sink, *, payload_limit: int = PAYLOAD_LIMIT, show_secrets: bool = False) -> None:
        self.sink = sink
        self.payload_limit = payload_limit
        self.show_secrets = show_secrets
        self._clock = Clock()
        self._lines = PacketLines(payload_limit, show_secrets=show_secrets)
        self._line = self._lines.line
        self._waiting: list[str] = []
        self._together = LINES_TOGETHER if getattr(sink, "immediate", True) is False else 1

    def feed(self, event: Event) -> None:
        """Write one event."""
        line = self._line(event) if type(event) is PacketEvent else self.other(event)
        if line is not None:
            self._waiting.append(line)
            if len(self._waiting) >= self._together:
                self.close()

    def close(self) -> None:
        """Write what waits."""
        # Taken before it is written, so that an interruption cannot write it twice.
        lines, self._waiting = self._waiting, []
        whole = "".join(lines)
        if not whole.isascii() or "\x7f" in whole:
            whole = "".join(map(_without_harm, lines))
        if whole:
            self.sink.write(whole.encode())

    flush = close

    def other(self, event: Event) -> str | None:
        """The line of any other event, ``None`` for one that has none."""
        if isinstance(event, MalformedEvent):
            return self._malformed(event)
        if isinstance(event, GapEvent):
            return f'{self._lines.envelope("gap", event)},"length":{event.length},"reason":"{event.reason}"}}\n'
        if isinstance(event, UnparsedEvent):
            found = event.unparsed
            shown: dict[str, Any] = {"length": found.length, "reason": found.reason, "missing": found.missing}
            if found.packet_type is not None:
                shown["packet_type"] = found.packet_type
            hidden = [] if self.show_secrets else hidden_of(event)
            if hidden and hidden[0] == (0, len(found.raw)):
                shown["raw"] = {"length": len(found.raw), "redacted": True}
            else:
                shown["raw"] = binary(covered(found.raw, hidden), self.payload_limit)
                if hidden:
                    shown["raw"]["redacted"] = True
            return f"{self._lines.envelope('unparsed', event)},{dumps_text(shown)[1:]}\n"
        if isinstance(event, ConnectionOpened | ConnectionClosed):
            return dumps_text(self.connection(event)) + "\n"
        if isinstance(event, ConnectionEnding):
            return f"{dumps_text(self._ending(event))}\n"
        if isinstance(event, DiscardedEvent):
            line = f'{self._lines.envelope("discarded", event)},"length":{event.length},"reason":"{event.reason}"}}\n'
            self._lines.forget(event.connection)  # it may be over, so that nothing else would
            return line
        if isinstance(event, CaptureError):
            error = {"schema": SCHEMA, "event": "capture_error", "capture": text(event.capture)}
            error |= {"message": text(without_secrets(event.message)), "offset": event.offset, "frames": event.frames}
            return dumps_text(error) + "\n"
        return None

    def _other_end(self, connection: Connection) -> dict[str, Any] | None:
        """How the side ended that did not end first."""
        other = connection.also_closed
        if other is None:
            return None
        return {
            "how": other.how,
            "frame": other.frame,
            "timestamp": self._clock.iso(other.timestamp_ns),
            "timestamp_ns": other.timestamp_ns,
        }

    def _malformed(self, event: MalformedEvent) -> str:
        found = event.malformed
        version = event.connection.version
        kind = event.type
        hidden = [] if self.show_secrets else hidden_of(event)
        shown: dict[str, Any] = {
            "packet": event.number,
            "type": kind,
            "length": len(found.raw) + found.missing,
            "malformed": malformed_view(
                found, limit=self.payload_limit, raw=covered(found.raw, hidden) if hidden else None
            ),
        }
        if found.packet is not None and kind is not None:
            shown[kind] = view(
                found.packet,
                version,
                limit=self.payload_limit,
                show_secrets=self.show_secrets,
                only=fields_shown(event, hidden),
            )
            if kind == "publish":
                topic = event.topic if "topic_name" in shown[kind] or not hidden else None
                shown["topic"] = None if topic is None else text(topic)
        return f"{self._lines.envelope('malformed', event)},{dumps_text(shown)[1:]}\n"

    def _ending(self, event: ConnectionEnding) -> dict[str, Any]:
        """The object of the first FIN or RST."""
        connection = event.connection
        identifier = connection.client_identifier
        return {
            "schema": SCHEMA,
            "event": "connection_ending",
            "capture": text(event.capture),
            "frame": event.frame,
            "timestamp": self._clock.iso(event.timestamp_ns),
            "timestamp_ns": event.timestamp_ns,
            "connection": connection.number,
            "client": connection.client,
            "server": connection.server,
            "client_identifier": None if identifier is None else text(identifier),
            "how": connection.closed_how,
            "by": connection.closed_by,
        }

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
        counters, proxy = details.pop("tcp", None), details.pop("proxy", None)
        if not self.show_secrets:
            details = public_details(details)
        if connection.decrypted:
            details["decrypted"] = True
        if details:
            shown[connection.transport] = _plain(details)
        if counters is not None:
            shown["tcp"] = counters
        if proxy is not None:
            shown["proxy"] = proxy
        if closed:
            self._lines.forget(connection)
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
                "discarded": {"segments": connection.discarded_segments, "bytes": connection.discarded_bytes},
                "copied_segments": connection.copied_segments,
                "one_sided": connection.one_sided,
                "also_closed": self._other_end(connection),
            }
        return shown


def _plain(value: Any) -> Any:
    """Details of the transport: text from the wire may not be UTF-8."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
