"""Statistics for people: an overview, then a table for captures, connections, clients and topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.net.unread import grouped
from mqttscope.report import statistics_rows as at
from mqttscope.report.base import View
from mqttscope.report.page import Column, Page, number, per_second, percent, plural, size
from mqttscope.report.statistics import Statistics
from mqttscope.report.statistics_json import DEFAULT_SORTS, TABLES, disconnect_reason, order, rate
from mqttscope.report.statistics_rows import CaptureRow, Traffic
from mqttscope.report.stats_tables import (
    captures_table,
    clients_table,
    connections_table,
    ending_of,
    tcp_of,
    time_of,
    topics_table,
)

TOP = 10


def render(
    statistics: Statistics,
    view: View,
    *,
    tables: Iterable[str] = TABLES,
    sort: str | None = None,
    top: int = TOP,
    other_flows: int = 0,
    skipped: Mapping[str, int] | None = None,
) -> bytes:
    """Finished statistics as text, at most as wide as the view (80 columns where it has no limit)."""
    page = Page(view)
    asked = set(tables)

    def first(table: str, rows: Iterable[Any]) -> list[Any]:
        return order(rows, sort or DEFAULT_SORTS.get(table, "packets"), top)

    _overview(page, statistics, other_flows, skipped or {})
    totals = statistics.totals
    if "capture" in asked:
        _types(page, totals.traffic)
        _publishes(page, totals.traffic)
        _handshakes(page, totals.traffic)
        _ends(page, totals)
        if len(statistics.captures) > 1:
            captures_table(page, list(statistics.captures.values())[:top], len(statistics.captures))
    if "connection" in asked and statistics.connections:
        connections_table(page, first("connection", statistics.connections), len(statistics.connections), totals)
    if "client" in asked and statistics.clients:
        clients_table(page, first("client", statistics.clients.values()), len(statistics.clients), totals)
    if "topic" in asked and statistics.topics:
        topics_table(page, first("topic", statistics.topics.values()), len(statistics.topics), totals)
    return page.encoded()


def _overview(page: Page, statistics: Statistics, other_flows: int, skipped: Mapping[str, int]) -> None:
    totals, traffic = statistics.totals, statistics.totals.traffic
    opened = totals.outcomes.connections
    page.line(
        [
            plural(len(statistics.captures), "capture"),
            plural(totals.frames, "frame"),
            time_of(page, totals.duration_ns),
            plural(opened, "connection"),
            plural(len(statistics.clients), "client"),
            plural(len(statistics.topics), "topic"),
        ],
        style="bold",
    )
    mean, window = rate(traffic.packets, totals.duration_ns), traffic.window
    byte_rate = rate(traffic.bytes, totals.duration_ns)
    parts = [f"{plural(traffic.packets, 'packet')} of {size(traffic.bytes)}"]
    if traffic.packets and mean is not None and byte_rate is not None:
        parts += [
            f"{per_second(mean)}/s, peak {window.peak_packets:,}/s",
            f"{size(round(byte_rate))}/s, peak {size(window.peak_bytes)}/s",
        ]
    page.line(parts)
    beside = [plural(other_flows, "TCP connection") + " without MQTT"] if other_flows else []
    beside += [
        f"{plural(count, 'frame')} {reason.replace('_', ' ')}" for reason, count in sorted(grouped(skipped).items())
    ]
    page.line(beside, style="dim")
    page.line(_trouble_in_words(totals), style="yellow")
    page.line(_beyond_limits(statistics), style="yellow")


def _trouble_in_words(row: CaptureRow) -> list[str]:
    counts, tcp = row.traffic.counts, tcp_of(row.traffic)
    bad = [
        (sum(counts[at.MALFORMED : at.MALFORMED + 2]), "malformed packet", ""),
        (sum(counts[at.UNPARSED_BYTES : at.UNPARSED_BYTES + 2]), "byte", " not parsed"),
        (sum(counts[at.GAPS : at.GAPS + 2]), "gap", f" ({size(sum(counts[at.GAP_BYTES : at.GAP_BYTES + 2]))} lost)"),
        (row.discarded_segments, "segment", f" discarded ({size(row.discarded_bytes)})"),
        (tcp["copied_segments"], "segment", " captured twice"),
        (row.dropped, "frame", " dropped while capturing"),
        (tcp["retransmitted_segments"], "TCP retransmission", ""),
        (tcp["out_of_order_segments"], "segment", " out of order"),
        (tcp["zero_windows"], "zero window", ""),
        (row.error_count, "capture error", ""),
    ]
    return [plural(count, word) + rest for count, word, rest in bad if count]


def _beyond_limits(statistics: Statistics) -> list[str]:
    beyond = [
        (statistics.other_outcomes.connections, "connection", ""),
        (statistics.other_client.connections, "connection", " of further clients"),
        (sum(statistics.other_topic.messages), "message", " of further topics"),
        (statistics.other_capture.frames, "frame", " of further captures"),
    ]
    found = [plural(count, word) + rest for count, word, rest in beyond if count]
    if found:
        found[0] = f"beyond the limits, in the totals only: {found[0]}"
    return found


def _types(page: Page, traffic: Traffic) -> None:
    counts = traffic.counts
    kinds = [kind for kind in PacketType if counts[kind] or counts[16 + kind]]
    if not kinds:
        return
    total = traffic.packets
    sums = [counts[kind] + counts[16 + kind] for kind in kinds]
    page.title("Packets")
    page.table(
        Column("type", [kind.name for kind in kinds], whole=True),
        [
            Column("from client", [number(counts[kind]) for kind in kinds]),
            Column("from server", [number(counts[16 + kind]) for kind in kinds]),
            Column("bytes", [size(counts[at.BYTES + kind] + counts[at.BYTES + 16 + kind]) for kind in kinds]),
            Column("share", [percent(count, total) for count in sums]),
            Column("", shares=[count / total for count in sums], style="cyan"),
        ],
    )


def _publishes(page: Page, traffic: Traffic) -> None:
    counts = traffic.counts
    total = sum(counts[at.QOS : at.QOS + 8])
    if not total:
        return
    rows = [(f"QoS {qos}", counts[at.QOS + qos], counts[at.QOS + 4 + qos]) for qos in range(3)]
    rows += [
        (name, counts[place], counts[place + 1])
        for name, place in (("retained", at.RETAIN), ("DUP", at.DUP), ("alias set", at.ALIAS_SETS))
    ]
    rows.append(("alias only", counts[at.ALIAS_HITS], counts[at.ALIAS_HITS + 1]))
    rows = [row for row in rows if row[1] or row[2]]
    page.title("PUBLISH")
    page.table(
        Column("", [row[0] for row in rows]),
        [
            Column("from client", [number(row[1]) for row in rows]),
            Column("from server", [number(row[2]) for row in rows]),
            Column("share", [percent(row[1] + row[2], total) for row in rows]),
            Column("", shares=[(row[1] + row[2]) / total for row in rows], style="cyan"),
        ],
    )
    parts = [f"payload from clients {size(counts[at.PAYLOAD])}", f"from servers {size(counts[at.PAYLOAD + 1])}"]
    hits = sum(counts[at.ALIAS_HITS : at.ALIAS_HITS + 2])
    aliased = hits + sum(counts[at.ALIAS_SETS : at.ALIAS_SETS + 2])
    if aliased:
        saved = sum(counts[at.SAVED : at.SAVED + 2])
        parts += [f"alias hit rate {hits * 100 / aliased:.0f} %", f"{size(saved)} of topics saved"]
    page.line(parts)


_ANSWER = {
    "connect_connack": ("CONNECT", "CONNACK"),
    "publish_puback": ("PUBLISH", "PUBACK"),
    "publish_pubrec": ("PUBLISH", "PUBREC"),
    "pubrel_pubcomp": ("PUBREL", "PUBCOMP"),
    "publish_pubcomp": ("PUBLISH", "PUBCOMP"),
    "subscribe_suback": ("SUBSCRIBE", "SUBACK"),
    "unsubscribe_unsuback": ("UNSUBSCRIBE", "UNSUBACK"),
    "pingreq_pingresp": ("PINGREQ", "PINGRESP"),
}


def _handshakes(page: Page, traffic: Traffic) -> None:
    keys = sorted(traffic.latencies.keys() | traffic.unanswered.keys())
    if not keys:
        return
    arrow = "→" if page.unicode else "->"
    found = [traffic.latencies.get(key) for key in keys]

    def column(title: str, percentile: float, rank: int = 0) -> Column:
        shown = [time_of(page, one.percentile(percentile)) if one else "" for one in found]
        return Column(title, shown, rank)

    names = []
    for key in keys:
        asked, answered = _ANSWER[at.HANDSHAKES[key >> 1]]
        names.append(f"{asked} {arrow} {answered}")
    page.title("Latency")
    page.table(
        Column("handshake", names, whole=True),
        [
            Column("by", ["server" if key & 1 else "client" for key in keys], 1, right=False),
            Column("count", [f"{one.count:,}" if one else "0" for one in found]),
            column("min", 0, 4),
            column("p50", 50, 2),
            column("p90", 90),
            column("p99", 99, 2),
            column("max", 100),
            Column("mean", [time_of(page, round(one.total / one.count)) if one else "" for one in found], 5),
            Column("unanswered", [number(traffic.unanswered.get(key, 0)) for key in keys], 1),
        ],
    )


ENDINGS = {"broken": "no DISCONNECT, ", "refused": "refused, ", "unknown": "(not all of it is known) "}
"""What is said before how the transport of a connection ended that sent no DISCONNECT."""


def _ends(page: Page, row: CaptureRow) -> None:
    outcomes = row.outcomes
    if not outcomes.connections:
        return
    page.title("Connections began and ended")
    rows: list[tuple[str, int]] = []
    rows += [(f"transport {name}", count) for name, count in sorted(outcomes.transports.items())]
    rows += [(f"version {name}", count) for name, count in sorted(outcomes.versions.items())]
    rows += [(name, count) for name, count in sorted(outcomes.outcomes.items())]
    for (version, code), count in sorted(outcomes.refusals.items()):
        name = reason_name(PacketType.CONNACK, code, ProtocolVersion(version))
        rows.append((f"refused, {ProtocolVersion(version).text}: 0x{code:02x} {name}", count))
    for (by, given), count in sorted(outcomes.disconnects.items(), key=lambda one: (one[0][0], one[0][1] or 0)):
        name = "" if given is None else f" 0x{given:02x} {disconnect_reason(given)}"
        rows.append((f"closed: DISCONNECT by {by}{name}", count))
    for (ending, how, by), count in sorted(outcomes.silent.items()):
        rows.append((f"closed: {ENDINGS.get(ending, '')}{ending_of(how, by)}", count))
    total = outcomes.connections
    page.table(
        Column("", [name for name, _ in rows]),
        [
            Column("connections", [number(count) for _, count in rows]),
            Column("", shares=[count / total for _, count in rows], style="cyan"),
        ],
    )
