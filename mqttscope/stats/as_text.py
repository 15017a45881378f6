"""Renders statistics as text: an overview, then a table each for captures, connections, clients and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.report.base import View
from mqttscope.report.numbers import number, per_second, percent, plural, size
from mqttscope.report.page import Page, PageColumn, TableWriter
from mqttscope.report.when import duration
from mqttscope.secrets.credentials import starred_name
from mqttscope.stats import rows as at
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import CaptureRow, ClientRow, ConnectionRow, TopicCounts, TrafficCounts

if TYPE_CHECKING:
    from mqttscope.capture.taps import Taps

R = TypeVar("R")

TOP = 10


def render(
    statistics: Statistics,
    view: View,
    *,
    tables: Iterable[str] = at.TABLES,
    sort: str | None = None,
    top: int = TOP,
    other_flows: int = 0,
    skipped: Mapping[str, int] | None = None,
) -> bytes:
    """Finished statistics as text, at most as wide as the view (80 columns without a limit)."""
    page = Page(view)
    overview(page, statistics, other_flows, skipped or {})
    write_tables(page, statistics, tables=tables, sort=sort, top=top)
    return page.encoded()


def write_tables(
    page: TableWriter,
    statistics: Statistics,
    *,
    tables: Iterable[str] = at.TABLES,
    sort: str | None = None,
    top: int = TOP,
) -> None:
    """Write the requested tables with at most ``top`` rows each."""
    asked = set(tables)

    def first(table: str, rows: Iterable[Any]) -> list[Any]:
        return list(at.order(rows, sort or at.DEFAULT_SORTS.get(table, "packets"), top))

    totals = statistics.totals
    if statistics.taps is not None:
        taps_table(page, statistics.taps, top)
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
    if statistics.nodes.rows:
        nodes_table(page, statistics, top)


def nodes_table(page: TableWriter, statistics: Statistics, top: int) -> None:
    """Write edge nodes of Sparkplug: gaps first, then the longest silence."""
    nodes, end_ns = statistics.nodes, statistics.totals.last_ns or 0
    rows = sorted(nodes.rows.values(), key=lambda row: (-sum(row.gaps), row.last_ns))[:top]
    page.title("Edge nodes of Sparkplug")
    has_servers = len({row.server for row in nodes.rows.values()}) > 1
    page.table(
        PageColumn("node", [starred_name(row.node) for row in rows]),
        [
            *([PageColumn("broker", [row.server for row in rows], right=False)] if has_servers else []),
            *(
                PageColumn(name, ["{:,} / {:,}".format(*getattr(row, name)) for row in rows])
                for name in ("births", "deaths", "data", "gaps")
            ),
            PageColumn("silent", [duration(max(0, end_ns - row.last_ns)) for row in rows]),
        ],
    )
    page.line(["messages from client / from server"], style="dim")
    more = [plural(len(nodes.rows) - len(rows), "more edge node")] if len(nodes.rows) > len(rows) else []
    more += [plural(nodes.left_out, "message") + " of further edge nodes"] if nodes.left_out else []
    page.line(more, style="dim")


def overview(page: TableWriter, statistics: Statistics, other_flows: int, skipped: Mapping[str, int]) -> None:
    """Write total numbers and problems in a few lines."""
    totals, traffic = statistics.totals, statistics.totals.traffic
    opened = totals.outcomes.connections
    page.line(
        [
            plural(len(statistics.capture_names()), "capture"),
            # A page of packets counts no frames.
            *([plural(totals.frames, "frame")] if totals.frames or not traffic.packets else []),
            time_of(page, totals.duration_ns),
            plural(opened, "connection"),
            plural(len(statistics.clients), "client"),
            plural(len(statistics.topics), "topic"),
        ],
        style="bold",
    )
    mean, window = at.rate(traffic.packets, totals.duration_ns), traffic.window
    byte_rate = at.rate(traffic.bytes, totals.duration_ns)
    parts = [f"{plural(traffic.packets, 'packet')} of {size(traffic.bytes)}"]
    if traffic.packets and mean is not None and byte_rate is not None:
        parts += [
            f"{per_second(mean)}/s, peak {window.peak_packets:,}/s",
            f"{size(round(byte_rate))}/s, peak {size(window.peak_bytes)}/s",
        ]
    page.line(parts)
    beside = [plural(other_flows, "TCP connection") + " without MQTT"] if other_flows else []
    beside += [
        f"{plural(count, 'frame')} {reason.replace('_', ' ')}"
        for reason, count in sorted(at.unread_groups(skipped).items())
    ]
    page.line(beside, style="dim")
    page.line(_trouble_in_words(totals), style="yellow")
    page.line(_beyond_limits(statistics), style="yellow")
    page.line(_cut_short(statistics), style="yellow")


def _trouble_in_words(row: CaptureRow) -> list[str]:
    counts, tcp = row.traffic.counts, tcp_of(row.traffic)
    bad = [
        (sum(counts[at.MALFORMED : at.MALFORMED + 2]), "malformed packet", ""),
        (sum(counts[at.UNPARSED_BYTES : at.UNPARSED_BYTES + 2]), "byte", " not parsed"),
        (sum(counts[at.GAPS : at.GAPS + 2]), "gap", f" ({size(sum(counts[at.GAP_BYTES : at.GAP_BYTES + 2]))} lost)"),
        (row.discarded_segments, "segment", f" discarded ({size(row.discarded_bytes)})"),
        (tcp["copied_segments"], "segment", " captured twice"),
        (row.dropped, "frame", " dropped while capturing"),
        (row.clock_steps, "step", " of the capture's clock"),
        (tcp["retransmitted_segments"], "TCP retransmission", ""),
        (tcp["out_of_order_segments"], "segment", " out of order"),
        (tcp["damaged_segments"], "damaged segment", ""),
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
    sentences = [plural(count, word) + rest for count, word, rest in beyond if count]
    if sentences:
        sentences[0] = f"beyond the limits, in the totals only: {sentences[0]}"
    return sentences


def _cut_short(statistics: Statistics) -> list[str]:
    """Sentences about connections and exchanges that a limit cut short."""
    rows = [
        (statistics.missed_releases, "PUBREL packet", " without a measured PUBCOMP: too many pending"),
        (statistics.early_closed, "connection", " cut off: too many open"),
    ]
    return [plural(count, word) + rest for count, word, rest in rows if count]


def _types(page: TableWriter, traffic: TrafficCounts) -> None:
    counts = traffic.counts
    kinds = [kind for kind in PacketType if counts[kind] or counts[16 + kind]]
    if not kinds:
        return
    total = traffic.packets
    sums = [counts[kind] + counts[16 + kind] for kind in kinds]
    page.title("Packets")
    page.table(
        PageColumn("type", [kind.name for kind in kinds], whole=True),
        [
            PageColumn("from client", [number(counts[kind]) for kind in kinds]),
            PageColumn("from server", [number(counts[16 + kind]) for kind in kinds]),
            PageColumn("bytes", [size(counts[at.BYTES + kind] + counts[at.BYTES + 16 + kind]) for kind in kinds]),
            PageColumn("share", [percent(count, total) for count in sums]),
            PageColumn("", shares=[count / total for count in sums], style="cyan"),
        ],
    )


def _publishes(page: TableWriter, traffic: TrafficCounts) -> None:
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
        PageColumn("", [row[0] for row in rows]),
        [
            PageColumn("from client", [number(row[1]) for row in rows]),
            PageColumn("from server", [number(row[2]) for row in rows]),
            PageColumn("share", [percent(row[1] + row[2], total) for row in rows]),
            PageColumn("", shares=[(row[1] + row[2]) / total for row in rows], style="cyan"),
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


def handshake_of(key: int, arrow: str = "→") -> str:
    """Packet types of a handshake, by the key of its latencies."""
    return f" {arrow} ".join(_ANSWER[at.HANDSHAKES[key >> 1]])


def _handshakes(page: TableWriter, traffic: TrafficCounts) -> None:
    keys = sorted(traffic.latencies.keys() | traffic.unanswered.keys())
    if not keys:
        return
    arrow = "→" if page.unicode else "->"
    histograms = [traffic.latencies.get(key) for key in keys]

    def column(title: str, percentile: float, rank: int = 0) -> PageColumn:
        shown = [time_of(page, histogram.percentile(percentile)) if histogram else "" for histogram in histograms]
        return PageColumn(title, shown, rank)

    names = [handshake_of(key, arrow) for key in keys]
    page.title("Latency")
    page.table(
        PageColumn("handshake", names, whole=True),
        [
            PageColumn("by", ["server" if key & 1 else "client" for key in keys], 1, right=False),
            PageColumn("count", [f"{histogram.count:,}" if histogram else "0" for histogram in histograms]),
            column("min", 0, 4),
            column("p50", 50, 2),
            column("p90", 90),
            column("p99", 99, 2),
            column("max", 100),
            PageColumn("mean", [time_of(page, round(row.total / row.count)) if row else "" for row in histograms], 5),
            PageColumn("unanswered", [number(traffic.unanswered.get(key, 0)) for key in keys], 1),
        ],
    )


ENDINGS = {"broken": "no DISCONNECT, ", "refused": "refused, ", "unknown": "incompletely captured, "}
"""Prefix of the end of the transport, for connections without DISCONNECT."""


def _ends(page: TableWriter, row: CaptureRow) -> None:
    outcomes = row.outcomes
    if not outcomes.connections:
        return
    page.title("Start and end of connections")
    rows: list[tuple[str, int]] = []
    rows += [(f"transport {name}", count) for name, count in sorted(outcomes.transports.items())]
    rows += [(f"version {name}", count) for name, count in sorted(outcomes.versions.items())]
    rows += [(name, count) for name, count in sorted(outcomes.outcomes.items())]
    for (version, code), count in sorted(outcomes.refusals.items()):
        name = reason_name(PacketType.CONNACK, code, ProtocolVersion(version))
        rows.append((f"refused, {ProtocolVersion(version).text}: 0x{code:02x} {name}", count))
    for (by, reason), count in sorted(outcomes.disconnects.items(), key=lambda row: (row[0][0], row[0][1] or 0)):
        name = "" if reason is None else f" 0x{reason:02x} {at.disconnect_reason(reason)}"
        rows.append((f"closed: DISCONNECT by {by}{name}", count))
    for (ending, how, by), count in sorted(outcomes.silent.items()):
        rows.append((f"closed: {ENDINGS.get(ending, '')}{ending_of(how, by)}", count))
    total = outcomes.connections
    page.table(
        PageColumn("", [name for name, _ in rows]),
        [
            PageColumn("connections", [number(count) for _, count in rows]),
            PageColumn("", shares=[count / total for _, count in rows], style="cyan"),
        ],
    )


def time_of(page: TableWriter, nanoseconds: int) -> str:
    """A duration in characters that the page can show."""
    return duration(nanoseconds, unicode=page.unicode)


def tcp_of(traffic: TrafficCounts) -> dict[str, int]:
    """TCP counters by name, summed over both directions."""
    width = len(at.TCP_COUNTERS)
    first = traffic.counts[at.TCP : at.TCP + width]
    return {name: first[index] + traffic.counts[at.TCP + width + index] for index, name in enumerate(at.TCP_COUNTERS)}


_HOW = {
    "fin": "FIN",
    "capture_end": "still open at the end of the capture",
    "port_reused": "replaced by a new connection on the same ports",
    "idle": "given up after silence",
    "evicted": "given up to save memory",
}

_OPEN = {"capture_end": "open", "port_reused": "replaced", "idle": "silent", "evicted": "given up"}
"""Short description of how following a connection ended, for connections without a captured end."""


def ending_of(how: str | None, by: str | None) -> str:
    """Description of how the transport ended, and which side ended it."""
    how = _HOW.get(how or "", how or "")
    return f"{how} by {by}" if by in ("client", "server") else how


def _trouble(traffic: TrafficCounts) -> str:
    counts, tcp = traffic.counts, tcp_of(traffic)
    gaps = sum(counts[at.GAPS : at.GAPS + 2])
    bad = (
        (sum(counts[at.MALFORMED : at.MALFORMED + 2]), "malformed"),
        (gaps, "gap" if gaps == 1 else "gaps"),
        (sum(counts[at.UNPARSED : at.UNPARSED + 2]), "unparsed"),
        (tcp["retransmitted_segments"], "retr."),
        (tcp["damaged_segments"], "damaged"),
        (tcp["zero_windows"], "0-win."),
    )
    return ", ".join(f"{count:,} {word}" for count, word in bad if count)


def _column(
    title: str, rows: Sequence[R], shown: Callable[[R], str], rank: int = 0, *, right: bool = True
) -> PageColumn:
    return PageColumn(title, [shown(row) for row in rows], rank, right)


def _rate(count: int, duration_ns: int) -> str:
    return per_second(at.rate(count, duration_ns))


def _slowest(page: TableWriter, row: Any) -> str:
    slowest = row.traffic.slowest
    return time_of(page, slowest) if slowest >= 0 else ""


def _more(page: TableWriter, shown: int, total: int, word: str) -> None:
    if total > shown:
        page.line([f"{page.ellipsis} and {plural(total - shown, word)} more (--top N shows N)"], style="dim")


def _shares(parts: Iterable[int], whole: int, rank: int) -> PageColumn:
    return PageColumn("", shares=[part / whole if whole else 0.0 for part in parts], rank=rank, style="cyan")


def taps_table(page: TableWriter, taps: Taps, top: int) -> None:
    """Table with a row per tap, about connections captured by several taps."""
    named = taps.named()
    if not named:
        return
    rows = [tap for _, tap in named[:top]]
    page.title("Taps")
    page.table(
        PageColumn("tap", [name for name, _ in named[:top]]),
        [
            _column("frames", rows, lambda row: number(row.frames)),
            _column("copies", rows, lambda row: number(row.copies), 2),
            _column("only here", rows, lambda row: number(row.only), 1),
            _column("missed", rows, lambda row: number(row.missed)),
        ],
    )
    _more(page, len(rows), len(named), "tap")


def captures_table(page: TableWriter, rows: list[CaptureRow], total: int) -> None:
    """Table with a row per capture; ``total``: number of captures."""
    everything = sum(row.traffic.packets for row in rows)
    page.title("Captures")
    page.table(
        PageColumn("capture", [row.capture for row in rows]),
        [
            _column("frames", rows, lambda row: number(row.frames), 3),
            _column("time", rows, lambda row: time_of(page, row.duration_ns), 2),
            _column("conn.", rows, lambda row: number(row.outcomes.connections)),
            _column("packets", rows, lambda row: number(row.traffic.packets)),
            _shares((row.traffic.packets for row in rows), everything, 1),
            _column("bytes", rows, lambda row: size(row.traffic.bytes)),
            _column("per s", rows, lambda row: _rate(row.traffic.packets, row.duration_ns), 4),
            _column("peak/s", rows, lambda row: number(row.traffic.window.peak_packets), 5),
            _column("trouble", rows, lambda row: _trouble(row.traffic), 2, right=False),
            _column("errors", rows, lambda row: number(row.error_count), 1),
        ],
    )
    _more(page, len(rows), total, "capture")


def connections_table(page: TableWriter, rows: list[ConnectionRow], total: int, totals: CaptureRow) -> None:
    """Table with a row per connection; bars are shares of all packets."""

    def ended(row: ConnectionRow) -> str:
        if row.outcome in ("refused", "unanswered"):
            code = row.connack_reason_code
            return row.outcome if code is None else f"refused 0x{code:02x}"
        if row.disconnect_by is not None:
            reason = f" 0x{row.disconnect_reason:02x}" if row.disconnect_reason else ""
            return f"DISCONNECT{' by server' if row.disconnect_by == 'server' else ''}{reason}"
        if row.closed_how not in ("fin", "reset"):
            return _OPEN.get(row.closed_how or "", row.closed_how or "")
        return f"{'no DISCONNECT, ' if row.ending == 'broken' else ''}{ending_of(row.closed_how, row.closed_by)}"

    def in_flight(row: ConnectionRow) -> str:
        shown = []
        for peak, allowed in zip(row.in_flight_peak, row.receive_maximum, strict=True):
            shown.append(f"{peak}/{allowed}" if allowed is not None and allowed < 65_535 else f"{peak}")
        return ", ".join(shown) if any(row.in_flight_peak) else ""

    def silence(row: ConnectionRow) -> str:
        share = row.keep_alive_share
        return f"{share * 100:.0f} % of {row.keep_alive} s" if share else ""

    page.title("Connections")
    page.table(
        PageColumn("client", [starred_name(row.client_identifier or row.client) for row in rows], style="green"),
        [
            PageColumn("no.", [str(row.number) for row in rows]),
            _column("endpoint", rows, lambda row: row.client if row.client_identifier else "", 9, right=False),
            _column("server", rows, lambda row: row.server, 8, right=False),
            _column("server name", rows, lambda row: row.server_name or "", 9, right=False),
            _column("MQTT", rows, lambda row: row.version or row.transport, 3, right=False),
            _column("packets", rows, lambda row: number(row.traffic.packets)),
            _shares((row.traffic.packets for row in rows), totals.traffic.packets, 4),
            _column("bytes", rows, lambda row: size(row.traffic.bytes)),
            _column("per s", rows, lambda row: _rate(row.traffic.packets, row.ended_ns - row.opened_ns), 5),
            _column("p90", rows, lambda row: _slowest(page, row), 2),
            _column("in flight", rows, in_flight, 6),
            _column("silence", rows, silence, 7),
            _column("time", rows, lambda row: time_of(page, row.ended_ns - row.opened_ns), 7),
            _column("trouble", rows, lambda row: _trouble(row.traffic), 3, right=False),
            _column("end", rows, ended, 1, right=False),
        ],
    )
    _more(page, len(rows), total, "connection")


def clients_table(page: TableWriter, rows: list[ClientRow], total: int, totals: CaptureRow) -> None:
    """Table with a row per client; bars are shares of all packets."""

    def silence(row: ClientRow) -> str:
        return f"{row.keep_alive_share * 100:.0f} %" if row.keep_alive_share else ""

    def addresses(row: ClientRow) -> str:
        first = next(iter(row.addresses), "")
        more = len(row.addresses) - 1
        if more > 0:
            first += f" +{more}{' or more' if row.more_addresses else ''}"
        return first if row.client_identifier or more > 0 else ""

    page.title("Clients")
    page.table(
        PageColumn(
            "client identifier",
            [starred_name(row.client_identifier or f"({next(iter(row.addresses), '')})") for row in rows],
            style="green",
        ),
        [
            _column("conn.", rows, lambda row: number(row.connections)),
            _column("broken", rows, lambda row: number(row.broken), 1),
            _column("refused", rows, lambda row: number(row.refused), 1),
            _column("sent", rows, lambda row: number(sum(row.traffic.counts[at.PACKETS : 16]))),
            _column("received", rows, lambda row: number(sum(row.traffic.counts[16 : at.BYTES]))),
            _shares((row.traffic.packets for row in rows), totals.traffic.packets, 4),
            _column("bytes", rows, lambda row: size(row.traffic.bytes)),
            _column("per s", rows, lambda row: _rate(row.traffic.packets, at.span(row)), 6),
            _column("p90", rows, lambda row: _slowest(page, row), 3),
            _column("topics", rows, lambda row: f"{row.topics_published:,}/{row.topics_received:,}", 5),
            _column("silence", rows, silence, 2),
            _column("trouble", rows, lambda row: _trouble(row.traffic), 4, right=False),
            _column("address", rows, addresses, 1, right=False),
        ],
    )
    _more(page, len(rows), total, "client")


def topics_table(page: TableWriter, rows: list[TopicCounts], total: int, totals: CaptureRow) -> None:
    """Table with a row per topic; bars are shares of all messages."""

    def qos(row: TopicCounts) -> str:
        return "/".join(f"{row.qos[level] + row.qos[4 + level]:,}" for level in range(3))

    def clients(from_server: int) -> Callable[[TopicCounts], str]:
        return lambda row: (
            (f"{len(row.clients[from_server]):,}" if row.clients[from_server] else "")
            + ("" if row.complete[from_server] else "+")
        )

    messages = sum(totals.traffic.counts[at.QOS : at.QOS + 8])
    page.title("Topics")
    page.table(
        PageColumn(
            "topic",
            ["(alias set before the capture)" if row.topic is None else starred_name(row.topic) for row in rows],
            style="green",
        ),
        [
            _column("published", rows, lambda row: number(row.messages[0])),
            _column("delivered", rows, lambda row: number(row.messages[1])),
            _shares((sum(row.messages) for row in rows), messages, 1),
            _column("bytes", rows, lambda row: size(sum(row.bytes))),
            _column("per s", rows, lambda row: _rate(sum(row.messages), totals.duration_ns), 5),
            _column("peak/s", rows, lambda row: number(row.window.peak_packets), 7),
            _column("QoS 0/1/2", rows, qos, 2),
            _column("from", rows, clients(0), 3),
            _column("to", rows, clients(1), 3),
            _column("retained", rows, lambda row: number(sum(row.retain)), 4),
            _column("DUP", rows, lambda row: number(sum(row.dup)), 6),
            _column("payload", rows, lambda row: size(sum(row.payload)), 8),
        ],
    )
    _more(page, len(rows), total, "topic")
