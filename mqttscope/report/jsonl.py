"""Writes events as JSON Lines, schema 1: one event per line, the stable interface for scripts (``docs/jsonl.md``).

A line is an envelope followed by the result of `mqtt.view.view`, as JSON.  Nearly all lines are packets: `PacketLines`
builds the lines of publishes, acknowledgements and pings as text from cached parts, without creating objects first.  A
test compares both ways.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import orjson

from mqttscope.dissect.acknowledgments import SILENCE_NS, tcp_acknowledged
from mqttscope.events import (
    ConnectionClosed,
    ConnectionEnding,
    ConnectionOpened,
    Event,
    LossEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt.constants import REASON_CODES, Direction, PacketType, ProtocolVersion
from mqttscope.mqtt.packets import Acknowledgement, Pingreq, Pingresp, Publish
from mqttscope.mqtt.properties import EMPTY, Properties
from mqttscope.mqtt.view import PAYLOAD_LIMIT, binary, malformed_view, printable, properties_view, text, view
from mqttscope.net.frame import CaptureError
from mqttscope.report.base import Clock, Sink
from mqttscope.report.public import fields_shown, hidden_of, public_event, public_packet
from mqttscope.secrets.addresses import transport_view, without_secrets
from mqttscope.secrets.credentials import starred_name, without_property_credentials
from mqttscope.secrets.forms import SHORTEST, suspicions, without_tokens
from mqttscope.secrets.packets import DISGUISED, hides_payload
from mqttscope.secrets.values import without_names_of, without_tokens_of
from mqttscope.session.capture_time import captured
from mqttscope.session.connection import Connection

__all__ = ["SCHEMA", "AcknowledgedLines", "EventJsonLines", "dumps", "harmless"]

SCHEMA: Final = 1
_dumps: Final = orjson.dumps

Names = Callable[[Connection, Direction], str]

LINES_TOGETHER: Final = 50
"""Number of lines written at once to a sink that collects its input."""


class EventJsonLines:
    """Writes every event as one line.

    Lines are written at once, unless the sink has an attribute ``immediate`` that is false: nobody waits for them.
    """

    def __init__(self, sink: Sink, *, payload_limit: int = PAYLOAD_LIMIT, show_secrets: bool = False) -> None:
        self.sink = sink
        self.payload_limit = payload_limit
        self.show_secrets = show_secrets
        self._clock = Clock()
        self._lines = PacketLines(payload_limit, show_secrets=show_secrets)
        self.packet_line = self._lines.line
        self._waiting: list[str] = []
        self._together = LINES_TOGETHER if getattr(sink, "immediate", True) is False else 1

    @property
    def packet_lines(self) -> PacketLines:
        """The maker of lines."""
        return self._lines

    def write_through(self, sink: Sink) -> None:
        """Write each line at once to another sink."""
        self.close()
        self.sink, self._together = sink, 1

    def feed(self, event: Event) -> None:
        """Write one event."""
        line = self._lines.line(event) if type(event) is PacketEvent else self.line(event)
        if line is not None:
            self._waiting.append(line)
            if len(self._waiting) >= self._together:
                self.close()

    def line(self, event: Event) -> str | None:
        """The event as a JSON line, or ``None``; not yet escaped by `harmless`."""
        return self._lines.line(event) if isinstance(event, PacketEvent) else self.other(event)

    def close(self) -> None:
        """Write the waiting lines."""
        # Taken before writing, so that an interruption cannot cause a second write.
        lines, self._waiting = self._waiting, []
        whole = "".join(lines)
        if not whole.isascii() or "\x7f" in whole:
            whole = "".join(map(_without_harm, lines))
        if whole:
            self.sink.write(whole.encode())

    def flush(self) -> None:
        """Write the waiting lines; the report does not end."""
        self.close()

    def other(self, event: Event) -> str | None:
        """The line of an event other than a packet, or ``None``."""
        if not self.show_secrets:
            event = public_event(event)
        if isinstance(event, MalformedEvent):
            return self._malformed(event)
        if isinstance(event, LossEvent):
            line = f"{self._lines.envelope(event.kind, event)},{dumps_text(event.values)[1:]}\n"
            self._lines.forget(event.connection)  # the connection may be over already
            return line
        if isinstance(event, UnparsedEvent):
            unparsed = event.unparsed
            shown: dict[str, Any] = {"length": unparsed.length, "reason": unparsed.reason, "missing": unparsed.missing}
            if unparsed.packet_type is not None:
                shown["packet_type"] = unparsed.packet_type
            hidden = hidden_of(event)
            if hidden and hidden[0] == (0, len(unparsed.raw)):
                shown["raw"] = {"length": len(unparsed.raw), "redacted": True}
            else:
                shown["raw"] = binary(unparsed.raw, self.payload_limit)
                if hidden:
                    shown["raw"]["redacted"] = True
            return f"{self._lines.envelope('unparsed', event)},{dumps_text(shown)[1:]}\n"
        if isinstance(event, ConnectionOpened | ConnectionClosed):
            return dumps_text(self.connection(event)) + "\n"
        if isinstance(event, ConnectionEnding):
            return f"{dumps_text(self._ending(event))}\n"
        if isinstance(event, CaptureError):
            error = {"schema": SCHEMA, "event": "capture_error", "capture": text(event.capture)}
            error |= {"message": text(without_secrets(event.message)), "offset": event.offset, "frames": event.frames}
            return dumps_text(error) + "\n"
        return None

    def _other_end(self, connection: Connection) -> dict[str, Any] | None:
        """How the side ended that ended last."""
        other = connection.also_closed
        if other is None:
            return None
        return {
            "how": other.how,
            "frame": other.frame,
            "timestamp": self._clock.iso(other.timestamp_ns),
            "timestamp_ns": captured(other.timestamp_ns),
        }

    def _malformed(self, event: MalformedEvent) -> str:
        malformed = event.malformed
        version = event.connection.version
        kind = event.type
        hidden = hidden_of(event)
        shown: dict[str, Any] = {
            "packet": event.number,
            "type": kind,
            "length": len(malformed.raw) + malformed.missing,
            "malformed": malformed_view(malformed, limit=self.payload_limit, redacted=bool(hidden)),
        }
        if malformed.packet is not None and kind is not None:
            shown[kind] = view(
                malformed.packet,
                version,
                limit=self.payload_limit,
                show_secrets=self.show_secrets,
                only=fields_shown(event),
            )
            if kind == "publish":
                topic = event.topic if "topic_name" in shown[kind] or not hidden else None
                shown["topic"] = shown_name(topic, show_secrets=self.show_secrets)
        return f"{self._lines.envelope('malformed', event)},{dumps_text(shown)[1:]}\n"

    def _head(self, name: str, event: ConnectionOpened | ConnectionEnding | ConnectionClosed) -> dict[str, Any]:
        connection = event.connection
        server_name = connection.server_name
        return {
            "schema": SCHEMA,
            "event": name,
            "capture": text(event.capture),
            "frame": event.frame,
            "timestamp": self._clock.iso(event.timestamp_ns),
            "timestamp_ns": captured(event.timestamp_ns),
            "connection": connection.number,
            "client": connection.client,
            "server": connection.server,
            **({} if server_name is None else {"server_name": server_name}),
        }

    def _ending(self, event: ConnectionEnding) -> dict[str, Any]:
        connection = event.connection
        identifier = connection.client_identifier
        return {
            **self._head("connection_ending", event),
            "client_identifier": shown_name(identifier, show_secrets=self.show_secrets),
            "how": connection.closed_how,
            "by": connection.closed_by,
        }

    def connection(self, event: ConnectionOpened | ConnectionClosed) -> dict[str, Any]:
        """The object of a connection that opened or closed."""
        connection = event.connection
        closed = isinstance(event, ConnectionClosed)
        shown = {
            **self._head("connection_closed" if closed else "connection_opened", event),
            "transport": connection.transport,
            "handshake_seen": connection.handshake_seen,
            "roles_known": connection.roles_known,
            "roles_evidence": connection.roles_evidence,
        }
        details = transport_view(connection.details, decrypted=connection.decrypted, show_secrets=self.show_secrets)
        if details:
            shown[connection.transport] = details
        counters, proxy = connection.details.get("tcp"), connection.details.get("proxy")
        if counters is not None:
            shown["tcp"] = counters
        if proxy is not None:
            shown["proxy"] = proxy
        if isinstance(event, ConnectionClosed):
            unacknowledged = {str(side): self._lines.unacknowledged(event, side) for side in Direction}
            self._lines.forget(connection)
            identifier = connection.client_identifier
            shown |= {
                "client_identifier": shown_name(identifier, show_secrets=self.show_secrets),
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
                "tcp_unacknowledged": unacknowledged,
            }
        return shown


class AcknowledgedLines:
    """Writes lines with ``tcp_acknowledged`` for each packet; separate, so that other lines cost nothing more."""

    def __init__(self, sink: Sink, line: Callable[[Event], str | None]) -> None:
        """``line``: returns the line of an event."""
        self.sink, self._line = sink, line

    def feed(self, event: Event) -> None:
        """Write an event."""
        line = self._line(event)
        if line is None:
            return
        if isinstance(event, PacketEvent | MalformedEvent):
            line = f'{line[:-2]},"tcp_acknowledged":{dumps_text(tcp_acknowledged(event))}}}\n'
        self.sink.write(harmless(line.encode()))

    def close(self) -> None:
        """Do nothing: no line waits."""


TEXTS_KEPT: Final = 10_000
"""Maximum number of cached topics, and of cached property blocks."""
LONGEST_KEPT: Final = 512
"""Maximum characters of the cached JSON of a topic or a property block."""
MAX_UNACKNOWLEDGED: Final = 16
"""Maximum number of packets of a direction that the line of a closed connection names as not acknowledged."""
CONNECTIONS_KEPT: Final = 10_000
"""Maximum number of connections with cached line parts."""
PAYLOADS_KEPT: Final = 1 << 20
"""Maximum size of cached payloads and their JSON: a message comes from its publisher, and again for each subscriber."""
FORMS_KEPT: Final = 4_096
"""Maximum number of payload shapes with cached JSON escaping."""
LONGEST_FORM: Final = 512
"""Maximum size of a payload with a cached shape."""
STARTS_KEPT: Final = 10_000
"""Maximum number of cached line parts for the first three bytes of packets."""

_C2S: Final = Direction.CLIENT_TO_SERVER
_S2C: Final = Direction.SERVER_TO_CLIENT
_V5: Final = ProtocolVersion.V5
_SECOND: Final = 1_000_000_000
_NAMES: Final = {int(kind): kind.name.lower() for kind in PacketType}
_FLAGS: Final = tuple(
    f'"dup":{"true" if bits & 8 else "false"},"qos":{bits >> 1 & 3},"retain":{"true" if bits & 1 else "false"}'
    for bits in range(16)
)
_NO_PROPERTIES: Final = ',"payload":'
"""Text between the Packet Identifier and the payload of a PUBLISH without properties."""
_PACKET: Final = ',"packet":'
_UNIDENTIFIED: Final = ',"packet_identifier":null'
_BEFORE_TOPIC: Final = '}},"topic":'
"""Text between the payload value and the resolved topic."""
_END: Final = "}\n"

_DIGITS: Final = b"0123456789"
_UNUSUAL: Final = 0
"""Escaping of a payload shape: needs a closer look,"""
_PLAIN: Final = 1
"""not needed,"""
_QUOTED: Final = 2
"""a backslash before quotation marks,"""
_ESCAPED: Final = 3
"""or by the JSON encoder."""


class _Introduction:
    """The parts of a line that name a connection, up to the number of the packet."""

    __slots__ = ("add_of_client", "add_of_server", "from_client", "from_server", "of_client", "of_server", "revision")

    def __init__(self, revision: int, from_client: str, from_server: str) -> None:
        # Frame, time and stream end of the latest packets, one after the other: an object for each packet took 10 %
        # of the time, and so did one call that packs them.
        self.of_client, self.of_server = (
            deque[int](maxlen=3 * MAX_UNACKNOWLEDGED),
            deque[int](maxlen=3 * MAX_UNACKNOWLEDGED),
        )
        self.add_of_client, self.add_of_server = self.of_client.append, self.of_server.append
        self.revision = revision
        """Revision of the connection that the parts describe."""
        self.from_client = from_client
        self.from_server = from_server


OUTCOMES: Final = tuple(
    f'"reason_code":{code},"reason":"{REASON_CODES.get(code, "Unknown")}","properties":{{}}}}}}\n'
    for code in range(256)
)
"""Ends of acknowledgements of 5.0 without properties, by reason code."""


class PacketLines:
    """Makes the line of each packet, and the envelope of other events.

    Recurring parts are cached within the limits above: the second of the time, the fields that name the connection
    (until they change), the parts that follow from the first bytes of the packet, topics, property blocks and payloads,
    and the escaping of payloads that differ only in their digits.  A cached part includes the fixed text around it, and
    a line is put together once: each piece costs as much as its text.
    """

    def __init__(self, payload_limit: int, *, show_secrets: bool) -> None:
        self.payload_limit = payload_limit
        self.show_secrets = show_secrets
        self._clock = Clock()
        self._capture: str | None = None
        self._opening = self.packet_opening = ""
        self._second_ns = -1 << 64
        """Start of the second of the cached time; at first a time that no capture has."""
        self._time = self._second = ""
        """Text of the line before and after the nanoseconds of the second, up to the nanoseconds since 1970."""
        self._divided = False
        """Whether the digits since 1970 are the digits of the second followed by its nanoseconds."""
        self.connections: dict[int, _Introduction] = {}
        self._forms: dict[bytes, int] = {}
        self._payloads: dict[bytes, str] = {}
        self._payloads_left = PAYLOADS_KEPT
        self._starts: dict[bytes, str] = {}
        self._topics: dict[str, str] = {}
        self._blocks: dict[tuple[tuple[int, Any], ...], str] = {}

    def line(self, event: PacketEvent) -> str:
        """The line of a packet."""
        packet = event.packet
        connection = event.connection
        if event.capture is not self._capture:
            self.open(event.capture)
        timestamp_ns = captured(event.timestamp_ns)
        past_ns = timestamp_ns - self._second_ns
        if past_ns < 0 or past_ns >= _SECOND:
            past_ns = self._turn(timestamp_ns)
        fraction = str(_SECOND + past_ns)[1:]
        nanoseconds = fraction if self._divided else str(timestamp_ns)
        named = self.connections.get(connection.number)
        if named is None or named.revision != connection.revision:
            named = self.introduce(connection)
        raw = packet.raw
        if event.direction is _C2S:
            naming, add = named.from_client, named.add_of_client
        else:
            naming, add = named.from_server, named.add_of_server
        add(event.frame)
        add(event.timestamp_ns)
        add(event.stream_offset + len(raw) + packet.missing)
        start = self._starts.get(raw[:3])
        if start is None or packet.missing:
            start = self._start(raw, packet.missing)
        if type(packet) is Publish and not connection.doubtful:
            name, topic, payload = packet.topic_name, event.topic, packet.payload
            shown = self._topics.get(name)
            if shown is None and name not in DISGUISED:
                shown = self._topic(name)
            if shown is not None:
                resolved = shown
                if topic is not name:
                    resolved = "null" if topic is None else self._topics.get(topic) or self._topic(topic)
                identifier = packet.packet_identifier
                identified = _UNIDENTIFIED if identifier is None else f',"packet_identifier":{identifier}'
                properties = _NO_PROPERTIES
                if connection.version is _V5:
                    block = packet.properties or EMPTY
                    properties = self._blocks.get(block.items) or self._block(block)
                if packet.missing:
                    value = self._cut(payload, packet.missing)
                    end = f',"missing":{packet.missing}{_END}'
                else:
                    value, end = self._payloads.get(payload) or self._payload(payload), _END
                return (
                    f"{self.packet_opening}{event.frame}{self._time}{fraction}{self._second}{nanoseconds}{naming}"
                    f"{event.number}{start}{shown}{identified}{properties}{value}{resolved}{end}"
                )
        head = (
            f"{self.packet_opening}{event.frame}{self._time}{fraction}{self._second}{nanoseconds}{naming}"
            f"{event.number}{start}"
        )
        if packet.header_flags is None:
            if isinstance(packet, Acknowledgement) and not packet.properties:
                identifier = packet.packet_identifier
                if connection.version is not _V5:
                    return f'{head}{{"packet_identifier":{identifier}}}}}\n'
                return f'{head}{{"packet_identifier":{identifier},{OUTCOMES[packet.reason_code or 0]}'
            if isinstance(packet, Pingreq | Pingresp):
                return f"{head}{{}}}}\n"
        if type(packet) is Publish:
            return self._doubtful(head, event, packet)
        # The view leaves out passwords and Authentication Data.
        shown_packet = packet if self.show_secrets else without_names_of(without_tokens_of(packet, self.payload_limit))
        fields = view(shown_packet, connection.version, limit=self.payload_limit, show_secrets=self.show_secrets)
        return f"{head}{dumps_text(fields)}}}\n"

    def _payload(self, payload: bytes) -> str:
        """A payload with its length, up to the resolved topic; cached within the limit."""
        if len(payload) > self.payload_limit:
            return self._cut(payload, 0)
        encoded = f'{{"length":{len(payload)},{self._content(payload)}{_BEFORE_TOPIC}'
        size = len(payload) + len(encoded)
        if size > self._payloads_left:
            self._payloads.clear()
            self._payloads_left = PAYLOADS_KEPT
        if size <= self._payloads_left:
            self._payloads[payload] = encoded
            self._payloads_left -= size
        return encoded

    def _cut(self, payload: bytes, missing: int) -> str:
        """An incomplete payload, or one above the limit, up to the resolved topic."""
        if not self.show_secrets:
            payload = without_tokens(payload, self.payload_limit)
        return f"{dumps_text(binary(payload, self.payload_limit, missing))[:-1]}{_BEFORE_TOPIC}"

    def _content(self, payload: bytes) -> str:
        """A payload within the limit as ``text`` or ``hex`` with its value."""
        if len(payload) <= LONGEST_FORM and payload.isascii():
            # Shape: the payload without digits, which matter to neither escaping nor secrets except in percent escapes.
            form = payload.translate(None, _DIGITS)
            how = self._forms.get(form, -1)
            if how < 0:
                how = self._form(form)
            if how == _PLAIN:
                return f'"text":"{payload.decode()}"'
            if how == _QUOTED:
                quoted = payload.decode().replace('"', '\\"')
                return f'"text":"{quoted}"'
            if how == _ESCAPED:
                return f'"text":{dumps_text(payload.decode())}'
        content = printable(payload)
        if len(payload) >= SHORTEST and not self.show_secrets and suspicions(payload):
            payload = without_tokens(payload)
            content = printable(payload)
        return f'"hex":"{payload.hex()}"' if content is None else f'"text":{dumps_text(content)}'

    def _form(self, form: bytes) -> int:
        """Escaping of ASCII payloads with this shape (without digits)."""
        content = form.decode()
        # Digits turn a percent sign into an escape.
        if printable(form) is None or (not self.show_secrets and ("%" in content or suspicions(form))):
            how = _UNUSUAL
        elif "\\" in content or not content.isprintable():
            how = _ESCAPED
        else:
            how = _QUOTED if '"' in content else _PLAIN
        if len(self._forms) >= FORMS_KEPT:
            self._forms.clear()
        self._forms[form] = how
        return how

    def _doubtful(self, head: str, event: PacketEvent, packet: Publish) -> str:
        """The line of a PUBLISH that may contain the rest of a CONNECT."""
        hide = not self.show_secrets and hides_payload(packet, event.connection.side(event.direction).doubt)
        shown = packet if self.show_secrets else without_names_of(public_packet(event, self.payload_limit).packet)
        fields = view(shown, event.connection.version, limit=self.payload_limit, hide_payload=hide)
        head = head[: head.rindex('"publish":')]
        topic = shown_name(event.topic, show_secrets=self.show_secrets)
        more: dict[str, Any] = {"publish": fields, "topic": topic}
        if packet.missing:
            more["missing"] = packet.missing
        return f"{head}{dumps_text(more)[1:]}\n"

    def envelope(self, name: str, event: Any) -> str:
        """Beginning of a line that is not a packet: capture, frame, time, connection, direction."""
        if event.capture is not self._capture:
            self.open(event.capture)
        named = self.introduce(event.connection)
        naming = named.from_client if event.direction is _C2S else named.from_server
        timestamp_ns = captured(event.timestamp_ns)
        past_ns = self._turn(timestamp_ns)
        return (
            f'{{"schema":{SCHEMA},"event":"{name}",{self._opening}{event.frame}{self._time}{past_ns:09d}'
            f'Z","timestamp_ns":{timestamp_ns}{naming[: -len(_PACKET)]}'
        )

    def unacknowledged(self, event: ConnectionClosed, direction: Direction) -> list[int] | None:
        """Frames of packets of a direction that TCP never acknowledged; ``None`` if this cannot be decided.

        Only written packets are known.  If both sides have sent FIN, the last acknowledgment may still come.
        """
        connection, side = event.connection, event.connection.side(direction)
        of_client = direction is _C2S
        left = connection.client_unacknowledged if of_client else connection.server_unacknowledged
        if connection.one_sided is not None:
            return None
        if not left:
            return []
        named = self.connections.get(connection.number)
        how, other, last_ns = connection.closed_how, connection.also_closed, event.timestamp_ns
        by_receiver = connection.closed_by == ("server" if of_client else "client")
        if other is not None:
            how, last_ns, by_receiver = other.how, other.timestamp_ns, not by_receiver
        is_over = how == "evicted" or (how == "fin" and other is not None)
        if named is None or connection.transport != "tcp" or is_over:
            return None
        is_certain = how in ("idle", "port_reused") or (how == "reset" and by_receiver)
        acknowledged, frames = side.stream_offset - left, list[int]()
        latest = iter(named.of_client if of_client else named.of_server)
        for frame, timestamp_ns, end in zip(latest, latest, latest, strict=True):
            if end > acknowledged and (is_certain or last_ns - timestamp_ns >= SILENCE_NS):
                frames.append(frame)
        return frames or None

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self.connections.pop(connection.number, None)

    def open(self, capture: str) -> None:
        """Begin the lines of a capture."""
        self._capture = capture
        self._opening = f'"capture":{dumps_text(text(capture))},"frame":'
        self.packet_opening = f'{{"schema":{SCHEMA},"event":"packet",{self._opening}'

    def second_of(self, timestamp_ns: int) -> tuple[int, bytes, bytes, bool]:
        """Begin of the second of a time, the text before and after its nanoseconds, and whether digits are divided."""
        self._turn(timestamp_ns)
        return self._second_ns, self._time.encode(), self._second.encode(), self._divided

    def topic(self, topic: str) -> str:
        """JSON of a topic."""
        return self._topics.get(topic) or self._topic(topic)

    def block(self, block: Properties) -> str:
        """JSON of the properties of a PUBLISH, up to the value of its payload."""
        return self._blocks.get(block.items) or self._block(block)

    def payload(self, payload: bytes) -> str:
        """JSON of a payload, up to the resolved topic."""
        return self._payloads.get(payload) or self._payload(payload)

    def _turn(self, timestamp_ns: int) -> int:
        """Change to another second; returns the nanoseconds in it."""
        second, past_ns = divmod(timestamp_ns, _SECOND)
        self._second_ns = timestamp_ns - past_ns
        self._time = f',"timestamp":"{self._clock.iso(timestamp_ns).partition(".")[0]}.'
        # Otherwise the digits before the last nine are not the digits of the second.
        self._divided = second > 0
        self._second = f'Z","timestamp_ns":{second if second > 0 else ""}'
        return past_ns

    def introduce(self, connection: Connection) -> _Introduction:
        """The parts of a line that name the connection, for both directions."""
        introduction = self.connections.get(connection.number)
        if introduction is None or introduction.revision != connection.revision:
            if len(self.connections) >= CONNECTIONS_KEPT:
                self.connections.clear()
            from_client, from_server = (f",{self.names(connection, direction)}{_PACKET}" for direction in (_C2S, _S2C))
            before, introduction = introduction, _Introduction(connection.revision, from_client, from_server)
            if before is not None:
                introduction.of_client.extend(before.of_client)
                introduction.of_server.extend(before.of_server)
            self.connections[connection.number] = introduction
        return introduction

    def names(self, connection: Connection, direction: Direction) -> str:
        """The fields that name a connection in lines of a direction."""
        identifier = connection.client_identifier
        return dumps_text(
            {
                "connection": connection.number,
                "client": connection.client,
                "server": connection.server,
                "direction": str(direction),
                "client_identifier": shown_name(identifier, show_secrets=self.show_secrets),
                "version": connection.version.text,
                "version_known": connection.version_known,
            }
        )[1:-1]

    def _start(self, raw: bytes, missing: int) -> str:
        """Type, lengths, and flags of a PUBLISH; they follow from the first bytes if nothing is missing."""
        header = 2
        while raw[header - 1] & 0x80:
            header += 1
        length = len(raw) + missing
        name = _NAMES[raw[0] >> 4]
        start = f',"type":"{name}","length":{length},"remaining_length":{length - header},"{name}":'
        if name == "publish":
            start += f'{{{_FLAGS[raw[0] & 15]},"topic_name":'
        if header <= 3 and not missing:
            if len(self._starts) >= STARTS_KEPT:
                self._starts.clear()
            self._starts[raw[:3]] = start
        return start

    def _topic(self, topic: str) -> str:
        """JSON of a topic; topics that may be disguised payloads are not cached."""
        encoded = dumps_text(shown_name(topic, show_secrets=self.show_secrets))
        if len(encoded) <= LONGEST_KEPT and topic not in DISGUISED:
            if len(self._topics) >= TEXTS_KEPT:
                self._topics.clear()
            self._topics[topic] = encoded
        return encoded

    def _block(self, block: Properties) -> str:
        shown = block if self.show_secrets else without_property_credentials(block)
        encoded = f',"properties":{dumps_text(properties_view(shown, self.payload_limit))}{_NO_PROPERTIES}'
        # A value shortened by a limit may be long in the block, which is the key.
        if len(encoded) <= LONGEST_KEPT and '"truncated"' not in encoded:
            if len(self._blocks) >= TEXTS_KEPT:
                self._blocks.clear()
            self._blocks[block.items] = encoded
        return encoded


_HARMFUL: Final = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
"""Control and format characters, line and paragraph separators, which a terminal or line reader interprets."""


def harmless(line: bytes) -> bytes:
    r"""JSON with control and format characters as ``\uXXXX``: equal values, harmless for a terminal."""
    return _without_harm(line.decode()).encode()


def _without_harm(line: str) -> str:
    if (line.isascii() and "\x7f" not in line) or line[:-1].isprintable():
        return line  # faster than the search, and true for nearly all lines
    return _HARMFUL.sub(_escaped, line)


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def dumps(value: Any) -> bytes:
    """Compact JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:
        # Drop counts and times between clocks that jump may need more than 64 bits.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def dumps_text(value: Any) -> str:
    return _dumps(value).decode()


def shown_name(name: str | None, *, show_secrets: bool) -> Any:
    """A Client Identifier or a topic as a JSON value."""
    return None if name is None else text(name if show_secrets else starred_name(name))
