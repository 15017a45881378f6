"""Lines about everything but packets: connections opened and closed, gaps, unreadable bytes, bad captures.

The end of a connection is reported at the first FIN or RST; a later line reports only what came after it.  The two
sides of a TCP connection end separately: a client may leave its socket open for hours after the broker has closed.
The first FIN or RST is what ended the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mqttscope import events
from mqttscope.mqtt.constants import Direction, PacketType, reason_name, type_name
from mqttscope.mqtt.foreign import PREFACES
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops
from mqttscope.report.public import hidden_of, protocol_of
from mqttscope.report.style import Painter, Wrapped
from mqttscope.report.when import duration
from mqttscope.secrets.addresses import without_secrets
from mqttscope.session.connection import CONNECTED, Connection
from mqttscope.session.inflight import MAX_ALIAS_BYTES

_UNPARSED = {
    "resynchronised": "skipped to find the next packet",
    "gap": "of a packet that lost bytes",
    "too_large": "of a packet above the size limit",
    "no_room": "of a packet with no room for it: unfinished packets and segments are limited together",
    "websocket": "after broken WebSocket framing",
    "tls": "after lost TLS records",
    "proxy_header": "of a PROXY protocol header",
    "reset": "of a packet cut off by the reset",
    "capture_end": "of a packet not complete at the end of the capture",
    "port_reused": "of a packet cut off by a new connection on the same ports",
    "idle": "of a packet never completed",
    "evicted": "of a packet given up with its connection",
    "capture_changed": "of a packet that cannot be read again: the capture has changed",
}
_CLOSED = {
    "fin": "closed",
    "reset": "reset",
    "port_reused": "replaced by a new connection on the same ports",
    "idle": "given up after silence",
    "evicted": "given up to save memory",
    "capture_end": "still open at the end of the capture",
}
MAX_HEX = 16
"""Maximum number of unreadable bytes shown."""
MAX_SERVER_NAME = 64
"""Maximum columns of a TLS server name."""
MAX_DETAIL = 200
"""Maximum columns of one detail of the transport."""
LATER_NS = 1_000_000_000
"""Minimum delay of a reported FIN of the other side; every connection takes some time to close."""
MAX_ENDINGS = 10_000
"""Maximum number of reported ends remembered until the connection is over; ends beyond it are reported twice."""

StyledTexts = list[tuple[str, str]]
"""Texts with their styles."""


def opened(line: Wrapped, event: events.ConnectionOpened, painter: Painter) -> None:
    """``#0 10.0.0.4:51234 → 10.0.0.2:1883 opened``, then assumptions and special properties."""
    connection = event.connection
    line.add(f"{painter.rule} #{connection.number} ", "rule")
    line.add(painter.safe(connection.client), "client")
    line.add(f" {painter.to_server} ", "rule")
    line.add(painter.safe(connection.server), "server")
    line.add(" opened" if connection.handshake_seen else " joined", "rule")
    notes = []
    if connection.transport != "tcp":
        kind = {"websocket": "WebSocket", "tls": "TLS"}.get(connection.transport, connection.transport)
        notes.append(", ".join([kind, *_details(connection, painter)]))
    proxy = connection.details.get("proxy")
    if isinstance(proxy, Mapping):
        notes.append(f"PROXY for {proxy['client']} to {proxy['server']}")
    name = connection.resolved_name
    if name and name == connection.server_name != connection.details.get("server_name"):
        notes.append(f"DNS name {name}")
    if not connection.roles_known:
        notes.append(f"roles assumed from {connection.roles_evidence or 'nothing'}")
    if connection.version_evidence == "given":
        notes.append(f"MQTT {connection.version.text} as given")
    if notes:
        line.add(f" ({painter.safe('; '.join(notes))})", "note")


def _details(connection: Connection, painter: Painter) -> list[str]:
    """Details of the transport that have a value, as safe text."""
    shown = []
    for name, value in connection.details.items():
        if not value or value is True or isinstance(value, Mapping):
            continue
        if isinstance(value, list | tuple):
            value = " ".join(map(str, value))
        text = painter.name(str(value), MAX_DETAIL)
        shown.append(text if name == "path" else f"{name.replace('_', ' ')} {text}")
    return shown


def _is_read(connection: Connection) -> bool:
    return connection.transport != "tls" or connection.decrypted


def version_assumed(line: Wrapped, connection: Connection, painter: Painter, *, numbered: bool = True) -> None:
    """Assumed version, shown before the first packet of a connection without a captured CONNECT."""
    line.add(f"{painter.rule} #{connection.number} " if numbered else f"{painter.rule} ", "rule")
    why = painter.safe(connection.version_evidence)
    because = "without evidence" if why in ("none", "") else f"from {why}"
    line.add(f"MQTT {connection.version.text}? (assumed, {because}; --mqtt-version sets it)", "note")


def closed(
    line: Wrapped, event: events.ConnectionEnding | events.ConnectionClosed, painter: Painter, unanswered: str = ""
) -> None:
    """Describe the end of a connection: its kind, the side that ended it, and the amounts of data before it."""
    connection = event.connection
    line.add(f"{painter.rule} #{connection.number} ", "rule")
    name = connection.client_identifier
    line.add(painter.name(name, 32) if name else painter.safe(connection.client), "client")
    how = connection.closed_how or ""
    if connection.disconnect_by is not None:
        reason = connection.disconnect_reason or 0
        text = f" DISCONNECT by {connection.disconnect_by}"
        if reason:
            text += f" ({reason_name(PacketType.DISCONNECT, reason, connection.version)})"
        line.add(f"{text},", "error" if reason >= 0x80 else "rule")
    text = " " + _CLOSED.get(how, how or "ended")
    if connection.closed_by is not None:
        text += f" by {connection.closed_by}"
    line.add(text, "error" if how == "reset" else "rule")
    # Lost bytes, or bytes after the capture, may hold a DISCONNECT.
    whole = how in ("fin", "reset") and _is_read(connection) and not connection.gaps
    if whole and connection.phase is CONNECTED:
        line.add(" without DISCONNECT", "note")
    up, down = connection.client_side, connection.server_side
    dot = painter.dot
    line.add(f"{dot}{duration(event.timestamp_ns - connection.opened_ns, unicode=painter.unicode)}", "rule")
    if connection.transport == "tls":
        _closed_tls(line, connection, painter)
    if _is_read(connection):
        line.add(f"{dot}{up.packets}{painter.to_server} {down.packets}{painter.to_client} packets", "rule")
        line.add(f"{dot}{up.bytes}{painter.to_server} {down.bytes}{painter.to_client} bytes", "rule")
    if connection.gaps:
        line.add(f"{dot}{_gaps(connection)}", "error")
    dropped = up.aliases_dropped + down.aliases_dropped
    if dropped:
        line.add(
            f"{dot}{dropped} topic alias{'' if dropped == 1 else 'es'} dropped (limit {MAX_ALIAS_BYTES} bytes)",
            "error",
        )
    if unanswered:
        line.add(f"{dot}{unanswered}", "note")


def later(line: Wrapped, connection: Connection, painter: Painter) -> None:
    """The beginning of a line about what came after the end of a connection."""
    line.add(f"{painter.rule} #{connection.number} ", "rule")
    name = connection.client_identifier
    line.add(painter.name(name, 32) if name else painter.safe(connection.client), "client")


def _closed_tls(line: Wrapped, connection: Connection, painter: Painter) -> None:
    """TLS version and server name, with the records and bytes in each direction."""
    details, dot = connection.details, painter.dot
    version, name = details.get("version"), details.get("server_name")
    line.add(f"{dot}{painter.safe(str(version)) if version else 'TLS version not seen'}", "rule")
    if name:
        line.add(f"{dot}server name {painter.name(str(name), MAX_SERVER_NAME)}", "rule")
    sides = [side if isinstance(side, Mapping) else {} for side in map(details.get, ("client", "server"))]
    for word in ("records", "bytes"):
        up, down = (sum(side.get(word, {}).values()) for side in sides)
        line.add(f"{dot}{up}{painter.to_server} {down}{painter.to_client} {word}", "rule")
    for side, arrow in zip(sides, (painter.to_server, painter.to_client), strict=True):
        if side.get("unframed_bytes"):
            line.add(f"{dot}{counted(side['unframed_bytes'], 'byte')}{arrow} outside records", "error")


def _gaps(connection: Connection) -> str:
    return f"{counted(connection.gaps, 'gap')} ({counted(connection.gap_bytes, 'byte')})"


def damage_name(event: events.Damage, cells: int = 0) -> tuple[str, str]:
    """Name shown in the place of the packet type, with its style."""
    if isinstance(event, events.MalformedEvent):
        return f"{(event.type or 'packet').upper():<{cells}} MALFORMED ", "malformed"
    return f"{event.kind.upper():<{cells}} ", "error"


def damage(line: Wrapped, event: events.Damage, painter: Painter) -> None:
    """Describe bytes that are missing or cannot be read as a packet, with the reason."""
    if isinstance(event, events.MalformedEvent):
        _malformed(line, event, painter)
    elif isinstance(event, events.UnparsedEvent):
        _unparsed(line, event, painter)
    else:
        style = "note" if event.reason in ("late_copy", "damaged") else "error"
        line.add(event.describe(event.length, event.reason), style)


def _unparsed(line: Wrapped, event: events.UnparsedEvent, painter: Painter) -> None:
    """Describe unreadable bytes; bytes of a CONNECT may contain a password."""
    unparsed = event.unparsed
    what = counted(unparsed.length, "byte")
    kind = "" if unparsed.packet_type is None else f" ({type_name(unparsed.packet_type).upper()})"
    style = "note" if unparsed.reason == "proxy_header" else "error"
    line.add(f"{what} {_UNPARSED.get(unparsed.reason, unparsed.reason)}{kind}", style)
    if unparsed.missing:
        line.add(f", {unparsed.missing} of them not captured", "error")
    hidden = hidden_of(event)
    start = hidden[0][0] if hidden else len(unparsed.raw)
    shown = unparsed.raw[: min(start, MAX_HEX)]
    if shown:
        more = painter.ellipsis if len(unparsed.raw) > len(shown) else ""
        line.add(f"  0x{shown.hex()}{more}", "dim")
    line.add(_spoken_instead(event), "error")


def _malformed(line: Wrapped, event: events.MalformedEvent, painter: Painter) -> None:
    """Describe the first violation of the packet layout."""
    malformed = event.malformed
    where = f"{malformed.field} at byte {malformed.offset}" if malformed.field else f"byte {malformed.offset}"
    line.add(f"{malformed.reason}: {painter.safe(where)}:", "malformed")
    line.add(f" {painter.safe(malformed.detail)}", "malformed")
    if len(malformed.faults) > 1:
        more = len(malformed.faults) - 1
        line.add(f", {more} more {'fault' if more == 1 else 'faults'}", "malformed")
    line.add(_spoken_instead(event), "error")


def _spoken_instead(event: events.MalformedEvent | events.UnparsedEvent) -> str:
    """Note about the other protocol that a side speaks; empty if the bytes may be MQTT."""
    if not event.connection.handshake_seen or event.connection.side(event.direction).packets:
        return ""
    protocol = protocol_of(event)
    if not protocol or protocol in PREFACES:
        return ""
    if event.direction is Direction.CLIENT_TO_SERVER:
        return f" (the client speaks {protocol}, not MQTT)"
    return f" (the server answers in {protocol}, not in MQTT)"


def capture_error(line: Wrapped, event: events.CaptureRemark, painter: Painter) -> None:
    """Describe a problem with a capture."""
    line.add(f"!! {painter.name(event.capture, 60)}: ", "error")
    if isinstance(event, events.ClockStep):
        line.add(event.message, "error")
        return
    if isinstance(event, CaptureDrops):
        line.add(f"interface {event.interface} dropped {counted(event.dropped, 'frame')} while capturing", "error")
        return
    where = "" if event.offset is None else f" at offset {event.offset}"
    frames = (
        f" ({counted(event.frames, 'frame')} before it {'was' if event.frames == 1 else 'were'} read)"
        if event.frames
        else ""
    )
    line.add(f"{painter.safe(without_secrets(event.message))}{where}{frames}", "error")


def sender(direction: Direction) -> str:
    return "client" if direction is Direction.CLIENT_TO_SERVER else "server"


@dataclass(slots=True)
class _EndCounts:
    """Counts of a connection when its end was reported."""

    packets: tuple[int, int]
    bytes: tuple[int, int]
    gaps: int
    disconnect_by: str | None


class ReportedEnds:
    """Connections with a reported end."""

    def __init__(self, painter: Painter) -> None:
        self.painter = painter
        self._reported: dict[int, _EndCounts] = {}
        """Counts of connections that are not over yet, at most `MAX_ENDINGS`."""

    def report(self, connection: Connection) -> None:
        """Remember that a line reports the end of this connection, with its counts at that time."""
        if len(self._reported) < MAX_ENDINGS:
            self._reported[connection.number] = _end_counts(connection)

    def is_reported(self, connection: Connection) -> bool:
        """Whether a line has reported the end of this connection."""
        return connection.number in self._reported

    def later(self, event: events.ConnectionClosed) -> StyledTexts:
        """Return and forget what came after the reported end, or became known only now.

        If the end was not reported, packets and gaps are left out: the closing line contains them.
        """
        connection, painter = event.connection, self.painter
        before = self._reported.pop(connection.number, None)
        now = _end_counts(connection)
        remarks: StyledTexts = []
        other = connection.also_closed
        if other is not None:
            after = other.timestamp_ns - connection.closed_ns
            if other.how == "reset" or after >= LATER_NS:
                side = "server" if connection.closed_by == "client" else "client"
                verb = "reset" if other.how == "reset" else "closed"
                remarks.append((f"{side} {verb} {duration(after, unicode=painter.unicode)} later", "note"))
        if before is not None:
            if now.packets != before.packets:
                up, down = (new - old for new, old in zip(now.packets, before.packets, strict=True))
                size = counted(sum(now.bytes) - sum(before.bytes), "byte")
                remarks.append(
                    (f"{up}{painter.to_server} {down}{painter.to_client} packets after that ({size})", "note")
                )
            if now.disconnect_by is not None and before.disconnect_by is None:
                remarks.append((f"DISCONNECT by {now.disconnect_by} after that", "note"))
            if now.gaps != before.gaps:
                remarks.append((_gaps(connection), "error"))
        if connection.discarded_segments:
            size = counted(connection.discarded_bytes, "byte")
            remarks.append((f"{counted(connection.discarded_segments, 'segment')} discarded ({size})", "error"))
        if connection.copied_segments:
            remarks.append((f"{counted(connection.copied_segments, 'segment')} captured twice", "note"))
        if connection.one_sided is not None:
            up = connection.one_sided == str(Direction.CLIENT_TO_SERVER)
            remarks.append(("only client to server captured" if up else "only server to client captured", "note"))
        return remarks

    def add(self, line: Wrapped, remarks: StyledTexts, *, first: bool) -> None:
        """Add the remarks of `later` to a line; ``first``: at its beginning."""
        for text, style in remarks:
            line.add(f"{' ' if first else self.painter.dot}{text}", style)
            first = False


def _end_counts(connection: Connection) -> _EndCounts:
    up, down = connection.client_side, connection.server_side
    packets, octets = (up.packets, down.packets), (up.bytes, down.bytes)
    return _EndCounts(packets, octets, connection.gaps, connection.disconnect_by)
