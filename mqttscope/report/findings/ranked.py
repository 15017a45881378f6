"""Findings in full, worst first: errors as they are found, then the warnings, then one line for each rule with notes.

    info[CON108]: CONNECT: 33 clients have Client Identifiers that ...  (client-id-length)  a.pcap: frame 4, ...
    info[OPS212]: pings every 5 s with a Keep Alive of 600 s, and 3 more notes  (ping-without-idle)  a.pcap: ...

Warnings have to wait for the end, and so have notes where each is to be shown; what there is no room for is folded in
the same way, so that nothing is left out without a word.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.gate import Suppression
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import NOUNS, Summary, message, place
from mqttscope.report.findings.conceal import conceal
from mqttscope.report.findings.ending import MAX_LINES, STYLES
from mqttscope.report.findings.full import Full
from mqttscope.report.page import plural
from mqttscope.report.style import Wrapped, encoded

MAX_HELD = 10_000
"""Findings that wait for the end to be shown in full; further ones are one line for each rule."""
MAX_HELD_BYTES = 64 * 1024 * 1024
"""Bytes of their packets."""


@dataclass(slots=True)
class _Folded:
    """Findings of one rule and severity that are one line."""

    first: Finding
    count: int = 0


class Ranked:
    """Writes findings by their severity."""

    def __init__(self, sink: Sink, view: View, *, verbose: bool = False) -> None:
        """With ``verbose`` each note is shown in full."""
        self.sink = sink
        self.view = view
        self.verbose = verbose
        self.full = Full(sink, view)
        self._held: dict[Severity, list[Finding]] = {Severity.WARNING: [], Severity.INFO: []}
        self._folded: dict[tuple[Severity, str], _Folded] = {}
        self._count = self._bytes = 0

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Write an error; keep what is less severe."""
        if suppressed is not None:
            return
        if finding.severity is Severity.ERROR:
            self.full.feed(finding)
            return
        asked = self.verbose or finding.severity is not Severity.INFO
        if asked and self._count < MAX_HELD and self._bytes < MAX_HELD_BYTES:
            self._count += 1
            self._bytes += len(finding.raw)
            self._held[finding.severity].append(finding)
            return
        key = finding.severity, finding.rule
        folded = self._folded.get(key)
        if folded is None:
            folded = self._folded[key] = _Folded(finding)
        folded.count += 1

    def close(self, summary: Summary) -> None:
        """Write what was kept, then the end."""
        for severity, findings in self._held.items():
            for finding in findings:
                self.full.feed(finding)
            lines = [
                line for key, one in sorted(self._folded.items()) if key[0] is severity for line in self._line(one)
            ]
            if lines:
                self.sink.write(encoded([*lines, *self._text(self._hint(severity)), ""]))
        self.full.close(summary)

    def _line(self, folded: _Folded) -> list[str]:
        painter = self.full.painter
        finding = conceal(folded.first, self.view)
        text = Wrapped(painter.line(), most=MAX_LINES)
        text.add(f"{finding.severity}[{finding.rule}]", STYLES[finding.severity])
        text.add(f": {message(finding, painter)}")
        if folded.count > 1:
            text.add(f", and {plural(folded.count - 1, f'more {NOUNS[finding.severity]}')}")
        text.add(f"  ({finding.slug})  {place(finding, painter)}", "dim")
        return text.texts()

    def _hint(self, severity: Severity) -> str:
        """How to see all of what was folded."""
        kept = f"{MAX_HELD:,} findings or {MAX_HELD_BYTES // 1024 // 1024} MiB of packets"
        if self.verbose or severity is not Severity.INFO:
            return f"limit: there is room for {kept}, so that these are folded; --format concise or jsonl has all"
        return "notes are one line for each rule; --verbose shows each with its packet"

    def _text(self, told: str) -> list[str]:
        text = Wrapped(self.full.painter.line(), most=MAX_LINES)
        text.add(told, "dim")
        return text.texts()
