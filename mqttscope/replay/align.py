"""The one aligner: pairs recorded packets with live ones, or the packets of two captures.

Packets with equal *keys* become pairs, in their order.  Each user has its keys by *level*, the strictest first.

`align` pairs two complete sequences: all packets at one level before the next one, so no exact match is lost to a
similar packet.  `Counterparts` takes live packets one at a time, since a player has to answer at once: each one goes
through all levels.  If recorded messages ``t 1`` and ``t 2`` come back as ``t 3`` and ``t 1``, `align` pairs ``t 3``
with ``t 2``; `Counterparts` pairs ``t 3`` with ``t 1``, and then ``t 1`` with ``t 1`` as well.

`displaced` finds pairs that have moved in the order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeVar

from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Publish, Subscribe, Unsubscribe
from mqttscope.replay.script import ScriptEntry

T = TypeVar("T")
Key = Callable[[T], Hashable]
Pair = tuple[ScriptEntry, ScriptEntry]
"""A recorded packet (of A) and its live counterpart (of B)."""


def filters_of(packet: ControlPacket | Malformed) -> list[str]:
    """Topic Filters of a SUBSCRIBE or an UNSUBSCRIBE, in their order."""
    if isinstance(packet, Subscribe):
        return [subscription.topic_filter for subscription in packet.subscriptions]
    return packet.topic_filters if isinstance(packet, Unsubscribe) else []


_KEYS: dict[str, Key[ScriptEntry]] = {
    "content": lambda entry: repr(entry.packet),
    "filters": lambda entry: tuple(filters_of(entry.packet)),
    "sorted_filters": lambda entry: tuple(sorted(filters_of(entry.packet))),
    "filter_set": lambda entry: frozenset(filters_of(entry.packet)),
    "reason_code": lambda entry: getattr(entry.packet, "reason_code", None),
    # Of a payload alone only a payload with bytes can be recognised.
    "only_payload": lambda entry: entry.packet.payload or id(entry),  # type: ignore[union-attr]
    "type": lambda entry: None,
    "nothing": id,
}


def packet_keys(publish: str, requests: str, malformed: str, others: str) -> list[Key[ScriptEntry]]:
    """Keys of one user by level, for each type of packet: names in `_KEYS`, else attributes of the packet.

    ``type`` is equal for all packets of a type; ``nothing`` is equal for no two packets.
    """
    names = {Publish: publish, Subscribe: requests, Unsubscribe: requests, Malformed: malformed}
    rows = [[_key_of(key) for key in row.split(", ")] for row in (*names.values(), others)]
    return [_by_type(dict(zip(names, keys, strict=False)), keys[-1]) for keys in zip(*rows, strict=True)]


def _key_of(names: str) -> Key[ScriptEntry]:
    if names in _KEYS:
        return _KEYS[names]
    return attrgetter(*(name if name in ("topic", "meaning") else f"packet.{name}" for name in names.split()))


def _by_type(keys: dict[type, Key[ScriptEntry]], others: Key[ScriptEntry]) -> Key[ScriptEntry]:
    def key(entry: ScriptEntry) -> Hashable:
        kind = type(entry.packet)
        return kind, keys.get(kind, others)(entry)

    return key


CAPTURE_KEYS, CAPTURE_KEYS_WITHOUT_PAYLOAD = (
    packet_keys(
        publish=publish,
        requests="filters, sorted_filters, sorted_filters",
        malformed="raw, reason, reason",
        others="reason_code, type, type",
    )
    for publish in ("topic meaning qos retain, topic meaning, topic", "topic qos retain, topic, topic")
)
"""Two captures (`compare`)."""
DEVICE_KEYS = packet_keys(
    publish="topic payload qos, topic payload, topic, only_payload",
    requests="content, filter_set, filter_set, type",
    malformed="raw, raw, raw, nothing",
    others="content, type, type, type",
)
"""A recorded client, and the device in its place (`serve --verify`)."""
MESSAGE_ORDER = packet_keys(publish="type", requests="nothing", malformed="nothing", others="nothing")
SERVER_KEYS = packet_keys(
    publish="topic payload, topic, nothing",
    requests="filters, filter_set, type",
    malformed="raw, raw, type",
    others="type, type, type",
)
"""A recorded client, and the device while it is served (`serve`)."""
CLIENT_KEYS = packet_keys(publish="topic payload", requests="type", malformed="raw", others="type")
"""A recorded server, and the live one while its client is played (`replay`)."""


def align(
    recorded: Iterable[T], live: Iterable[T], levels: Iterable[Key[T]]
) -> tuple[list[tuple[T, T]], list[T], list[T]]:
    """Pairs with equal keys, and what is left on both sides; each level takes what the levels before it left."""
    pairs: list[tuple[T, T]] = []
    left, right = list(recorded), list(live)
    for key in levels:
        if not left or not right:
            break
        waiting = grouped(right, key)
        rest: list[T] = []
        matched: set[int] = set()
        for item in left:
            equal = waiting.get(key(item))
            if equal:
                pairs.append((item, equal.popleft()))
                matched.add(id(pairs[-1][1]))
            else:
                rest.append(item)
        if matched:
            left, right = rest, [item for item in right if id(item) not in matched]
    return pairs, left, right


def grouped(items: Iterable[T], key: Key[T]) -> dict[Hashable, deque[T]]:
    """Items by key, in their order."""
    groups: dict[Hashable, deque[T]] = {}
    for item in items:
        groups.setdefault(key(item), deque()).append(item)
    return groups


@dataclass(slots=True)
class Counterparts:
    """Finds the recorded packet for each live one as it comes.

    A recorded packet matched to a similar one can be matched once more to an equal one: so an extra packet takes no
    match away from the packets after it.
    """

    recorded: Iterable[ScriptEntry]
    levels: Iterable[Key[ScriptEntry]]
    matched: dict[ScriptEntry, int] = field(default_factory=dict)
    """Level at which each matched packet was matched."""
    _waiting: list[tuple[Key[ScriptEntry], dict[Hashable, deque[ScriptEntry]]]] = field(init=False)

    def __post_init__(self) -> None:
        recorded = list(self.recorded)
        self._waiting = [(key, grouped(recorded, key)) for key in self.levels]

    def find(self, live: ScriptEntry, expected: ScriptEntry | None = None) -> tuple[ScriptEntry, int] | None:
        """The recorded packet that matches a live one, and the level; ``None`` if the recording has no match.

        ``expected``: packet that the recording has next; it matches a packet of its type that resembles nothing else.
        """
        for level, (key, groups) in enumerate(self._waiting):
            waiting = groups.get(key(live))
            while waiting:
                first = waiting[0]
                if first not in self.matched or (level == 0 and self.matched[first]):
                    return self._match(first, level)
                waiting.popleft()
        if expected is None or type(expected.packet) is not type(live.packet) or expected in self.matched:
            return None
        return self._match(expected, len(self._waiting))

    def _match(self, entry: ScriptEntry, level: int) -> tuple[ScriptEntry, int]:
        self.matched[entry] = level
        return entry, level


def displaced(
    pairs: Iterable[Pair],
    flow: Callable[[ScriptEntry, ScriptEntry], Hashable],
    places: Callable[[Sequence[Pair]], list[int]] | None = None,
) -> Iterator[tuple[list[Pair], list[Pair]]]:
    """Pairs of each flow that have moved, and all pairs of the flow in recorded order.

    ``flow`` returns what keeps its order, or ``None`` for a pair without one; ``places`` the places of live packets.
    """
    flows: dict[Hashable, list[Pair]] = {}
    for pair in sorted(pairs, key=lambda pair: pair[0].place):
        key = flow(*pair)
        if key is not None:
            flows.setdefault(key, []).append(pair)
    for members in flows.values():
        in_order = longest_rise(places(members) if places else [live.place for _, live in members])
        if len(in_order) < len(members):
            yield [pair for index, pair in enumerate(members) if index not in in_order], members


def longest_rise(values: Sequence[int]) -> set[int]:
    """Indexes of a longest rising subsequence; the other values have moved."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, value in enumerate(values):
        at = bisect_left(ends, value)
        before.append(last[at - 1] if at else -1)
        if at == len(ends):
            ends.append(value)
            last.append(index)
        else:
            ends[at], last[at] = value, index
    rising = set()
    index = last[-1] if last else -1
    while index >= 0:
        rising.add(index)
        index = before[index]
    return rising
