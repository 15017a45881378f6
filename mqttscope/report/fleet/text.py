"""Renders a fleet report as text, in tables that fit the terminal, and as one JSON document.

`document` returns the JSON form, schema 1 (docs/reports.md).  `SECTIONS` declares the tables
of the document, their columns and their order; the HTML page (`report.fleet.html`) adds charts to them.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from mqttscope.report.base import Clock, View
from mqttscope.report.fleet import model
from mqttscope.report.fleet.news import sentences
from mqttscope.report.numbers import plural, size
from mqttscope.report.page import Page
from mqttscope.report.sections import Cell, Document, Lines, Section
from mqttscope.report.when import moment

WIDEST_PEOPLE = 24
"""Maximum columns for the names of clients."""


def render(report: model.FleetReport, view: View) -> bytes:
    """A report as text, at most as wide as the view (80 columns without a limit)."""
    page = Page(view)
    page.line(amounts(report), style="bold")
    seen = report.overview
    if seen.first_ns is not None:
        page.line([f"from {moment(seen.first_ns)}", f"to {moment(seen.last_ns)} UTC"], style="dim")
    asked = [page.safe(condition) for condition in conditions(report)]
    if asked:
        page.line([f"restricted to {asked[0]}", *asked[1:]], style="dim")
    for sentence in sentences(report):
        page.paragraph(page.safe(sentence))
    shown = document(report)
    for section in SECTIONS:
        section.write(page, shown)
    page.title("Missing data")
    missing = doubts(report)
    if missing:
        page.line(missing, style="yellow")
        MISSING.write(page, shown)
    else:
        page.paragraph("nothing: all connections were captured from their CONNECT, without gaps", style="dim")
    return page.encoded()


NAMELESS = {
    "client": "(no Client Identifier)",
    "shape": "(no Client Identifier)",
    "property": "(not set)",
    "subscriber": "(unknown)",
}
"""Text in the place of null, by kind of group."""


def group_name(group: str | None, kind: str) -> str:
    if group is None:
        return NAMELESS[kind]
    return group or "(empty)"


def people(names: model.ClientNames, most: int = 3) -> str:
    """The first few names, and the number of the rest."""
    shown = names.names[:most]
    more = names.count - len(shown)
    return ", ".join(shown) + (f" +{more:,}" if more > 0 else "")


WAYS = {
    "disconnect": "DISCONNECT{by}", "fin": "closed{by} without DISCONNECT", "reset": "reset{by}",
    "idle": "silent for three hours", "port_reused": "ports used again", "evicted": "no longer followed",
    "open": "open at the end of the captures",
}  # fmt: skip
"""Descriptions of how connections ended (`EndingRow.how`)."""


def ending_text(row: model.EndingRow) -> str:
    return WAYS.get(row.how, row.how).format(by=f" by {row.by}" if row.by else "")


def interval_title(seconds: int) -> str:
    """Title of a list of parts of the time."""
    names = {0: "Day by day", 1: "Second by second", 60: "Minute by minute", 3600: "Hour by hour"}
    return names.get(seconds) or (
        f"In parts of {seconds} s" if seconds < 60 else f"In parts of {seconds // 60} minutes"
    )


def conditions(report: model.FleetReport) -> list[str]:
    """Restrictions of the report."""
    asked = report.asked
    restrictions = [f"{name} {' or '.join(getattr(asked, name))}" for name in ("client", "topic", "server", "rule")]
    restrictions = [restriction for restriction in restrictions if not restriction.endswith(" ")]
    if asked.since_ns is not None:
        restrictions.append(f"since {moment(asked.since_ns)}")
    if asked.until_ns is not None:
        restrictions.append(f"until {moment(asked.until_ns)}")
    return restrictions


def amounts(report: model.FleetReport) -> list[str]:
    """Total numbers of the report."""
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


def doubts(report: model.FleetReport) -> list[str]:
    """Sentences about missing data; empty if nothing is missing."""
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
TIMES = frozenset(("first_ns", "last_ns", "since_ns", "until_ns", "from_ns", "last_seen_ns"))
"""Fields with times since 1970, which are also written as text."""


def document(report: model.FleetReport) -> dict[str, Any]:
    """The document: keys are the names of the fields; keys of percentiles end with their unit."""
    return {"schema": SCHEMA, **_object(report, Clock())}


def _object(value: Any, clock: Clock) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for attribute in fields(value):
        member = getattr(value, attribute.name)
        if isinstance(member, model.Percentiles):
            unit = "s" if attribute.name.endswith("_s") else "ns"
            shown[attribute.name.removesuffix("_s")] = {
                "count": member.count,
                **{f"{name}_{unit}": getattr(member, name) for name in ("p50", "p90", "p99", "maximum")},
            }
        elif attribute.name == "minutes":
            shown["timeline"] = [
                {"from": clock.iso(start), "from_ns": start, "connects": count} for start, count in member
            ]
        else:
            if attribute.name in TIMES:
                shown[attribute.name.removesuffix("_ns")] = None if member is None else clock.iso(member)
            shown[attribute.name] = _plain(member, clock)
    return shown


def _plain(value: Any, clock: Clock) -> Any:
    if is_dataclass(value):
        return _object(value, clock)
    return [_plain(member, clock) for member in value] if isinstance(value, list) else value


def _name(title: str, path: str, kind: str) -> Cell:
    """A column of names that may be absent."""
    return Cell(title, lambda row: group_name(row[path], kind), "name", style="green")


def _people(title: str, path: str, rank: int) -> Cell:
    return Cell(title, lambda row: people(model.ClientNames(**row[path])), "text", rank, widest=WIDEST_PEOPLE)


def _counts(*, clients: bool = True) -> list[Cell]:
    return [
        Cell("severity", "severity", "text", 1), Cell("findings", "findings"),
        *([Cell("clients", "clients", rank=2)] if clients else []), Cell("conn.", "connections", rank=5),
        Cell("first seen", "first_ns", "time", 4), Cell("last seen", "last_ns", "time", 3),
    ]  # fmt: skip


def _groups(title: str, heading: str, kind: str, path: str, by: str) -> Section:
    """Groups of clients, if findings are known by group."""
    return Section(title, lambda report: report[path] if report[by]["rows"] or kind == "shape" else [], [
        _name(heading, "group", kind), Cell("clients", "clients"), Cell("conn.", "connections", rank=2),
        Cell("errors", "errors", style="red"), Cell("warnings", "warnings", style="yellow"),
        Cell("findings", "findings", rank=1), Cell("", lambda row: row["findings"], "share", 3),
    ], "group")  # fmt: skip


def _by_group(title: str, heading: str, kind: str, path: str) -> Section:
    name, rule, slug = _name(heading, "group", kind), Cell("rule", "rule", "text"), Cell("", "slug", "text", 6)
    return Section(title, path, [name, rule, slug, *_counts(clients=kind != "client")])


def _spread(path: str) -> list[Cell]:
    ranks = {"p50": 2, "p90": 0, "p99": 1, "maximum": 3}
    percentiles = [Cell(name, f"{path}{name}_ns", "duration", rank) for name, rank in ranks.items()]
    return [Cell("count", f"{path}count"), *percentiles]


def _findings(row: Document) -> int:
    return int(row["errors"] + row["warnings"] + row["infos"])


def _end_to_end(report: Document) -> list[Document]:
    latency = report["latency"]
    return [latency["end_to_end"]] if latency["end_to_end"]["count"] or latency["unknown"] else []


def _deliveries(report: Document) -> Lines:
    latency = report["latency"]
    notes = [f"{latency['unknown']:,} more without a captured publication"] if latency["unknown"] else []
    if latency["repeated"]:
        notes.append(f"{latency['repeated']:,} of content that was published more than once")
    return [(notes, "dim")]


def _ways(report: Document) -> Lines:
    endings = report["endings"]
    ways = [f"{row['connections']:,} {ending_text(model.EndingRow(**row))}" for row in endings["ways"]]
    none = [(["no client reconnected or ended without DISCONNECT"], "dim")] if not endings["clients"]["rows"] else []
    return [(ways, ""), *none] if ways else []


def _connects(report: Document) -> Lines:
    reconnects = report["reconnects"]
    none = [(["no bursts"], "dim")] if not reconnects["storms"]["rows"] else []
    return [([plural(reconnects["connects"], "CONNECT packet"), f"{reconnects['refused']:,} refused"], ""), *none]


def _talk(report: Document) -> Lines:
    talk = report["talk"]
    counts = (
        ("unheard", "topic", "that nobody subscribed to"),
        ("unexplained", "topic", "delivered without a captured subscription"),
        ("idle", "filter", "that no message matched"),
    )
    return [([f"{plural(talk[name], word)} {rest}" for name, word, rest in counts if talk[name]], "dim")]


def _retained(report: Document) -> Lines:
    retained = report["retained"]
    counts = ", ".join(f"{retained[name]:,} {name}" for name in ("set", "cleared", "refused", "delivered"))
    held = f"{plural(retained['held'], 'topic')} held at the end"
    line = [counts, f"{held}, {retained['expired']:,} expired, {retained['unknown']:,} unknown"]
    return [(line, "")] if retained["topics"]["rows"] else []


def _expiry(report: Document) -> Lines:
    expiry = report["expiry"]
    if not expiry["published"] and not expiry["delivered"]:
        return []
    left = expiry["remaining"]
    middle = [f"median {left['p50_s']:,} s left, maximum {left['maximum_s']:,} s"] if left["count"] else []
    counts = {
        "right": "reduced by the waiting time", "not_reduced": "not reduced", "missing": "without an interval",
        "expired": "delivered too late", "unknown": "that did not wait or cannot be judged",
    }  # fmt: skip
    line = [
        f"{expiry['published']:,} messages published with an interval",
        f"{expiry['delivered']:,} delivered with an interval",
        *middle,
        *(f"{expiry[name]:,} {words}" for name, words in counts.items()),
    ]
    return [(line, "")]


_SERVER = Cell("server", "server", "text", 2)
SECTIONS = (
    Section("Broken rules", "rules", [
        Cell("rule", lambda row: f"{row['rule']} {row['slug']}", "name"), *_counts(),
    ], "rule", lambda report: [] if report["rules"]["rows"] else [
        (["no findings: rules run when captures are ingested"], "dim"),
    ]),
    Section("Messages lost", "news.lost", [
        Cell("subscriber", "subscriber", "name", style="green"), Cell("messages", "messages"),
        Cell("topics", "topics", rank=1), Cell("first", "first_ns", "time", 2), Cell("last", "last_ns", "time", 3),
        Cell("reason", "reason", "text", 1), _SERVER,
    ], "subscriber"),
    Section("Silent devices", "news.silent", [
        Cell("client identifier", "client_identifier", "name", style="green"),
        Cell("silent for", "silent_ns", "duration"), Cell("usual period", "usual_period_ns", "duration", 1),
        Cell("last seen", "last_seen_ns", "time", 2),
        Cell("connected", lambda row: "yes" if row["connected"] else "no", "text", 3), _SERVER,
    ], "device"),
    Section("From publisher to subscriber", _end_to_end, [
        Cell("", lambda row: "all deliveries", "name"), *_spread(""),
    ], after=_deliveries),
    Section("Slowest topics", "latency.topics", [_name("topic", "name", "subscriber"), *_spread("latency.")], "topic"),
    Section("Connecting", "reconnects.storms", [
        Cell("client", lambda row: row["client"] or f"(all of {row['server']})", "name", style="green"),
        Cell("from", "from_ns", "time"), Cell("to", "until_ns", "time", 2), Cell("CONNECT", "connects"),
        Cell("peak/min", "peak", rank=1), Cell("usual/min", lambda row: f"{row['usual']:,.4g}", rank=3),
        Cell("clients", "clients", rank=4), _SERVER,
    ], "burst", _connects),
    _groups("Groups of Client Identifiers", "identifiers", "shape", "shapes", "by_shape"),
    _by_group("Rules by group of Client Identifiers", "identifiers", "shape", "by_shape"),
    _groups("Groups by User Property", "value", "property", "properties", "by_property"),
    _by_group("Rules by User Property", "value", "property", "by_property"),
    _by_group("Rules by client", "client identifier", "client", "by_client"),
    Section("How connections ended", "endings.clients", [
        Cell("client identifier", "client", "name", style="green"), Cell("conn.", "connections", rank=2),
        Cell("reconnects", "reconnects"), Cell("DISCONNECT", "disconnects"), Cell("by client", "by_client", rank=1),
        Cell("by server", "by_server", rank=1), Cell("reset", "resets"), Cell("time-out", "timeouts", rank=3), _SERVER,
    ], "client", _ways),
    Section(lambda report: interval_title(report["part_seconds"]), lambda report: report["parts"] or report["days"], [
        Cell("from", "day", "name"), Cell("connections", "connections", rank=2), Cell("packets", "packets", rank=3),
        Cell("published", "messages", rank=2), Cell("errors", "errors", style="red"),
        Cell("warnings", "warnings", style="yellow"), Cell("infos", "infos"), Cell("", _findings, "share", 1),
    ]),
    Section("From PUBLISH to its acknowledgement", "latency.acknowledged", [
        Cell("", lambda row: f"QoS {row['qos']} from {row['sender']}", "name"), *_spread("latency."),
        Cell("unanswered", "unanswered", rank=4), Cell("refused", "refused", rank=5),
        Cell("DUP", "retransmitted", rank=6),
    ]),
    Section("Slowest subscribers", "latency.subscribers", [
        _name("client identifier", "name", "subscriber"), *_spread("latency."),
    ], "client"),
    Section("Publishers and subscribers by topic", "talk.topics", [
        Cell("topic", "topic", "name", style="green"), Cell("published", "published"), Cell("delivered", "delivered"),
        Cell("from", "publishers.count", rank=2), Cell("subscribed", "subscribers.count", rank=2),
        Cell("received by", "receivers.count", rank=2), _people("publishers", "publishers", 3),
        _people("subscribers", "subscribers", 4), _people("receivers", "receivers", 6),
        Cell("bytes", "payload_bytes", "size", 4), _SERVER,
    ], "topic"),
    Section("Topic Filters", "talk.filters", [
        Cell("topic filter", "topic_filter", "name", style="green"), Cell("clients", "subscribers.count"),
        Cell("topics", "topics"), _people("subscribers", "subscribers", 2), _SERVER,
    ], "filter", after=_talk),
    Section("Retained messages", "retained.topics", [
        Cell("topic", "topic", "name", style="green"), Cell("set", "set"), Cell("cleared", "cleared"),
        Cell("delivered", "delivered"), Cell("state", "state", "text"), Cell("set last", "since_ns", "time", 2),
        _SERVER,
    ], "topic", _retained),
    Section("Message Expiry Interval", before=_expiry),
)  # fmt: skip
"""The report: news first, then everything else about clients, connections and messages."""
MISSING = Section("By capture", "trust.captures", [
    Cell("capture", "capture", "name"), Cell("gaps", "gaps"),
    Cell("lost", lambda row: size(row["gap_bytes"]) if row["gaps"] else ""),
    Cell("unparsed", lambda row: size(row["unparsed_bytes"]) if row["unparsed"] else "", rank=1),
    Cell("dropped", "dropped"), Cell("errors", lambda row: "; ".join(row["errors"]), "text", 2, widest=40),
], "capture")  # fmt: skip
"""Data that the report lacks."""
