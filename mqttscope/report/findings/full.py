"""Reports findings in full: problem, location, packet with its bytes, statements, advice.

    error[CON105]: Password without User Name  (password-without-user-name)
      a.pcap: frame 4, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)
      2026-01-02T03:04:05.123456789Z #0 dev1   → broker CONNECT    3.1.1, clean session, ...
      0000  10 12 00 04 4d 51 54 54 04 42 00 3c 00 04 64 65  ....MQTT.B.<..de
      0010  76 31 00 02 ** **                                v1..**
                  ^^^^^^^^^^^ password
      breaks 3.1.1 MQTT-3.1.2-22 (section 3.1.2.9): ...
      Instead, ...

`FullFindings` writes one such block per finding; the advice of a rule appears once, with its first finding.
`PacketView` shows the packet of a finding as `inspect` does: one line, and the bytes with carets under the field.

`RankedFindings` writes the worst first: errors, then warnings, then one line for each rule with notes.

    info[CON108]: CONNECT: 33 clients have Client Identifiers that ...  (client-id-length)  a.pcap: frame 4, ...
    info[OPS212]: pings every 5 s with a Keep Alive of 600 s, and 3 more notes  (ping-without-idle)  a.pcap: ...

Warnings wait for the end, and so do notes if each is shown.  Findings beyond the limits are folded in the same way:
no finding is omitted silently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from io import BytesIO

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.catalogue import all_rules, all_statements
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.mqtt import ControlPacket, FieldSpan, Publish
from mqttscope.mqtt.constants import REASON_CODES
from mqttscope.report.base import Sink, View
from mqttscope.report.explain import CONFIDENCES
from mqttscope.report.findings.base import MAX_LINES, NOUNS, STYLES, RunSummary, lines, message, place
from mqttscope.report.findings.shown import FindingFormat, ShownFinding
from mqttscope.report.hexdump import Hexdump, HexdumpMark
from mqttscope.report.numbers import plural
from mqttscope.report.payload import PayloadView
from mqttscope.report.style import Painter, Wrapped, encoded
from mqttscope.report.summary import PacketSummary
from mqttscope.report.text import TextLines
from mqttscope.report.when import duration
from mqttscope.secrets.forms import find_all

INDENT = 2
"""Columns before the line of a packet and before its bytes."""
HEAD_ROWS = 2
"""Number of 16-byte rows at the beginning of a packet that are always shown."""
MARKED_BYTES = 64
"""Maximum number of bytes shown of a field that is to blame."""
AROUND_BYTES = 16
"""Bytes shown before and after the field, up to whole rows."""
LEAST_SKIP = 48
"""Minimum number of bytes that are left out of a hex dump."""

_COMPRESSED = (b"\x1f", b"\x78", b"\x28")
"""First bytes of gzip, zlib and zstd."""


def _lines(view: View) -> TextLines:
    text = TextLines(BytesIO(), view)
    text.summary = PacketSummary(view, text.painter, alone=True)
    return text


class PacketView:
    """Shows packets of findings."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.painter = Painter(view)
        narrower = replace(view, width=max(1, view.width - INDENT) if view.width > 0 else 0)
        self.text = _lines(narrower)
        self.bare = _lines(replace(narrower, payload="none"))
        self.payload = PayloadView(limit=view.payload_limit, show_secrets=view.show_secrets)

    def lines(self, event: PacketEvent | MalformedEvent) -> list[str]:
        """The line of a packet; more than one for a malformed packet in a narrow terminal."""
        text = self.bare if isinstance(event, PacketEvent) and self._unpacks_secret(event.packet) else self.text
        text.heads.forget(event.connection)
        if isinstance(event, PacketEvent):
            lines = [text.packet_text(event)]
        else:
            lines = text.other(event)
        return [" " * INDENT + line for line in lines]

    def _unpacks_secret(self, packet: ControlPacket) -> bool:
        """Whether a compressed payload, which the line shows decompressed, contains a secret."""
        if self.view.show_secrets or not isinstance(packet, Publish) or packet.payload[:1] not in _COMPRESSED:
            return False
        preview = self.payload.preview(packet.payload, self.view.payload_limit, missing=packet.missing)
        return bool(find_all(preview, length=self.view.secret_length))

    def dump(self, shown: ShownFinding) -> list[str]:
        """The first bytes of a packet, and the field to blame with carets under it."""
        finding, raw = shown.finding, shown.finding.raw
        marks: list[HexdumpMark] = []
        spans: list[FieldSpan] = []
        parts = [(0, 16 * HEAD_ROWS)]
        if finding.offset is not None and finding.field:
            start, end = finding.offset, min(finding.offset + (finding.length or 0), len(raw))
            cut = min(end, start + MARKED_BYTES)
            label = finding.field if cut == end else f"{finding.field}, first {cut - start} of {end - start} bytes"
            marks = [HexdumpMark(start, cut, self.painter.safe(label))]
            spans = [FieldSpan(finding.field, start, end)] if self.painter.colour else []
            parts.append((start - AROUND_BYTES, cut + AROUND_BYTES))
        return list(
            Hexdump(raw, spans, self.painter, marks=marks, hidden=shown.hidden, skip=_skips(parts, len(raw))).lines()
        )


def _skips(shown: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Ranges between the parts that are shown, in whole rows of 16 bytes."""
    skips = []
    at = 0
    for start, end in [*shown, (length + LEAST_SKIP, length + LEAST_SKIP)]:
        first, stop = -(-at // 16) * 16, max(0, start) // 16 * 16
        if stop - first >= LEAST_SKIP and first < length:
            skips.append((first, stop))
        at = max(at, end)
    return skips


class FullFindings(FindingFormat):
    """Writes every finding that is not suppressed as a block."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, view)
        self.packets = PacketView(view)
        self._advised: set[str] = set()
        self._statements: dict[str, list[str]] = {}
        """Formatted lines of the statements broken by earlier findings."""

    def write(self, shown: ShownFinding) -> None:
        self.sink.write(encoded([*self.block(shown), ""]))

    def again(self, shown: ShownFinding) -> None:
        """Write how often a finding occurred again after it was written."""
        painter, finding = self.painter, shown.finding
        text = Wrapped(painter.line(), most=MAX_LINES)
        text.add(f"{finding.severity}[{finding.rule}]", STYLES[finding.severity])
        text.add(f" again: {message(finding, painter)}")
        text.add(f"  ({finding.slug})  {place(finding, painter)}", "dim")
        text.add(f"  {shown.repeats(painter)}", "note")
        self.sink.write(encoded([*text.texts(), ""]))

    def block(self, shown: ShownFinding) -> list[str]:
        """The lines of a finding."""
        painter, finding = self.painter, shown.finding
        style = STYLES[finding.severity]
        text = Wrapped(painter.line(), most=MAX_LINES)
        text.add(f"{finding.severity}[{finding.rule}]", style)
        text.add(f": {message(finding, painter)}")
        text.add(f"  ({finding.slug})", "dim")
        out = text.texts()
        out += self._indented(place(finding, painter), "dim")
        repeats = shown.repeats(painter)
        out += self._indented(repeats, "note") if repeats else []
        if shown.event is not None:
            out += self.packets.lines(shown.event)
            out += self.packets.dump(shown)
        for remark in finding.related:
            ago = finding.timestamp_ns - remark.timestamp_ns
            when = f", {duration(ago, unicode=painter.unicode)} before" if ago > 0 else ""
            out += self._indented(
                f"see {painter.safe(remark.message)}: frame {remark.frame}, packet {remark.packet}{when}", "note"
            )
        for key in finding.statements:
            out += self._broken(key)
        if finding.reason_code is not None and finding.version == "5.0":
            name = REASON_CODES.get(finding.reason_code, "")
            out += self._indented(f"reason code 0x{finding.reason_code:02X} {name}".rstrip(), "dim")
        if finding.confidence is not Confidence.CERTAIN:
            out += self._indented(CONFIDENCES[finding.confidence], "note")
        if finding.rule not in self._advised:
            self._advised.add(finding.rule)
            rule = all_rules().get(finding.rule)
            advice = rule.paragraphs()[-1] if rule is not None else ""
            out += self._indented(painter.safe(advice), "topic") if advice else []
        return out

    def _broken(self, key: str) -> list[str]:
        """The lines of a broken statement; cached, since other findings break it again."""
        known = self._statements.get(key)
        if known is None:
            statement = all_statements().get(key)
            text = f" (section {statement.section}): {statement.summary}" if statement is not None else ""
            known = self._statements[key] = self._indented(f"breaks {key}{self.painter.safe(text)}", "")
        return known

    def _indented(self, sentence: str, style: str) -> list[str]:
        line = self.painter.line()
        line.put("  ", 2)
        text = Wrapped(line, most=MAX_LINES)
        text.add(sentence, style)
        return text.texts()

    def close(self, summary: RunSummary) -> None:
        self.sink.write(encoded(lines(summary, self.painter)))


MAX_HELD = 10_000
"""Maximum number of findings kept for the end; further ones are one line for each rule."""
MAX_HELD_BYTES = 64 * 1024 * 1024
"""Maximum size of the packets of kept findings."""


@dataclass(slots=True)
class _FoldedFindings:
    """Findings of one rule and severity, shown as one line."""

    first: ShownFinding
    count: int = 0


class RankedFindings(FindingFormat):
    """Writes findings by their severity."""

    def __init__(self, sink: Sink, view: View, *, verbose: bool = False) -> None:
        """``verbose``: show each note in full."""
        super().__init__(sink, view)
        self.verbose = verbose
        self.full = FullFindings(sink, view)
        self._held: dict[Severity, list[ShownFinding]] = {Severity.WARNING: [], Severity.INFO: []}
        self._folded: dict[tuple[Severity, str], _FoldedFindings] = {}
        self._count = self._bytes = 0

    def write(self, shown: ShownFinding) -> None:
        """Write an error; keep a finding that is less severe."""
        if shown.severity is Severity.ERROR:
            self.full.feed(shown)
            return
        is_kept = self.verbose or shown.severity is not Severity.INFO
        if is_kept and self._count < MAX_HELD and self._bytes + shown.size <= MAX_HELD_BYTES:
            self._count += 1
            self._bytes += shown.size
            self._held[shown.severity].append(shown)
            return
        key = shown.severity, shown.rule
        folded = self._folded.get(key)
        if folded is None:
            folded = self._folded[key] = _FoldedFindings(shown)
        folded.count += 1

    def again(self, shown: ShownFinding) -> None:
        """Write how often an error occurred again; findings kept for the end show their occurrences there."""
        if shown.severity is Severity.ERROR:
            self.full.again(shown)

    def close(self, summary: RunSummary) -> None:
        """Write the kept findings, then the summary."""
        for severity, held in self._held.items():
            for shown in held:
                self.full.feed(shown)
            lines = [
                line
                for key, folded in sorted(self._folded.items())
                if key[0] is severity
                for line in self._line(folded)
            ]
            if lines:
                self.sink.write(encoded([*lines, *self._text(self._hint(severity)), ""]))
        self.full.close(summary)

    def _line(self, folded: _FoldedFindings) -> list[str]:
        painter = self.painter
        finding = folded.first.finding
        text = Wrapped(painter.line(), most=MAX_LINES)
        text.add(f"{finding.severity}[{finding.rule}]", STYLES[finding.severity])
        text.add(f": {message(finding, painter)}")
        if folded.count > 1:
            text.add(f", and {plural(folded.count - 1, f'more {NOUNS[finding.severity]}')}")
        text.add(f"  ({finding.slug})  {place(finding, painter)}", "dim")
        return text.texts()

    def _hint(self, severity: Severity) -> str:
        """How to see each folded finding."""
        room = f"{MAX_HELD:,} findings or {MAX_HELD_BYTES // 1024 // 1024} MiB of packets"
        if self.verbose or severity is not Severity.INFO:
            return f"limit: only {room} are kept, so these are folded; --format concise or jsonl shows all"
        return "notes are one line for each rule; --verbose shows each with its packet"

    def _text(self, hint: str) -> list[str]:
        text = Wrapped(self.painter.line(), most=MAX_LINES)
        text.add(hint, "dim")
        return text.texts()
