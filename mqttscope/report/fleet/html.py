"""Renders a fleet report as one self-contained page of HTML: no network, no script.

Topics and Client Identifiers come from anybody who speaks to the broker: all text passes `safe`, and the page itself
forbids whatever could be loaded or run.

Plots are inline SVG and get their colours by class, so that the style of the page decides, light and dark, on screen
and on paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape as quoted
from math import log10
from typing import Any

from mqttscope.report.escape import cells, escape
from mqttscope.report.fleet.model import (
    Crossing,
    EndingRow,
    FleetReport,
    GroupRow,
    Lane,
    Names,
    Percentiles,
    Ranked,
    RuleRow,
)
from mqttscope.report.fleet.text import amounts, conditions, doubts, each, moment, named, people, way
from mqttscope.report.numbers import number, size
from mqttscope.report.when import duration

STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5b6470;--line:#d7dce2;--page:#fff;--band:#f4f6f8;
--error:#c0392b;--warning:#d99a1c;--info:#6f8fb3;--main:#2f6f9f;--doubt:#fff4dc;--good:#e3f4e6}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ec;--soft:#9aa5b1;--line:#39424c;--page:#15191e;--band:#1d232a;
--error:#e2695c;--warning:#e0b04c;--info:#7f9cbd;--main:#64a5d6;--doubt:#3a3018;--good:#1c3323}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:68rem;margin:2rem auto;
padding:0 1rem}
h1{margin:0}h2{margin:2.5rem 0 .5rem;border-bottom:1px solid var(--line)}h3{margin:1.5rem 0 .5rem}
.where,.note,.legend{color:var(--soft)}
.amounts{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.5rem}
.amounts li{background:var(--band);border-radius:.4rem;padding:.25rem .7rem}
.doubt,.good{border-radius:.4rem;padding:.6rem .8rem}.doubt{background:var(--doubt)}.good{background:var(--good)}
.table{overflow-x:auto}table{border-collapse:collapse;min-width:50%}
th,td{padding:.2rem .7rem .2rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{font-weight:600;white-space:nowrap}.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.name{font-family:ui-monospace,monospace;font-size:13px;overflow-wrap:anywhere;min-width:7rem;max-width:24rem}
.time{white-space:nowrap;font-variant-numeric:tabular-nums}
svg{width:100%;max-width:760px;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
.grid{stroke:var(--line)}.hit{fill:transparent}
.errors{fill:var(--error);background:var(--error)}.warnings{fill:var(--warning);background:var(--warning)}
.infos{fill:var(--info);background:var(--info)}
.connects,.messages,.packets,.acknowledged,.delivered,.range{fill:var(--main);background:var(--main)}
.delivered{fill:var(--warning);background:var(--warning)}
.disconnect{fill:var(--main);background:var(--main)}
.fin,.idle,.port_reused,.evicted{fill:var(--warning);background:var(--warning)}
.reset{fill:var(--error);background:var(--error)}.open{fill:var(--info);background:var(--info)}
svg .count{fill:var(--page);text-anchor:middle}svg .rule{font-size:10px;text-anchor:middle}
.mark{fill:var(--page);stroke:var(--main);stroke-width:2}
.legend span{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .3em 0 .8em}
.legend span:first-child{margin-left:0}
@media print{body{max-width:none}.table{overflow:visible}h2,h3{break-after:avoid}}
"""

SEVERITIES = ("errors", "warnings", "infos")
LONGEST = 200
"""Characters of a name that are shown."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(slots=True)
class Cell:
    """A column of a table: its title, and what it shows of a row."""

    title: str
    shown: Callable[[Any], str]
    kind: str = "number"
    """Class: ``number``, ``name``, ``time`` or ``text``."""


def render(report: FleetReport) -> bytes:
    """A report as a page."""
    asked = conditions(report)
    seen = report.overview
    time = f"{moment(seen.first_ns)} to {moment(seen.last_ns)} UTC" if seen.first_ns is not None else "nothing captured"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Fleet report: {_short(report.lake)}</title><style>{STYLE}</style></head><body>",
        f'<h1>Fleet report</h1><p class="where">{_short(report.lake)}, {safe(time)}</p>',
        f"<p>Restricted to {safe('; '.join(asked))}.</p>" if asked else "",
        '<ul class="amounts">' + "".join(f"<li>{safe(one)}</li>" for one in amounts(report)) + "</ul>",
        _trust_in_short(report),
        *_rules(report),
        *_days(report),
        *_latency(report),
        *_talk(report),
        *_retained(report),
        *_endings(report),
        *_reconnects(report),
        *_trust(report),
        "</body></html>\n",
    ]
    return "".join(parts).encode("utf-8", "replace")


def _short(name: str) -> str:
    """A name that may be 64 KiB long: its end tells as much as its beginning."""
    return safe(name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[-LONGEST // 2 :]}")


def _table(rows: Sequence[Any], cells: Sequence[Cell]) -> str:
    head = "".join(f'<th class="{one.kind}">{safe(one.title)}</th>' for one in cells)
    body = "".join(
        "<tr>" + "".join(f'<td class="{one.kind}">{_short(one.shown(row))}</td>' for one in cells) + "</tr>"
        for row in rows
    )
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _ranked(title: str, ranked: Ranked[Any], cells: Sequence[Cell], plot: str = "", level: int = 3) -> str:
    """A part with a table; nothing where there are no rows."""
    if not ranked:
        return ""
    left = ranked.total - len(ranked.rows)
    more = f'<p class="note">and {left:,} more</p>' if left > 0 else ""
    return f"<h{level}>{safe(title)}</h{level}>{plot}{_table(ranked.rows, cells)}{more}"


def _legend(kinds: Iterable[str], name: Callable[[str], str] = str) -> str:
    """Classes with their colours; ``name`` gives what each is called."""
    return '<p class="legend">' + "".join(f'<span class="{one}"></span>{safe(name(one))} ' for one in kinds) + "</p>"


def _trust_in_short(report: FleetReport) -> str:
    told = doubts(report)
    if not told:
        return '<p class="good">Nothing is missing from the captures.</p>'
    return f'<p class="doubt">How far this may be trusted: {safe("; ".join(told))}.</p>'


def _counts(*, clients: bool = True) -> list[Cell]:
    return [
        Cell("severity", lambda row: row.severity, "text"),
        Cell("findings", lambda row: number(row.findings)),
        *([Cell("clients", lambda row: number(row.clients))] if clients else []),
        Cell("connections", lambda row: number(row.connections)),
        Cell("first seen", lambda row: moment(row.first_ns), "time"),
        Cell("last seen", lambda row: moment(row.last_ns), "time"),
    ]


def _rules(report: FleetReport) -> list[str]:
    if not report.rules:
        return ["<h2>Rules that were broken</h2><p>No findings: rules run when captures are taken in.</p>"]
    rule = [Cell("rule", lambda row: row.rule, "text"), Cell("", lambda row: row.slug, "text")]
    said = " or ".join(report.asked.group_by)
    groups = [
        ("shape", "Client Identifiers", report.shapes, report.by_shape),
        ("property", f"User Property {said}", report.properties, report.by_property),
    ]
    out = [_ranked("Rules that were broken", report.rules, [*rule, *_counts()], level=2)]
    for kind, title, known, found in groups:
        if kind == "property" and not found:
            continue
        out.append(_group(title, kind, known))
        out.append(_by(f"Rules by {title}", kind, found, rule))
    out.append(_by("Rules by client", "client", report.by_client, rule))
    if plot := crossing_grid(report.crossings):
        out.insert(1, f"<h3>Findings by client and rule</h3>{_legend(SEVERITIES)}{plot}")
    return out


def _by(title: str, kind: str, found: Ranked[RuleRow], rule: Sequence[Cell]) -> str:
    name = Cell("client" if kind == "client" else "group", lambda row: named(row.group, kind), "name")
    return _ranked(title, found, [name, *rule, *_counts(clients=kind != "client")])


def _group(title: str, kind: str, ranked: Ranked[GroupRow]) -> str:
    bars = [
        Bar(named(row.group, kind), (row.errors, row.warnings, row.findings - row.errors - row.warnings))
        for row in ranked.rows
    ]
    plot = bar_rows(bars, SEVERITIES, f"findings by {title}")
    return _ranked(
        f"Groups by {title}",
        ranked,
        [
            Cell("group", lambda row: named(row.group, kind), "name"),
            Cell("clients", lambda row: number(row.clients)),
            Cell("connections", lambda row: number(row.connections)),
            Cell("errors", lambda row: number(row.errors)),
            Cell("warnings", lambda row: number(row.warnings)),
            Cell("findings", lambda row: number(row.findings)),
        ],
        (_legend(SEVERITIES) + plot) if plot else "",
    )


def _days(report: FleetReport) -> list[str]:
    rows = report.parts or report.days
    if not rows:
        return []
    bars = [Bar(row.day, (row.errors, row.warnings, row.infos)) for row in rows]
    plot = bar_columns(bars, SEVERITIES, "findings over time")
    messages = bar_columns([Bar(row.day, (row.messages,)) for row in rows], ("messages",), "messages over time")
    packets = bar_columns([Bar(row.day, (row.packets,)) for row in rows], ("packets",), "packets over time")
    cells = [
        Cell("from" if report.parts else "day", lambda row: row.day, "time"),
        *(
            Cell(name, lambda row, name=name: number(getattr(row, name)))  # type: ignore[misc]
            for name in ("connections", "packets", "messages", *SEVERITIES)
        ),
    ]
    return [
        f"<h2>{each(report.part_seconds)}</h2>",
        f"<h3>Packets</h3>{packets}" if packets else "",
        f"<h3>Findings</h3>{_legend(SEVERITIES)}{plot}" if plot else "",
        f"<h3>Messages that clients published</h3>{messages}" if messages else "",
        _table(rows, cells),
    ]


def _length(value: int | None) -> str:
    return "" if value is None else duration(value)


def _bound(value_ns: int) -> str:
    """A length of time that is a round number."""
    power = min(3, (len(str(value_ns)) - 1) // 3)
    return f"{value_ns // 1_000**power} {('ns', 'µs', 'ms', 's')[power]}"


def _spread(of: Callable[[Any], Percentiles]) -> list[Cell]:
    return [
        Cell("count", lambda row: number(of(row).count)),
        Cell("p50", lambda row: _length(of(row).p50)),
        Cell("p90", lambda row: _length(of(row).p90)),
        Cell("p99", lambda row: _length(of(row).p99)),
        Cell("maximum", lambda row: _length(of(row).maximum)),
    ]


def _latency(report: FleetReport) -> list[str]:
    found = report.latency
    out = []
    kinds = ("acknowledged", "delivered")
    bars = [
        Bar("longer" if one.below_ns is None else f"< {_bound(one.below_ns)}", (one.acknowledged, one.delivered))
        for one in found.buckets
    ]
    if plot := bar_columns(bars, kinds, "messages by how long they took"):
        note = "From PUBLISH to its acknowledgement, and from publisher to subscriber; each bar is a length of time."
        out.append(f'<h2>How long messages take</h2>{_legend(kinds)}{plot}<p class="note">{note}</p>')
    if found.acknowledged:
        cells = [
            Cell("", lambda row: f"QoS {row.qos} from {row.sender}", "text"),
            *_spread(lambda row: row.latency),
            Cell("unanswered", lambda row: number(row.unanswered)),
            Cell("refused", lambda row: number(row.refused)),
            Cell("sent again", lambda row: number(row.retransmitted)),
        ]
        out.append(f"<h2>From PUBLISH to its acknowledgement</h2>{_table(found.acknowledged, cells)}")
    if found.end_to_end.count or found.unknown:
        out.append("<h2>From publisher to subscriber</h2>" + _table([found.end_to_end], _spread(lambda row: row)))
        out.append(
            f'<p class="note">Deliveries without a captured publication: {found.unknown:,}. Deliveries of content that '
            f"was published more than once, measured from the last time: {found.repeated:,}.</p>"
        )
    for title, kind, ranked in (
        ("Slowest topics", "topic", found.topics),
        ("Slowest subscribers", "client", found.subscribers),
    ):
        name = Cell(kind, lambda row: named(row.name, "subscriber"), "name")
        plot = _ranges([(named(row.name, "subscriber"), row.latency) for row in ranked.rows], title)
        out.append(_ranked(title, ranked, [name, *_spread(lambda row: row.latency)], plot))
    return out


def _ranges(found: Sequence[tuple[str, Percentiles]], title: str) -> str:
    shown = [
        Range(name, one.p50, one.p90, one.p99, f"{name}: {_length(one.p50)}, {_length(one.p90)}, {_length(one.p99)}")
        for name, one in found
        if one.p50 is not None and one.p90 is not None and one.p99 is not None
    ]
    if not shown:
        return ""
    least, most = min(one.p50 for one in shown), max(one.p99 for one in shown)
    note = '<p class="note">From the middle to the 99th percentile, with a mark at the 90th; logarithmic.</p>'
    return note + range_rows(shown, title, least=_length(least), most=_length(most))


def _people(title: str, of: Callable[[Any], Names]) -> list[Cell]:
    return [
        Cell(title, lambda row: number(of(row).count)),
        Cell("", lambda row: people(of(row), 5), "name"),
    ]


def _talk(report: FleetReport) -> list[str]:
    found = report.talk
    topics = [
        Cell("topic", lambda row: row.topic, "name"),
        Cell("published", lambda row: number(row.published)),
        Cell("delivered", lambda row: number(row.delivered)),
        Cell("payload", lambda row: size(row.payload_bytes)),
        *_people("publishers", lambda row: row.publishers),
        *_people("subscribed", lambda row: row.subscribers),
        *_people("received by", lambda row: row.receivers),
        Cell("server", lambda row: row.server, "name"),
    ]
    filters = [
        Cell("topic filter", lambda row: row.topic_filter, "name"),
        *_people("clients", lambda row: row.subscribers),
        Cell("topics it matches", lambda row: number(row.topics)),
        Cell("server", lambda row: row.server, "name"),
    ]
    out = [_ranked("Who talks on which topic", found.topics, topics, level=2)]
    if found.topics or found.filters:
        out.append(
            f'<p class="note">Topics that nobody subscribed to: {found.unheard:,}. Topics delivered without a '
            f"captured subscription: {found.unexplained:,}. Topic Filters that no message matched: {found.idle:,}.</p>"
        )
    return [*out, _ranked("Topic Filters", found.filters, filters)]


def _retained(report: FleetReport) -> list[str]:
    kept, expiry = report.retained, report.expiry
    cells = [
        Cell("topic", lambda row: row.topic, "name"),
        Cell("set", lambda row: number(row.set)),
        Cell("cleared", lambda row: number(row.cleared)),
        Cell("delivered", lambda row: number(row.delivered)),
        Cell("state", lambda row: row.state, "text"),
        Cell("set last", lambda row: moment(row.since_ns), "time"),
        Cell("server", lambda row: row.server, "name"),
    ]
    out = []
    if kept.topics:
        out.append(_ranked("Retained messages", kept.topics, cells, level=2))
        out.append(
            f'<p class="note">All topics: {kept.set:,} set, {kept.cleared:,} cleared, {kept.refused:,} refused, '
            f"{kept.delivered:,} delivered; {kept.held:,} topics held at the end, {kept.expired:,} expired, "
            f"{kept.unknown:,} unknown.</p>"
        )
    if expiry.published or expiry.delivered:
        left = expiry.remaining_s
        middle = "" if left.p50 is None else f" with {left.p50:,} s left in the middle and {left.maximum:,} s at most"
        out.append(
            f"<h2>Message Expiry Interval</h2><p>{expiry.published:,} messages were published with one, "
            f"{expiry.delivered:,} delivered{middle}. Of those that waited in the server, {expiry.right:,} had it "
            f"reduced, {expiry.not_reduced:,} had not, {expiry.missing:,} had none any more, {expiry.expired:,} came "
            f"too late; {expiry.unknown:,} did not wait or cannot be judged.</p>"
        )
    return out


def _endings(report: FleetReport) -> list[str]:
    found = report.endings
    cells = [
        Cell("client", lambda row: row.client, "name"),
        Cell("server", lambda row: row.server, "name"),
        Cell("connections", lambda row: number(row.connections)),
        Cell("reconnects", lambda row: number(row.reconnects)),
        Cell("DISCONNECT", lambda row: number(row.disconnects)),
        Cell("closed by client", lambda row: number(row.by_client)),
        Cell("closed by server", lambda row: number(row.by_server)),
        Cell("reset", lambda row: number(row.resets)),
        Cell("time-out", lambda row: number(row.timeouts)),
    ]
    if not found.ways:
        return []
    ways = [Cell("how", way, "text"), Cell("connections", lambda row: number(row.connections))]
    return [
        "<h2>How connections ended</h2>",
        _table(found.ways, ways),
        _time_line(found.lanes),
        _ranked("By client", found.clients, cells),
    ]


def _time_line(ranked: Ranked[Lane]) -> str:
    """The connections of the clients that have most of them, along the time."""
    kinds = list(dict.fromkeys(span.how for lane in ranked.rows for span in lane.spans))
    plot = lane_rows(ranked.rows)
    if not plot:
        return ""
    legend = _legend(kinds, lambda how: way(EndingRow(how, None, 0)))
    left = ranked.total - len(ranked.rows)
    more = f'<p class="note">and {left:,} more clients</p>' if left > 0 else ""
    return f"<h3>Connections along the time</h3>{legend}{plot}{more}"


def _reconnects(report: FleetReport) -> list[str]:
    found = report.reconnects
    bars = [Bar(moment(start)[:16], (count,)) for start, count in found.minutes]
    plot = bar_columns(bars, ("connects",), "CONNECT packets over time")
    each = f" in {found.minutes_each:,} min each" if found.minutes_each > 1 else " a minute"
    cells = [
        Cell("client", lambda row: row.client or "(all clients)", "name"),
        Cell("server", lambda row: row.server, "name"),
        Cell("from", lambda row: moment(row.from_ns), "time"),
        Cell("to", lambda row: moment(row.until_ns), "time"),
        Cell("CONNECT packets", lambda row: number(row.connects)),
        Cell("busiest minute", lambda row: number(row.peak)),
        Cell("usual", lambda row: f"{row.usual:,.4g}"),
        Cell("clients", lambda row: number(row.clients)),
    ]
    return [
        f"<h2>Connecting</h2><p>{found.connects:,} CONNECT packets, {found.refused:,} refused.</p>",
        f"<h3>CONNECT packets{each}</h3>{plot}" if plot else "",
        _ranked("Bursts", found.storms, cells) or '<p class="note">No bursts.</p>',
    ]


def _trust(report: FleetReport) -> list[str]:
    cells = [
        Cell("capture", lambda row: row.capture, "name"),
        Cell("gaps", lambda row: number(row.gaps)),
        Cell("lost", lambda row: size(row.gap_bytes) if row.gaps else ""),
        Cell("unparsed", lambda row: size(row.unparsed_bytes) if row.unparsed else ""),
        Cell("frames dropped", lambda row: number(row.dropped)),
        Cell("errors", lambda row: "; ".join(row.errors), "text"),
    ]
    return [_ranked("What the captures lack", report.trust.captures, cells, level=2)]


WIDTH = 720
"""Units of all plots; they shrink with the page."""
HEIGHT = 180
_LEFT, _BOTTOM, _TOP = 56, 24, 8
_ROW = 24
_NAMES = 240
_CHARACTERS = 32
"""Characters of a name beside a row."""


@dataclass(slots=True)
class Bar:
    """One bar: what it stands for, and the sizes of its pieces, lowest first."""

    name: str
    pieces: tuple[int, ...]


def safe(text: str) -> str:
    """Captured text for a page: no markup, and nothing that turns or hides what stands beside it."""
    return quoted(escape(text))


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
    below = len(found) * _ROW + 16
    out.append(f'<text x="{_NAMES}" y="{below}">{safe(least)}</text>')
    if high > low:
        out.append(f'<text x="{WIDTH - 16}" y="{below}" text-anchor="end">{safe(most)}</text>')
    return "".join(out) + "</svg>"


def lane_rows(found: Sequence[Lane]) -> str:
    """A row for each client, with a bar from the beginning to the end of each of its connections."""
    ends = [one.from_ns for lane in found for one in lane.spans]
    ends += [one.until_ns for lane in found for one in lane.spans if one.until_ns is not None]
    if not ends:
        return ""
    first, last = min(ends), max(ends)
    room = WIDTH - _NAMES - 16
    scale = room / (last - first) if last > first else 0.0
    out = [_begin(len(found) * _ROW + _BOTTOM, "connections along the time")]
    for index, lane in enumerate(found):
        top = index * _ROW
        out.append(_name(lane.client or "(no Client Identifier)", top))
        for one in lane.spans:
            left = _NAMES + (one.from_ns - first) * scale
            until = last if one.until_ns is None else one.until_ns
            wide = max(1.5, min((until - one.from_ns) * scale, _NAMES + room - left))
            to = "the end of the captures" if one.until_ns is None else moment(one.until_ns)
            told = f"{moment(one.from_ns)} to {to}: {way(EndingRow(one.how, None, 0))}"
            out.append(
                f'<rect class="{safe(one.how)}" x="{min(left, _NAMES + room - 1.5):.1f}" y="{top + 6}" '
                f'width="{wide:.1f}" height="12" rx="2"><title>{safe(told)}</title></rect>'
            )
    below = len(found) * _ROW + 16
    out.append(f'<text x="{_NAMES}" y="{below}">{safe(moment(first))}</text>')
    if last > first:
        out.append(f'<text x="{WIDTH - 16}" y="{below}" text-anchor="end">{safe(moment(last))}</text>')
    return "".join(out) + "</svg>"


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
    out += [_name(named(client, "client"), place * _ROW) for client, place in lines.items()]
    for one in found:
        left, top = _NAMES + columns[one.rule] * wide, lines[one.client] * _ROW
        strength = 0.35 + 0.65 * log10(one.findings + 1) / most
        told = f"{named(one.client, 'client')}: {one.findings:,} of {one.rule}"
        out.append(
            f"<g><title>{_short(told)}</title>"
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
    shown = escape(name[: 4 * _CHARACTERS])
    while cells(shown) > _CHARACTERS:
        shown = shown[: len(shown) - 2] + "…"
    return f'<text x="{_NAMES - 8}" y="{top + 16}" text-anchor="end">{quoted(shown)}</text>'


def _scale(top: int, high: int) -> list[str]:
    """Lines at nothing, the half and the whole of a scale."""
    out = []
    for part, count in ((0.0, 0), (0.5, top // 2), (1.0, top)):
        if part == 0.5 and top < 2:
            continue
        y = _TOP + high * (1 - part)
        out.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{count:,}</text>')
    return out
