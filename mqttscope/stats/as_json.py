"""Statistics as one JSON document, schema 1 (``docs/stats.md``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name, type_name
from mqttscope.net.segment import notable_reasons
from mqttscope.report import documents as doc
from mqttscope.secrets.credentials import starred_name
from mqttscope.stats import rows as at
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import EndedRows, RateWindow, TopicCounts, TrafficCounts


class _Rates(NamedTuple):
    """Values that rates are computed from."""

    packets: int
    bytes: int
    window: RateWindow
    duration_ns: int | None


class _MeasuredTraffic(NamedTuple):
    """Traffic of a row, and the time it covers."""

    traffic: TrafficCounts
    duration_ns: int | None

    @property
    def rates(self) -> _Rates:
        return _Rates(self.traffic.packets, self.traffic.bytes, self.traffic.window, self.duration_ns)


def _per_second(name: str) -> doc.ValueType:
    mean = doc.maybe(doc.NUMBER).at(lambda rates: at.rate(getattr(rates, name), rates.duration_ns or 0))
    return doc.record({"mean": mean, "peak": doc.COUNT.at(f"window.peak_{name}")}).at(doc.itself)


def _directions(make: Callable[[int], doc.ValueType]) -> doc.ValueType:
    """An object with a value for packets of the client (0) and one for packets of the server (1)."""
    return doc.record({"client_to_server": make(0), "server_to_client": make(1)}).at(doc.itself)


def _counts(place: int, distance: int = 1) -> doc.ValueType:
    return _PAIR.at(itemgetter(place, place + distance))


def _of_traffic(kind: doc.ValueType) -> doc.ValueType:
    """A value of the counts of a row, applied to a `_MeasuredTraffic`."""
    find = kind.source or doc.itself
    return kind.at(lambda measured: find(measured.traffic.counts))


def _sums(place: int) -> doc.ValueType:
    return _PAIR.at(lambda row: [sum(row.traffic.counts[first : first + 16]) for first in (place, place + 16)])


def _type(kind: PacketType) -> doc.ValueType:
    counts = doc.record({"packets": _counts(at.PACKETS + kind, 16), "bytes": _counts(at.BYTES + kind, 16)})
    return counts.at(lambda counted: counted if counted[kind] or counted[16 + kind] else None)


def _alias(from_server: int) -> doc.ValueType:
    sets, hits = at.ALIAS_SETS + from_server, at.ALIAS_HITS + from_server

    def uses(counts: list[int]) -> int:
        return counts[sets] + counts[hits]

    return doc.record({
        "sets": doc.COUNT.at(itemgetter(sets)), "hits": doc.COUNT.at(itemgetter(hits)),
        "hit_rate": _SHARE.at(lambda counts: counts[hits] / uses(counts) if uses(counts) else None),
        "saved_bytes": doc.WHOLE.at(itemgetter(at.SAVED + from_server)),
        "property_bytes": doc.COUNT.at(lambda counts: 3 * uses(counts)),
    }).at(doc.itself)  # fmt: skip


def _tcp(from_server: int) -> doc.ValueType:
    first = at.TCP + from_server * len(at.TCP_COUNTERS)
    counts = {name: doc.COUNT.at(itemgetter(first + number)) for number, name in enumerate(at.TCP_COUNTERS)}
    return doc.record(counts).at(doc.itself)


def _latencies(row: _MeasuredTraffic) -> dict[str, Any]:
    """Latencies of handshakes, by name and by direction of the request."""
    shown: dict[str, Any] = {}
    traffic = row.traffic
    for key in sorted(traffic.latencies.keys() | traffic.unanswered.keys()):
        histogram = traffic.latencies.get(key)
        times: dict[str, int] = {
            "count": histogram.count if histogram else 0,
            "unanswered": traffic.unanswered.get(key, 0),
        }
        if histogram:
            times |= {
                "minimum_ns": histogram.minimum,
                "p50_ns": histogram.percentile(50),
                "p90_ns": histogram.percentile(90),
                "p99_ns": histogram.percentile(99),
                "maximum_ns": histogram.maximum,
                "mean_ns": round(histogram.total / histogram.count),
            }
        direction = "server_to_client" if key & 1 else "client_to_server"
        shown.setdefault(at.HANDSHAKES[key >> 1], {})[direction] = times
    return shown


_PAIR = doc.both(doc.COUNT)
_SHARE = doc.maybe(doc.ValueType(doc.NUMBER, lambda share: round(share, 4)))
_RATES = doc.record({f"{name}_per_second": _per_second(name) for name in ("packets", "bytes")})
_LATENCY = doc.record(
    {"count": doc.COUNT, "unanswered": doc.COUNT},
    {f"{name}_ns": doc.WHOLE for name in ("minimum", "p50", "p90", "p99", "maximum", "mean")},
)
_LATENCIES = doc.record({}, {
    name: doc.record({}, {"client_to_server": _LATENCY, "server_to_client": _LATENCY}) for name in at.HANDSHAKES
})  # fmt: skip
_COUNTS = {
    "types": doc.record({}, {type_name(kind): _type(kind) for kind in PacketType}),
    "publish": doc.record({
        "payload_bytes": _counts(at.PAYLOAD),
        "qos": doc.record({str(qos): _counts(at.QOS + qos, 4) for qos in range(3)}).at(doc.itself),
        "retain": _counts(at.RETAIN), "dup": _counts(at.DUP),
    }),
    "topic_alias": _directions(_alias), "malformed": _counts(at.MALFORMED),
    "malformed_bytes": _counts(at.MALFORMED_BYTES), "unparsed": _counts(at.UNPARSED),
    "unparsed_bytes": _counts(at.UNPARSED_BYTES), "gaps": _counts(at.GAPS), "gap_bytes": _counts(at.GAP_BYTES),
    "tcp": _directions(_tcp),
}  # fmt: skip
_TRAFFIC = {
    "packets": _sums(at.PACKETS), "bytes": _sums(at.BYTES), "rates": _RATES,
    **{name: _of_traffic(kind) for name, kind in _COUNTS.items()},
    "latencies": doc.ValueType(_LATENCIES, _latencies, doc.itself),
}  # fmt: skip


def _moments(first: str, last: str) -> dict[str, doc.ValueType]:
    """Begin, end and duration of a row."""
    duration = doc.WHOLE.at(lambda row: (getattr(row, f"{last}_ns") or 0) - (getattr(row, f"{first}_ns") or 0))
    return {**{name: doc.maybe(kind) for name, kind in doc.times(first, last).items()}, "duration_ns": duration}


def _beginnings(how: str, outcomes: at.ConnectionOutcomes) -> int:
    return outcomes.outcomes[how]


def _refused(outcomes: at.ConnectionOutcomes) -> list[tuple[ProtocolVersion, int, int]]:
    return [(ProtocolVersion(version), code, count) for (version, code), count in sorted(outcomes.refusals.items())]


_DISCARDED = doc.record({"segments": doc.COUNT.at("discarded_segments"), "bytes": doc.COUNT.at("discarded_bytes")})
_BEGINNINGS = ("accepted", "refused", "unanswered", "joined", "unread")
_ENDINGS = ("disconnected", "broken", "refused", "open", "unknown")
_REFUSAL = doc.record({
    "version": doc.TEXT.at(lambda row: row[0].text), "reason_code": doc.COUNT.at(itemgetter(1)),
    "reason": doc.TEXT.at(lambda row: reason_name(PacketType.CONNACK, row[1], row[0])),
    "count": doc.COUNT.at(itemgetter(2)),
})  # fmt: skip
_CLOSED = doc.record({
    "how": doc.TEXT.at(lambda row: row[0][0]), "by": doc.TEXT.at(lambda row: row[0][1]),
    "count": doc.COUNT.at(itemgetter(1)),
})  # fmt: skip
_DISCONNECT = doc.record({
    "by": doc.TEXT.at(lambda row: row[0][0]), "reason_code": doc.maybe(doc.COUNT).at(lambda row: row[0][1]),
    "reason": doc.maybe(doc.TEXT).at(lambda row: at.disconnect_reason(row[0][1])), "count": doc.COUNT.at(itemgetter(1)),
})  # fmt: skip
_OUTCOMES = doc.record({
    "opened": doc.COUNT.at("connections"),
    **{name: doc.COUNT.at(partial(_beginnings, name)) for name in _BEGINNINGS},
    "versions": doc.by_name(doc.COUNT), "transports": doc.by_name(doc.COUNT),
    "refusals": doc.each(_REFUSAL).at(_refused), "endings": doc.counts(*_ENDINGS),
    "closed": doc.each(_CLOSED).at(lambda outcomes: sorted(outcomes.closed.items())),
    "disconnects": doc.each(_DISCONNECT).at(
        lambda outcomes: sorted(outcomes.disconnects.items(), key=lambda row: (row[0][0], row[0][1] or 0))
    ),
})  # fmt: skip
_ERROR = doc.record({
    "message": doc.TEXT.at(itemgetter(0)), "offset": doc.maybe(doc.WHOLE).at(itemgetter(1)),
    "frames": doc.COUNT.at(itemgetter(2)),
})  # fmt: skip
_CAPTURE = {
    "frames": doc.COUNT, "frame_bytes": doc.COUNT, "captured_bytes": doc.COUNT,
    "frames_dropped": doc.COUNT.at("dropped"), "clock_steps": doc.COUNT, "discarded": _DISCARDED.at(doc.itself),
    **_moments("first", "last"), "duration_ns": doc.WHOLE, "errors": doc.each(_ERROR), "error_count": doc.COUNT,
}  # fmt: skip


def _measured(row: Any) -> _MeasuredTraffic:
    return _MeasuredTraffic(row.traffic, row.duration_ns)


_COUNTED = (_TRAFFIC, _measured), ({"connections": _OUTCOMES.at("outcomes")}, doc.itself)
CAPTURE = doc.merged((_CAPTURE, doc.itself), *_COUNTED)
NAMED_CAPTURE = doc.merged(({"capture": doc.NAME, **_CAPTURE}, doc.itself), *_COUNTED)
_WITHOUT_SECRETS = doc.ValueType(doc.NAME, lambda name: doc.NAME.view(starred_name(name)))
_ALSO_CLOSED = doc.record({
    "how": doc.TEXT.at("also_closed"), "timestamp": doc.MOMENT.at("also_closed_ns"),
    "timestamp_ns": doc.TIME.at("also_closed_ns"),
})  # fmt: skip
_IN_FLIGHT = doc.record({
    "peak": doc.COUNT.at(itemgetter(0)), "receive_maximum": doc.maybe(doc.COUNT).at(itemgetter(1)),
})  # fmt: skip
_CONNECTION = {
    "connection": doc.COUNT.at("number"), "capture": doc.NAME, "frame": doc.COUNT, "client": doc.TEXT,
    "server": doc.TEXT, "server_name": doc.maybe(doc.NAME), "client_identifier": doc.maybe(_WITHOUT_SECRETS),
    "transport": doc.TRANSPORT,
    "version": doc.unless_empty(doc.PROTOCOL), "version_known": doc.BOOL, "outcome": doc.word(*_BEGINNINGS),
    "connack_reason_code": doc.maybe(doc.COUNT), **_moments("opened", "ended"), "ending": doc.word(*_ENDINGS),
    "closed_how": doc.maybe(doc.TEXT), "closed_by": doc.maybe(doc.SIDE),
    "also_closed": doc.maybe(_ALSO_CLOSED).at(lambda row: None if row.also_closed_ns is None else row),
    "one_sided": doc.maybe(doc.DIRECTION), "discarded": _DISCARDED.at(doc.itself), "disconnect_by": doc.maybe(doc.SIDE),
    "disconnect_reason_code": doc.maybe(doc.COUNT).at("disconnect_reason"),
    "disconnect_reason": doc.maybe(doc.TEXT).at(lambda row: at.disconnect_reason(row.disconnect_reason)),
    "keep_alive": doc.maybe(doc.COUNT), "longest_silence_ns": doc.WHOLE, "keep_alive_share": _SHARE,
    "in_flight": doc.both(_IN_FLIGHT).at(lambda row: [*zip(row.in_flight_peak, row.receive_maximum, strict=True)]),
}  # fmt: skip
CONNECTION = doc.merged(
    (_CONNECTION, doc.itself), (_TRAFFIC, lambda row: _MeasuredTraffic(row.traffic, row.ended_ns - row.opened_ns))
)


def _topics(name: str, from_server: int) -> doc.ValueType:
    return doc.record({
        "count": doc.COUNT.at(name), "complete": doc.BOOL.at("topics_complete"),
        "names": doc.each(_WITHOUT_SECRETS.at(lambda topic: topic.topic or "")).at(lambda row: row.named[from_server]),
    }).at(doc.itself)  # fmt: skip


_CLIENT = {
    "client_identifier": doc.maybe(_WITHOUT_SECRETS), "addresses": doc.each(doc.TEXT),
    "addresses_complete": doc.BOOL.at(lambda row: not row.more_addresses),
    **dict.fromkeys((
        "connections", "accepted", "refused", "unanswered", "disconnected", "broken", "taken_over", "reconnects",
    ), doc.COUNT),
    "longest_silence_ns": doc.WHOLE, "keep_alive_share": _SHARE, **_moments("first", "last"),
    "topics_published": _topics("topics_published", 0), "topics_received": _topics("topics_received", 1),
}  # fmt: skip
CLIENT = doc.merged((_CLIENT, doc.itself), (_TRAFFIC, lambda row: _MeasuredTraffic(row.total_traffic(), at.span(row))))


def _clients(from_server: int) -> doc.ValueType:
    return doc.record({
        "count": doc.COUNT.at(lambda row: len(row.clients[from_server])),
        "complete": doc.BOOL.at(lambda row: row.complete[from_server]),
    }).at(doc.itself)  # fmt: skip


def _qos(qos: int) -> doc.ValueType:
    return _PAIR.at(lambda row: (row.qos[qos], row.qos[4 + qos]))


_TOPIC = {
    "topic": doc.maybe(_WITHOUT_SECRETS), "messages": _PAIR, "bytes": _PAIR, "payload_bytes": _PAIR.at("payload"),
    "qos": doc.record({str(qos): _qos(qos) for qos in range(3)}).at(doc.itself), "retain": _PAIR, "dup": _PAIR,
    "publishers": _clients(0), "receivers": _clients(1),
}  # fmt: skip


class _TimedTopic(NamedTuple):
    """A topic, with the duration of all captures that its rates refer to."""

    row: TopicCounts
    duration_ns: int

    @property
    def rates(self) -> _Rates:
        return _Rates(sum(self.row.messages), sum(self.row.bytes), self.row.window, self.duration_ns)


TOPIC = doc.merged((_TOPIC, itemgetter(0)), ({"rates": _RATES}, doc.itself), (_moments("first", "last"), itemgetter(0)))
TAPS = doc.record({
    "frames": doc.COUNT.at("deduplication.frames"), "copies": doc.COUNT.at("deduplication.copies"),
    "clocks": doc.each(doc.record({"capture": doc.NAME.at("name"), "ahead_ns": doc.WHOLE})).at(
        lambda taps: [source for source in taps.sources if source.like]
    ),
    "taps": doc.each(doc.record({
        "capture": doc.NAME, "interface": doc.COUNT, "vlans": doc.each(doc.COUNT),
        "place": doc.COUNT.at(lambda tap: tap.place + 1),
        **dict.fromkeys(("frames", "copies", "only", "missed"), doc.COUNT),
    })).at(lambda taps: taps.deduplication.taps()),
})  # fmt: skip
_OTHER_CONNECTIONS = doc.merged(
    (_TRAFFIC, lambda statistics: _MeasuredTraffic(statistics.other_traffic, None)),
    ({"connections": _OUTCOMES.at("other_outcomes")}, doc.itself),
)
_OTHER = doc.record({
    "captures": doc.maybe(CAPTURE).at(lambda run: run.other_capture if run.other_captures else None),
    "connections": doc.maybe(_OTHER_CONNECTIONS).at(lambda run: run if run.other_outcomes.connections else None),
    "clients": doc.maybe(CLIENT).at(lambda run: run.other_client if run.other_client.connections else None),
    "topics": doc.maybe(TOPIC).at(
        lambda run: _TimedTopic(run.other_topic, run.totals.duration_ns) if any(run.other_topic.messages) else None
    ),
    "releases_missed": doc.COUNT.at("missed_releases"), "connections_closed_early": doc.COUNT.at("early_closed"),
})  # fmt: skip
"""Rows beyond a limit, counted together."""


class _CountedRun(NamedTuple):
    """Statistics, with counts made outside them."""

    statistics: Statistics
    other_flows: int
    skipped: Mapping[str, int]


_TOTALS = {
    "captures": doc.COUNT.at(lambda run: len(run.statistics.capture_names())),
    "clients": doc.COUNT.at(lambda run: len(run.statistics.clients)),
    "topics": doc.COUNT.at(lambda run: len(run.statistics.topics)), "other_flows": doc.COUNT,
    "frames_skipped": doc.mapping(doc.COUNT).at(lambda run: at.unread_groups(run.skipped)),
    "not_read": doc.mapping(doc.COUNT).at(lambda run: notable_reasons(run.skipped)), "other": _OTHER.at("statistics"),
    "limits": doc.mapping(doc.COUNT).at("statistics.limits"),
}  # fmt: skip
TOTALS = doc.merged(
    (_CAPTURE, attrgetter("statistics.totals")), (_TRAFFIC, lambda run: _measured(run.statistics.totals)),
    ({"connections": _OUTCOMES.at("statistics.totals.outcomes"), **_TOTALS}, doc.itself),
)  # fmt: skip
_NODE = {
    "node": _WITHOUT_SECRETS, "server": doc.TEXT, **dict.fromkeys(("births", "deaths", "data"), _PAIR),
    "seq_gaps": _PAIR.at("gaps"),
    **_moments("first", "last"),
}  # fmt: skip
NODES = doc.each(doc.record(_NODE))
DOCUMENT = doc.record(
    {"schema": doc.VERSION_1, "totals": TOTALS},
    {
        "captures": doc.each(NAMED_CAPTURE), "connections": doc.each(CONNECTION), "clients": doc.each(CLIENT),
        "topics": doc.each(TOPIC), "taps": TAPS, "edge_nodes": NODES,
    },
)  # fmt: skip


def document(
    statistics: Statistics,
    *,
    tables: Iterable[str] = at.TABLES,
    sort: str | None = None,
    top: int | None = None,
    other_flows: int = 0,
    skipped: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The whole document of finished statistics.

    ``other_flows``: number of TCP connections without MQTT.  ``skipped``: frames that were not read, by reason.  The
    document groups all reasons, and lists each reason that a user may not expect.
    """
    shown: dict[str, Any] = {"schema": doc.SCHEMA}
    asked = set(tables)

    def first(table: str, rows: Iterable[Any] | EndedRows) -> Iterator[Any]:
        return at.order(rows, sort or at.DEFAULT_SORTS.get(table, "packets"), top)

    if "capture" in asked:
        shown["captures"] = [NAMED_CAPTURE.view(row) for row in statistics.captures.values()]
    if "connection" in asked:
        shown["connections"] = [CONNECTION.view(row) for row in first("connection", statistics.connections)]
    if "client" in asked:
        shown["clients"] = [CLIENT.view(row) for row in first("client", statistics.clients.values())]
    if "topic" in asked:
        duration, topics = statistics.totals.duration_ns, first("topic", statistics.topics.values())
        shown["topics"] = [TOPIC.view(_TimedTopic(row, duration)) for row in topics]
    if statistics.taps is not None:
        shown["taps"] = TAPS.view(statistics.taps)
    if statistics.nodes.rows:
        shown["edge_nodes"] = NODES.view(list(statistics.nodes.rows.values())[:top])
    shown["totals"] = TOTALS.view(_CountedRun(statistics, other_flows, skipped or {}))
    return shown
