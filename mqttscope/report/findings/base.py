"""Common parts of all finding formats: interface, summary of a run with its sentences, description of a location."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Protocol

from mqttscope.lint.engine import InternalError
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.gate import BaselineEntry, Suppression
from mqttscope.lint.quality import Quality, QualityLevel, Shortfall
from mqttscope.lint.rule import Rule, Timing
from mqttscope.mqtt.constants import Direction
from mqttscope.report.numbers import plural
from mqttscope.report.style import Painter, Wrapped

ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)
"""Severities, worst first."""
STYLES = {"error": "malformed", "warning": "note", "info": "dim"}
MAX_IDLE = 5
"""Maximum number of captures without packets that are named; further ones are counted."""
MAX_NAME = 120
"""Maximum columns of a Client Identifier."""
MAX_MESSAGE = 1_000
"""Maximum columns of a message; a topic in it may have 64 KiB."""
MAX_LISTED = 10
"""Maximum number of rules and of fixed findings that are named; further ones are counted."""
MAX_LINES = 12
"""Maximum number of terminal lines of one sentence."""
_KINDS = {"configuration": "the configuration", "baseline": "the baseline"}


@dataclass(slots=True)
class RunSummary:
    """Results of a run as a whole, given to every reporter at its end."""

    rules: list[Rule] = field(default_factory=list)
    """Rules that ran."""
    captures: list[str] = field(default_factory=list)
    """Names of the captures, as the user gave them."""
    counts: Counter[Severity] = field(default_factory=Counter)
    """Findings that are not suppressed."""
    causes: Counter[Severity] = field(default_factory=Counter)
    """Number of causes, where findings of one cause are shown as one (`lint.grouping`)."""
    failing: Counter[Severity] | None = None
    """Findings that fail the run; ``None`` if findings cannot fail it."""
    hidden: Counter[Severity] = field(default_factory=Counter)
    """Findings below ``min_severity``, which no report shows."""
    hidden_failing: int = 0
    """Hidden findings that fail the run."""
    suppressed: Counter[str] = field(default_factory=Counter)
    """Suppressed findings, by the kind of their suppression."""
    withheld: Counter[str] = field(default_factory=Counter)
    """Possible findings that the captures are too incomplete for, by rule."""
    pending: Counter[str] = field(default_factory=Counter)
    """Connections that ended while a rule waited, by rule; only rules that never reached their time-out."""
    quality: Quality = field(default_factory=Quality)
    internal_errors: list[InternalError] = field(default_factory=list)
    fixed: list[BaselineEntry] = field(default_factory=list)
    """Entries of the baseline that no finding matches now."""
    profile: str | None = None
    timing: Timing = Timing.NORMAL
    packets: int | None = None
    """Number of MQTT packets that were judged; ``None`` if they were not counted."""
    spoken: set[str] | None = None
    """Captures that contain packets; ``None`` if they were not counted."""
    idle: list[str] = field(default_factory=list)
    """Captures named by the user without packets, while other captures have some."""
    nothing: str = ""
    """Why there is nothing, or too little, to judge; empty otherwise."""
    required: bool = False
    """Whether the user required a number of packets that was not reached."""
    required_quality: QualityLevel | None = None
    shortfalls: list[Shortfall] = field(default_factory=list)
    """Captures below the required quality."""
    truncated: bool = False
    """Whether a capture could not be read to its end."""
    fail_on: Severity = Severity.ERROR
    fail_confidence: Confidence = Confidence.CERTAIN

    @property
    def failed(self) -> bool:
        return self.truncated or bool(self.internal_errors or self.nothing or self.shortfalls)

    @property
    def unread(self) -> bool:
        """Whether nothing at all could be read; then there is nothing else to report."""
        return self.truncated and self.packets == 0 and not self.counts and not self.suppressed

    @property
    def counted(self) -> str:
        return counted(self.counts, self.failing, self.fail_on, self.causes)

    def breaks(self, severity: Severity, confidence: Confidence) -> bool:
        """Whether a finding of this severity and confidence makes the run fail."""
        return severity.rank >= self.fail_on.rank and confidence.rank >= self.fail_confidence.rank


class FindingReporter(Protocol):
    """Turns findings into output."""

    def is_new(self, finding: Finding, suppressed: Suppression | None = None) -> bool:
        """Whether a finding would be written, rather than counted with an earlier one."""

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Accept a finding; a suppressed finding cannot fail the run."""

    def close(self, summary: RunSummary) -> None:
        """Write the rest of the output."""


def covers(named: str, capture: str) -> bool:
    """Whether the name that the user gave means this capture: its path, a directory above it, or a pattern."""
    return capture == named or capture.startswith(named.rstrip("/") + "/") or fnmatch(capture, named)


def no_packet_in(captures: list[str]) -> str:
    """Sentence about captures without packets; empty without captures."""
    if not captures:
        return ""
    more = f" and {len(captures) - MAX_IDLE:,} more" if len(captures) > MAX_IDLE else ""
    return f"no MQTT packet to judge in {', '.join(captures[:MAX_IDLE])}{more}"


def too_little(packets: dict[str, int], required: int | None, *, alone: bool) -> str:
    """The sentence about captures with fewer packets than ``required``; empty without captures.

    ``packets``: their number by capture.  ``alone``: the run has one capture, which need not be named.
    """
    if not packets:
        return ""
    if required is None or required == 1:
        return no_packet_in([*packets])
    if alone:
        (number,) = packets.values()
        return f"too little to judge: {plural(number, 'MQTT packet')}, {required:,} are required"
    named = ", ".join(f"{name} has {number:,}" for name, number in list(packets.items())[:MAX_IDLE])
    left = len(packets) - MAX_IDLE
    more = f", and {plural(left, 'more capture')} too few" if left > 0 else ""
    return f"too little to judge: {required:,} MQTT packets are required of each capture, {named}{more}"


def shortfall_sentences(level: QualityLevel, shortfalls: list[Shortfall]) -> list[str]:
    """Sentences for the first captures below the required quality, and one for the rest."""
    sentences = [shortfall.sentence(level) for shortfall in shortfalls[:MAX_IDLE]]
    left = len(shortfalls) - len(sentences)
    if left:
        sentences.append(f"{plural(left, 'more capture')} {'is' if left == 1 else 'are'} not {level}")
    return sentences


def flow(finding: Finding, painter: Painter) -> str:
    """``10.0.0.4:51234 → 10.0.0.2:1883 (dev1)``: the client first, the arrow points away from the side to blame."""
    arrow = f" {painter.dash} "
    if finding.direction is not None:
        to_server = finding.direction == Direction.CLIENT_TO_SERVER
        arrow = f" {painter.to_server if to_server else painter.to_client} "
    text = painter.safe(finding.client) + arrow + painter.safe(finding.server)
    name = finding.client_identifier
    return text if not name else f"{text} ({painter.name(name, MAX_NAME)})"


def place(finding: Finding, painter: Painter) -> str:
    """``capture.pcap: frame 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)``."""
    return f"{painter.safe(finding.capture)}: frame {finding.frame}, {flow(finding, painter)}"


def message(finding: Finding, painter: Painter) -> str:
    return painter.name(finding.message, MAX_MESSAGE)


def cited(finding: Finding) -> str:
    """``3.1.1 MQTT-3.1.2-22``: the statements, grouped by version or standard."""
    by_version: dict[str, list[str]] = {}
    for statement in finding.statements:
        version, _, identifier = statement.rpartition(" ")
        by_version.setdefault(version, []).append(identifier)
    return ", ".join(f"{version} {', '.join(identifiers)}" for version, identifiers in by_version.items())


NOUNS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
"""Noun for one finding of a severity."""


def counted(
    counts: Counter[Severity],
    failing: Counter[Severity] | None = None,
    fail_on: Severity = Severity.ERROR,
    causes: Counter[Severity] | None = None,
) -> str:
    """``3 errors (2 fail the run), 1 warning``, ``no findings``, or with ``causes`` ``1 error (19 occurrences)``.

    Severities from ``fail_on`` on include how many of their findings fail the run.
    """
    texts = []
    for severity, noun in NOUNS.items():
        if not counts[severity]:
            continue
        causes_of = (causes or counts)[severity] or counts[severity]
        text, more = plural(causes_of, noun), []
        if causes_of != counts[severity]:
            more.append(f"{counts[severity]:,} occurrences")
        if failing is not None and severity.rank >= fail_on.rank:
            number = failing[severity]
            more.append(f"{number:,} fail{'s' if number == 1 else ''} the run")
        texts.append(f"{text} ({', '.join(more)})" if more else text)
    return ", ".join(texts) or "no findings"


def everything(finding: Finding) -> bool:
    """Every finding fails the run: the default of reports."""
    return True


def sentences(summary: RunSummary) -> list[tuple[str, str]]:
    """Sentences with their styles; the first counts the findings.  Names of the baseline are not escaped."""
    suppressed = summary.suppressed
    if summary.unread:
        return [(f"nothing could be read: {', '.join(summary.quality.errors)}", "error")]
    out = [(summary.nothing, "error")] if summary.nothing else []
    first = f"{summary.counted} by {plural(len(summary.rules), 'rule')}"
    if summary.hidden.total():
        failing = f", {summary.hidden_failing:,} of them fail the run" if summary.hidden_failing else ""
        first += f"; {summary.hidden.total():,} not shown (--min-severity{failing})"
    if suppressed.total():
        kinds = ", ".join(f"{number:,} by {_KINDS.get(kind, kind)}" for kind, number in sorted(suppressed.items()))
        first += f"; {suppressed.total():,} suppressed ({kinds})"
    if summary.profile:
        first += f"; profile {summary.profile}"
    if summary.timing is not Timing.NORMAL:
        first += f"; timing {summary.timing}"
    if summary.counts.total() or suppressed.total() or not summary.nothing:
        out.append((first, _worst(summary)))
    if summary.withheld.total():
        rows = summary.withheld.most_common()
        named = ", ".join(f"{code} ({number:,})" for code, number in rows[:MAX_LISTED])
        more = f", {len(rows) - MAX_LISTED} more" if len(rows) > MAX_LISTED else ""
        count = plural(summary.withheld.total(), "possible finding")
        out.append((f"{count} not shown: the capture lacks what they need: {named}{more}", "note"))
    if summary.pending:
        out.append((_pending(summary), "note"))
    quality = summary.quality.sentences(summary.required_quality)
    if quality:
        out.append((f"quality of the capture: {'; '.join(quality)}", "note"))
    out += [(sentence, "note") for sentence in (no_packet_in(summary.idle), summary.quality.unheard) if sentence]
    if summary.required_quality is not None:
        causes = shortfall_sentences(summary.required_quality, summary.shortfalls)
        out += [(sentence, "error") for sentence in causes]
    if summary.fixed:
        rows_of = [f"{entry.rule} {entry.client}".rstrip() for entry in summary.fixed[:MAX_LISTED]]
        more = f", {len(summary.fixed) - MAX_LISTED} more" if len(summary.fixed) > MAX_LISTED else ""
        out.append((f"fixed since the baseline: {', '.join(rows_of)}{more} (--update-baseline removes it)", "topic"))
    if summary.internal_errors:
        failed = sorted({error.rule for error in summary.internal_errors})
        out.append((f"rules that failed, so that findings may be missing: {', '.join(failed)}", "error"))
    if summary.truncated:
        out.append(("a capture could not be read to its end: findings may be missing", "error"))
    return out


def _pending(summary: RunSummary) -> str:
    """Sentence about rules with time-outs longer than all connections."""
    codes = sorted(summary.pending)
    more = f", {len(codes) - MAX_LISTED} more" if len(codes) > MAX_LISTED else ""
    judging = (
        f"{plural(len(codes), 'rule')} about missing packets judged nothing ({', '.join(codes[:MAX_LISTED])}{more})"
    )
    time_outs = "its time-out" if len(codes) == 1 else "their time-outs"
    hint = "" if summary.timing is Timing.TEST else " (--timing test shortens them)"
    return f"{judging}: no connection lasts as long as {time_outs}{hint}"


def _worst(summary: RunSummary) -> str:
    severities = [severity for severity, number in summary.counts.items() if number]
    if not severities:
        return "topic"
    return STYLES[max(severities, key=lambda severity: severity.rank)]


def lines(summary: RunSummary, painter: Painter) -> list[str]:
    """The sentences as lines of the terminal; empty if nothing could be read, which standard error reports."""
    out: list[str] = []
    if summary.unread:
        return out
    for sentence, style in sentences(summary):
        text = Wrapped(painter.line(), most=MAX_LINES)
        text.add(painter.safe(sentence), style)
        out += text.texts()
    return out
