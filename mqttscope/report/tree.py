"""Shows every packet in full: each field with its bytes and its meaning, and a hexdump that marks the fields.

`Tree` writes the block of a packet.  `FieldMeanings` explains one field: its value with names and units, and the bits
of flag bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name, type_name
from mqttscope.mqtt.declare import PACKETS, ControlPacket, FieldSpan, Malformed
from mqttscope.mqtt.packets import BRIDGE_LEVELS, Connect, Publish
from mqttscope.mqtt.properties import BY_NAME
from mqttscope.mqtt.wire import LayoutFault, counted, read_variable_byte_integer
from mqttscope.payloads.decoders import DecodedPayload
from mqttscope.report.base import Sink, View
from mqttscope.report.escape import cells, escape_bytes
from mqttscope.report.hexdump import Hexdump, HexdumpMark, letter
from mqttscope.report.payload import MAX_LINES, PayloadView
from mqttscope.report.public import PublicMalformed, PublicPacket, decoded_of, hidden_of, spans_of
from mqttscope.report.public_report import PublicReport
from mqttscope.report.style import Wrapped, encoded
from mqttscope.report.summary import YES_OR_NO
from mqttscope.report.text import TextLines
from mqttscope.report.when import seconds
from mqttscope.secrets.packets import hides_payload
from mqttscope.session.connection import C2S

MAX_VALUE_BYTES = 512
"""Maximum number of value bytes shown as text; the line contains the total, and the hexdump the rest."""

Bits = tuple[str, str]
"""A bit pattern such as ``.... 0...`` and the meaning of its bits."""

_STRINGS = {"protocol_name", "topic_name", "client_identifier", "will_topic", "user_name", "topic_filter"}
_NUMBERS = {"packet_identifier", "keep_alive", "protocol_level"}
_LEVELS = {int(version): f"MQTT {version.text}" for version in ProtocolVersion}
_LEVELS |= {level: f"MQTT {ProtocolVersion(level & 0x7F).text}, bridge" for level in BRIDGE_LEVELS}
_RETAIN_HANDLING = (
    "send retained messages",
    "send retained messages if the subscription is new",
    "send no retained messages",
    "reserved",
)


class FieldMeanings:
    """Explains the fields of one packet."""

    def __init__(
        self, raw: bytes, kind: int, version: ProtocolVersion, *, ascii_only: bool, show_secrets: bool
    ) -> None:
        self.raw = raw
        self.kind = kind
        self.version = version
        self.ascii_only = ascii_only
        self.show_secrets = show_secrets

    def value(self, span: FieldSpan) -> str:
        """The value of a field, escaped; empty if its bits explain it completely."""
        raw, start, end = self.raw, span.start, span.end
        path = span.field
        if start >= end:
            return ""
        leaf = path.rpartition(".")[2]
        if path in ("flags", "header_flags", "packet_type"):
            return type_name(raw[0] >> 4).upper()
        if path == "remaining_length" or leaf == "property_length":
            try:
                value, _ = read_variable_byte_integer(raw, start, end)
            except LayoutFault:
                return "not a Variable Byte Integer"
            return counted(value, "byte")
        if "properties." in path:
            return self._property(leaf, start, end)
        if path.startswith("reason_codes["):
            return self._reason(raw[start])
        if path.startswith("topic_filters[") or leaf in _STRINGS:
            return self._text(start + 2, end)
        if leaf == "reason_code":
            return self._reason(raw[start])
        if leaf in _NUMBERS:
            return self._number(leaf, int.from_bytes(raw[start:end], "big"))
        if leaf == "password":
            return self._text(start + 2, end) if self.show_secrets else f"({counted(end - start - 2, 'byte')}, hidden)"
        if leaf == "will_payload":
            return self._text(start + 2, end)
        if leaf in ("connect_flags", "acknowledge_flags", "options"):
            return f"0x{raw[start]:02x}"
        if leaf in ("unparsed", "trailing_bytes", "fixed_header"):
            return counted(end - start, "byte")
        return ""

    def _number(self, leaf: str, value: int) -> str:
        if leaf == "keep_alive":
            return f"{value} s" if value else "0 (off)"
        if leaf == "protocol_level":
            return f"{value} ({_LEVELS.get(value, 'unknown')})"
        return str(value)

    def _reason(self, code: int) -> str:
        return f"0x{code:02x} {reason_name(self.kind, code, self.version)}"

    def _text(self, start: int, end: int) -> str:
        return self._shown(self.raw[start:end])

    def _property(self, name: str, start: int, end: int) -> str:
        """Value of a property; the identifier takes one byte unless it was encoded too long."""
        raw, row = self.raw, BY_NAME.get(name)
        if row is None:
            return f"unknown property, {counted(end - start, 'byte')}"
        at = start
        while at < end and raw[at] & 0x80:
            at += 1
        at += 1
        if name == "authentication_data" and not self.show_secrets:
            # In a broken packet even the length may reveal something about a secret.
            return f"({counted(max(0, end - at - 2), 'byte')}, hidden)"
        try:
            value, _ = row.wire.read(raw, at, end)
        except LayoutFault as error:
            value = error.value
            if value is None:
                return f"unreadable: {error.detail}"
        if isinstance(value, tuple):
            return " = ".join(self._shown(part) for part in value)
        if isinstance(value, str | bytes):
            return self._shown(value)
        if name.endswith("_interval"):
            return seconds(value)
        if name == "server_keep_alive":
            return f"{value} s"
        if name in YES_OR_NO:
            return f"{value} ({'yes' if value == 1 else 'no' if value == 0 else 'not 0 or 1'})"
        if name == "payload_format_indicator":
            return f"{value} ({'UTF-8' if value == 1 else 'unspecified bytes' if value == 0 else 'not 0 or 1'})"
        if name == "maximum_packet_size":
            return counted(value, "byte")
        return str(value)

    def _shown(self, value: str | bytes) -> str:
        raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        if not raw:
            return "(empty)"
        if len(raw) <= MAX_VALUE_BYTES:
            return escape_bytes(raw, ascii_only=self.ascii_only)
        end = MAX_VALUE_BYTES
        while MAX_VALUE_BYTES - end < 3 and raw[end] & 0xC0 == 0x80:
            end -= 1  # not within a character
        more = "..." if self.ascii_only else "…"
        return f"{escape_bytes(raw[:end], ascii_only=self.ascii_only)}{more} ({counted(len(raw), 'byte')})"

    def bits(self, span: FieldSpan) -> list[Bits]:
        """The bits of a flag byte with their meanings; empty for other fields."""
        leaf = span.field.rpartition(".")[2]
        explain = _BITS.get(leaf)
        return [] if explain is None or span.start >= len(self.raw) else explain(self.raw[span.start], self)


def _row(byte: int, shift: int, width: int, name: str, meaning: str = "") -> Bits:
    digits = "".join(f"{byte >> bit & 1}" if shift <= bit < shift + width else "." for bit in range(7, -1, -1))
    value = byte >> shift & ((1 << width) - 1)
    return f"{digits[:4]} {digits[4:]}", f"{name} = {value}" + (f" ({meaning})" if meaning else "")


def _header(byte: int, about: FieldMeanings) -> list[Bits]:
    kind = byte >> 4
    rows = [_row(byte, 4, 4, "packet_type", type_name(kind).upper())]
    if kind == PacketType.PUBLISH:
        qos = byte >> 1 & 3
        return [
            *rows,
            _row(byte, 3, 1, "dup"),
            _row(byte, 1, 2, "qos", ("at most once", "at least once", "exactly once", "must not be used")[qos]),
            _row(byte, 0, 1, "retain"),
        ]
    wanted = PACKETS[kind].fixed_flags if kind in PACKETS else None
    wrong = wanted is not None and byte & 15 != wanted and about.version != ProtocolVersion.V3_1
    return [*rows, _row(byte, 0, 4, "reserved", f"must be {wanted}" if wrong else "")]


def _connect_flags(byte: int, about: FieldMeanings) -> list[Bits]:
    return [
        _row(byte, 7, 1, "user_name"),
        _row(byte, 6, 1, "password"),
        _row(byte, 5, 1, "will_retain"),
        _row(byte, 3, 2, "will_qos", "must not be used" if byte & 0x18 == 0x18 else ""),
        _row(byte, 2, 1, "will"),
        _row(byte, 1, 1, "clean_start" if about.version == ProtocolVersion.V5 else "clean_session"),
        _row(byte, 0, 1, "reserved", "must be 0" if byte & 1 and about.version != ProtocolVersion.V3_1 else ""),
    ]


def _acknowledge_flags(byte: int, about: FieldMeanings) -> list[Bits]:
    if about.version == ProtocolVersion.V3_1:
        return [_row(byte, 0, 8, "reserved")]
    return [_row(byte, 1, 7, "reserved", "must be 0" if byte >> 1 else ""), _row(byte, 0, 1, "session_present")]


def _options(byte: int, about: FieldMeanings) -> list[Bits]:
    qos = _row(byte, 0, 2, "maximum_qos", "must not be used" if byte & 3 == 3 else "")
    if about.version != ProtocolVersion.V5:
        return [_row(byte, 2, 6, "reserved", "must be 0" if byte >> 2 else ""), qos]
    return [
        _row(byte, 6, 2, "reserved", "must be 0" if byte >> 6 else ""),
        _row(byte, 4, 2, "retain_handling", _RETAIN_HANDLING[byte >> 4 & 3]),
        _row(byte, 3, 1, "retain_as_published"),
        _row(byte, 2, 1, "no_local"),
        qos,
    ]


_BITS: dict[str, Callable[[int, FieldMeanings], list[Bits]]] = {
    "flags": _header,
    "header_flags": _header,
    "packet_type": _header,
    "connect_flags": _connect_flags,
    "acknowledge_flags": _acknowledge_flags,
    "options": _options,
}

MAX_FIELDS = 1_000
"""Maximum number of fields listed per packet; further ones are counted."""
MAX_FAULTS = 50
"""Maximum number of faults listed per packet; further ones are counted."""
HEAD_BYTES, TAIL_BYTES = 256, 16
"""Bytes shown at the beginning and end of a long last field, unless the payload view is hex."""
MAX_DUMP_ROWS = 1_024
"""Maximum number of 16-byte rows before the hexdump skips to the last bytes, unless the payload view is hex."""
MAX_COUNTED = 100_000
"""Maximum number of hidden payload lines that are counted; beyond it the number is a minimum."""


@dataclass(slots=True)
class TreeLine:
    """One line of a packet in full."""

    text: str
    """Painted text."""
    start: int = -1
    """Offset of the described bytes; -1 if the line describes no bytes."""
    end: int = -1
    """Offset after the described bytes."""


class _PacketParts:
    """Packet, bytes and field ranges of an event."""

    __slots__ = ("malformed", "packet", "raw", "spans")

    def __init__(self, event: PacketEvent | MalformedEvent) -> None:
        self.packet: ControlPacket | None
        self.malformed: Malformed | None = None
        if isinstance(event, PacketEvent):
            self.packet, self.raw = event.packet, event.packet.raw
        else:
            self.malformed = event.malformed
            self.packet, self.raw = event.malformed.packet, event.malformed.raw
        packet = self.packet
        if isinstance(event, PublicPacket | PublicMalformed):
            # Hidden bytes cannot be traced, so the ranges come from the original ones.
            self.spans = event.spans
        else:
            version = packet.version if isinstance(packet, Connect) else event.connection.version
            self.spans = spans_of(self.raw, packet, version)


class Tree(PublicReport):
    """Writes each packet as a block of lines, other events as one line."""

    def __init__(self, sink: Sink, view: View, *, bare: bool = False) -> None:
        """``bare``: the bytes of fields are shown elsewhere; lines contain names and values only."""
        super().__init__(view, all_bytes=True)
        self.sink = sink
        self._bare = bare
        self.lines = TextLines(sink, view)
        self.painter = self.lines.painter
        self.payload = PayloadView.from_view(view)
        width = view.width
        self._bytes_shown = 8 if width <= 0 or width >= 110 else 4 if width >= 70 else 2
        self._name_cells = 34 if width <= 0 or width >= 110 else 26 if width >= 70 else 20 if bare else 14

    def show(self, event: Event) -> None:
        """Write an event in full."""
        if not isinstance(event, PacketEvent | MalformedEvent):
            self.lines.show(event)
            return
        lines = self.lines.preambles.lines(event)
        parts = _PacketParts(event)
        lines += (line.text for line in self._block(event, parts))
        self.sink.write(encoded([*lines, *self._dump(event, parts), ""]))

    def described(self, event: PacketEvent | MalformedEvent) -> list[TreeLine]:
        """The lines of a packet before its hexdump, with the bytes that each describes.

        The secrets of the event are already hidden: a report hides them before it calls this.
        """
        return self._block(event, _PacketParts(event))

    def _block(self, event: PacketEvent | MalformedEvent, parts: _PacketParts) -> list[TreeLine]:
        packet, malformed, raw, spans = parts.packet, parts.malformed, parts.raw, parts.spans
        missing = malformed.missing if malformed is not None else packet.missing if packet is not None else 0
        version = packet.version if isinstance(packet, Connect) else event.connection.version
        out = [TreeLine(text) for text in self._header(event, raw, missing, malformed)]
        out += self._acknowledgment(event)
        hidden = hidden_of(event)
        shown = ""
        block: list[str] = []
        if isinstance(packet, Publish) and not self._hides_payload(event, packet, hidden):
            shown, block = self._payload(packet, decoded_of(event))
        out += self._fields(event, shown, raw, spans, hidden, version)
        if missing:
            line = self.painter.line()
            lost = "never came" if malformed else f"{'was' if missing == 1 else 'were'} not {self.view.held}"
            line.add(f"  {counted(missing, 'byte')} of this packet {lost}", "error")
            out.append(TreeLine(str(line)))
        if malformed is not None:
            out += self._faults(malformed, spans, len(raw))
        place = (spans[-1].start, spans[-1].end) if spans and block else (-1, -1)
        return [*out, *(TreeLine(text, *place) for text in block)]

    def _dump(self, event: PacketEvent | MalformedEvent, parts: _PacketParts) -> Iterator[str]:
        packet, malformed, raw, spans = parts.packet, parts.malformed, parts.raw, parts.spans
        hidden = hidden_of(event)
        marks = [
            HexdumpMark(*_place(fault.offset, fault.field, spans, len(raw)), str(fault.reason))
            for fault in (() if malformed is None else malformed.faults[:MAX_FAULTS])
        ]
        skip = self._skip(packet, raw, spans)
        skips = () if skip is None else (skip,)
        return Hexdump(raw, spans[:MAX_FIELDS], self.painter, marks=marks, hidden=hidden, skip=skips).lines()

    @staticmethod
    def _hides_payload(event: PacketEvent | MalformedEvent, packet: Publish, hidden: list[tuple[int, int]]) -> bool:
        """Whether the whole payload is hidden; single credentials in a payload are replaced by asterisks."""
        if isinstance(event, MalformedEvent):
            return bool(hidden) or not event.malformed.complete
        return bool(hidden) and hides_payload(packet, event.connection.side(event.direction).doubt)

    def _header(
        self, event: PacketEvent | MalformedEvent, raw: bytes, missing: int, malformed: Malformed | None
    ) -> list[str]:
        line = self.lines.heads.begin(event)
        text = Wrapped(line)
        connection = event.connection
        text.add((event.type or "packet").upper(), "type" if malformed is None else "malformed")
        if malformed is not None:
            text.add(" MALFORMED", "malformed")
        dot = self.painter.dot
        version = f"MQTT {connection.version.text}" + ("" if connection.version_known else "?")
        length = len(raw) + missing
        text.add(f"  packet {event.number}", "dim")
        if self.view.time != "none":
            text.add(f"{dot}frame {event.frame}", "dim")
        text.add(f"{dot}{counted(length, 'byte')}", "dim")
        text.add(f"{dot}{version}", "dim" if connection.version_known else "note")
        return text.texts()

    def _acknowledgment(self, event: PacketEvent | MalformedEvent) -> Iterator[TreeLine]:
        """Whether TCP acknowledged the packet, if acknowledgments were looked up."""
        lookup = event.connection.acknowledgments
        if lookup is None:
            return
        line, is_acknowledged = self.painter.line(), lookup.of(event)
        if is_acknowledged and lookup.is_after_fin(event):
            receiver = "server" if event.direction is C2S else "client"
            line.add(f"  TCP: acknowledged after the FIN of the {receiver}", "note")
        elif is_acknowledged:
            line.add("  TCP: acknowledged", "dim")
        elif is_acknowledged is False:
            line.add("  TCP: never acknowledged", "note")
        else:
            what = "the capture does not show an acknowledgment" if lookup.is_done else "not known yet"
            line.add(f"  TCP: {what}", "dim")
        yield TreeLine(str(line))

    def _fields(
        self,
        event: PacketEvent | MalformedEvent,
        payload: str,
        raw: bytes,
        spans: list[FieldSpan],
        hidden: list[tuple[int, int]],
        version: ProtocolVersion,
    ) -> list[TreeLine]:
        kind = raw[0] >> 4 if raw else 0
        view = self.view
        meaning = FieldMeanings(raw, kind, version, ascii_only=not view.unicode, show_secrets=view.show_secrets)
        out: list[TreeLine] = []
        digits = len(str(max(0, len(raw) - 1)))
        offsets = 2 * digits + 1
        group = ""
        for index, span in enumerate(spans[:MAX_FIELDS]):
            parent, _, leaf = span.field.rpartition(".")
            depth = span.field.count(".")
            if parent != group:
                out += (TreeLine(text, span.start, span.end) for text in self._groups(group, parent, offsets))
                group = parent
            secret = any(first < span.end and span.start < behind for first, behind in hidden)
            value = payload if span.field == "payload" else self._value(event, span, meaning, hidden=secret)
            text = self._field(index, span, leaf, depth, value, offsets, None if secret else raw)
            out.append(TreeLine(text, span.start, span.end))
            for pattern, meaning_of_bits in () if secret else meaning.bits(span):
                line = self.painter.line()
                line.add(" " * (self._indent(offsets) + 2 * depth + (2 if self._bare else 0)))
                line.add(pattern, "dim")
                line.add(f"  {meaning_of_bits}")
                out.append(TreeLine(str(line), span.start, span.end))
        if len(spans) > MAX_FIELDS:
            out.append(TreeLine(f"  {self.painter.ellipsis} {counted(len(spans) - MAX_FIELDS, 'more field')}"))
        return out

    def _bytes_cells(self) -> int:
        return self._bytes_shown * 3 - 1 + 2

    def _indent(self, offsets: int) -> int:
        return 2 if self._bare else 5 + offsets + self._bytes_cells()

    def _groups(self, before: str, parent: str, offsets: int) -> list[str]:
        """Heading lines of the groups that begin at this field."""
        out = []
        parts = parent.split(".") if parent else []
        for depth in range(len(parts)):
            path = ".".join(parts[: depth + 1])
            if before == path or before.startswith(path + "."):
                continue
            line = self.painter.line()
            line.add(" " * (self._indent(offsets) + 2 * depth))
            line.add(parts[depth], "dim")
            out.append(str(line))
        return out

    def _field(
        self, index: int, span: FieldSpan, leaf: str, depth: int, value: str, offsets: int, raw: bytes | None
    ) -> str:
        line = self.painter.line()
        name = " " * (2 * depth) + leaf
        if self._bare:
            line.add(f"  {name:<{self._name_cells}} ", "malformed" if leaf in _BROKEN else f"span{index % 2}")
            line.add(value)
            return str(line).rstrip(" ")
        place = f"{span.start}" if span.end - span.start <= 1 else f"{span.start}-{span.end - 1}"
        line.add(f"  {letter(index)} {place:>{offsets}} ", "dim")
        shown = self._octets(raw[span.start : span.end]) if raw is not None else "**"
        line.add(f"{shown:<{self._bytes_cells()}}", f"span{index % 2}")
        line.add(f"{name:<{self._name_cells}} ", "malformed" if leaf in _BROKEN else "")
        line.add(value)
        return str(line).rstrip(" ")

    def _octets(self, value: bytes) -> str:
        most = self._bytes_shown
        if len(value) <= most:
            return value.hex(" ")
        ellipsis = self.painter.ellipsis[:2]
        if most == 2:
            return f"{value[:1].hex()} {ellipsis}"
        half = most // 2
        return f"{value[:half].hex(' ')} {ellipsis:<2} {value[half + 1 - most :].hex(' ')}"

    def _value(
        self, event: PacketEvent | MalformedEvent, span: FieldSpan, meaning: FieldMeanings, *, hidden: bool
    ) -> str:
        if hidden and span.field.rpartition(".")[2] not in ("password", "authentication_data"):
            return f"{counted(span.end - span.start, 'byte')}, hidden: may hold a password (--show-secrets)"
        value = meaning.value(span)
        if span.field == "properties.topic_alias" and meaning.kind == PacketType.PUBLISH:
            topic = "unknown" if event.topic is None else self.painter.name(event.topic, 200)
            return f"{value} {self.painter.to_server} {topic}"
        return value

    def _payload(self, packet: Publish, decoded: DecodedPayload | None) -> tuple[str, list[str]]:
        """Value of the payload for its line, and further lines if it needs several; hex is left to the hexdump."""
        count, payload = len(packet.payload), packet.payload
        size = counted(count, "byte")
        block = packet.properties
        content_type = indicator = None
        if block is not None:
            content_type, indicator = block.content_type, block.payload_format_indicator
        shown = self.payload.show(
            payload, content_type=content_type, indicator=indicator, missing=packet.missing, decoded=decoded
        )
        if shown.kind in ("none", "empty") or (shown.label == "hex" and not shown.note):
            return size, []
        painter = self.painter
        out: list[str] = []
        if shown.label != "hex":
            longest = 4 * min(painter.width, self.view.payload_limit)
            texts = [painter.safe(text[:longest]) for text in islice(shown.body, MAX_LINES)]
            if shown.label == "text" and not shown.note and len(texts) == 1 and cells(texts[0]) <= _IN_LINE:
                return texts[0], []
            for text in texts:
                line = painter.line()
                line.add("    " + text, "payload")
                out.append(str(line))
        left = sum(1 for _ in islice(shown.body, MAX_COUNTED + 1))
        if left and out:
            more = f"more than {MAX_COUNTED} more lines" if left > MAX_COUNTED else counted(left, "more line")
            out.append(f"    {painter.ellipsis} {more}")
        head = Wrapped(painter.line())
        head.add(f"  payload as {shown.label}", "dim")
        if shown.note:
            head.add(f" ({painter.safe(shown.note)})", "note")
        return size, [*head.texts(), *out]

    def _skip(self, packet: ControlPacket | None, raw: bytes, spans: list[FieldSpan]) -> tuple[int, int] | None:
        """The part of a long last field that the hexdump leaves out."""
        if not spans:
            return None
        last = spans[-1]
        payload = isinstance(packet, Publish) and last.field == "payload"
        if payload and self.view.payload == "none":
            return last.start, len(raw) + 16
        start = min(last.start + HEAD_BYTES, 16 * MAX_DUMP_ROWS)
        if self.view.payload == "hex":
            start = max(start, last.start + self.view.payload_limit)
        # Whole rows only, of 16 or 8 bytes.
        start, stop = -(-start // 16) * 16, (len(raw) - TAIL_BYTES) // 16 * 16
        return (start, stop) if stop - start >= 32 else None

    def _faults(self, malformed: Malformed, spans: list[FieldSpan], length: int) -> Iterator[TreeLine]:
        for fault in malformed.faults[:MAX_FAULTS]:
            text = Wrapped(self.painter.line())
            where = f"byte {fault.offset}" + (f", {self.painter.safe(fault.field)}" if fault.field else "")
            text.add(f"  {fault.reason} at {where}:", "malformed")
            text.add(f" {self.painter.safe(fault.detail)}", "malformed")
            place = _place(fault.offset, fault.field, spans, length)
            yield from (TreeLine(text_line, *place) for text_line in text.texts())
        if len(malformed.faults) > MAX_FAULTS:
            yield TreeLine(f"  {counted(len(malformed.faults) - MAX_FAULTS, 'more fault')}")


_BROKEN = ("trailing_bytes", "unparsed")
"""Names of ranges that could not be read as fields."""
_IN_LINE = 40
"""Maximum columns of a text payload shown beside its bytes; longer ones get lines of their own."""


def _place(offset: int, path: str, spans: list[FieldSpan], length: int) -> tuple[int, int]:
    """The bytes of a fault: from its offset to the end of the field that it is in."""
    for span in spans:
        if span.start <= offset < span.end:
            return (span.start, span.end) if span.field == path else (offset, span.end)
    return offset, offset
