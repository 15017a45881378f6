"""Latencies of a broker: of its answers to each kind of packet, and of deliveries.

Times come from the captured packets.  If a packet was sent again, the first one counts, and only the first
answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from mqttscope.mqtt.packets import Publish
from mqttscope.replay.script import Script, ScriptEntry

HANDSHAKES = {
    "connect": "CONNECT to CONNACK",
    "publish-qos-1": "PUBLISH to PUBACK, QoS 1",
    "publish-qos-2": "PUBLISH to PUBCOMP, QoS 2",
    "subscribe": "SUBSCRIBE to SUBACK",
    "unsubscribe": "UNSUBSCRIBE to UNSUBACK",
    "ping": "PINGREQ to PINGRESP",
    "delivery": "PUBLISH to its first delivery",
}
"""Kinds of latencies in the order of reports, with a description."""

_ANSWERS = {
    "connack": "connect",
    "puback": "publish-qos-1",
    "pubcomp": "publish-qos-2",
    "suback": "subscribe",
    "unsuback": "unsubscribe",
    "pingresp": "ping",
}
PERCENTILES = (50, 95, 99)


@dataclass(slots=True)
class Quantiles:
    """Distribution of the times of one kind, in nanoseconds."""

    count: int
    minimum: int
    p50: int
    p95: int
    p99: int
    maximum: int


def latencies(script: Script) -> dict[str, list[int]]:
    """Times in nanoseconds by kind, for everything that the broker answered on one connection."""
    times: dict[str, list[int]] = {}
    answered: set[tuple[int, str]] = set()
    for entry in script.entries:
        kind = _ANSWERS.get(entry.type)
        request = entry.answers
        if kind is None or entry.from_client or request is None or not request.from_client:
            continue
        if (id(request), kind) not in answered:
            answered.add((id(request), kind))
            # A clock that was set back must not make a time negative.
            times.setdefault(kind, []).append(max(0, entry.timestamp_ns - request.timestamp_ns))
    return times


def run_latencies(scripts: Iterable[Script]) -> dict[str, list[int]]:
    """Latencies of all connections of a run, with the times from a PUBLISH to its first delivery."""
    scripts = list(scripts)
    times: dict[str, list[int]] = {}
    for script in scripts:
        for kind, values in latencies(script).items():
            times.setdefault(kind, []).extend(values)
    delivered = _deliveries(scripts)
    if delivered:
        times["delivery"] = delivered
    return times


def _deliveries(scripts: list[Script]) -> list[int]:
    """Times from a PUBLISH to its first delivery; each connection gets repeated messages in order, from its own start.

    Retained messages are left out: they wait for a subscription, not for the broker.
    """
    places = [(entry.place, entry, script) for script in scripts for entry in script.entries if _is_measured(entry)]
    places.sort(key=lambda row: row[0])
    published: dict[tuple[str, bytes], list[ScriptEntry]] = {}
    waiting: dict[tuple[int, tuple[str, bytes]], deque[int]] = {}
    queued: dict[tuple[int, tuple[str, bytes]], int] = {}
    first: dict[int, int] = {}
    for _, entry, script in places:
        assert isinstance(entry.packet, Publish)
        key = entry.topic or "", entry.packet.payload
        sources = published.setdefault(key, [])
        if entry.from_client:
            sources.append(entry)
            continue
        receiver = id(script), key
        queue = waiting.setdefault(receiver, deque())
        for index in range(queued.get(receiver, 0), len(sources)):
            if sources[index].place >= script.opened_place:
                queue.append(index)
        queued[receiver] = len(sources)
        if queue:
            source = sources[queue.popleft()]
            first.setdefault(id(source), max(0, entry.timestamp_ns - source.timestamp_ns))
    return list(first.values())


def _is_measured(entry: ScriptEntry) -> bool:
    packet = entry.packet
    if not isinstance(packet, Publish) or entry.topic is None or entry.resends is not None or packet.dup:
        return False
    return not packet.missing and (entry.from_client or not packet.retain)


def quantiles(values: Sequence[int]) -> Quantiles | None:
    """Count, extremes and percentiles (nearest rank) of times; ``None`` without times."""
    if not values:
        return None
    ordered = sorted(values)

    def rank(percent: int) -> int:
        return ordered[max(1, ceil(len(ordered) * percent / 100)) - 1]

    p50, p95, p99 = map(rank, PERCENTILES)
    return Quantiles(len(ordered), ordered[0], p50, p95, p99, ordered[-1])


def side_by_side(
    recorded: Mapping[str, Sequence[int]], live: Mapping[str, Sequence[int]]
) -> list[tuple[str, Quantiles | None, Quantiles | None]]:
    """Recorded and live times for each kind that either side has."""
    return [
        (kind, quantiles(recorded.get(kind, ())), quantiles(live.get(kind, ())))
        for kind in HANDSHAKES
        if recorded.get(kind) or live.get(kind)
    ]
