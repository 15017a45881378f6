"""Events as rows: tuples in the order of the columns of their table (`lake.schemas`).

They never contain passwords or Authentication Data; the bytes of damaged packets have asterisks instead, as in JSON
Lines.
"""

from __future__ import annotations

from typing import Any

import orjson

from mqttscope.events import (
    CaptureRemark,
    ClockStep,
    ConnectionClosed,
    ConnectionOpened,
    DiscardedEvent,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.lake.declared import Bad, PayloadPart, Row, packet_columns, packet_fields, properties_row, text
from mqttscope.lake.options import MAX_RAW_BYTES
from mqttscope.lake.schemas import GAPS
from mqttscope.lake.tracker import TrackedMessage
from mqttscope.lint.finding import Finding
from mqttscope.mqtt.constants import Direction, PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.view import utf8
from mqttscope.net.frame import CaptureError
from mqttscope.secrets.addresses import transport_view, without_secrets
from mqttscope.secrets.packets import (
    DISGUISED,
    covered,
    hidden_in_damaged,
    hidden_in_unparsed,
    hides_payload,
    visible_fields,
)
from mqttscope.session.capture_time import captured, shift_of
from mqttscope.session.connection import Connection

Values = tuple[Any, ...]
MOST = (1 << 63) - 1
"""Largest value of a column; it stands for larger ones, which are in the message of the row."""
_CELLS = {name: at for at, name in enumerate(packet_columns())}
_LOSS_COLUMNS = GAPS.names[GAPS.names.index("event_in_connection") + 1 :]
_NO_FIELDS: list[Any] = [None] * len(_CELLS)
_TYPES = {int(kind): kind.name.lower() for kind in PacketType}
_V5 = ProtocolVersion.V5


class RowPrefix:
    """The first columns of every row of a connection, cached until the identity of the connection changes."""

    __slots__ = ("_prefixes", "_revision", "connection_id")

    def __init__(self, connection_id: str) -> None:
        self.connection_id = connection_id
        self._revision = -1
        self._prefixes: dict[Direction, tuple[Values, Bad]] = {}

    def who(self, connection: Connection, direction: Direction) -> tuple[Values, Bad]:
        """Client, server, direction, Client Identifier, version, whether it is known; and texts that are not UTF-8."""
        if connection.revision != self._revision:
            self._revision = connection.revision
            self._prefixes.clear()
        prefix = self._prefixes.get(direction)
        if prefix is None:
            bad: Bad = []
            prefix = self._prefixes[direction] = (
                (connection.client, connection.server, str(direction), *_identity(connection, bad)),
                bad,
            )
        return prefix


def _identity(connection: Connection, bad: Bad) -> Values:
    identifier = connection.client_identifier
    return (
        None if identifier is None else text(identifier, "client_identifier", bad),
        connection.version.text,
        connection.version_known,
    )


def _name(capture: str) -> str:
    return capture if capture.isascii() else utf8(capture)


def place_of(event: Any) -> Values:
    timestamp_ns = captured(event.timestamp_ns)
    return (_name(event.capture), event.frame, timestamp_ns // 1000, timestamp_ns)


def packet_row(event: PacketEvent, intro: RowPrefix, part: PayloadPart) -> tuple[Values, Row]:
    """The row of a packet, and its fields by column."""
    packet, connection = event.packet, event.connection
    version = connection.version
    who, known_bad = intro.who(connection, event.direction)
    bad: Bad = list(known_bad)
    other: Bad = []
    if type(packet) is Publish:
        may = connection.doubtful or packet.topic_name in DISGUISED
        if may and hides_payload(packet, connection.side(event.direction).doubt):
            part = part._replace(limit=0)
        fields = _publish(packet, version, part, bad, other)
    else:
        fields = packet_fields(packet, version, part, bad, other)
    topic = None if event.topic is None else text(event.topic, "topic", bad)
    raw = packet.raw
    header = 2
    while raw[header - 1] & 0x80:
        header += 1
    length = len(raw) + packet.missing
    code = fields.get("reason_code")
    row = (
        intro.connection_id, *place_of(event), *who, "packet", event.number, event.stream_offset,
        _TYPES[packet.packet_type], length, length - header, packet.header_flags, packet.missing or None, topic,
        *_cells(fields),
        None if code is None else reason_name(packet.packet_type, code, version), None, bad or None, other or None,
    )  # fmt: skip
    return row, fields


def _cells(fields: Row) -> list[Any]:
    cells = _NO_FIELDS.copy()
    for name, value in fields.items():
        cells[_CELLS[name]] = value
    return cells


def _publish(packet: Publish, version: ProtocolVersion, part: PayloadPart, bad: Bad, other: Bad) -> Row:
    """The fields of a PUBLISH as `packet_fields` returns them, but faster."""
    length, digest, beginning = part.columns(packet.payload, packet.missing)
    name = packet.topic_name
    fields: Row = {
        "dup": packet.dup,
        "qos": packet.qos,
        "retain": packet.retain,
        "topic_name": name if name.isascii() else text(name, "topic_name", bad),
        "packet_identifier": packet.packet_identifier,
        "payload_length": length,
        "payload_sha256": digest,
        "payload": beginning,
    }
    if version is _V5:
        block = packet.properties
        fields["properties"] = properties_row(block, "properties", bad, other)
    return fields


def malformed_row(event: MalformedEvent, intro: RowPrefix, part: PayloadPart) -> tuple[Values, Row]:
    """The row of a malformed packet, and its readable fields."""
    malformed, connection = event.malformed, event.connection
    version, kind = connection.version, event.type
    who, known_bad = intro.who(connection, event.direction)
    bad: Bad = list(known_bad)
    other: Bad = []
    fields: Row = {}
    flags = topic = None
    hidden = hidden_in_damaged(malformed.raw, version, connection.side(event.direction).doubt)
    visible = visible_fields(malformed.fields_read, malformed.raw, version, hidden)
    if malformed.packet is not None and kind is not None:
        fields = packet_fields(malformed.packet, version, part, bad, other, visible)
        flags = malformed.packet.header_flags
        if kind == "publish" and event.topic is not None and (not hidden or "topic_name" in fields):
            topic = text(event.topic, "topic", bad)
    raw = covered(malformed.raw, hidden)
    struct = {
        "reason": str(malformed.reason), "offset": malformed.offset, "field": malformed.field or None,
        "detail": malformed.detail, "reason_code": malformed.reason_code, "raw": raw[:MAX_RAW_BYTES],
        "raw_length": len(malformed.raw), "redacted": bool(hidden), "missing": malformed.missing or None,
        "faults": [
            {"reason": str(fault.reason), "offset": fault.offset, "field": fault.field or None, "detail": fault.detail}
            for fault in malformed.faults
        ] if len(malformed.faults) > 1 else None,
        "fields_read": None if malformed.packet is None else list(visible),
    }  # fmt: skip
    code = fields.get("reason_code")
    row = (
        intro.connection_id, *place_of(event), *who, "malformed", event.number, event.stream_offset, kind,
        len(malformed.raw) + malformed.missing, None, flags, None, topic, *_cells(fields),
        None if code is None or malformed.packet is None else reason_name(malformed.packet.packet_type, code, version),
        struct, bad or None, other or None,
    )  # fmt: skip
    return row, fields


def new_message(
    event: PacketEvent | MalformedEvent, packet: ControlPacket, fields: Row, intro: RowPrefix
) -> TrackedMessage | None:
    """The message that a PUBLISH begins; ``None`` for other packets, and if its payload could not be read.

    ``fields``: fields of its row.
    """
    if type(packet) is not Publish or "payload_length" not in fields:
        return None
    who, known_bad = intro.who(event.connection, event.direction)
    bad: Bad = list(known_bad)
    topic = None
    if event.topic is not None and "topic_name" in fields:  # otherwise it may belong to a secret
        topic = text(event.topic, "topic", bad)
    block = packet.properties
    head = [
        intro.connection_id, *place_of(event), *who, event.number, event.stream_offset, topic, packet.qos,
        packet.retain, packet.packet_identifier, packet.dup,
        None if block is None else block.message_expiry_interval, fields["payload_length"],
        fields["payload_sha256"], len(packet.raw) + packet.missing,
    ]  # fmt: skip
    return TrackedMessage(head, event.timestamp_ns, packet.qos, bad or None)


def gap_row(event: GapEvent | UnparsedEvent | DiscardedEvent, intro: RowPrefix, number: int) -> Values:
    """The row of bytes that are missing, or belong to no packet or no connection."""
    connection = event.connection
    who, _ = intro.who(connection, event.direction)
    values: dict[str, Any] = {"stream_offset": getattr(event, "stream_offset", None)}
    if isinstance(event, UnparsedEvent):
        unparsed = event.unparsed
        hidden = hidden_in_unparsed(unparsed, connection.version, connection.side(event.direction).doubt)
        whole = bool(hidden) and hidden[0] == (0, len(unparsed.raw))
        values |= {name: getattr(unparsed, name) for name in ("length", "reason", "missing", "packet_type")}
        values["raw"] = None if whole else covered(unparsed.raw, hidden)[:MAX_RAW_BYTES]
        values |= {"raw_length": len(unparsed.raw), "redacted": bool(hidden)}
    else:
        values |= event.values
        if isinstance(event, DiscardedEvent):
            # The connection may have ended, and its counter of events with it.
            number = connection.discarded_segments - 1
    return (intro.connection_id, *place_of(event), *who, event.kind, number, *map(values.get, _LOSS_COLUMNS))


def connection_row(
    event: ConnectionOpened | ConnectionClosed, connection_id: str, group: str, *, over: bool, late: bool = False
) -> Values:
    """The row of a connection; ``over``: it has ended, and the row is complete.

    ``late``: its captures came later than newer ones (`lake.memory`).
    """
    connection = event.connection
    bad: Bad = []
    details: object = transport_view(connection.details, decrypted=connection.decrypted) or None
    if connection.transport == "tcp":
        details = None
    closed = isinstance(event, ConnectionClosed)
    end: Values = (None, None, None, None)
    if closed and over:
        end = place_of(event)
    client, server = connection.client_side, connection.server_side
    opened_ns = captured(connection.opened_ns)
    return (
        connection_id, group, _name(connection.capture), connection.frame, opened_ns // 1000,
        opened_ns, _name(connection.found_capture), connection.found_frame, captured(connection.found_ns), *end,
        connection.client, connection.server, connection.flow_key,
        connection.initial_sequence if connection.initial_sequence >= 0 else None,
        connection.transport, connection.decrypted, connection.handshake_seen, connection.roles_known,
        connection.roles_evidence, *_identity(connection, bad), connection.version_evidence,
        _closed_how(connection, late=late) if over else "open", connection.closed_by, _other_end(connection),
        connection.disconnect_by, connection.disconnect_reason, connection.keep_alive, connection.clean_start,
        connection.session_present, connection.session_expiry_interval, connection.phase,
        _both(client.packets, server.packets), _both(client.bytes, server.bytes), connection.gaps, connection.gap_bytes,
        connection.discarded_segments, connection.discarded_bytes, connection.copied_segments,
        connection.one_sided, late, connection.details.get("tcp"), connection.details.get("proxy"),
        None if details is None else orjson.dumps(details).decode(), bad or None,
        _both(connection.client_unacknowledged, connection.server_unacknowledged),
    )  # fmt: skip


def _closed_how(connection: Connection, *, late: bool) -> str | None:
    """How it ended.  A connection from late captures that times out may continue elsewhere."""
    how = connection.closed_how
    return "capture_end" if late and how in ("idle", "evicted") else how


def _other_end(connection: Connection) -> Row | None:
    end = connection.also_closed
    if end is None:
        return None
    return {
        "how": end.how, "frame": end.frame, "timestamp_ns": captured(end.timestamp_ns), "capture": _name(end.capture),
    }  # fmt: skip


def _both(client: int, server: int) -> Row:
    return {"client_to_server": client, "server_to_client": server}


def finding_row(
    finding: Finding, connection_id: str, scope: str, number: int, stream_offset: int | None, rule_generation: int = 1
) -> Values:
    """The row of a finding with packets that are already numbered by connection."""
    bad: Bad = []
    identifier, topic = finding.client_identifier, finding.topic
    related = [
        {
            "message": utf8(packet.message),
            "packet_in_connection": packet.packet,
            "frame": packet.frame,
            "timestamp_ns": captured(packet.timestamp_ns),
        }
        for packet in finding.related
    ]
    return (
        connection_id, scope, number, *place_of(finding), finding.rule, finding.slug, str(finding.severity),
        str(finding.confidence), utf8(finding.message), list(finding.statements), finding.client, finding.server,
        finding.direction, None if identifier is None else text(identifier, "client_identifier", bad),
        finding.version, finding.packet, stream_offset, finding.packet_type, utf8(finding.field), finding.offset,
        finding.length, finding.reason_code, finding.fingerprint,
        None if topic is None else text(topic, "topic", bad), related or None, bad or None, finding.count,
        [{"field": utf8(spot.field), "offset": spot.offset, "length": spot.length} for spot in finding.places] or None,
        rule_generation, shift_of(finding.timestamp_ns),
    )  # fmt: skip


def error_row(notice: CaptureRemark) -> Values:
    """The row of an error of a capture."""
    capture = _name(notice.capture)
    if isinstance(notice, ClockStep):
        return (capture, "clock_step", notice.message, None, None, None, None, None, None)
    if isinstance(notice, CaptureError):
        message = without_secrets(utf8(notice.message))
        return (capture, "capture_error", message, notice.offset, notice.frames, None, None, None, None)
    message = f"interface {notice.interface} dropped {notice.dropped} frames"
    received = None if notice.received is None else min(notice.received, MOST)
    return (capture, "capture_drops", message, None, None, notice.interface, received, min(notice.dropped, MOST), None)
