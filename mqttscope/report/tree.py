"""Every packet in full: each field with its bytes, what it means, and a hexdump in which the fields stand out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.codec import trace
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed, Span
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.wire import counted
from mqttscope.redact.packets import hides_payload
from mqttscope.report.base import Sink, View, hidden_of
from mqttscope.report.escape import cells
from mqttscope.report.hexdump import Hexdump, Mark, letter
from mqttscope.report.meaning import Meaning
from mqttscope.report.payload import MAX_LINES, PayloadView
from mqttscope.report.style import Wrapped, encoded
from mqttscope.report.text import TextLines

MAX_TRACED_BYTES = 65_536
"""Packets whose fields, the payload of a PUBLISH aside, take more bytes are explained up to here."""
MAX_FIELDS = 1_000
"""Fields of one packet that are listed; further ones are counted."""
MAX_FAULTS = 50
"""Faults of one packet that are listed; further ones are counted."""
HEAD_BYTES, TAIL_BYTES = 256, 16
"""What the hexdump shows of a long last field, unless the payload view is hex."""
MAX_DUMP_BYTES = 16_384
"""Where the hexdump of any packet goes over to its last bytes."""
MAX_COUNTED = 100_000
"""Lines of a payload that are counted when they are not shown."""


class Tree:
    """Writes each packet as a block of lines, other events as one line."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.view = view
        self.lines = TextLines(sink, view)
        self.painter = self.lines.painter
        self.payload = PayloadView(
            view.payload, limit=view.payload_limit, unicode=view.unicode, show_secrets=view.show_secrets
        )
        width = view.width
        self._bytes_shown = 8 if width <= 0 or width >= 110 else 4 if width >= 70 else 2
        self._name_cells = 34 if width <= 0 or width >= 110 else 26 if width >= 70 else 14

    def feed(self, event: Event) -> None:
        """Write one event."""
        if not isinstance(event, PacketEvent | MalformedEvent):
            self.lines.feed(event)
            return
        lines = self.lines.preambles.of(event)
        if isinstance(event, PacketEvent):
            lines += self._packet(event, event.packet, None)
        else:
            lines += self._packet(event, event.malformed.packet, event.malformed)
        self.sink.write(encoded([*lines, ""]))

    def close(self) -> None:
        """Nothing is held back."""

    def _packet(
        self, event: PacketEvent | MalformedEvent, packet: ControlPacket | None, malformed: Malformed | None
    ) -> list[str]:
        raw = packet.raw if malformed is None and packet is not None else malformed.raw  # type: ignore[union-attr]
        missing = malformed.missing if malformed is not None else packet.missing if packet is not None else 0
        version = packet.version if isinstance(packet, Connect) else event.connection.version
        out = self._header(event, raw, missing, malformed)
        spans = self._spans(raw, packet, version)
        hidden = [] if self.view.show_secrets else hidden_of(event)
        shown = ""
        block: list[str] = []
        if isinstance(packet, Publish) and not self._hides_payload(event, packet, hidden):
            shown, block = self._payload(packet)
        out += self._fields(event, shown, raw, spans, hidden, version)
        if missing:
            line = self.painter.line()
            lost = "never came" if malformed else "was not captured" if missing == 1 else "were not captured"
            line.add(f"  {counted(missing, 'byte')} of this packet {lost}", "error")
            out.append(str(line))
        marks: list[Mark] = []
        if malformed is not None:
            out += self._faults(malformed)
            marks = [
                Mark(*_place(one.offset, one.field, spans, len(raw)), str(one.reason))
                for one in malformed.faults[:MAX_FAULTS]
            ]
        out += block
        skip = self._skip(packet, raw, spans)
        skips = () if skip is None else (skip,)
        out += Hexdump(raw, spans[:MAX_FIELDS], self.painter, marks=marks, hidden=hidden, skip=skips).lines()
        return out

    @staticmethod
    def _hides_payload(event: PacketEvent | MalformedEvent, packet: Publish, hidden: list[tuple[int, int]]) -> bool:
        """Whether nothing of a payload is shown; single credentials in one have asterisks in their place."""
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

    def _spans(self, raw: bytes, packet: ControlPacket | None, version: ProtocolVersion) -> list[Span]:
        # A payload is one field, however long it is; in front of it there may be hundreds of thousands.
        payload = len(packet.payload) if isinstance(packet, Publish) and packet.payload else 0
        if len(raw) - payload <= MAX_TRACED_BYTES:
            return trace(raw, version)
        spans = trace(raw[:MAX_TRACED_BYTES], version)
        if spans and spans[-1].field == "unparsed":
            spans[-1].end = len(raw)
            return spans
        return [*spans, Span("unparsed", MAX_TRACED_BYTES, len(raw))]

    def _fields(
        self,
        event: PacketEvent | MalformedEvent,
        payload: str,
        raw: bytes,
        spans: list[Span],
        hidden: list[tuple[int, int]],
        version: ProtocolVersion,
    ) -> list[str]:
        kind = raw[0] >> 4 if raw else 0
        meaning = Meaning(raw, kind, version, ascii_only=not self.view.unicode, show_secrets=self.view.show_secrets)
        out: list[str] = []
        digits = len(str(max(0, len(raw) - 1)))
        offsets = 2 * digits + 1
        group = ""
        for index, span in enumerate(spans[:MAX_FIELDS]):
            parent, _, leaf = span.field.rpartition(".")
            depth = span.field.count(".")
            if parent != group:
                out += self._groups(group, parent, offsets)
                group = parent
            secret = any(first < span.end and span.start < behind for first, behind in hidden)
            value = payload if span.field == "payload" else self._value(event, span, meaning, hidden=secret)
            out.append(self._field(index, span, leaf, depth, value, offsets, None if secret else raw))
            for pattern, told in meaning.bits(span):
                line = self.painter.line()
                line.add(" " * (5 + offsets + self._bytes_cells() + 2 * depth))
                line.add(pattern, "dim")
                line.add(f"  {told}")
                out.append(str(line))
        if len(spans) > MAX_FIELDS:
            out.append(f"  {self.painter.ellipsis} {counted(len(spans) - MAX_FIELDS, 'more field')}")
        return out

    def _bytes_cells(self) -> int:
        return self._bytes_shown * 3 - 1 + 2

    def _groups(self, before: str, parent: str, offsets: int) -> list[str]:
        """Heading lines of the groups that begin here."""
        out = []
        parts = parent.split(".") if parent else []
        for depth in range(len(parts)):
            path = ".".join(parts[: depth + 1])
            if before == path or before.startswith(path + "."):
                continue
            line = self.painter.line()
            line.add(" " * (5 + offsets + self._bytes_cells() + 2 * depth))
            line.add(parts[depth], "dim")
            out.append(str(line))
        return out

    def _field(self, index: int, span: Span, leaf: str, depth: int, value: str, offsets: int, raw: bytes | None) -> str:
        line = self.painter.line()
        place = f"{span.start}" if span.end - span.start <= 1 else f"{span.start}-{span.end - 1}"
        line.add(f"  {letter(index)} {place:>{offsets}} ", "dim")
        shown = self._octets(raw[span.start : span.end]) if raw is not None else "**"
        line.add(f"{shown:<{self._bytes_cells()}}", f"span{index % 2}")
        name = " " * (2 * depth) + leaf
        line.add(f"{name:<{self._name_cells}} ", "malformed" if leaf in ("trailing_bytes", "unparsed") else "")
        line.add(value)
        return str(line).rstrip(" ")

    def _octets(self, value: bytes) -> str:
        """Bytes of a field; of many the first and the last."""
        most = self._bytes_shown
        if len(value) <= most:
            return value.hex(" ")
        ellipsis = self.painter.ellipsis[:2]
        if most == 2:
            return f"{value[:1].hex()} {ellipsis}"
        half = most // 2
        return f"{value[:half].hex(' ')} {ellipsis:<2} {value[half + 1 - most :].hex(' ')}"

    def _value(self, event: PacketEvent | MalformedEvent, span: Span, meaning: Meaning, *, hidden: bool) -> str:
        if hidden and span.field.rpartition(".")[2] not in ("password", "authentication_data"):
            return f"{counted(span.end - span.start, 'byte')}, hidden: may hold a password (--show-secrets)"
        value = meaning.value(span)
        if span.field == "properties.topic_alias" and meaning.kind == PacketType.PUBLISH:
            told = "unknown" if event.topic is None else self.painter.name(event.topic, 200)
            return f"{value} {self.painter.to_server} {told}"
        return value

    def _payload(self, packet: Publish) -> tuple[str, list[str]]:
        """Value of the payload for its line, and lines for what needs more than one; hex is left to the dump."""
        count, payload = len(packet.payload), packet.payload
        size = counted(count, "byte")
        block = packet.properties
        content_type = indicator = None
        if block is not None:
            content_type, indicator = block.first(0x03), block.first(0x01)
        shown = self.payload.show(payload, content_type=content_type, indicator=indicator, missing=packet.missing)
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
        left = sum(1 for _ in islice(shown.body, MAX_COUNTED))
        if left and out:
            more = f"{MAX_COUNTED}+ more lines" if left == MAX_COUNTED else counted(left, "more line")
            out.append(f"    {painter.ellipsis} {more}")
        told = Wrapped(painter.line())
        told.add(f"  payload as {shown.label}", "dim")
        if shown.note:
            told.add(f" ({painter.safe(shown.note)})", "note")
        return size, [*told.texts(), *out]

    def _skip(self, packet: ControlPacket | None, raw: bytes, spans: list[Span]) -> tuple[int, int] | None:
        """The part of a long field at the end that the dump leaves out."""
        if not spans:
            return None
        last = spans[-1]
        payload = isinstance(packet, Publish) and last.field == "payload"
        if payload and self.view.payload == "none":
            return last.start, len(raw) + 16
        start = min(last.start + HEAD_BYTES, MAX_DUMP_BYTES)
        if self.view.payload == "hex":
            start = max(start, last.start + self.view.payload_limit)
        # Whole rows only, whether they have 16 bytes or 8.
        start, stop = -(-start // 16) * 16, (len(raw) - TAIL_BYTES) // 16 * 16
        return (start, stop) if stop - start >= 32 else None

    def _faults(self, malformed: Malformed) -> Iterator[str]:
        for one in malformed.faults[:MAX_FAULTS]:
            text = Wrapped(self.painter.line())
            where = f"byte {one.offset}" + (f", {self.painter.safe(one.field)}" if one.field else "")
            text.add(f"  {one.reason} at {where}:", "malformed")
            text.add(f" {self.painter.safe(one.detail)}", "malformed")
            yield from text.texts()
        if len(malformed.faults) > MAX_FAULTS:
            yield f"  {counted(len(malformed.faults) - MAX_FAULTS, 'more fault')}"


_IN_LINE = 40
"""Longest text payload that stands beside its bytes; longer ones get lines of their own."""


def _place(offset: int, path: str, spans: list[Span], length: int) -> tuple[int, int]:
    """The bytes a fault is about: the field that it names or lies in, from the offset on."""
    for span in spans:
        if span.start <= offset < span.end:
            return (span.start, span.end) if span.field == path else (offset, span.end)
    return offset, offset
