"""Renders a fleet report as text, in tables that fit the terminal, and as one JSON document.

`document` gives the JSON form, schema 1 (``docs/reports.md``).  `moment`, `named`, `way`, `doubts` and their neighbours
are the words that the text shares with the page of `html`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from mqttscope.report.base import Clock, View
from mqttscope.report.escape import cut
from mqttscope.report.fleet.model import DayRow, EndingRow, FleetReport, GroupRow, Names, Percentiles, Ranked, RuleRow
from mqttscope.report.numbers import number, plural, size
from mqttscope.report.page import Column, Page
from mqttscope.report.when import duration

WIDEST_PEOPLE = 24
"""Columns for the names of clients."""
_STYLES = {"errors": "red", "warnings": "yellow"}


def render(report: FleetReport, view: View) -> bytes:
    """A report as text, at most as wide as the view (80 columns where it has no limit)."""
    page = Page(view)
    page.line(amounts(report), style="bold")
    seen = report.overview
    if seen.first_ns is not None:
        page.line([f"from {moment(seen.first_ns)}", f"to {moment(seen.last_ns)} UTC"], style="dim")
    asked = [page.safe(one) for one in conditions(report)]
    if asked:
        page.line([f"restricted to {asked[0]}", *asked[1:]], style="dim")
    page.line(doubts(report), style="yellow")
    _rules(page, report)
    _days(page, report.parts or report.days, each(report.part_seconds))
    _latency(page, report)
    _talk(page, report)
    _retained(page, report)
    _endings(page, report)
    _reconnects(page, report)
    _trust(page, report)
    return page.encoded()


def _column(title: str, rows: Sequence[Any], shown: Callable[[Any], str], rank: int = 0, style: str = "") -> Column:
    return Column(title, [shown(row) for row in rows], rank, style=style)


def _left(title: str, rows: Sequence[Any], shown: Callable[[Any], str], rank: int = 0) -> Column:
    return Column(title, [shown(row) for row in rows], rank, right=False)


def _more(page: Page, ranked: Ranked[Any], word: str) -> None:
    left = ranked.total - len(ranked.rows)
    if left > 0:
        page.line([f"{page.ellipsis} and {plural(left, word)} more (--top N shows N)"], style="dim")


def _rules(page: Page, report: FleetReport) -> None:
    page.title("Rules that were broken")
    if not report.rules:
        page.line(["no findings: rules run when captures are taken in"], style="dim")
        return
    rows = report.rules.rows
    page.table(Column("rule", [f"{row.rule} {row.slug}" for row in rows]), _counts(rows, 0))
    _more(page, report.rules, "rule")
    _groups(page, "Groups of Client Identifiers", "identifiers", "shape", report.shapes)
    _by_group(page, "Rules by group of Client Identifiers", "identifiers", "shape", report.by_shape)
    if report.by_property:
        _groups(page, "Groups by User Property", "value", "property", report.properties)
        _by_group(page, "Rules by User Property", "value", "property", report.by_property)
    _by_group(page, "Rules by client", "client identifier", "client", report.by_client)


def _counts(rows: Sequence[RuleRow], rank: int) -> list[Column]:
    return [
        _left("severity", rows, lambda row: row.severity, rank + 1),
        _column("findings", rows, lambda row: number(row.findings)),
        _column("clients", rows, lambda row: number(row.clients), 2),
        _column("conn.", rows, lambda row: number(row.connections), 5),
        _left("first seen", rows, lambda row: moment(row.first_ns), 4),
        _left("last seen", rows, lambda row: moment(row.last_ns), 3),
    ]


def _by_group(page: Page, title: str, heading: str, kind: str, ranked: Ranked[RuleRow]) -> None:
    columns = [
        _left("rule", ranked.rows, lambda row: row.rule),
        _left("", ranked.rows, lambda row: row.slug, 6),
        *(one for one in _counts(ranked.rows, 0) if kind != "client" or one.title != "clients"),
    ]
    _grouped(page, title, heading, kind, ranked, columns, "row")


def _groups(page: Page, title: str, heading: str, kind: str, ranked: Ranked[GroupRow]) -> None:
    rows = ranked.rows
    columns = [
        _column("clients", rows, lambda row: number(row.clients)),
        _column("conn.", rows, lambda row: number(row.connections), 2),
        _column("errors", rows, lambda row: number(row.errors), style="red"),
        _column("warnings", rows, lambda row: number(row.warnings), style="yellow"),
        _column("findings", rows, lambda row: number(row.findings), 1),
    ]
    _grouped(page, title, heading, kind, ranked, columns, "group")


def _grouped(
    page: Page, title: str, heading: str, kind: str, ranked: Ranked[Any], columns: list[Column], word: str
) -> None:
    if ranked:
        page.title(title)
        page.table(Column(heading, [named(row.group, kind) for row in ranked.rows], style="green"), columns)
        _more(page, ranked, word)


def _days(page: Page, rows: list[DayRow], title: str) -> None:
    if not rows:
        return
    page.title(title)
    most = max(row.errors + row.warnings + row.infos for row in rows) or 1
    page.table(
        Column("day" if len(rows[0].day) == 10 else "from", [row.day for row in rows], whole=True),
        [
            _column("connections", rows, lambda row: number(row.connections), 2),
            _column("packets", rows, lambda row: number(row.packets), 3),
            _column("published", rows, lambda row: number(row.messages), 2),
            *(
                _column(name, rows, lambda row, name=name: number(getattr(row, name)), style=_STYLES.get(name, ""))  # type: ignore[misc]
                for name in ("errors", "warnings", "infos")
            ),
            Column("", rank=1, shares=[(row.errors + row.warnings + row.infos) / most for row in rows], style="cyan"),
        ],
    )


def _spread(page: Page, rows: Sequence[Percentiles]) -> list[Column]:
    def shown(value: int | None) -> str:
        return "" if value is None else duration(value, unicode=page.unicode)

    return [
        _column("count", rows, lambda row: number(row.count)),
        _column("p50", rows, lambda row: shown(row.p50), 2),
        _column("p90", rows, lambda row: shown(row.p90)),
        _column("p99", rows, lambda row: shown(row.p99), 1),
        _column("max", rows, lambda row: shown(row.maximum), 3),
    ]


def _latency(page: Page, report: FleetReport) -> None:
    found = report.latency
    if found.acknowledged:
        rows = found.acknowledged
        page.title("From PUBLISH to its acknowledgement")
        page.table(
            Column("", [f"QoS {row.qos} from {row.sender}" for row in rows], whole=True),
            [
                *_spread(page, [row.latency for row in rows]),
                _column("unanswered", rows, lambda row: number(row.unanswered), 4),
                _column("refused", rows, lambda row: number(row.refused), 5),
                _column("DUP", rows, lambda row: number(row.retransmitted), 6),
            ],
        )
    if found.end_to_end.count or found.unknown:
        page.title("From publisher to subscriber")
        page.table(Column("", ["all deliveries"], whole=True), _spread(page, [found.end_to_end]))
        told = [f"{found.unknown:,} more without a captured publication"] if found.unknown else []
        if found.repeated:
            told.append(f"{found.repeated:,} of content that was published more than once")
        page.line(told, style="dim")
        for title, heading, ranked in (
            ("Slowest topics", "topic", found.topics),
            ("Slowest subscribers", "client identifier", found.subscribers),
        ):
            if ranked:
                page.title(title)
                names = [named(row.name, "subscriber") for row in ranked.rows]
                page.table(Column(heading, names, style="green"), _spread(page, [row.latency for row in ranked.rows]))
                _more(page, ranked, heading.split()[0])


def _people(page: Page, title: str, rows: Sequence[Any], names: Callable[[Any], Names], rank: int) -> Column:
    def shown(row: Any) -> str:
        return cut(page.safe(people(names(row))), WIDEST_PEOPLE, page.ellipsis)

    return _left(title, rows, shown, rank)


def _server(report: FleetReport, rows: Sequence[Any], rank: int) -> Column:
    """The server, which comes first among the columns that may be left out where there are several."""
    return _left("server", rows, lambda row: row.server, 1 if report.overview.servers > 1 else rank)


def _talk(page: Page, report: FleetReport) -> None:
    found = report.talk
    if found.topics:
        rows = found.topics.rows
        page.title("Who talks on which topic")
        page.table(
            Column("topic", [row.topic for row in rows], style="green"),
            [
                _column("published", rows, lambda row: number(row.published)),
                _column("delivered", rows, lambda row: number(row.delivered)),
                _column("from", rows, lambda row: number(row.publishers.count), 2),
                _column("subscribed", rows, lambda row: number(row.subscribers.count), 2),
                _column("got by", rows, lambda row: number(row.receivers.count), 2),
                _people(page, "publishers", rows, lambda row: row.publishers, 3),
                _people(page, "subscribers", rows, lambda row: row.subscribers, 4),
                _column("bytes", rows, lambda row: size(row.payload_bytes), 4),
                _server(report, rows, 5),
            ],
        )
        _more(page, found.topics, "topic")
    told = []
    if found.unheard:
        told.append(f"{plural(found.unheard, 'topic')} that nobody subscribed to")
    if found.unexplained:
        told.append(f"{plural(found.unexplained, 'topic')} delivered without a captured subscription")
    if found.idle:
        told.append(f"{plural(found.idle, 'filter')} that no message matched")
    if found.filters:
        filters = found.filters.rows
        page.title("Topic Filters")
        page.table(
            Column("topic filter", [row.topic_filter for row in filters], style="green"),
            [
                _column("clients", filters, lambda row: number(row.subscribers.count)),
                _column("topics", filters, lambda row: number(row.topics)),
                _people(page, "subscribers", filters, lambda row: row.subscribers, 2),
                _server(report, filters, 2),
            ],
        )
        _more(page, found.filters, "filter")
    page.line(told, style="dim")


def _retained(page: Page, report: FleetReport) -> None:
    kept, expiry = report.retained, report.expiry
    if kept.topics:
        page.title("Retained messages")
        page.line(
            [
                f"{kept.set:,} set, {kept.cleared:,} cleared, {kept.refused:,} refused, {kept.delivered:,} delivered",
                f"{plural(kept.held, 'topic')} held at the end, {kept.expired:,} expired, {kept.unknown:,} unknown",
            ]
        )
        rows = kept.topics.rows
        page.table(
            Column("topic", [row.topic for row in rows], style="green"),
            [
                _column("set", rows, lambda row: number(row.set)),
                _column("cleared", rows, lambda row: number(row.cleared)),
                _column("delivered", rows, lambda row: number(row.delivered)),
                _left("state", rows, lambda row: row.state),
                _left("set last", rows, lambda row: moment(row.since_ns), 2),
                _server(report, rows, 2),
            ],
        )
        _more(page, kept.topics, "topic")
    if expiry.published or expiry.delivered:
        page.title("Message Expiry Interval")
        left = expiry.remaining_s
        page.line(
            [
                f"{expiry.published:,} published with one",
                f"{expiry.delivered:,} delivered with one",
                *([f"{left.p50:,} s left in the middle, {left.maximum:,} s at most"] if left.count else []),
                f"{expiry.right:,} reduced by the time they waited",
                f"{expiry.not_reduced:,} not reduced",
                f"{expiry.missing:,} without one",
                f"{expiry.expired:,} delivered too late",
                f"{expiry.unknown:,} that did not wait or cannot be judged",
            ]
        )


def _endings(page: Page, report: FleetReport) -> None:
    found = report.endings
    if not found.ways:
        return
    page.title("How connections ended")
    page.line([f"{row.connections:,} {way(row)}" for row in found.ways])
    rows = found.clients.rows
    if not rows:
        page.line(["no client came back, and none ended without DISCONNECT"], style="dim")
        return
    page.table(
        Column("client identifier", [row.client for row in rows], style="green"),
        [
            _column("conn.", rows, lambda row: number(row.connections), 2),
            _column("reconnects", rows, lambda row: number(row.reconnects)),
            _column("DISCONNECT", rows, lambda row: number(row.disconnects)),
            _column("by client", rows, lambda row: number(row.by_client), 1),
            _column("by server", rows, lambda row: number(row.by_server), 1),
            _column("reset", rows, lambda row: number(row.resets)),
            _column("time-out", rows, lambda row: number(row.timeouts), 3),
            _server(report, rows, 4),
        ],
    )
    _more(page, found.clients, "client")


def _reconnects(page: Page, report: FleetReport) -> None:
    found = report.reconnects
    page.title("Connecting")
    page.line([plural(found.connects, "CONNECT packet"), f"{found.refused:,} refused"])
    if not found.storms:
        page.line(["no bursts"], style="dim")
        return
    rows = found.storms.rows
    page.table(
        Column("client", [row.client or f"(all of {row.server})" for row in rows], style="green"),
        [
            _left("from", rows, lambda row: moment(row.from_ns)),
            _column("minutes", rows, lambda row: number((row.until_ns - row.from_ns) // (60 * 10**9)), 2),
            _column("CONNECT", rows, lambda row: number(row.connects)),
            _column("peak/min", rows, lambda row: number(row.peak), 1),
            _column("usual/min", rows, lambda row: f"{row.usual:,.4g}", 3),
            _column("clients", rows, lambda row: number(row.clients), 4),
        ],
    )
    _more(page, found.storms, "burst")


def _trust(page: Page, report: FleetReport) -> None:
    page.title("How far this may be trusted")
    told = doubts(report)
    if not told:
        page.paragraph("nothing is missing: connections were captured from CONNECT on, without gaps", style="dim")
        return
    page.line(told, style="yellow")
    ranked = report.trust.captures
    if ranked:
        rows = ranked.rows
        page.table(
            Column("capture", [row.capture for row in rows]),
            [
                _column("gaps", rows, lambda row: number(row.gaps)),
                _column("lost", rows, lambda row: size(row.gap_bytes) if row.gaps else ""),
                _column("unparsed", rows, lambda row: size(row.unparsed_bytes) if row.unparsed else "", 1),
                _column("dropped", rows, lambda row: number(row.dropped)),
                _left("errors", rows, lambda row: cut(page.safe("; ".join(row.errors)), 40, page.ellipsis), 2),
            ],
        )
        _more(page, ranked, "capture")


NAMELESS = {
    "client": "(no Client Identifier)",
    "shape": "(no Client Identifier)",
    "property": "(says nothing)",
    "subscriber": "(unknown)",
}
"""What stands for null, by what a list groups by."""


def moment(timestamp_ns: int | None) -> str:
    """A time to the second: ``2026-01-31 12:00:00``; empty for none."""
    if timestamp_ns is None:
        return ""
    try:
        return datetime.fromtimestamp(timestamp_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ns // 10**9} s"


def named(group: str | None, kind: str) -> str:
    if group is None:
        return NAMELESS[kind]
    return group or "(empty)"


def people(names: Names, most: int = 3) -> str:
    """The first few names, and how many there are besides."""
    shown = names.names[:most]
    more = names.count - len(shown)
    return ", ".join(shown) + (f" +{more:,}" if more > 0 else "")


WAYS = {
    "disconnect": "DISCONNECT{by}", "fin": "closed{by} without DISCONNECT", "reset": "reset{by}",
    "idle": "silent for three hours", "port_reused": "ports used again", "evicted": "no longer followed",
    "open": "open at the end of the captures",
}  # fmt: skip
"""What is said of how connections ended (`EndingRow.how`)."""


def way(row: EndingRow) -> str:
    return WAYS.get(row.how, row.how).format(by=f" by {row.by}" if row.by else "")


def each(seconds: int) -> str:
    """What a list of parts of the time is called."""
    names = {0: "Day by day", 1: "Second by second", 60: "Minute by minute", 3600: "Hour by hour"}
    return names.get(seconds) or (
        f"In parts of {seconds} s" if seconds < 60 else f"In parts of {seconds // 60} minutes"
    )


def conditions(report: FleetReport) -> list[str]:
    """What the report is restricted to."""
    asked = report.asked
    told = [f"{name} {' or '.join(getattr(asked, name))}" for name in ("client", "topic", "server", "rule")]
    told = [one for one in told if not one.endswith(" ")]
    if asked.since_ns is not None:
        told.append(f"since {moment(asked.since_ns)}")
    if asked.until_ns is not None:
        told.append(f"until {moment(asked.until_ns)}")
    return told


def amounts(report: FleetReport) -> list[str]:
    """How much there is."""
    seen = report.overview
    return [
        plural(seen.captures, "capture"),
        plural(seen.servers, "server"),
        plural(seen.clients, "client"),
        plural(seen.connections, "connection"),
        plural(seen.packets, "packet"),
        f"{plural(seen.messages_published, 'message')} published, {seen.messages_delivered:,} delivered",
        plural(seen.topics, "topic"),
        f"{plural(seen.findings, 'finding')}, {plural(seen.errors, 'error')} among them",
    ]


def doubts(report: FleetReport) -> list[str]:
    """Why the answers may be wrong; nothing where nothing is missing."""
    trust = report.trust
    gaps = f" of {size(trust.gap_bytes)} in {plural(trust.with_gaps, 'connection')}"
    bad = (
        (trust.errors, "capture error", ""),
        (trust.dropped, "frame", " dropped while capturing"),
        (trust.gaps, "gap", gaps),
        (trust.unparsed, "stretch", f"es of bytes not parsed ({size(trust.unparsed_bytes)})"),
        (trust.malformed, "malformed packet", ""),
        (trust.joined, "connection", " without a captured CONNECT"),
        (trust.open, "connection", " still open at the end"),
        (trust.unnamed, "connection", " without a Client Identifier"),
        (trust.unknown_topics, "message", " of unknown topic"),
    )
    return [_counted(count, word, rest) for count, word, rest in bad if count]


def _counted(count: int, word: str, rest: str) -> str:
    if rest.startswith("es "):
        return f"{count:,} {word}{rest if count != 1 else rest.removeprefix('es')}"
    return plural(count, word) + rest


SCHEMA = 1
TIMES = frozenset(("first_ns", "last_ns", "since_ns", "until_ns", "from_ns"))
"""Times since 1970, which have the same as text beside them."""


def document(report: FleetReport) -> dict[str, Any]:
    """The document: keys are the names of the fields; percentiles say their unit."""
    return {"schema": SCHEMA, **_object(report, Clock())}


def _object(value: Any, clock: Clock) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for one in fields(value):
        held = getattr(value, one.name)
        if isinstance(held, Percentiles):
            unit = "s" if one.name.endswith("_s") else "ns"
            shown[one.name.removesuffix("_s")] = {
                "count": held.count,
                **{f"{name}_{unit}": getattr(held, name) for name in ("p50", "p90", "p99", "maximum")},
            }
        elif one.name == "minutes":
            shown["timeline"] = [
                {"from": clock.iso(start), "from_ns": start, "connects": count} for start, count in held
            ]
        else:
            if one.name in TIMES:
                shown[one.name.removesuffix("_ns")] = None if held is None else clock.iso(held)
            shown[one.name] = _plain(held, clock)
    return shown


def _plain(value: Any, clock: Clock) -> Any:
    if is_dataclass(value):
        return _object(value, clock)
    return [_plain(one, clock) for one in value] if isinstance(value, list) else value
