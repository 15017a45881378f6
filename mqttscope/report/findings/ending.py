"""The last lines of a report: counts, what was withheld, how good the captures are, what was fixed."""

from __future__ import annotations

from mqttscope.report.findings.base import Summary, counted, no_packet_in
from mqttscope.report.page import plural
from mqttscope.report.style import Painter, Wrapped

MAX_LISTED = 10
"""Rules and fixed findings that are named; further ones are counted."""
MAX_LINES = 12


def sentences(summary: Summary) -> list[tuple[str, str]]:
    """Sentences with the style of each; the first counts the findings.  Names of the baseline are not escaped."""
    suppressed = summary.suppressed
    if summary.unread:
        return [(f"nothing could be read: {', '.join(summary.quality.errors)}", "error")]
    told = [(summary.nothing, "error")] if summary.nothing else []
    first = f"{counted(summary.counts, summary.failing, summary.fail_on)} by {plural(len(summary.rules), 'rule')}"
    if summary.hidden.total():
        failing = f", of which {summary.hidden_failing:,} count" if summary.hidden_failing else ""
        first += f"; {summary.hidden.total():,} not shown (--min-severity{failing})"
    if suppressed.total():
        kinds = ", ".join(f"{number:,} by {_KINDS.get(kind, kind)}" for kind, number in sorted(suppressed.items()))
        first += f"; {suppressed.total():,} suppressed ({kinds})"
    if summary.profile:
        first += f"; profile {summary.profile}"
    if summary.counts.total() or suppressed.total() or not summary.nothing:
        told.append((first, _worst(summary)))
    if summary.withheld.total():
        rows = summary.withheld.most_common()
        named = ", ".join(f"{code} ({number:,})" for code, number in rows[:MAX_LISTED])
        more = f", {len(rows) - MAX_LISTED} more" if len(rows) > MAX_LISTED else ""
        count = plural(summary.withheld.total(), "possible finding")
        told.append((f"{count} not shown: the capture lacks what they need: {named}{more}", "note"))
    quality = summary.quality.sentences()
    if quality:
        told.append((f"quality of the capture: {'; '.join(quality)}", "note"))
    told += [(one, "note") for one in (no_packet_in(summary.idle), summary.quality.unheard) if one]
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


_KINDS = {"configuration": "the configuration", "baseline": "the baseline"}


def _worst(summary: Summary) -> str:
    found = [severity for severity, number in summary.counts.items() if number]
    if not found:
        return "topic"
    return STYLES[max(found, key=lambda one: one.rank)]


STYLES = {"error": "malformed", "warning": "note", "info": "dim"}
"""Style of a severity."""


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
