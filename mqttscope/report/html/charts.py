"""Charts: columns over time, bars, latency ranges and timelines as SVG, findings by client and rule as a table.

All positions are percentages, so a chart takes the width that there is, and its text keeps its size: on a telephone,
on paper.  Colours come from classes, so the style sheet decides.  Numbers are text beside or below a chart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log10

from mqttscope.report.html.pieces import safe, short, table
from mqttscope.report.sections import Cell

LABEL_CHARACTERS = 44
"""Characters of all labels of an axis: they fit a telephone."""
MAX_LABELS = 5
_THINNEST = 0.3
"""Minimum width of a bar in percent."""


@dataclass(slots=True)
class Bar:
    """A bar with its name and the sizes of its segments, lowest first."""

    name: str
    pieces: tuple[int, ...]


def columns(bars: Sequence[Bar], kinds: Sequence[str], label: str, name: Callable[[str], str] = str) -> str:
    """Vertical bars with an axis, and their numbers as a table that opens.

    ``kinds``: a class for each segment.  ``name`` returns the label of a class.
    """
    most = max((sum(bar.pieces) for bar in bars), default=0)
    if not most:
        return ""
    top, wide = nice(most), 100 / len(bars)
    broad = min(wide * 0.84, 10.0)
    out = ['<line class="grid" x2="100%"/><line class="grid" x2="100%" y1="50%" y2="50%"/>']
    for index, bar in enumerate(bars):
        base, counts = 100.0, list(zip(kinds, bar.pieces, strict=True))
        hint = ", ".join(f"{count:,} {name(kind)}" for kind, count in counts if count)
        out.append(f"<g><title>{safe(bar.name)}: {safe(hint or 'none')}</title>")
        out.append(f'<rect class="hit" x="{index * wide:.2f}%" width="{wide:.2f}%" height="100%"/>')
        for kind, count in counts:
            if count:
                tall = max(0.6, count / top * 100)
                base -= tall
                left = (index + 0.5) * wide - broad / 2
                size = f'x="{left:.2f}%" y="{max(0.0, base):.2f}%" width="{broad:.2f}%" height="{tall:.2f}%"'
                out.append(f'<rect class="{kind}" {size}/>')
        out.append("</g>")
    scale = "".join(f"<span>{count:,}</span>" for count in ((top, top // 2, 0) if top > 1 else (1, 0)))
    titles = [Cell("", lambda bar: bar.name, "text")]
    titles += [Cell(name(kind), partial(_piece, at)) for at, kind in enumerate(kinds)]
    numbers = f'<details class="numbers"><summary>numbers</summary>{table(bars, titles)}</details>'
    drawing = f'<svg role="img" aria-label="{safe(label)}">{"".join(out)}</svg>'
    return f'<figure class="columns"><div class="scale">{scale}</div>{drawing}{_axis(bars)}</figure>{numbers}'


def _piece(at: int, bar: Bar) -> str:
    return f"{bar.pieces[at]:,}"


def _axis(bars: Sequence[Bar]) -> str:
    """Names below columns, as many as fit; a date that all names share is left out."""
    names = [bar.name for bar in bars]
    if len(names) > 1 and names[0][10:11] == " " and all(name.startswith(names[0][:11]) for name in names):
        names = [name[11:] for name in names]
    count = min(len(names), MAX_LABELS, max(2, LABEL_CHARACTERS // max(map(len, names))))
    last, step = len(names) - 1, 1
    places = list(range(len(names)))
    if len(names) > count:
        step = -(-len(names) // (count - 1))
        places = [*(place for place in places[::step] if last - place >= step * 0.7), last]
    out = []
    for place in places:
        at, anchor = (place + 0.5) / len(names) * 100, "middle"
        if len(names) > MAX_LABELS and place == 0:
            at, anchor = 0, "start"
        elif at > 90 and len(names) > 1:
            at, anchor = 100, "end"
        out.append(f'<text x="{at:.2f}%" y="12" text-anchor="{anchor}">{safe(names[place])}</text>')
    return f'<svg class="axis" aria-hidden="true">{"".join(out)}</svg>'


def share_bar(pieces: Sequence[float], kinds: Sequence[str] = ("bar",)) -> str:
    """Shares between 0 and 1 as a bar that fills its cell."""
    out, left = [], 0.0
    for kind, piece in zip(kinds, pieces, strict=True):
        width = min(100.0 - left, max(0.0, piece * 100))
        if width:
            out.append(f'<rect class="{kind}" x="{left:.1f}%" width="{max(width, 0.5):.1f}%" height="100%"/>')
        left += width
    return f'<svg class="share" aria-hidden="true">{"".join(out)}</svg>'


@dataclass(slots=True)
class LatencyRange:
    """A row of a latency plot: its count, and percentiles in nanoseconds."""

    name: str
    count: int
    p50: int
    p90: int
    p99: int


def ranges(rows: Sequence[LatencyRange], *, numbers: bool = True) -> str:
    """A bar from the median to the 99th percentile on a logarithmic scale, with a mark at the 90th."""
    if not rows:
        return ""
    low = log10(max(1, min(row.p50 for row in rows)))
    scale = 100 / max(1e-9, log10(max(1, max(row.p99 for row in rows))) - low)

    def drawn(row: LatencyRange) -> str:
        p50, p90, p99 = (min(99.0, (log10(max(1, place)) - low) * scale) for place in (row.p50, row.p90, row.p99))
        return (
            f'<svg class="share" aria-hidden="true"><rect class="range" x="{p50:.1f}%" y="25%" '
            f'width="{max(1.0, p99 - p50):.1f}%" height="50%"/><rect class="mark" x="{p90:.1f}%" width="3" '
            'height="100%"/></svg>'
        )

    percentiles = [Cell("count", "count"), *(Cell(name, name, "duration") for name in ("p50", "p90", "p99"))]
    return table(rows, [Cell("", "name", "name"), *(percentiles if numbers else ()), Cell("", drawn, "bars")])


RANGE_NOTE = "Bars: from the median to the 99th percentile, with a mark at the 90th, on a logarithmic scale."


@dataclass(slots=True)
class LaneStretch:
    """A bar of a lane: nanoseconds since 1970, class, and the text of the hint."""

    from_ns: int
    until_ns: int | None
    """``None``: it continues to the end."""
    kind: str
    hint: str


@dataclass(slots=True)
class ChartLane:
    """A row of a timeline."""

    name: str
    stretches: Sequence[LaneStretch]


def lanes(rows: Sequence[ChartLane], moment: Callable[[int], str], title: str = "client") -> str:
    """A row per lane with a bar per stretch; ``moment`` returns the label of a time at the ends of the axis."""
    ends = [stretch.from_ns for lane in rows for stretch in lane.stretches]
    ends += [stretch.until_ns for lane in rows for stretch in lane.stretches if stretch.until_ns is not None]
    if not ends:
        return ""
    from_ns, until_ns = min(ends), max(ends)
    scale = 100 / max(1, until_ns - from_ns)

    def drawn(lane: ChartLane) -> str:
        out = []
        for stretch in lane.stretches:
            left = min((stretch.from_ns - from_ns) * scale, 100 - _THINNEST)
            until = until_ns if stretch.until_ns is None else stretch.until_ns
            wide = max(_THINNEST, min((until - stretch.from_ns) * scale, 100 - left))
            place = f'x="{left:.2f}%" width="{wide:.2f}%" height="100%"'
            out.append(f'<rect class="{safe(stretch.kind)}" {place}><title>{safe(stretch.hint)}</title></rect>')
        return f'<svg class="lane" role="img" aria-label="{short(lane.name)}">{"".join(out)}</svg>'

    shown = table(rows, [Cell(title, "name", "name"), Cell("", drawn, "bars")])
    first, last = moment(from_ns), moment(until_ns)
    if first[:11] == last[:11] and " " in first[:11]:
        last = last[11:]
    labels = f"<span>{safe(first)}</span>" + (f"<span>{safe(last)}</span>" if until_ns > from_ns else "")
    axis = f'<th class="bars">{labels}</th>'
    return f'<div class="lanes">{shown.replace("""<th class="bars"></th>""", axis, 1)}</div>'


@dataclass(slots=True)
class GridCell:
    """Number of findings of one rule about one client."""

    client: str
    rule: str
    findings: int
    severity: str


_RANKS = {"error": 0, "warning": 1, "info": 2}


def crossing_grid(rows: Sequence[GridCell]) -> str:
    """A table with a row per client and a column per rule, errors first."""
    if not rows:
        return ""
    worst: dict[str, int] = {}
    counts: dict[str, int] = {}
    for cell in rows:
        for name in (f"rule {cell.rule}", f"client {cell.client}"):
            worst[name] = min(worst.get(name, 9), _RANKS[cell.severity])
            counts[name] = counts.get(name, 0) + cell.findings
    order = sorted(counts, key=lambda name: (worst[name], -counts[name], name))
    rules = [name[5:] for name in order if name.startswith("rule ")]
    cells = {(cell.client, cell.rule): cell for cell in rows}

    def drawn(client: str, rule: str) -> str:
        cell = cells.get((client, rule))
        if cell is None:
            return "<td></td>"
        strength = 1 if cell.findings < 3 else 2 if cell.findings < 30 else 3
        return f'<td class="{cell.severity}s s{strength}">{cell.findings:,}</td>'

    head = "".join(f"<th>{safe(rule)}</th>" for rule in rules)
    body = "".join(
        f'<tr><td class="name">{short(name[7:])}</td>{"".join(drawn(name[7:], rule) for rule in rules)}</tr>'
        for name in order
        if name.startswith("client ")
    )
    return (
        f'<div class="table"><table class="crossing"><thead><tr><th class="name">client</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def nice(most: int) -> int:
    """Upper end of a scale: the next 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= most:
                return factor * power
        power *= 10
