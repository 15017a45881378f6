"""What text and page say alike: times, groups without a name, and what a reader has to be told."""

from __future__ import annotations

from datetime import UTC, datetime

from mqttscope.report.fleet.model import EndingRow, FleetReport, Names
from mqttscope.report.page import plural, size

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
    """The name of a group."""
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
    "idle": "silent for two hours", "port_reused": "ports used again", "evicted": "no longer followed",
    "open": "open at the end of the captures",
}  # fmt: skip
"""What is said of how connections ended (`EndingRow.how`)."""


def way(row: EndingRow) -> str:
    """How some connections ended, and by whom."""
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
