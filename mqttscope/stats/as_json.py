"""Statistics as one JSON document, schema 1 (``docs/stats.md``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.view import text
from mqttscope.net.segment import UNREAD, not_read
from mqttscope.report.base import Clock
from mqttscope.session.capture_time import captured
from mqttscope.stats import rows as at
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import (
    CaptureRow,
    ClientRow,
    ConnectionRow,
    EndedRows,
    Outcomes,
    TopicRow,
    Traffic,
    Window,
)

if TYPE_CHECKING:
    from mqttscope.capture.taps import Taps

SCHEMA = 1
TABLES = ("capture", "connection", "client", "topic")
SORTS = (
    "packets", "bytes", "rate", "latency", "trouble", "reconnects", "refused", "disconnects", "silence", "name",
)  # fmt: skip
"""What tables are sorted by."""
DEFAULT_SORTS = {"client": "trouble"}
"""What a table is sorted by unless it is said; the others by packets."""

Shown = dict[str, Any]
R = TypeVar("R", ConnectionRow, ClientRow, TopicRow)
_clock = Clock()


def order(rows: Iterable[R] | EndedRows, sort: str, top: int | None) -> Iterator[Any]:
    """The first ``top`` rows by a measure, highest first, then by packets; equal ones in order of appearance.

    Names are sorted upwards.  What rows do not have leaves them sorted by packets: topics have no latency and no ends,
    connections no reconnects.
    """
    known = rows if isinstance(rows, EndedRows) else list(rows)
    keys: list[Any]
    if sort == "name":
        keys = [_name(row) for row in known]
    elif sort == "packets" and isinstance(known, EndedRows):
        keys = list(known.packets)
    else:
        measure = _MEASURES[sort]
        keys = [(measure(row), _packets(row)) for row in known]
    # Rows that are packed are read one at a time, so that no more of them are there than are shown.
    for place in sorted(range(len(keys)), key=keys.__getitem__, reverse=sort != "name")[:top]:
        yield known[place]


def rate(count: int, duration_ns: int) -> float | None:
    """So many a second; ``None`` where no time passed."""
    return round(count * 1e9 / duration_ns, 3) if duration_ns > 0 else None


def span(row: ClientRow) -> int:
    """From the beginning of a client's first connection to the end of its last, in nanoseconds."""
    return (row.last_ns or 0) - (row.first_ns or 0)


def _counted(row: Any) -> Traffic:
    """What is measured of a row that may not be shown."""
    return row.added_up() if isinstance(row, ClientRow) else row.traffic


def _packets(row: Any) -> int:
    if isinstance(row, TopicRow):
        return sum(row.messages)
    return row.packets if isinstance(row, ClientRow) else row.traffic.packets


def _bytes(row: Any) -> int:
    return sum(row.bytes) if isinstance(row, TopicRow) else _counted(row).bytes


def _rate_of(row: Any) -> float | None:
    if isinstance(row, TopicRow):
        return float(_packets(row))  # all topics are measured over the same time
    duration = span(row) if isinstance(row, ClientRow) else row.ended_ns - row.opened_ns
    return rate(_packets(row), duration)


_MEASURES: dict[str, Callable[[Any], Any]] = {
    "packets": _packets,
    "bytes": _bytes,
    "rate": lambda row: _rate_of(row) or 0.0,
    "latency": lambda row: 0 if isinstance(row, TopicRow) else _counted(row).slowest,
    "trouble": lambda row: () if isinstance(row, TopicRow) else row.trouble,
    "reconnects": lambda row: row.reconnects if isinstance(row, ClientRow) else 0,
    "refused": lambda row: _ended(row, "refused"),
    "disconnects": lambda row: _ended(row, "broken"),
    "silence": lambda row: -1.0 if isinstance(row, TopicRow) else _share(row),
}


def _name(row: Any) -> str:
    if isinstance(row, TopicRow):
        return row.topic or ""
    return row.client_identifier or (next(iter(row.addresses), "") if isinstance(row, ClientRow) else row.client)


def _ended(row: Any, how: str) -> int:
    if isinstance(row, ClientRow):
        return row.refused if how == "refused" else row.broken
    return int(isinstance(row, ConnectionRow) and row.ending == how)


def _share(row: Any) -> float:
    share: float | None = row.keep_alive_share
    return -1.0 if share is None else share


def unread_groups(skipped: Mapping[str, int]) -> dict[str, int]:
    """Frames counted by reason, coarsely: ``not_ip``, ``not_tcp``, ``malformed``, ``truncated``, ...."""
    groups: dict[str, int] = {}
    for name, count in skipped.items():
        group = UNREAD[name].group if name in UNREAD else name
        groups[group] = groups.get(group, 0) + count
    return groups


def document(
    statistics: Statistics,
    *,
    tables: Iterable[str] = TABLES,
    sort: str | None = None,
    top: int | None = None,
    other_flows: int = 0,
    skipped: Mapping[str, int] | None = None,
) -> Shown:
    """The whole document of finished statistics.

    ``other_flows`` are TCP connections without MQTT, ``skipped`` frames without TCP by reason: all of them coarsely,
    and those that somebody may expect to be read.
    """
    shown: Shown = {"schema": SCHEMA}
    asked = set(tables)

    def first(table: str, rows: Iterable[Any] | EndedRows) -> Iterator[Any]:
        return order(rows, sort or DEFAULT_SORTS.get(table, "packets"), top)

    if "capture" in asked:
        shown["captures"] = [{"capture": text(row.capture), **capture(row)} for row in statistics.captures.values()]
    if "connection" in asked:
        shown["connections"] = [connection(row) for row in first("connection", statistics.connections)]
    if "client" in asked:
        shown["clients"] = [client(row) for row in first("client", statistics.clients.values())]
    if "topic" in asked:
        duration = statistics.totals.duration_ns
        shown["topics"] = [topic(row, duration) for row in first("topic", statistics.topics.values())]
    if statistics.taps is not None:
        shown["taps"] = taps(statistics.taps)
    shown["totals"] = {
        **capture(statistics.totals),
        "captures": len(statistics.capture_names()),
        "clients": len(statistics.clients),
        "topics": len(statistics.topics),
        "other_flows": other_flows,
        "frames_skipped": unread_groups(skipped or {}),
        "not_read": not_read(skipped or {}),
        "other": _other(statistics),
        "limits": statistics.limits,
    }
    return shown


def taps(found: Taps) -> Shown:
    """What each tap captured, and the clocks of the captures."""
    return {
        "frames": found.deduplication.frames,
        "copies": found.deduplication.copies,
        "clocks": [{"capture": text(one.name), "ahead_ns": one.ahead_ns} for one in found.sources if one.like],
        "taps": [
            {
                "capture": text(one.capture),
                "interface": one.interface,
                "vlans": one.vlans,
                "place": one.place + 1,
                "frames": one.frames,
                "copies": one.copies,
                "only": one.only,
                "missed": one.missed,
            }
            for one in found.deduplication.taps()
        ],
    }


def _other(statistics: Statistics) -> Shown:
    """What is beyond a limit; ``None`` where nothing is."""
    topics, clients = statistics.other_topic, statistics.other_client
    outcomes = statistics.other_outcomes
    return {
        "captures": capture(statistics.other_capture) if statistics.other_captures else None,
        "connections": {**_traffic(statistics.other_traffic, None), "connections": _outcomes(outcomes)}
        if outcomes.connections
        else None,
        "clients": client(clients) if clients.connections else None,
        "topics": topic(topics, statistics.totals.duration_ns) if any(topics.messages) else None,
        "releases_missed": statistics.missed_releases,
        "connections_closed_early": statistics.early_closed,
    }


def both(pair: list[Any] | tuple[Any, ...]) -> Shown:
    """Two values by direction."""
    return {"client_to_server": pair[0], "server_to_client": pair[1]}


def _pair(counts: list[int], place: int, distance: int = 1) -> Shown:
    return {"client_to_server": counts[place], "server_to_client": counts[place + distance]}


def _rates(packets: int, size: int, window: Window, duration_ns: int | None) -> Shown:
    mean = [None if duration_ns is None else rate(count, duration_ns) for count in (packets, size)]
    return {
        "packets_per_second": {"mean": mean[0], "peak": window.peak_packets},
        "bytes_per_second": {"mean": mean[1], "peak": window.peak_bytes},
    }


def _traffic(traffic: Traffic, duration_ns: int | None) -> Shown:
    counts = traffic.counts
    types = {}
    for kind in PacketType:
        if counts[kind] or counts[16 + kind]:
            types[kind.name.lower()] = {
                "packets": _pair(counts, at.PACKETS + kind, 16),
                "bytes": _pair(counts, at.BYTES + kind, 16),
            }
    return {
        "packets": both((sum(counts[at.PACKETS : 16]), sum(counts[16 : at.BYTES]))),
        "bytes": both((sum(counts[at.BYTES : at.BYTES + 16]), sum(counts[at.BYTES + 16 : at.QOS]))),
        "rates": _rates(traffic.packets, traffic.bytes, traffic.window, duration_ns),
        "types": types,
        "publish": {
            "payload_bytes": _pair(counts, at.PAYLOAD),
            "qos": {str(qos): _pair(counts, at.QOS + qos, 4) for qos in range(3)},
            "retain": _pair(counts, at.RETAIN),
            "dup": _pair(counts, at.DUP),
        },
        "topic_alias": both([_alias(counts, from_server) for from_server in (0, 1)]),
        "malformed": _pair(counts, at.MALFORMED),
        "malformed_bytes": _pair(counts, at.MALFORMED_BYTES),
        "unparsed": _pair(counts, at.UNPARSED),
        "unparsed_bytes": _pair(counts, at.UNPARSED_BYTES),
        "gaps": _pair(counts, at.GAPS),
        "gap_bytes": _pair(counts, at.GAP_BYTES),
        "tcp": both([_tcp(counts, from_server) for from_server in (0, 1)]),
        "latencies": latencies(traffic),
    }


def _alias(counts: list[int], from_server: int) -> Shown:
    sets, hits = counts[at.ALIAS_SETS + from_server], counts[at.ALIAS_HITS + from_server]
    return {
        "sets": sets,
        "hits": hits,
        "hit_rate": round(hits / (sets + hits), 4) if sets + hits else None,
        "saved_bytes": counts[at.SAVED + from_server],
        "property_bytes": 3 * (sets + hits),
    }


def _tcp(counts: list[int], from_server: int) -> Shown:
    first = at.TCP + from_server * len(at.TCP_COUNTERS)
    return {name: counts[first + number] for number, name in enumerate(at.TCP_COUNTERS)}


def latencies(traffic: Traffic) -> Shown:
    """Handshakes that were begun, by name and by the direction of the request."""
    shown: Shown = {}
    for key in sorted(traffic.latencies.keys() | traffic.unanswered.keys()):
        found = traffic.latencies.get(key)
        row: Shown = {"count": found.count if found else 0, "unanswered": traffic.unanswered.get(key, 0)}
        if found:
            row |= {
                "minimum_ns": found.minimum,
                "p50_ns": found.percentile(50),
                "p90_ns": found.percentile(90),
                "p99_ns": found.percentile(99),
                "maximum_ns": found.maximum,
                "mean_ns": round(found.total / found.count),
            }
        direction = "server_to_client" if key & 1 else "client_to_server"
        shown.setdefault(at.HANDSHAKES[key >> 1], {})[direction] = row
    return shown


def _times(first_ns: int | None, last_ns: int | None, names: tuple[str, str]) -> Shown:
    shown: Shown = {}
    for name, value in zip(names, (first_ns, last_ns), strict=True):
        shown[name] = None if value is None else _clock.iso(value)
        shown[f"{name}_ns"] = captured(value)
    shown["duration_ns"] = (last_ns or 0) - (first_ns or 0)
    return shown


def _outcomes(outcomes: Outcomes) -> Shown:
    def reason(version: int, code: int) -> Shown:
        found = ProtocolVersion(version)
        name = reason_name(PacketType.CONNACK, code, found)
        return {"version": found.text, "reason_code": code, "reason": name}

    return {
        "opened": outcomes.connections,
        **{name: outcomes.outcomes[name] for name in ("accepted", "refused", "unanswered", "joined", "unread")},
        "versions": dict(sorted(outcomes.versions.items())),
        "transports": dict(sorted(outcomes.transports.items())),
        "refusals": [{**reason(*key), "count": count} for key, count in sorted(outcomes.refusals.items())],
        "endings": {name: outcomes.endings[name] for name in ("disconnected", "broken", "refused", "open", "unknown")},
        "closed": [{"how": how, "by": by, "count": count} for (how, by), count in sorted(outcomes.closed.items())],
        "disconnects": [
            {"by": by, "reason_code": code, "reason": disconnect_reason(code), "count": count}
            for (by, code), count in sorted(outcomes.disconnects.items(), key=lambda one: (one[0][0], one[0][1] or 0))
        ],
    }


def disconnect_reason(code: int | None) -> str | None:
    """Name of the reason code of a DISCONNECT; ``None`` before 5.0."""
    return None if code is None else reason_name(PacketType.DISCONNECT, code, ProtocolVersion.V5)


def capture(row: CaptureRow) -> Shown:
    """Object of one capture, without its name."""
    times = _times(row.first_ns, row.last_ns, ("first", "last"))
    return {
        "frames": row.frames,
        "frame_bytes": row.frame_bytes,
        "captured_bytes": row.captured_bytes,
        "frames_dropped": row.dropped,
        "clock_steps": row.clock_steps,
        "discarded": {"segments": row.discarded_segments, "bytes": row.discarded_bytes},
        **times,
        "duration_ns": row.duration_ns,
        "errors": [{"message": message, "offset": offset, "frames": frames} for message, offset, frames in row.errors],
        "error_count": row.error_count,
        **_traffic(row.traffic, row.duration_ns),
        "connections": _outcomes(row.outcomes),
    }


def connection(row: ConnectionRow) -> Shown:
    """Object of one connection."""
    share = row.keep_alive_share
    return {
        "connection": row.number,
        "capture": text(row.capture),
        "frame": row.frame,
        "client": row.client,
        "server": row.server,
        "client_identifier": None if row.client_identifier is None else text(row.client_identifier),
        "transport": row.transport,
        "version": row.version or None,
        "version_known": row.version_known,
        "outcome": row.outcome,
        "connack_reason_code": row.connack_reason_code,
        **_times(row.opened_ns, row.ended_ns, ("opened", "ended")),
        "ending": row.ending,
        "closed_how": row.closed_how,
        "closed_by": row.closed_by,
        "also_closed": None
        if row.also_closed_ns is None
        else {
            "how": row.also_closed,
            "timestamp": _clock.iso(row.also_closed_ns),
            "timestamp_ns": captured(row.also_closed_ns),
        },
        "one_sided": row.one_sided,
        "discarded": {"segments": row.discarded_segments, "bytes": row.discarded_bytes},
        "disconnect_by": row.disconnect_by,
        "disconnect_reason_code": row.disconnect_reason,
        "disconnect_reason": disconnect_reason(row.disconnect_reason),
        "keep_alive": row.keep_alive,
        "longest_silence_ns": row.longest_silence_ns,
        "keep_alive_share": None if share is None else round(share, 4),
        "in_flight": both(
            [
                {"peak": peak, "receive_maximum": allowed}
                for peak, allowed in zip(row.in_flight_peak, row.receive_maximum, strict=True)
            ]
        ),
        **_traffic(row.traffic, row.ended_ns - row.opened_ns),
    }


def client(row: ClientRow) -> Shown:
    """Object of one client."""

    def names(found: list[TopicRow], count: int) -> Shown:
        return {"count": count, "complete": row.topics_complete, "names": [text(one.topic or "") for one in found]}

    return {
        "client_identifier": None if row.client_identifier is None else text(row.client_identifier),
        "addresses": list(row.addresses),
        "addresses_complete": not row.more_addresses,
        "connections": row.connections,
        "accepted": row.accepted,
        "refused": row.refused,
        "unanswered": row.unanswered,
        "disconnected": row.disconnected,
        "broken": row.broken,
        "taken_over": row.taken_over,
        "reconnects": row.reconnects,
        "longest_silence_ns": row.longest_silence_ns,
        "keep_alive_share": None if row.keep_alive_share is None else round(row.keep_alive_share, 4),
        **_times(row.first_ns, row.last_ns, ("first", "last")),
        "topics_published": names(row.named[0], row.topics_published),
        "topics_received": names(row.named[1], row.topics_received),
        **_traffic(row.added_up(), span(row)),
    }


def topic(row: TopicRow, duration_ns: int) -> Shown:
    """Object of one topic; rates are over the duration of all captures."""

    def clients(from_server: int) -> Shown:
        return {"count": len(row.clients[from_server]), "complete": row.complete[from_server]}

    return {
        "topic": None if row.topic is None else text(row.topic),
        "messages": both(row.messages),
        "bytes": both(row.bytes),
        "payload_bytes": both(row.payload),
        "qos": {str(qos): both((row.qos[qos], row.qos[4 + qos])) for qos in range(3)},
        "retain": both(row.retain),
        "dup": both(row.dup),
        "publishers": clients(0),
        "receivers": clients(1),
        "rates": _rates(sum(row.messages), sum(row.bytes), row.window, duration_ns),
        **_times(row.first_ns, row.last_ns, ("first", "last")),
    }
