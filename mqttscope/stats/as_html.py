"""Statistics as a page: charts, a topic tree, and the tables of the text report.

`overview` is the part with charts; the page of ``inspect`` begins with it too (`MeasuredPage`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from mqttscope.events import Event
from mqttscope.report.html.charts import RANGE_NOTE, Bar, ChartLane, LaneStretch, LatencyRange, columns, lanes, ranges
from mqttscope.report.html.packets import PacketPage
from mqttscope.report.html.page import FILTER, document
from mqttscope.report.html.pieces import between, bound, captures_text, exact_moment, header, legend, paragraph, part
from mqttscope.report.html.sheet import HtmlTables
from mqttscope.report.html.topics import TopicAmount, topic_tree
from mqttscope.report.numbers import plural
from mqttscope.secrets.credentials import starred_name
from mqttscope.session.connection import host_of
from mqttscope.stats import as_text
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import TABLES, ConnectionOutcomes, ConnectionRow, EndedRows, Histogram, TrafficCounts

TOP = 100
"""Default maximum number of rows of a table."""
MAX_LANES = 40
"""Maximum number of clients in the timeline, most connections first."""
MAX_STRETCHES = 60
"""Maximum number of connections per client in the timeline, latest first."""
ENDINGS = {
    "disconnected": "ended with DISCONNECT",
    "broken": "ended without DISCONNECT",
    "refused": "refused",
    "open": "open at the end of the capture",
    "unknown": "end unknown",
}
_MANY = 5
"""Maximum number of handshakes in a histogram."""


def render(
    statistics: Statistics,
    *,
    tables: Iterable[str] = TABLES,
    sort: str | None = None,
    top: int | None = None,
    other_flows: int = 0,
    skipped: Mapping[str, int] | None = None,
) -> bytes:
    """The page of finished statistics."""
    captures = captures_text(statistics.capture_names())
    sheet = HtmlTables()
    as_text.write_tables(sheet, statistics, tables=tables, sort=sort, top=top or TOP)
    return document(
        f"mqttscope: statistics of {captures}",
        [
            header("Statistics", captures, between(statistics.totals.first_ns, statistics.totals.last_ns)),
            *overview(statistics, other_flows, skipped or {}),
            FILTER,
            *sheet.parts,
        ],
    )


def overview(statistics: Statistics, other_flows: int = 0, skipped: Mapping[str, int] | None = None) -> list[str]:
    """Overview of finished statistics: amounts, and charts of connections, packets and latencies."""
    sheet, totals = HtmlTables(), statistics.totals
    as_text.overview(sheet, statistics, other_flows, skipped or {})
    along = statistics.along
    packets = size = scale = ""
    if along is not None:
        packets, size = along.chart("packets over time", 0), along.chart("bytes over time", 1)
        scale = along.scale_text()
    return [
        _answer(totals.outcomes),
        *sheet.parts,
        *_connections(statistics.connections),
        *part("Packets over time", packets, after=paragraph(scale)),
        *part("Bytes over time", size, after=paragraph(scale), level=3),
        *_latencies(totals.traffic),
        *part("Topics", _topics(statistics)),
    ]


def _answer(outcomes: ConnectionOutcomes) -> str:
    """How the connections ended, trouble first."""
    endings = outcomes.endings
    order = sorted(ENDINGS, key=lambda kind: kind not in ("broken", "refused"))
    parts = [f"{endings[kind]:,} {ENDINGS[kind]}" for kind in order if endings[kind]]
    kind = "doubt" if endings["broken"] or endings["refused"] else "good"
    return paragraph(f"{plural(outcomes.connections, 'connection')}: {', '.join(parts)}." if parts else "", kind)


def _topics(statistics: Statistics) -> str:
    rows = (
        TopicAmount(
            "(alias set before the capture)" if row.topic is None else row.topic, sum(row.messages), sum(row.bytes)
        )
        for row in statistics.topics.values()
    )
    return topic_tree(rows, statistics.totals.duration_ns)


def _connections(rows: EndedRows) -> list[str]:
    """Timeline with a lane per client and a bar per connection; clients in trouble come first."""
    if not len(rows):
        return []
    names = [starred_name(row.client_identifier or host_of(row.client)) for row in rows]
    count, trouble = Counter(names), Counter[str]()
    for name, row in zip(names, rows, strict=True):
        trouble[name] += row.ending in ("broken", "refused")
    order = sorted(count, key=lambda name: (-trouble[name], -count[name]))[:MAX_LANES]
    places: dict[str, deque[int]] = {name: deque(maxlen=MAX_STRETCHES) for name in order}
    for place, name in enumerate(names):
        if name in places:
            places[name].append(place)
    drawn = [ChartLane(name, [_stretch(rows[place]) for place in numbers]) for name, numbers in places.items()]
    kinds = [kind for kind in ENDINGS if any(stretch.kind == kind for lane in drawn for stretch in lane.stretches)]
    left = len(count) - len(order)
    more = [f"Not drawn: {plural(left, 'more client')}."] if left else []
    if any(count[name] > MAX_STRETCHES for name in order):
        more.append(f"Only the last {MAX_STRETCHES} connections of each client are drawn.")
    before = legend(kinds, ENDINGS.__getitem__)
    return part("Timeline of connections", lanes(drawn, exact_moment), before=before, after=paragraph(" ".join(more)))


def _stretch(row: ConnectionRow) -> LaneStretch:
    hint = (
        f"#{row.number} {row.client}, MQTT {row.version or 'not read'}: {exact_moment(row.opened_ns)} to "
        f"{exact_moment(row.ended_ns)}, {plural(row.traffic.packets, 'packet')}, {ENDINGS[row.ending]}"
    )
    return LaneStretch(row.opened_ns, row.ended_ns, row.ending, hint)


def _latencies(traffic: TrafficCounts) -> list[str]:
    """Latencies: a histogram, and the percentiles of each handshake."""
    histograms = {key: histogram for key, histogram in sorted(traffic.latencies.items()) if histogram.count}
    if not histograms:
        return []
    most = sorted(histograms, key=lambda key: -histograms[key].count)[:_MANY]
    kinds = [f"part{place}" for place in range(len(most))]
    name = dict(zip(kinds, map(_handshake, most), strict=True)).__getitem__
    plot = columns(_bars([histograms[key] for key in most]), kinds, "handshakes by latency", name)
    spread = ranges([
        LatencyRange(_handshake(key), row.count, *(row.percentile(percent) for percent in (50, 90, 99)))
        for key, row in histograms.items()
    ])  # fmt: skip
    return [
        *part("Response times", plot, before=legend(kinds, name)),
        *part("Spread by handshake", spread, after=paragraph(RANGE_NOTE), level=3),
    ]


def _handshake(key: int) -> str:
    return f"{as_text.handshake_of(key)} by the {'server' if key & 1 else 'client'}"


def _bars(histograms: list[Histogram]) -> list[Bar]:
    """The values of histograms in common intervals that end at 1, 2 and 5 times powers of ten."""
    ends = [factor * 10**power for power in range(3, 20) for factor in (1, 2, 5)]
    least, most = min(row.minimum for row in histograms), max(row.maximum for row in histograms)
    first = max(0, sum(end <= least for end in ends) - 1)
    ends = ends[first : sum(end <= most for end in ends) + 1]
    return [
        Bar(f"< {bound(end)}", tuple(histogram.below(end) - histogram.below(before) for histogram in histograms))
        for before, end in zip([0, *ends], ends, strict=False)
    ]


class MeasuredPage:
    """Feeds a page of packets, and the statistics shown above them."""

    def __init__(self, page: PacketPage) -> None:
        self.page = page
        self.statistics = Statistics(along=True)
        page.overview = lambda: overview(self.statistics)

    def feed(self, event: Event) -> None:
        self.statistics.feed(event)
        self.page.feed(event)

    def close(self) -> None:
        self.statistics.finish()
        self.page.close()
