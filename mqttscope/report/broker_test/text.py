"""Reports a run against brokers as text: deviations, then tables by statement and by mutation, then the totals.

`markdown` and `html` compare several brokers side by side: one row per mutation and version in which they differ or
deviate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape as escape_html

from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.broker_test.verdict import AS_RECORDED, Verdict
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.mutate import Action
from mqttscope.report.broker_test.outcome import RANK, Reduced, Tried, verdict
from mqttscope.report.numbers import number, plural
from mqttscope.report.page import Column, Page
from mqttscope.report.when import duration

MAX_SHOWN = 200
"""Deviations that are told one by one; further ones are counted."""
MAX_SENT = 64
"""Bytes of a reduced case that are shown."""
_DOES = {
    Action.STOP_READING: "reads nothing any more",
    Action.HALF_CLOSE: "sends FIN, and continues to read",
    Action.CLOSE: "closes the connection",
    Action.RESET: "resets the connection",
}


def write(page: Page, tried: Tried) -> None:
    """The whole report."""
    found = tried.deviations
    for one in found[:MAX_SHOWN]:
        write_deviation(page, one, tried.reduced.get(one.number), show_secrets=tried.show_secrets)
    if len(found) > MAX_SHOWN:
        page.line([plural(len(found) - MAX_SHOWN, "more deviation")])
    if found:
        _table(page, "By statement", "statement", tried.by_statement())
        _table(page, "By mutation", "mutation", tried.by_mutation())
        page.title("")
    _sum(page, tried)


def write_deviation(page: Page, one: CaseResult, reduced: Reduced | None, *, show_secrets: bool = False) -> None:
    """One case in which the broker deviates."""
    assert one.ruling is not None
    case = one.case
    page.line([f"{one.ruling.verdict}: {page.safe(case.mutation.name)}", *numbered(one), case.version.text], "bold")
    page.paragraph(f"  {page.safe(case.mutation.description)}", indent=2)
    page.paragraph(f"  {page.safe(one.ruling.why)}", indent=2)
    if case.statements:
        page.paragraph(f"  the flow breaks {', '.join(case.statements)}", indent=4)
    if one.ruling.statements:
        page.paragraph(f"  the broker breaks {', '.join(one.ruling.statements)}", indent=4)
    if reduced is not None:
        _reduced(page, one, reduced, reduced.minimized.sends if show_secrets else reduced.without_secrets(one)[0])


def numbered(one: CaseResult) -> list[str]:
    """How a case is called; nothing for a connection without a mutation, which --case does not know."""
    return [] if one.number == AS_RECORDED else [f"case {one.number}"]


def _reduced(page: Page, one: CaseResult, reduced: Reduced, sends: Sequence[bytes]) -> None:
    small = reduced.minimized
    page.paragraph(
        f"  reduced from {counted(small.packets_before, 'packet')} of {counted(small.bytes_before, 'byte')} "
        f"to {counted(len(sends), 'packet')} of {counted(sum(map(len, sends)), 'byte')}:",
        indent=4,
    )
    left = iter(sends)
    for step in small.case.flow.steps:
        if step.action is Action.SEND and step.data:
            data = next(left)
            more = f" and {counted(len(data) - MAX_SENT, 'more byte')}" if len(data) > MAX_SENT else ""
            page.paragraph(f"    {data[:MAX_SENT].hex(' ')}{more}", indent=6)
        elif step.action is Action.PAUSE:
            page.paragraph(f"    waits {duration(step.nanoseconds)}", indent=6)
        elif step.action in _DOES:
            page.paragraph(f"    {_DOES[step.action]}", indent=6)
    if small.fault:
        page.paragraph(f"  what is left is another fault than the one above: {page.safe(small.fault)}", indent=4)
    if small.breaks and not set(small.breaks) & set(one.case.statements):
        page.paragraph(f"  what is left breaks other statements: {', '.join(small.breaks)}", indent=4)
    if small.unfinished:
        page.paragraph(f"  perhaps not the smallest: {small.unfinished}", indent=4)


def _table(page: Page, title: str, name: str, rows: Mapping[str, Counter[Verdict]]) -> None:
    """Rows with deviations; the others are counted."""
    bad = {key: row for key, row in rows.items() if set(row) - {Verdict.CONFORMING}}
    page.title(title)
    names = Column(name, sorted(bad), right=False, whole=True)
    columns = [
        Column(str(verdict), [number(bad[key][verdict]) for key in sorted(bad)], rank=place)
        for place, verdict in enumerate(RANK)
    ]
    page.table(names, columns)
    left = len(rows) - len(bad)
    if left:
        page.line([f"{left:,} others without a deviation"])


def _sum(page: Page, tried: Tried) -> None:
    page.line(
        [
            f"{counted(len(tried.results), 'case')} against {page.safe(tried.broker)}",
            *(f"{count:,} {verdict}" for verdict, count in tried.verdicts.items()),
            duration(int(tried.seconds * 1e9)),
        ],
        style="bold",
    )
    if tried.stopped:
        page.paragraph(f"ended early: {page.safe(tried.stopped)}", "yellow")
    for why, count in tried.not_played.most_common():
        page.paragraph(f"{counted(count, 'case')} not played: {page.safe(why)}", "yellow", indent=2)
    if tried.too_long:
        page.paragraph(f"{counted(tried.too_long, 'case')} left out that need longer than --longest", "yellow")
    if tried.unspoken:
        page.paragraph(f"not spoken by the broker, and left out: MQTT {', '.join(tried.unspoken)}", "yellow")
    left = [told for one in tried.results for told in one.unclean]
    for told in dict.fromkeys(left):
        page.paragraph(f"could not be removed from the broker: {page.safe(told)}", "red")


SIGNS = {Verdict.CONFORMING: "·"}
UNSPOKEN = "–"
"""Stands where a broker does not speak the version; nothing stands where the case was not played."""
LEGEND = f"{SIGNS[Verdict.CONFORMING]} conforming, {UNSPOKEN} the broker does not speak the version, empty: not played"
Rows = dict[tuple[str, str], list[str]]
STYLE = "table{border-collapse:collapse}td,th{border:1px solid #999;padding:.2em .5em;text-align:left}"


def _rows(runs: Sequence[Tried]) -> Rows:
    """Verdicts by mutation and version, a column for each run; those without any deviation are left out."""
    found: dict[tuple[str, str], list[set[Verdict]]] = {}
    for place, run in enumerate(runs):
        for one in run.results:
            key = one.case.mutation.name, one.case.version.text
            found.setdefault(key, [set() for _ in runs])[place].add(verdict(one))
    kept = {key: cells for key, cells in sorted(found.items()) if any(cell - {Verdict.CONFORMING} for cell in cells)}
    return {
        key: [UNSPOKEN if key[1] in run.unspoken else _cell(cell) for run, cell in zip(runs, cells, strict=True)]
        for key, cells in kept.items()
    }


def _cell(found: set[Verdict]) -> str:
    """The worst verdict; empty where the case was not played."""
    worst = next((one for one in RANK if one in found), None)
    return "" if worst is None else SIGNS.get(worst, str(worst))


def _sums(runs: Sequence[Tried]) -> dict[str, list[str]]:
    counts = [run.verdicts for run in runs]
    return {str(one): [str(row.get(one, 0)) for row in counts] for one in RANK if any(one in row for row in counts)}


def markdown(runs: Sequence[Tried]) -> str:
    """A table of counts and a table of mutations, as Markdown."""
    brokers = [utf8(run.broker).replace("\\", "\\\\").replace("|", "\\|") for run in runs]
    lines = ["| verdict | " + " | ".join(brokers) + " |", "|---|" + "---:|" * len(runs)]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in _sums(runs).items()]
    rows = _rows(runs)
    if rows:
        lines += ["", LEGEND]
    lines += ["", "| mutation | version | " + " | ".join(brokers) + " |", "|---|---|" + "---|" * len(runs)]
    lines += [f"| `{name}` | {version} | " + " | ".join(cells) + " |" for (name, version), cells in rows.items()]
    return "\n".join(lines) + "\n"


def html(runs: Sequence[Tried]) -> str:
    """The same as a page that needs nothing else."""
    brokers = "".join(f"<th>{escape_html(utf8(run.broker))}</th>" for run in runs)
    sums = "".join(_line([name, *cells]) for name, cells in _sums(runs).items())
    rows = "".join(_line([name, version, *cells]) for (name, version), cells in _rows(runs).items())
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>mqttscope mutate</title>'
        f"<style>{STYLE}</style>\n<table><tr><th>verdict</th>{brokers}</tr>\n{sums}</table>\n"
        f"<p>{LEGEND}</p>\n<table><tr><th>mutation</th><th>version</th>{brokers}</tr>\n{rows}</table>\n</html>\n"
    )


def _line(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape_html(cell)}</td>" for cell in cells) + "</tr>\n"
