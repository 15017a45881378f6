"""What the formats of findings share: their interface, the summary of a run and its sentences, words for a place."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Protocol

from mqttscope.lint.engine import InternalError
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.gate import Entry, Suppression
from mqttscope.lint.quality import Quality, QualityLevel, Shortfall
from mqttscope.lint.rule import Rule, Timing
from mqttscope.mqtt.constants import Direction
from mqttscope.report.numbers import plural
from mqttscope.report.style import Painter, Wrapped

ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)
"""Worst first."""
STYLES = {"error": "malformed", "warning": "note", "info": "dim"}
MAX_IDLE = 5
"""Captures without any packet that are named; further ones are counted."""
MAX_NAME = 120
"""Columns of a Client Identifier where nothing else limits it."""
MAX_MESSAGE = 1_000
"""Columns of a message: topics in it may be 64 KiB long."""
MAX_LISTED = 10
"""Rules and fixed findings that are named; further ones are counted."""
MAX_LINES = 12
"""Lines of the terminal that one sentence takes at most."""
_KINDS = {"configuration": "the configuration", "baseline": "the baseline"}


@dataclass(slots=True)
class Summary:
    """What a run as a whole has to say; given to every reporter when it is closed."""

    rules: list[Rule] = field(default_factory=list)
    """Those that ran."""
    captures: list[str] = field(default_factory=list)
    """As the user named them."""
    counts: Counter[Severity] = field(default_factory=Counter)
    """Findings that are not suppressed."""
    causes: Counter[Severity] = field(default_factory=Counter)
    """What of these was told as one, where findings of one cause are (`lint.grouping`)."""
    failing: Counter[Severity] | None = None
    """Those of them that count, so that the run fails; ``None`` where nothing depends on it."""
    hidden: Counter[Severity] = field(default_factory=Counter)
    """Those that no report shows, since they are below ``min_severity``."""
    hidden_failing: int = 0
    """Those of the hidden ones that count."""
    suppressed: Counter[str] = field(default_factory=Counter)
    """Findings that are suppressed, by the kind of their suppression."""
    withheld: Counter[str] = field(default_factory=Counter)
    """Findings that the captures are not good enough for, by rule."""
    pending: Counter[str] = field(default_factory=Counter)
    """Connections that ended while a rule waited, by rule, of rules whose time-outs no connection lasted for."""
    quality: Quality = field(default_factory=Quality)
    internal_errors: list[InternalError] = field(default_factory=list)
    fixed: list[Entry] = field(default_factory=list)
    """Entries of the baseline that are not seen any more."""
    profile: str | None = None
    timing: Timing = Timing.NORMAL
    packets: int | None = None
    """MQTT packets that were judged, ``None`` where nobody counted."""
    spoken: set[str] | None = None
    """Captures that hold some of them, ``None`` where nobody counted."""
    idle: list[str] = field(default_factory=list)
    """Captures that the user named and that hold no packet, where others do."""
    nothing: str = ""
    """Why there is nothing to judge, or too little, where that is so."""
    required: bool = False
    """Whether the user asked for a number of packets that is not reached."""
    required_quality: QualityLevel | None = None
    shortfalls: list[Shortfall] = field(default_factory=list)
    """The captures that are not of the required quality."""
    truncated: bool = False
    """Whether a capture could not be read to its end."""
    fail_on: Severity = Severity.ERROR
    fail_confidence: Confidence = Confidence.CERTAIN

    @property
    def failed(self) -> bool:
        return self.truncated or bool(self.internal_errors or self.nothing or self.shortfalls)

    @property
    def unread(self) -> bool:
        """Whether nothing could be read, so that there is no more to say than that."""
        return self.truncated and self.packets == 0 and not self.counts and not self.suppressed

    @property
    def counted(self) -> str:
        return counted(self.counts, self.failing, self.fail_on, self.causes)

    def breaks(self, severity: Severity, confidence: Confidence) -> bool:
        """Whether a finding with these makes the run fail."""
        return severity.rank >= self.fail_on.rank and confidence.rank >= self.fail_confidence.rank


class FindingReporter(Protocol):
    """Turns findings into output."""

    def is_new(self, finding: Finding, suppressed: Suppression | None = None) -> bool:
        """Whether a finding would be written, and not only be counted with another."""

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Take one finding; a suppressed one does not count."""

    def close(self, summary: Summary) -> None:
        """Write what is left at the end."""


def covers(given: str, capture: str) -> bool:
    """Whether a capture is the one, or one of those, that the user named."""
    return capture == given or capture.startswith(given.rstrip("/") + "/") or fnmatch(capture, given)


def no_packet_in(captures: list[str]) -> str:
    """What to say of captures that hold no packet, where others do; empty without any."""
    if not captures:
        return ""
    more = f" and {len(captures) - MAX_IDLE:,} more" if len(captures) > MAX_IDLE else ""
    return f"no MQTT packet to judge in {', '.join(captures[:MAX_IDLE])}{more}"


def too_little(packets: dict[str, int], required: int | None, *, alone: bool) -> str:
    """The sentence about captures with fewer packets than ``required``; empty when there are none.

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
    """A sentence for each of the first captures that are not good enough, and one for the others."""
    sentences = [shortfall.sentence(level) for shortfall in shortfalls[:MAX_IDLE]]
    left = len(shortfalls) - len(sentences)
    if left:
        sentences.append(f"{plural(left, 'more capture')} {'is' if left == 1 else 'are'} not {level}")
    return sentences


def flow(finding: Finding, painter: Painter) -> str:
    """``10.0.0.4:51234 → 10.0.0.2:1883 (dev1)``: the client first, the arrow away from the one to blame."""
    arrow = f" {painter.dash} "
    if finding.direction is not None:
        to_server = finding.direction == Direction.CLIENT_TO_SERVER
        arrow = f" {painter.to_server if to_server else painter.to_client} "
    told = painter.safe(finding.client) + arrow + painter.safe(finding.server)
    name = finding.client_identifier
    return told if not name else f"{told} ({painter.name(name, MAX_NAME)})"


def place(finding: Finding, painter: Painter) -> str:
    """``capture.pcap: frame 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)``."""
    return f"{painter.safe(finding.capture)}: frame {finding.frame}, {flow(finding, painter)}"


def message(finding: Finding, painter: Painter) -> str:
    return painter.name(finding.message, MAX_MESSAGE)


def cited(finding: Finding) -> str:
    """``3.1.1 MQTT-3.1.2-22``: the statements with their version, which is said once."""
    by_version: dict[str, list[str]] = {}
    for one in finding.statements:
        version, _, identifier = one.partition(" ")
        by_version.setdefault(version, []).append(identifier)
    return ", ".join(f"{version} {', '.join(found)}" for version, found in by_version.items())


NOUNS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
"""What one finding of a severity is called."""


def counted(
    counts: Counter[Severity],
    failing: Counter[Severity] | None = None,
    fail_on: Severity = Severity.ERROR,
    causes: Counter[Severity] | None = None,
) -> str:
    """``3 errors (2 count), 1 warning``, or ``no findings``; ``1 error (19 occurrences, 19 count)`` with ``causes``.

    From ``fail_on`` on, each severity says how many of its findings are among the ``failing`` ones.
    """
    told = []
    for severity, noun in NOUNS.items():
        if not counts[severity]:
            continue
        causes_of = (causes or counts)[severity] or counts[severity]
        said, more = plural(causes_of, noun), []
        if causes_of != counts[severity]:
            more.append(f"{counts[severity]:,} occurrences")
        if failing is not None and severity.rank >= fail_on.rank:
            number = failing[severity]
            more.append(f"{number:,} count{'s' if number == 1 else ''}")
        told.append(f"{said} ({', '.join(more)})" if more else said)
    return ", ".join(told) or "no findings"


def everything(finding: Finding) -> bool:
    """Every finding counts: what reports go by that are not told which do."""
    return True


def sentences(summary: Summary) -> list[tuple[str, str]]:
    """Sentences with the style of each; the first counts the findings.  Names of the baseline are not escaped."""
    suppressed = summary.suppressed
    if summary.unread:
        return [(f"nothing could be read: {', '.join(summary.quality.errors)}", "error")]
    told = [(summary.nothing, "error")] if summary.nothing else []
    first = f"{summary.counted} by {plural(len(summary.rules), 'rule')}"
    if summary.hidden.total():
        failing = f", of which {summary.hidden_failing:,} count" if summary.hidden_failing else ""
        first += f"; {summary.hidden.total():,} not shown (--min-severity{failing})"
    if suppressed.total():
        kinds = ", ".join(f"{number:,} by {_KINDS.get(kind, kind)}" for kind, number in sorted(suppressed.items()))
        first += f"; {suppressed.total():,} suppressed ({kinds})"
    if summary.profile:
        first += f"; profile {summary.profile}"
    if summary.timing is not Timing.NORMAL:
        first += f"; timing {summary.timing}"
    if summary.counts.total() or suppressed.total() or not summary.nothing:
        told.append((first, _worst(summary)))
    if summary.withheld.total():
        rows = summary.withheld.most_common()
        named = ", ".join(f"{code} ({number:,})" for code, number in rows[:MAX_LISTED])
        more = f", {len(rows) - MAX_LISTED} more" if len(rows) > MAX_LISTED else ""
        count = plural(summary.withheld.total(), "possible finding")
        told.append((f"{count} not shown: the capture lacks what they need: {named}{more}", "note"))
    if summary.pending:
        told.append((_pending(summary), "note"))
    quality = summary.quality.sentences(summary.required_quality)
    if quality:
        told.append((f"quality of the capture: {'; '.join(quality)}", "note"))
    told += [(one, "note") for one in (no_packet_in(summary.idle), summary.quality.unheard) if one]
    if summary.required_quality is not None:
        causes = shortfall_sentences(summary.required_quality, summary.shortfalls)
        told += [(sentence, "error") for sentence in causes]
    if summary.fixed:
        rows_of = [f"{one.rule} {one.client}".rstrip() for one in summary.fixed[:MAX_LISTED]]
        more = f", {len(summary.fixed) - MAX_LISTED} more" if len(summary.fixed) > MAX_LISTED else ""
        told.append((f"fixed since the baseline: {', '.join(rows_of)}{more} (--update-baseline takes it out)", "topic"))
    if summary.internal_errors:
        failed = sorted({one.rule for one in summary.internal_errors})
        told.append((f"rules that failed, so that findings may be missing: {', '.join(failed)}", "error"))
    if summary.truncated:
        told.append(("a capture could not be read to its end: findings may be missing", "error"))
    return told


def _pending(summary: Summary) -> str:
    """The sentence about rules that wait for longer than the connections last."""
    codes = sorted(summary.pending)
    more = f", {len(codes) - MAX_LISTED} more" if len(codes) > MAX_LISTED else ""
    judging = (
        f"{plural(len(codes), 'rule')} about missing packets judged nothing ({', '.join(codes[:MAX_LISTED])}{more})"
    )
    whose = "its time-out" if len(codes) == 1 else "their time-outs"
    hint = "" if summary.timing is Timing.TEST else " (--timing test shortens them)"
    return f"{judging}: no connection lasts as long as {whose}{hint}"


def _worst(summary: Summary) -> str:
    found = [severity for severity, number in summary.counts.items() if number]
    if not found:
        return "topic"
    return STYLES[max(found, key=lambda one: one.rank)]


def lines(summary: Summary, painter: Painter) -> list[str]:
    """The sentences as lines of the terminal; none where nothing could be read, which standard error says."""
    out: list[str] = []
    if summary.unread:
        return out
    for told, style in sentences(summary):
        text = Wrapped(painter.line(), most=MAX_LINES)
        text.add(painter.safe(told), style)
        out += text.texts()
    return out
