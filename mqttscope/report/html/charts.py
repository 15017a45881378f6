"""Charts as inline SVG: bars along a time, rows of bars, ranges of latencies, connections along the time, and a grid.

They get their colours by class, so that the style of the page decides, light and dark, on screen and on paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

from mqttscope.report.html.pieces import fitting, safe, short

WIDTH = 720
"""Units of all plots; they shrink with the page."""
HEIGHT = 180
_LEFT, _BOTTOM, _TOP = 56, 24, 8
_ROW = 24
_NAMES = 240
_CHARACTER = 6.5
"""Units of a character, more or less."""
_CHARACTERS = 32
"""Characters of a name beside a row."""


@dataclass(slots=True)
class Bar:
    """One bar: what it stands for, and the sizes of its pieces, lowest first."""

    name: str
    pieces: tuple[int, ...]


def bar_columns(bars: Sequence[Bar], kinds: Sequence[str], label: str) -> str:
    """Upright bars along a time.  ``kinds``: a class for each piece, which is its name in the hints as well."""
    most = max((sum(one.pieces) for one in bars), default=0)
    if not most:
        return ""
    top = nice(most)
    high, wide = HEIGHT - _TOP - _BOTTOM, (WIDTH - _LEFT) / len(bars)
    out = [_begin(HEIGHT, label), *_scale(top, high)]
    gap = min(2.0, wide / 5)
    for index, one in enumerate(bars):
        left, base = _LEFT + index * wide, float(_TOP + high)
        told = ", ".join(f"{count:,} {kind}" for kind, count in zip(kinds, one.pieces, strict=True) if count)
        out.append(f"<g><title>{safe(one.name)}: {safe(told or 'none')}</title>")
        out.append(f'<rect class="hit" x="{left:.1f}" y="{_TOP}" width="{wide:.1f}" height="{high}"/>')
        for kind, count in zip(kinds, one.pieces, strict=True):
            if count:
                tall = max(1.0, count / top * high)
                base -= tall
                width = max(0.5, min(wide - gap, 48))
                middle = left + (wide - width) / 2
                out.append(
                    f'<rect class="{kind}" x="{middle:.1f}" y="{base:.1f}" width="{width:.1f}" height="{tall:.1f}"/>'
                )
        out.append("</g>")
    # As many names as have room; a single one stands in the middle.
    step = max(1, -(-len(bars) // 7))
    for index in range(0, len(bars), step):
        left = _LEFT + (index + 0.5) * wide
        anchor = "middle" if wide * step >= 100 or len(bars) == 1 else "start"
        if left + len(bars[index].name) * _CHARACTER > WIDTH:
            left, anchor = WIDTH, "end"
        out.append(f'<text x="{left:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{safe(bars[index].name)}</text>')
    return "".join(out) + "</svg>"


def bar_rows(bars: Sequence[Bar], kinds: Sequence[str], label: str) -> str:
    """Lying bars with a name before each."""
    most = max((sum(one.pieces) for one in bars), default=0)
    if not most:
        return ""
    scale = (WIDTH - _NAMES - 60) / most
    out = [_begin(len(bars) * _ROW, label)]
    for index, one in enumerate(bars):
        top, left = index * _ROW, float(_NAMES)
        out.append(_name(one.name, top))
        for kind, count in zip(kinds, one.pieces, strict=True):
            if count:
                wide = max(1.0, count * scale)
                out.append(
                    f'<rect class="{kind}" x="{left:.1f}" y="{top + 4}" width="{wide:.1f}" height="{_ROW - 8}">'
                    f"<title>{count:,} {kind}</title></rect>"
                )
                left += wide
        out.append(f'<text x="{left + 6:.1f}" y="{top + 16}">{sum(one.pieces):,}</text>')
    return "".join(out) + "</svg>"


@dataclass(slots=True)
class Range:
    """A row of a plot of latencies: nanoseconds, and what the hint says."""

    name: str
    p50: int
    p90: int
    p99: int
    told: str


def range_rows(found: Sequence[Range], label: str, *, least: str, most: str) -> str:
    """From the middle to the 99th percentile on a logarithmic scale, with a mark at the 90th."""
    if not found:
        return ""
    low = log10(max(1, min(one.p50 for one in found)))
    high = log10(max(1, max(one.p99 for one in found)))
    room = WIDTH - _NAMES - 16
    scale = room / (high - low) if high > low else 0.0
    out = [_begin(len(found) * _ROW + _BOTTOM, label)]
    for index, one in enumerate(found):
        top = index * _ROW
        at50, at90, at99 = (_NAMES + (log10(max(1, value)) - low) * scale for value in (one.p50, one.p90, one.p99))
        out += [
            f"<g><title>{safe(one.told)}</title>",
            _name(one.name, top),
            f'<rect class="range" x="{at50:.1f}" y="{top + 8}" width="{max(2.0, at99 - at50):.1f}" height="8"/>',
            f'<circle class="mark" cx="{at90:.1f}" cy="{top + 12}" r="5"/></g>',
        ]
    return "".join(out) + _ends(len(found), least, most if high > low else "") + "</svg>"


def _ends(rows: int, first: str, last: str) -> str:
    """The names of the ends of a scale below its rows; that of the last one may be empty."""
    below = rows * _ROW + 16
    named = f'<text x="{_NAMES}" y="{below}">{safe(first)}</text>'
    if last:
        named += f'<text x="{WIDTH - 16}" y="{below}" text-anchor="end">{safe(last)}</text>'
    return named


@dataclass(slots=True)
class Stretch:
    """A bar of a lane: nanoseconds since 1970, its class, and what the hint says."""

    from_ns: int
    until_ns: int | None
    """``None``: it lasts to the end."""
    kind: str
    told: str


@dataclass(slots=True)
class Lane:
    """A row of a time line."""

    name: str
    stretches: Sequence[Stretch]


def lane_rows(found: Sequence[Lane], first: str = "", last: str = "") -> str:
    """A row for each lane with a bar for each of its stretches; ``first`` and ``last`` name the ends of the time."""
    ends = [one.from_ns for lane in found for one in lane.stretches]
    ends += [one.until_ns for lane in found for one in lane.stretches if one.until_ns is not None]
    if not ends:
        return ""
    from_ns, until_ns = min(ends), max(ends)
    room = WIDTH - _NAMES - 16
    scale = room / (until_ns - from_ns) if until_ns > from_ns else 0.0
    out = [_begin(len(found) * _ROW + _BOTTOM, "connections along the time")]
    for index, lane in enumerate(found):
        top = index * _ROW
        out.append(_name(lane.name, top))
        for one in lane.stretches:
            left = _NAMES + (one.from_ns - from_ns) * scale
            until = until_ns if one.until_ns is None else one.until_ns
            wide = max(1.5, min((until - one.from_ns) * scale, _NAMES + room - left))
            out.append(
                f'<rect class="{safe(one.kind)}" x="{min(left, _NAMES + room - 1.5):.1f}" y="{top + 6}" '
                f'width="{wide:.1f}" height="12" rx="2"><title>{safe(one.told)}</title></rect>'
            )
    return "".join(out) + _ends(len(found), first, last if until_ns > from_ns else "") + "</svg>"


@dataclass(slots=True)
class Crossing:
    """How many findings one client has of one rule."""

    client: str
    rule: str
    findings: int
    severity: str


def crossing_grid(found: Sequence[Crossing]) -> str:
    """A field for each client and rule that has findings, darker for more of them."""
    if not found:
        return ""
    counts: dict[str, int] = {}
    for one in found:
        counts[one.rule] = counts.get(one.rule, 0) + one.findings
    rules = sorted(counts, key=lambda rule: (-counts[rule], rule))
    clients = list(dict.fromkeys(one.client for one in found))
    columns = {rule: place for place, rule in enumerate(rules)}
    lines = {client: place for place, client in enumerate(clients, 1)}
    most = log10(max(one.findings for one in found) + 1)
    wide = min(96.0, (WIDTH - _NAMES) / len(rules))
    out = [_begin((len(clients) + 1) * _ROW, "findings by client and rule")]
    for place, rule in enumerate(rules):
        out.append(f'<text class="rule" x="{_NAMES + (place + 0.5) * wide:.1f}" y="16">{safe(rule)}</text>')
    out += [_name(client, place * _ROW) for client, place in lines.items()]
    for one in found:
        left, top = _NAMES + columns[one.rule] * wide, lines[one.client] * _ROW
        strength = 0.35 + 0.65 * log10(one.findings + 1) / most
        told = f"{one.client}: {one.findings:,} of {one.rule}"
        out.append(
            f"<g><title>{short(told)}</title>"
            f'<rect class="{one.severity}s" x="{left + wide / 40:.1f}" y="{top + 1}" width="{wide * 0.95:.1f}" '
            f'height="{_ROW - 2}" opacity="{strength:.2f}"/>'
            f'<text class="count" x="{left + wide / 2:.1f}" y="{top + 16}">{one.findings:,}</text></g>'
        )
    return "".join(out) + "</svg>"


def nice(most: int) -> int:
    """The end of a scale: the next 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= most:
                return factor * power
        power *= 10


def _begin(height: int, label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{safe(label)}">'


def _name(name: str, top: int) -> str:
    return f'<text x="{_NAMES - 8}" y="{top + 16}" text-anchor="end">{fitting(name, _CHARACTERS)}</text>'


def _scale(top: int, high: int) -> list[str]:
    """Lines at zero, at half and at the end of a scale."""
    out = []
    for part, count in ((0.0, 0), (0.5, top // 2), (1.0, top)):
        if part == 0.5 and top < 2:
            continue
        y = _TOP + high * (1 - part)
        out.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{count:,}</text>')
    return out
