"""The order of deliveries, as far as the specification promises one (5.0 4.6).

Messages of one client to one topic that were published with one QoS come in the order in which they were published.
Nothing is promised between topics, between clients, or between levels of QoS.
"""

from __future__ import annotations

from bisect import bisect_left

from mqttscope.mqtt.packets import Publish
from mqttscope.replay.script import Entry
from mqttscope.replay.verify.difference import Difference, Kind, described
from mqttscope.replay.verify.run import Pair, Run

Flow = tuple[str, int, int, str]
"""Topic, QoS of the delivery and of the publication, client that published."""


def compare_order(run: Run, pair: Pair, matched: list[tuple[Entry, Entry]]) -> None:
    """Compare the order of matched deliveries, given in the order of the recording."""
    flows: dict[Flow, list[tuple[Entry, Entry]]] = {}
    for recorded, live in matched:
        flow = _flow(run, pair, recorded, live)
        if flow is not None:
            flows.setdefault(flow, []).append((recorded, live))
    for found in flows.values():
        kept = longest_rise(_places(found))
        moved = [one for index, one in enumerate(found) if index not in kept]
        if moved:
            recorded, live = moved[0]
            count = len(moved)
            told = "came" if count == 1 else f"and {count - 1} more of its topic came"
            message = f"The {described(recorded)} {told} at another place in the order of its topic."
            made = pair.add(Difference(Kind.ORDER, pair.script, recorded, live, message=message))
            made.expected = _rank([one.place for one, _ in found], recorded.place)
            made.found = _rank([one.place for _, one in found], live.place)
            for before, _ in moved[1:]:
                pair.tally.different(before)


def _places(found: list[tuple[Entry, Entry]]) -> list[int]:
    """Where deliveries came in the replay; nobody can tell equal ones apart, such as copies for several filters."""
    alike: dict[bytes, list[int]] = {}
    for _, live in found:
        assert isinstance(live.packet, Publish)
        alike.setdefault(live.packet.payload, []).append(live.place)
    rest = {payload: iter(sorted(places)) for payload, places in alike.items()}
    return [next(rest[live.packet.payload]) for _, live in found if isinstance(live.packet, Publish)]


def _rank(places: list[int], place: int) -> int:
    """Which one it is of its topic, counted from 1."""
    return 1 + sum(one < place for one in places)


def _flow(run: Run, pair: Pair, recorded: Entry, live: Entry) -> Flow | None:
    before, now = recorded.packet, live.packet
    if not isinstance(before, Publish) or not isinstance(now, Publish) or before.qos != now.qos:
        return None
    topic = recorded.topic or ""
    if before.retain or now.retain or before.dup != now.dup:
        return None  # retained messages and those sent again stand outside the order
    if any(one.shared for one in run.subscriptions(pair.script, topic)):
        return None  # the messages between went to other members
    sources = run.publications.get((topic, before.payload, before.missing), [])
    if len({(one.client, one.qos) for one in sources}) != 1:
        return None  # nobody knows which client's order it belongs to
    return topic, before.qos, sources[0].qos, sources[0].client


def longest_rise(values: list[int]) -> set[int]:
    """Indexes of a longest part of the values that rises: the rest has moved."""
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
    found = set()
    index = last[-1] if last else -1
    while index >= 0:
        found.add(index)
        index = before[index]
    return found
