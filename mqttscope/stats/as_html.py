"""Statistics as a page: charts, the topics as a tree, and the tables of the text report.

`overview` is the part with charts, which the page of ``inspect`` begins with too (`Measured`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from mqttscope.events import Event
from mqttscope.mqtt.view import utf8
from mqttscope.report.base import Clock
from mqttscope.report.html.charts import Bar, Lane, Range, Stretch, bar_columns, lane_rows, range_rows
from mqttscope.report.html.packets import Packets
from mqttscope.report.html.page import FILTER, document
from mqttscope.report.html.pieces import bound, legend, note, part, short
from mqttscope.report.html.sheet import Sheet
from mqttscope.report.html.topics import Topic, topic_tree
from mqttscope.report.numbers import plural
from mqttscope.report.when import duration
from mqttscope.secrets.addresses import public_name
from mqttscope.secrets.credentials import starred_name
from mqttscope.stats import as_text
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import TABLES, ConnectionRow, EndedRows, Histogram, Traffic

TOP = 100
"""Rows of a table unless another number is asked for."""
MAX_LANES = 40
"""Clients of the time line, those with the most connections."""
MAX_STRETCHES = 60
"""Connections of one client on it, the latest."""
MAX_CAPTURES = 5
"""Captures that are named; further ones are counted."""
ENDINGS = {
    "disconnected": "ended with DISCONNECT",
    "broken": "ended without DISCONNECT",
    "refused": "refused",
    "open": "open at the end of the capture",
    "unknown": "end unknown",
}
_MANY = 5
"""Colours of a histogram."""


def render(
    statistics: Statistics,
    *,
    tables: Iterable[str] = TABLES,
    sort: str | None = None,
    top: int | None = None,
    other_flows: int = 0,
    skipped: Mapping[str, int] | None = None,
) -> bytes:
    """Finished statistics as a page."""
    names = [utf8(public_name(one)) for one in statistics.capture_names()]
    left = len(names) - MAX_CAPTURES
    captures = ", ".join(names[:MAX_CAPTURES]) + (f" and {left:,} more" if left > 0 else "")
    sheet = Sheet()
    as_text.write_tables(sheet, statistics, tables=tables, sort=sort, top=top or TOP)
    return document(
        f"mqttscope: statistics of {captures}",
        [
            f'<header><h1>Statistics</h1><p class="where">{short(captures)}</p></header>',
            *overview(statistics, other_flows, skipped or {}),
            FILTER,
            *sheet.parts,
        ],
        filtered=True,
    )


def overview(statistics: Statistics, other_flows: int = 0, skipped: Mapping[str, int] | None = None) -> list[str]:
    """What is seen of finished statistics at a glance: amounts, and charts of connections, packets and latencies."""
    sheet, totals = Sheet(), statistics.totals
    as_text.overview(sheet, statistics, other_flows, skipped or {})
    along = statistics.along
    packets = size = told = ""
    if along is not None:
        packets, size = along.chart("packets along the time", 0), along.chart("bytes along the time", 1)
        told = along.told()
    return [
        *sheet.parts,
        *_connections(statistics.connections),
        *part("Packets along the time", packets, after=note(told)),
        *part("Bytes along the time", size, after=note(told), level=3),
        *_latencies(totals.traffic),
        *part("Topics", _topics(statistics)),
    ]


def _topics(statistics: Statistics) -> str:
    rows = (
        Topic("(alias set before the capture)" if row.topic is None else row.topic, sum(row.messages), sum(row.bytes))
        for row in statistics.topics.values()
    )
    return topic_tree(rows, statistics.totals.duration_ns)


def _connections(rows: EndedRows) -> list[str]:
    """A lane for each client, from the beginning to the end of each of its connections."""
    if not len(rows):
        return []
    names = [starred_name(row.client_identifier or row.client.rpartition(":")[0]) for row in rows]
    count = Counter(names)
    shown = {name for name, _ in count.most_common(MAX_LANES)}
    lanes: dict[str, deque[int]] = {}
    for place, name in enumerate(names):
        if name in shown:
            lanes.setdefault(name, deque(maxlen=MAX_STRETCHES)).append(place)
    clock = Clock()
    made = [Lane(name, [_stretch(rows[place], clock) for place in one]) for name, one in lanes.items()]
    kept = [one for lane in made for one in lane.stretches]
    first, last = (clock.iso(at) for at in (min(one.from_ns for one in kept), max(one.until_ns or 0 for one in kept)))
    kinds = [kind for kind in ENDINGS if any(one.kind == kind for one in kept)]
    left = len(count) - len(lanes)
    cut = any(count[name] > MAX_STRETCHES for name in lanes)
    more = [f"And {plural(left, 'client')} more."] if left else []
    more += [f"Of each client the last {MAX_STRETCHES} connections."] if cut else []
    plot = lane_rows(made, _short(first), _short(last))
    before = legend(kinds, lambda kind: ENDINGS[kind])
    return part("Connections along the time", plot, before=before, after=note(" ".join(more)))


def _stretch(row: ConnectionRow, clock: Clock) -> Stretch:
    told = (
        f"#{row.number} {row.client}, MQTT {row.version or 'not read'}: {_short(clock.iso(row.opened_ns))} to "
        f"{_short(clock.iso(row.ended_ns))}, {plural(row.traffic.packets, 'packet')}, {ENDINGS[row.ending]}"
    )
    return Stretch(row.opened_ns, row.ended_ns, row.ending, told)


def _short(iso: str) -> str:
    return iso.replace("T", " ")[:23]


def _latencies(traffic: Traffic) -> list[str]:
    """How long answers took: a histogram, and the spread of each handshake."""
    found = {key: one for key, one in sorted(traffic.latencies.items()) if one.count}
    if not found:
        return []
    most = sorted(found, key=lambda key: -found[key].count)[:_MANY]
    kinds = [f"part{place}" for place in range(len(most))]
    plot = bar_columns(_bars([found[key] for key in most]), kinds, "handshakes by how long they took")
    named = dict(zip(kinds, map(_handshake, most), strict=True))
    ranges = [_range(key, one) for key, one in found.items()]
    least, longest = min(one.p50 for one in ranges), max(one.p99 for one in ranges)
    spread = range_rows(ranges, "latencies", least=duration(least), most=duration(longest))
    after = note("From the middle to the 99th percentile, with a mark at the 90th; logarithmic.")
    return [
        *part("How long answers take", plot, before=legend(kinds, named.__getitem__)),
        *part("Spread by handshake", spread, after=after, level=3),
    ]


def _handshake(key: int) -> str:
    return f"{as_text.handshake_of(key)} by the {'server' if key & 1 else 'client'}"


def _range(key: int, one: Histogram) -> Range:
    p50, p90, p99 = (one.percentile(percent) for percent in (50, 90, 99))
    told = f"{_handshake(key)}: {one.count:,}, {duration(p50)}, {duration(p90)}, {duration(p99)}"
    return Range(_handshake(key), p50, p90, p99, told)


def _bars(found: list[Histogram]) -> list[Bar]:
    """The values of histograms in common pieces that end at 1, 2 and 5 times powers of ten."""
    ends = [factor * 10**power for power in range(3, 20) for factor in (1, 2, 5)]
    least, most = min(one.minimum for one in found), max(one.maximum for one in found)
    first = max(0, sum(end <= least for end in ends) - 1)
    ends = ends[first : sum(end <= most for end in ends) + 1]
    return [
        Bar(f"< {bound(end)}", tuple(one.below(end) - one.below(before) for one in found))
        for before, end in zip([0, *ends], ends, strict=False)
    ]


class Measured:
    """Feeds a page of packets, and what it begins with."""

    def __init__(self, page: Packets) -> None:
        self.page = page
        self.statistics = Statistics(along=True)
        page.overview = lambda: overview(self.statistics)

    def feed(self, event: Event) -> None:
        self.statistics.feed(event)
        self.page.feed(event)

    def close(self) -> None:
        self.statistics.finish()
        self.page.close()
