r"""CSV: one row per packet, always the same columns, for spreadsheets and scripts.

Fields are quoted as in RFC 4180 and contain captured text: a topic that begins with ``=`` is a spreadsheet formula,
which may fetch addresses or start programs.  ``View.spreadsheet`` puts an apostrophe before captured text that begins
with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return and is not a number.  Control and format characters (C0
except tab and line ends, C1, line and paragraph separators, characters that change the text direction) are written as
escapes (``\x1b``, ``\u202e``), since the output may end up on a terminal, and so are bytes that are not UTF-8
(``\xff``).  JSON Lines are the lossless format.

=====================  ===============================================================================
capture, frame         name of the capture, number of the frame that completed the packet
timestamp              ISO 8601, UTC, nanoseconds; timestamp_ns is this time as a number
connection, packet     numbers from 0 in order of appearance
client, server         endpoints
client_identifier      empty if unknown
direction              client_to_server or server_to_client
version                3.1, 3.1.1 or 5.0
type, length           packet type, bytes of the whole packet
topic, topic_name      resolved topic, and the Topic Name in the packet
qos, dup, retain       of a PUBLISH
packet_identifier      of packets that have one
reason_code, reason    number and name; all of SUBACK and UNSUBACK, joined by a space and by ``; ``
payload_length         bytes
payload                text, or ``hex:`` and digits; the first bytes when it is longer than the limit
topic_filters          of SUBSCRIBE and UNSUBSCRIBE, joined by a space
keep_alive, clean_start, user_name, session_present    of CONNECT and CONNACK
malformed_reason       empty for packets that are well-formed
properties             JSON object by name, as in JSON Lines
payload_format         format used by a configured decoder
payload_value          decoded value as JSON: ``value`` of JSON Lines
payload_error          reason why decoding failed
tcp_acknowledged       true or false; empty if unknown, or if the filter does not use it
=====================  ===============================================================================
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any, overload

import orjson

from mqttscope.dissect.acknowledgments import tcp_acknowledged
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.mqtt import ControlPacket, PacketType, ProtocolVersion, Publish
from mqttscope.mqtt.constants import reason_name
from mqttscope.mqtt.view import printable, properties_view
from mqttscope.payloads.values import text_of
from mqttscope.report.base import Clock, Sink, View
from mqttscope.report.escape import escaped
from mqttscope.report.jsonl import harmless
from mqttscope.report.public import PublicPacket, decoded_of, fields_shown
from mqttscope.report.public_report import PublicReport
from mqttscope.secrets.packets import hides_payload
from mqttscope.session.capture_time import captured

COLUMNS = (
    "capture",
    "frame",
    "timestamp",
    "timestamp_ns",
    "connection",
    "packet",
    "client",
    "server",
    "client_identifier",
    "direction",
    "version",
    "type",
    "length",
    "topic",
    "topic_name",
    "qos",
    "dup",
    "retain",
    "packet_identifier",
    "reason_code",
    "reason",
    "payload_length",
    "payload",
    "topic_filters",
    "keep_alive",
    "clean_start",
    "session_present",
    "user_name",
    "malformed_reason",
    "properties",
    "payload_format",
    "payload_value",
    "payload_error",
    "tcp_acknowledged",
)
"""The header row; new columns are only added at the end."""

HEX = "hex:"
_FLAGS = {True: "true", False: "false", None: None}

_UNSAFE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Characters that JSON Lines escape too, control characters and lone surrogates."""


_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class Table(PublicReport):
    """Writes packets as CSV rows; other events have no row."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(view)
        self.sink = sink
        self.limit = view.payload_limit
        self.show_secrets = view.show_secrets
        self.spreadsheet = view.spreadsheet
        self._clock = Clock()
        self._buffer = io.StringIO(newline="")
        self._writer = csv.writer(self._buffer)
        self._started = False

    def show(self, event: Event) -> None:
        """Write an event as a row."""
        self._start()
        if isinstance(event, PacketEvent | MalformedEvent):
            row = self.row(event)
            if self.spreadsheet:
                for at in _FROM_THE_WIRE:
                    row[at] = _as_text(row[at])
            self._write(row)

    def close(self) -> None:
        """Write the header if nothing else was written."""
        self._start()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._write(list(COLUMNS))

    def _write(self, row: list[Any]) -> None:
        self._writer.writerow(row)
        self.sink.write(self._buffer.getvalue().encode("utf-8", "replace"))
        self._buffer.seek(0)
        self._buffer.truncate()

    def row(self, event: PacketEvent | MalformedEvent) -> list[Any]:
        """The row of a packet, in the order of `COLUMNS`; ``None`` is an empty field."""
        connection = event.connection
        if isinstance(event, PacketEvent):
            packet: ControlPacket | None = event.packet
            read: tuple[str, ...] | None = None
            length, reason = len(event.packet.raw) + event.packet.missing, ""
        else:
            malformed = event.malformed
            packet, read = malformed.packet, fields_shown(event)
            length, reason = len(malformed.raw) + malformed.missing, str(malformed.reason)
        values: dict[str, Any] = {} if packet is None else self._fields(packet, connection.version, read)
        topic = event.topic
        if read is not None and "topic_name" not in read:
            topic = None
        elif (
            isinstance(event, PublicPacket)
            and isinstance(event.packet, Publish)
            and hides_payload(event.packet, connection.side(event.direction).doubt)
        ):
            values["payload"] = None
        return [
            _safe(event.capture),
            event.frame,
            self._clock.iso(event.timestamp_ns),
            captured(event.timestamp_ns),
            connection.number,
            event.number,
            connection.client,
            connection.server,
            _safe(connection.client_identifier),
            str(event.direction),
            connection.version.text,
            event.type,
            length,
            _safe(topic),
            *map(values.get, _FROM_TOPIC_NAME),
            reason,
            values.get("properties"),
            *self._decoded(event),
            _FLAGS[tcp_acknowledged(event)],
        ]

    def _decoded(self, event: PacketEvent | MalformedEvent) -> tuple[str | None, str | None, str | None]:
        """Format, value and error of a decoded payload."""
        decoded = decoded_of(event)
        if decoded is None:
            return None, None, None
        packet, doubt = event.packet, event.connection.side(event.direction).doubt  # type: ignore[union-attr]
        if not self.show_secrets and isinstance(packet, Publish) and hides_payload(packet, doubt):
            return _safe(decoded.label), None, None
        from mqttscope.report.jsonl_decoded import decoded_view

        decoded_value = decoded_view(decoded, self.limit, show_secrets=self.show_secrets)
        value = _harmless_json(decoded_value["value"]) if "value" in decoded_value else None
        return _safe(decoded_value["format"]), value, _safe(decoded_value.get("error"))

    def _fields(self, packet: ControlPacket, version: ProtocolVersion, read: tuple[str, ...] | None) -> dict[str, Any]:
        """Values of the columns of a packet; of a malformed packet only the fields that were read."""
        values: dict[str, Any] = {}

        def value(name: str) -> Any:
            return getattr(packet, name, None) if read is None or name in read else None

        for name in ("qos", "packet_identifier", "keep_alive"):
            values[name] = value(name)
        for name in ("dup", "retain", "clean_start", "session_present"):
            held = value(name)
            values[name] = None if held is None else _FLAGS[bool(held)]
        for name in ("topic_name", "user_name"):
            values[name] = _safe(value(name))
        kind = packet.packet_type
        codes = value("reason_codes")
        code = value("reason_code")
        if code is None and read is None and kind in _IMPLIED and version == ProtocolVersion.V5:
            code = 0
        if codes is None and code is not None:
            codes = [code]
        if codes is not None:
            values["reason_code"] = " ".join(map(str, codes))
            values["reason"] = "; ".join(reason_name(kind, reason_code, version) for reason_code in codes)
        payload = value("payload")
        if payload is not None:
            values["payload_length"] = len(payload) + packet.missing
            values["payload"] = self._payload(payload)
        filters = value("topic_filters")
        rows = value("subscriptions")
        if rows is not None:
            filters = [row.topic_filter for row in rows]
        if filters is not None:
            values["topic_filters"] = _safe(" ".join(filters))
        block = value("properties")
        if block:
            values["properties"] = _harmless_json(properties_view(block, self.limit, show_secrets=self.show_secrets))
        return values

    def _payload(self, payload: bytes) -> str:
        head = payload[: self.limit]
        text = printable(payload) if len(payload) <= self.limit else text_of(head, cut_off=True)
        if text is None or text.startswith(HEX):
            return HEX + head.hex()
        return _safe(text)


_IMPLIED = {
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
    PacketType.DISCONNECT,
    PacketType.AUTH,
}
"""Packet types without a reason code have reason code 0."""

_FROM_TOPIC_NAME = COLUMNS[COLUMNS.index("topic_name") : COLUMNS.index("malformed_reason")]


_FROM_THE_WIRE = tuple(
    COLUMNS.index(name)
    for name in (
        "capture", "client_identifier", "topic", "topic_name", "payload", "topic_filters", "user_name", "properties",
        "payload_value", "payload_error",
    )
)  # fmt: skip
"""Columns with captured text."""


def _as_text(value: Any) -> Any:
    """Text that a spreadsheet does not take for a formula; numbers are unchanged."""
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _harmless_json(value: Any) -> str:
    return harmless(orjson.dumps(value) + b"\n").decode().removesuffix("\n")


@overload
def _safe(text: str) -> str: ...
@overload
def _safe(text: None) -> None: ...
def _safe(text: str | None) -> str | None:
    if text is None or text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: escaped(match[0]), text)
