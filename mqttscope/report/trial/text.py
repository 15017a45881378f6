"""A run for people: deviations, then tables by statement and by mutation, then the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mqttscope.mqtt.wire import counted
from mqttscope.mutate import Action
from mqttscope.report.page import Column, Page, number
from mqttscope.report.trial.outcome import RANK, Reduced, Tried
from mqttscope.report.when import duration
from mqttscope.trial.rehearsal import AS_RECORDED
from mqttscope.trial.run import Result
from mqttscope.trial.verdict import Verdict

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
        page.line([f"{len(found) - MAX_SHOWN:,} more deviations"])
    if found:
        _table(page, "By statement", "statement", tried.by_statement())
        _table(page, "By mutation", "mutation", tried.by_mutation())
        page.title("")
    _sum(page, tried)


def write_deviation(page: Page, one: Result, reduced: Reduced | None, *, show_secrets: bool = False) -> None:
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
        _reduced(page, one, reduced, reduced.smaller.sends if show_secrets else reduced.without_secrets(one)[0])


def numbered(one: Result) -> list[str]:
    """How a case is called; nothing for a connection without a mutation, which --case does not know."""
    return [] if one.number == AS_RECORDED else [f"case {one.number}"]


def _reduced(page: Page, one: Result, reduced: Reduced, sends: Sequence[bytes]) -> None:
    small = reduced.smaller
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
