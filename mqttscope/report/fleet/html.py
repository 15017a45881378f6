"""Renders a fleet report as one self-contained page of HTML: no network, no script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mqttscope.report.fleet import model, text
from mqttscope.report.fleet.text import conditions, doubts, each, moment, named, people, way
from mqttscope.report.html import charts
from mqttscope.report.html.charts import Lane as Row
from mqttscope.report.html.page import document
from mqttscope.report.html.pieces import SEVERITIES, Cell, amounts, bound, legend, safe, short, table
from mqttscope.report.numbers import number, size
from mqttscope.report.when import duration


def render(report: model.FleetReport) -> bytes:
    """A report as a page."""
    asked = conditions(report)
    seen = report.overview
    time = f"{moment(seen.first_ns)} to {moment(seen.last_ns)} UTC" if seen.first_ns is not None else "nothing captured"
    return document(
        f"Fleet report: {report.lake}",
        [
            f'<h1>Fleet report</h1><p class="where">{short(report.lake)}, {safe(time)}</p>',
            f"<p>Restricted to {safe('; '.join(asked))}.</p>" if asked else "",
            amounts(text.amounts(report)),
            _trust_in_short(report),
            *_rules(report),
            *_days(report),
            *_latency(report),
            *_talk(report),
            *_retained(report),
            *_endings(report),
            *_reconnects(report),
            *_trust(report),
        ],
    )


def _ranked(title: str, ranked: model.Ranked[Any], columns: Sequence[Cell], plot: str = "", level: int = 3) -> str:
    """A part with a table; nothing where there are no rows."""
    if not ranked:
        return ""
    left = ranked.total - len(ranked.rows)
    more = f'<p class="note">and {left:,} more</p>' if left > 0 else ""
    return f"<h{level}>{safe(title)}</h{level}>{plot}{table(ranked.rows, columns)}{more}"


def _trust_in_short(report: model.FleetReport) -> str:
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


def _rules(report: model.FleetReport) -> list[str]:
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
    crossings = [
        charts.Crossing(named(one.client, "client"), one.rule, one.findings, one.severity) for one in report.crossings
    ]
    if plot := charts.crossing_grid(crossings):
        out.insert(1, f"<h3>Findings by client and rule</h3>{legend(SEVERITIES)}{plot}")
    return out


def _by(title: str, kind: str, found: model.Ranked[model.RuleRow], rule: Sequence[Cell]) -> str:
    name = Cell("client" if kind == "client" else "group", lambda row: named(row.group, kind), "name")
    return _ranked(title, found, [name, *rule, *_counts(clients=kind != "client")])


def _group(title: str, kind: str, ranked: model.Ranked[model.GroupRow]) -> str:
    bars = [
        charts.Bar(named(row.group, kind), (row.errors, row.warnings, row.findings - row.errors - row.warnings))
        for row in ranked.rows
    ]
    plot = charts.bar_rows(bars, SEVERITIES, f"findings by {title}")
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
        (legend(SEVERITIES) + plot) if plot else "",
    )


def _days(report: model.FleetReport) -> list[str]:
    rows = report.parts or report.days
    if not rows:
        return []
    bars = [charts.Bar(row.day, (row.errors, row.warnings, row.infos)) for row in rows]
    plot = charts.bar_columns(bars, SEVERITIES, "findings over time")
    messages = charts.bar_columns(
        [charts.Bar(row.day, (row.messages,)) for row in rows], ("messages",), "messages over time"
    )
    packets = charts.bar_columns(
        [charts.Bar(row.day, (row.packets,)) for row in rows], ("packets",), "packets over time"
    )
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
        f"<h3>Findings</h3>{legend(SEVERITIES)}{plot}" if plot else "",
        f"<h3>Messages that clients published</h3>{messages}" if messages else "",
        table(rows, cells),
    ]


def _length(value: int | None) -> str:
    return "" if value is None else duration(value)


def _spread(of: Callable[[Any], model.Percentiles]) -> list[Cell]:
    return [
        Cell("count", lambda row: number(of(row).count)),
        Cell("p50", lambda row: _length(of(row).p50)),
        Cell("p90", lambda row: _length(of(row).p90)),
        Cell("p99", lambda row: _length(of(row).p99)),
        Cell("maximum", lambda row: _length(of(row).maximum)),
    ]


def _latency(report: model.FleetReport) -> list[str]:
    found = report.latency
    out = []
    kinds = ("acknowledged", "delivered")
    bars = [
        charts.Bar("longer" if one.below_ns is None else f"< {bound(one.below_ns)}", (one.acknowledged, one.delivered))
        for one in found.buckets
    ]
    if plot := charts.bar_columns(bars, kinds, "messages by how long they took"):
        note = "From PUBLISH to its acknowledgement, and from publisher to subscriber; each bar is a length of time."
        out.append(f'<h2>How long messages take</h2>{legend(kinds)}{plot}<p class="note">{note}</p>')
    if found.acknowledged:
        cells = [
            Cell("", lambda row: f"QoS {row.qos} from {row.sender}", "text"),
            *_spread(lambda row: row.latency),
            Cell("unanswered", lambda row: number(row.unanswered)),
            Cell("refused", lambda row: number(row.refused)),
            Cell("sent again", lambda row: number(row.retransmitted)),
        ]
        out.append(f"<h2>From PUBLISH to its acknowledgement</h2>{table(found.acknowledged, cells)}")
    if found.end_to_end.count or found.unknown:
        out.append("<h2>From publisher to subscriber</h2>" + table([found.end_to_end], _spread(lambda row: row)))
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


def _ranges(found: Sequence[tuple[str, model.Percentiles]], title: str) -> str:
    shown = [
        charts.Range(
            name, one.p50, one.p90, one.p99, f"{name}: {_length(one.p50)}, {_length(one.p90)}, {_length(one.p99)}"
        )
        for name, one in found
        if one.p50 is not None and one.p90 is not None and one.p99 is not None
    ]
    if not shown:
        return ""
    least, most = min(one.p50 for one in shown), max(one.p99 for one in shown)
    note = '<p class="note">From the middle to the 99th percentile, with a mark at the 90th; logarithmic.</p>'
    return note + charts.range_rows(shown, title, least=_length(least), most=_length(most))


def _people(title: str, of: Callable[[Any], model.Names]) -> list[Cell]:
    return [
        Cell(title, lambda row: number(of(row).count)),
        Cell("", lambda row: people(of(row), 5), "name"),
    ]


def _talk(report: model.FleetReport) -> list[str]:
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


def _retained(report: model.FleetReport) -> list[str]:
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


def _endings(report: model.FleetReport) -> list[str]:
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
        table(found.ways, ways),
        _time_line(found.lanes),
        _ranked("By client", found.clients, cells),
    ]


def _time_line(ranked: model.Ranked[model.Lane]) -> str:
    """The connections of the clients that have most of them, along the time."""
    kinds = list(dict.fromkeys(span.how for lane in ranked.rows for span in lane.spans))
    rows = [
        Row(lane.client or "(no Client Identifier)", [_stretch(span) for span in lane.spans]) for lane in ranked.rows
    ]
    ends = [at for lane in ranked.rows for span in lane.spans for at in (span.from_ns, span.until_ns) if at is not None]
    plot = charts.lane_rows(rows, moment(min(ends, default=None)), moment(max(ends, default=None)))
    if not plot:
        return ""
    names = legend(kinds, lambda how: way(model.EndingRow(how, None, 0)))
    left = ranked.total - len(ranked.rows)
    more = f'<p class="note">and {left:,} more clients</p>' if left > 0 else ""
    return f"<h3>Connections along the time</h3>{names}{plot}{more}"


def _stretch(span: model.Span) -> charts.Stretch:
    to = "the end of the captures" if span.until_ns is None else moment(span.until_ns)
    told = f"{moment(span.from_ns)} to {to}: {way(model.EndingRow(span.how, None, 0))}"
    return charts.Stretch(span.from_ns, span.until_ns, span.how, told)


def _reconnects(report: model.FleetReport) -> list[str]:
    found = report.reconnects
    bars = [charts.Bar(moment(start)[:16], (count,)) for start, count in found.minutes]
    plot = charts.bar_columns(bars, ("connects",), "CONNECT packets over time")
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


def _trust(report: model.FleetReport) -> list[str]:
    cells = [
        Cell("capture", lambda row: row.capture, "name"),
        Cell("gaps", lambda row: number(row.gaps)),
        Cell("lost", lambda row: size(row.gap_bytes) if row.gaps else ""),
        Cell("unparsed", lambda row: size(row.unparsed_bytes) if row.unparsed else ""),
        Cell("frames dropped", lambda row: number(row.dropped)),
        Cell("errors", lambda row: "; ".join(row.errors), "text"),
    ]
    return [_ranked("What the captures lack", report.trust.captures, cells, level=2)]
