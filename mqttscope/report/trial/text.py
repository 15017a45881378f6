"""A run for people: deviations, then tables by statement and by mutation, then the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mqttscope.mqtt.wire import counted
from mqttscope.report.page import Column, Page, number
from mqttscope.report.trial.outcome import RANK, Reduced, Tried
from mqttscope.report.when import duration
from mqttscope.trial.run import Result
from mqttscope.trial.verdict import Verdict

MAX_SHOWN = 200
"""Deviations that are told one by one; further ones are counted."""
MAX_SENT = 64
"""Bytes of a reduced case that are shown."""


def write(page: Page, tried: Tried) -> None:
    """The whole report."""
    found = tried.deviations
    for one in found[:MAX_SHOWN]:
        write_deviation(page, one, tried.reduced.get(one.number))
    if len(found) > MAX_SHOWN:
        page.line([f"{len(found) - MAX_SHOWN:,} more deviations"])
    if found:
        _table(page, "By statement", "statement", tried.by_statement())
        _table(page, "By mutation", "mutation", tried.by_mutation())
        page.title("")
    _sum(page, tried)


def write_deviation(page: Page, one: Result, reduced: Reduced | None) -> None:
    """One case in which the broker deviates."""
    assert one.ruling is not None
    case = one.case
    page.line(
        [f"{one.ruling.verdict}: {page.safe(case.mutation.name)}", f"case {one.number}", case.version.text], "bold"
    )
    page.paragraph(f"  {page.safe(case.mutation.description)}", indent=2)
    page.paragraph(f"  {page.safe(one.ruling.why)}", indent=2)
    if case.statements:
        page.paragraph(f"  the flow breaks {', '.join(case.statements)}", indent=4)
    if one.ruling.statements:
        page.paragraph(f"  the broker breaks {', '.join(one.ruling.statements)}", indent=4)
    if reduced is not None:
        _reduced(page, reduced)


def _reduced(page: Page, reduced: Reduced) -> None:
    small = reduced.smaller
    sends = small.sends
    page.paragraph(
        f"  reduced from {counted(small.packets_before, 'packet')} of {counted(small.bytes_before, 'byte')} "
        f"to {counted(len(sends), 'packet')} of {counted(sum(map(len, sends)), 'byte')}:",
        indent=4,
    )
    for data in sends:
        more = f" and {counted(len(data) - MAX_SENT, 'more byte')}" if len(data) > MAX_SENT else ""
        page.paragraph(f"    {data[:MAX_SENT].hex(' ')}{more}", indent=6)


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
    left = [told for one in tried.results for told in one.unclean]
    for told in dict.fromkeys(left):
        page.paragraph(f"could not be removed from the broker: {page.safe(told)}", "red")
