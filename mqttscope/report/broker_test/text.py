"""Reports of broker tests as text: deviations, tables by statement and by mutation, totals.

`markdown` and `html` compare several brokers: one row per mutation and version with a deviation.

"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape as escape_html

from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.broker_test.verdict import AS_RECORDED, BrokerVerdict
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.mutate import Action
from mqttscope.report.broker_test.outcome import RANK, BrokerRun, ReducedCase, verdict
from mqttscope.report.numbers import number, plural
from mqttscope.report.page import Page, PageColumn
from mqttscope.report.when import duration

MAX_SHOWN = 200
"""Maximum number of deviations shown one by one; further ones are counted."""
MAX_SENT = 64
"""Maximum number of bytes shown per packet of a reduced case."""
_DOES = {
    Action.STOP_READING: "stops reading",
    Action.HALF_CLOSE: "sends FIN, and continues to read",
    Action.CLOSE: "closes the connection",
    Action.RESET: "resets the connection",
}


def write(page: Page, run: BrokerRun) -> None:
    """Write the whole report."""
    deviations = run.deviations
    for result in deviations[:MAX_SHOWN]:
        write_deviation(page, result, run.reduced.get(result.number), show_secrets=run.show_secrets)
    if len(deviations) > MAX_SHOWN:
        page.line([plural(len(deviations) - MAX_SHOWN, "more deviation")])
    if deviations:
        _table(page, "By statement", "statement", run.by_statement())
        _table(page, "By mutation", "mutation", run.by_mutation())
        page.title("")
    _sum(page, run)


def write_deviation(page: Page, result: CaseResult, reduced: ReducedCase | None, *, show_secrets: bool = False) -> None:
    """Write a case with a deviation of the broker."""
    assert result.ruling is not None
    case = result.case
    head = f"{result.ruling.verdict}: {page.safe(case.mutation.name)}"
    page.line([head, *numbered(result), case.version.text], "bold")
    page.paragraph(f"  {page.safe(case.mutation.description)}", indent=2)
    page.paragraph(f"  {page.safe(result.ruling.why)}", indent=2)
    if case.statements:
        page.paragraph(f"  the flow breaks {', '.join(case.statements)}", indent=4)
    if result.ruling.statements:
        page.paragraph(f"  the broker breaks {', '.join(result.ruling.statements)}", indent=4)
    if reduced is not None:
        _reduced(page, result, reduced, reduced.minimized.sends if show_secrets else reduced.without_secrets(result)[0])


def numbered(result: CaseResult) -> list[str]:
    """Label of a case; empty for a connection without a mutation, which --case does not accept."""
    return [] if result.number == AS_RECORDED else [f"case {result.number}"]


def _reduced(page: Page, result: CaseResult, reduced: ReducedCase, sends: Sequence[bytes]) -> None:
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
        page.paragraph(f"  the reduced case has another fault than the one above: {page.safe(small.fault)}", indent=4)
    if small.breaks and not set(small.breaks) & set(result.case.statements):
        page.paragraph(f"  the reduced case breaks other statements: {', '.join(small.breaks)}", indent=4)
    if small.unfinished:
        page.paragraph(f"  perhaps not the smallest: {small.unfinished}", indent=4)


def _table(page: Page, title: str, name: str, rows: Mapping[str, Counter[BrokerVerdict]]) -> None:
    bad = {key: row for key, row in rows.items() if set(row) - {BrokerVerdict.CONFORMING}}
    page.title(title)
    names = PageColumn(name, sorted(bad), right=False, whole=True)
    columns = [
        PageColumn(str(verdict), [number(bad[key][verdict]) for key in sorted(bad)], rank=place)
        for place, verdict in enumerate(RANK)
    ]
    page.table(names, columns)
    left = len(rows) - len(bad)
    if left:
        page.line([f"{left:,} others without a deviation"])


def _sum(page: Page, run: BrokerRun) -> None:
    page.line(
        [
            f"{counted(len(run.results), 'case')} against {page.safe(run.broker)}",
            *(f"{count:,} {verdict}" for verdict, count in run.verdicts.items()),
            duration(int(run.seconds * 1e9)),
        ],
        style="bold",
    )
    if run.stopped:
        page.paragraph(f"ended early: {page.safe(run.stopped)}", "yellow")
    for why, count in run.not_played.most_common():
        page.paragraph(f"{counted(count, 'case')} not played: {page.safe(why)}", "yellow", indent=2)
    if run.too_long:
        page.paragraph(f"{counted(run.too_long, 'case')} left out, which take longer than --longest", "yellow")
    if run.unspoken:
        page.paragraph(f"left out, since the broker does not support it: MQTT {', '.join(run.unspoken)}", "yellow")
    left = [text for result in run.results for text in result.unclean]
    for text in dict.fromkeys(left):
        page.paragraph(f"could not be removed from the broker: {page.safe(text)}", "red")


SIGNS = {BrokerVerdict.CONFORMING: "·"}
UNSPOKEN = "–"
"""Cell of a broker that does not support the version; cells of cases that were not played are empty."""
LEGEND = (
    f"{SIGNS[BrokerVerdict.CONFORMING]} conforming, {UNSPOKEN} version not supported by the broker, empty: not played"
)
Rows = dict[tuple[str, str], list[str]]
STYLE = "table{border-collapse:collapse}td,th{border:1px solid #999;padding:.2em .5em;text-align:left}"


def _rows(runs: Sequence[BrokerRun]) -> Rows:
    """Verdicts by mutation and version, with a column per run; rows without deviations are left out."""
    verdicts: dict[tuple[str, str], list[set[BrokerVerdict]]] = {}
    for place, run in enumerate(runs):
        for result in run.results:
            key = result.case.mutation.name, result.case.version.text
            verdicts.setdefault(key, [set() for _ in runs])[place].add(verdict(result))
    rows = sorted(verdicts.items())
    deviating = {key: cells for key, cells in rows if any(cell - {BrokerVerdict.CONFORMING} for cell in cells)}
    return {
        key: [UNSPOKEN if key[1] in run.unspoken else _cell(cell) for run, cell in zip(runs, cells, strict=True)]
        for key, cells in deviating.items()
    }


def _cell(verdicts: set[BrokerVerdict]) -> str:
    """The worst verdict; empty if the case was not played."""
    worst = next((verdict for verdict in RANK if verdict in verdicts), None)
    return "" if worst is None else SIGNS.get(worst, str(worst))


def _sums(runs: Sequence[BrokerRun]) -> dict[str, list[str]]:
    counts = [run.verdicts for run in runs]
    seen = [verdict for verdict in RANK if any(verdict in row for row in counts)]
    return {str(verdict): [str(row.get(verdict, 0)) for row in counts] for verdict in seen}


def markdown(runs: Sequence[BrokerRun]) -> str:
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


def html(runs: Sequence[BrokerRun]) -> str:
    """The same tables as a self-contained HTML page."""
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
