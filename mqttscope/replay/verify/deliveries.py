"""Compares the messages that a broker delivered, recorded and live, as sets of messages.

`compare_deliveries` matches deliveries by topic and payload, first those that are equal in everything.  What is left on
a Shared Subscription is matched among all of its members, since the broker chooses one.  For a delivery that only one
side has, `explain_missing` and `explain_extra` decide whether it is a difference, follows from another one, or cannot
be judged.

`compare_order` compares their order as far as the specification promises one (5.0 4.6): messages of one client to one
topic that were published with one QoS come in the order in which they were published.  Nothing is promised between
topics, between clients, or between levels of QoS.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from mqttscope.mqtt.packets import Publish, Pubrel
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import Difference, DifferenceKind, described
from mqttscope.replay.verify.fields import FAILURE, Signature, block_of, field_differences, signature
from mqttscope.replay.verify.run import (
    ENDED,
    INCOMPLETE,
    NOT_PERFORMED,
    UNREADABLE,
    Key,
    Pair,
    Publication,
    ReplayRun,
    client_of,
    key_of,
)

MAX_CHOICES = 250_000
"""Pairs of deliveries of one message that are tried out to find the most similar ones."""
SLACK_S = 2
"""Seconds that a broker may be off when it counts a Message Expiry Interval down."""
_SECOND = 1_000_000_000
_OF_MEMBER = ("qos", "properties.subscription_identifier")
"""What depends on the member that a message of a Shared Subscription went to."""


@dataclass(slots=True, eq=False)
class Left:
    """Deliveries of one connection that are not matched yet, and those that are."""

    pair: Pair
    recorded: list[Entry] = field(default_factory=list)
    live: list[Entry] = field(default_factory=list)
    matched: list[tuple[Entry, Entry]] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """Which delivery of its topic an entry is, counted from 0."""


def compare_deliveries(run: ReplayRun) -> None:
    """Compare the deliveries of all connections."""
    everything = [_collect(run, pair) for pair in run.pairs]
    for left in everything:
        left.matched = _match(left)
        for recorded, live in left.matched:
            _compare(run, left.pair, recorded, live)
        compare_order(run, left.pair, left.matched)
    _match_shared(run, everything)
    unfinished = _unfinished(everything)
    for left in everything:
        _match_changed(run, left)
        for entry in left.recorded:
            explain_missing(run, left.pair, entry)
        for entry in left.live:
            packet = entry.packet
            # What the client did not acknowledge comes once more on its next connection.
            again = isinstance(packet, Publish) and packet.dup and packet.qos > 0
            if not again or key_of(entry) not in unfinished.get(client_of(left.pair.script), ()):
                explain_extra(run, left.pair, entry)


def _collect(run: ReplayRun, pair: Pair) -> Left:
    left = Left(pair)
    for entry in _deliveries(run, pair, pair.script):
        if entry.topic is None:
            pair.tally.not_judged(entry, UNREADABLE)
        else:
            left.recorded.append(entry)
    if pair.live is not None:
        left.live = [one for one in _deliveries(run, pair, pair.live) if one.topic is not None]
    for entries in (left.recorded, left.live):
        counts: dict[str | None, int] = {}
        for entry in entries:
            left.places[id(entry)] = counts[entry.topic] = counts.get(entry.topic, -1) + 1
    return left


def _deliveries(run: ReplayRun, pair: Pair, script: Script) -> Iterable[Entry]:
    for entry in script.entries:
        delivers = not entry.from_client and isinstance(entry.packet, Publish) and id(entry) not in pair.again
        if delivers and (entry.topic is None or not run.ignores(entry.topic)):
            yield entry


def _match(left: Left) -> list[tuple[Entry, Entry]]:
    """Pairs of one connection in the order of the recording; takes them from what is left."""
    waiting: dict[Key, list[Entry]] = {}
    for entry in left.live:
        waiting.setdefault(key_of(entry), []).append(entry)
    wanted: dict[Key, list[Entry]] = {}
    for entry in left.recorded:
        wanted.setdefault(key_of(entry), []).append(entry)
    pairs: list[tuple[Entry, Entry]] = []
    for key, recorded in wanted.items():
        pairs += match_alike(recorded, waiting.get(key, []))
    taken = {id(one) for pair in pairs for one in pair}
    left.recorded = [one for one in left.recorded if id(one) not in taken]
    left.live = [one for one in left.live if id(one) not in taken]
    return sorted(pairs, key=lambda pair: pair[0].place)


def match_alike(recorded: list[Entry], live: list[Entry]) -> list[tuple[Entry, Entry]]:
    """Pairs of deliveries of one message: equal ones in their order, then the most similar ones."""
    pairs, rest, others = align(recorded, live, [_signature])
    others.sort(key=lambda one: one.place)
    if len(rest) * len(others) > MAX_CHOICES:
        return pairs + list(zip(rest, others, strict=False))
    for entry in rest:
        if not others:
            break
        best = min(range(len(others)), key=lambda index: _distance(entry, others[index]))
        pairs.append((entry, others.pop(best)))
    return pairs


def align(
    recorded: Iterable[Entry], live: Iterable[Entry], levels: Iterable[Callable[[Entry], Hashable]]
) -> tuple[list[tuple[Entry, Entry]], list[Entry], list[Entry]]:
    """Pairs of packets with equal keys, and what is left on both sides.

    ``levels`` are functions that give the key, the strictest first; a packet whose key is ``None`` has no counterpart
    at that level.  Packets with equal keys become pairs in their order.
    """
    pairs: list[tuple[Entry, Entry]] = []
    left, right = list(recorded), list(live)
    for key in levels:
        waiting: dict[Hashable, deque[Entry]] = {}
        for entry in right:
            waiting.setdefault(key(entry), deque()).append(entry)
        waiting.pop(None, None)
        rest: list[Entry] = []
        taken: set[int] = set()
        for entry in left:
            equal = waiting.get(key(entry))
            if equal:
                pairs.append((entry, equal.popleft()))
                taken.add(id(pairs[-1][1]))
            else:
                rest.append(entry)
        left, right = rest, [entry for entry in right if id(entry) not in taken]
    return pairs, left, right


def _signature(entry: Entry) -> Signature:
    assert isinstance(entry.packet, Publish)
    return signature(entry.packet)


def _distance(recorded: Entry, live: Entry) -> int:
    before, now = _signature(recorded), _signature(live)
    return sum(one != other for one, other in zip(before[:3], now[:3], strict=True)) + len(set(before[3]) ^ set(now[3]))


def _compare(
    run: ReplayRun, pair: Pair, recorded: Entry, live: Entry, ignored: tuple[str, ...] = (), other: Pair | None = None
) -> None:
    """Compare two deliveries; ``other`` is the pair that got the live one where it is another one."""
    before, now = recorded.packet, live.packet
    assert isinstance(before, Publish)
    assert isinstance(now, Publish)
    pair.tally.equal(recorded)
    for one in field_differences(before, now, pair.script.version):
        if one.field in ignored:
            continue
        cause = _lower_qos(run, pair, recorded, before, now) if one.field == "qos" else None
        if cause is not None:
            pair.follow(recorded, cause)
            continue
        if one.field == "qos" and _sent_otherwise(run, recorded):
            pair.tally.not_judged(recorded, NOT_PERFORMED)
            continue
        made = pair.add(one.kind, f"The {described(recorded)} {one.told}.", recorded, live, one.change)
        if other is not None:
            made.live_script = other.live
    _expiry(run, pair, recorded, live)
    if before.qos == now.qos == 2:
        _release(pair, recorded, live)


def _lower_qos(run: ReplayRun, pair: Pair, recorded: Entry, before: Publish, now: Publish) -> Difference | None:
    """The SUBACK that granted another QoS, which explains that of the delivery."""
    for one in run.subscriptions(pair.script, recorded.topic):
        cause = run.changed.get((id(one.entry), one.position))
        if (
            cause is not None
            and cause.kind is DifferenceKind.GRANTED_QOS
            and (now.qos < before.qos) == (cause.found < cause.expected)
        ):
            return cause
    return None


def _sent_otherwise(run: ReplayRun, recorded: Entry) -> bool:
    sources = run.publications.get(key_of(recorded), ())
    return any(run.played_with_qos(one.entry) not in (None, one.qos) for one in sources)


def _expiry(run: ReplayRun, pair: Pair, recorded: Entry, live: Entry) -> None:
    """The Message Expiry Interval: what was published less the time that the message waited (5.0 3.3.2.3.3)."""
    expected, found = _interval(recorded), _interval(live)
    if (expected is None) != (found is None):
        told = "lacks its" if found is None else "has a"
        told = f"{told} Message Expiry Interval{'' if found is None else ', which the recorded one has not'}"
    else:
        if expected is None or found is None:
            return
        sources = [one for one in run.publications.get(key_of(recorded), ()) if one.expiry is not None]
        if any(_plausible(one, live, found) for one in sources) or (not sources and found <= expected):
            return
        told = f"has a Message Expiry Interval of {found} s instead of {expected} s, which the time does not explain"
    change = "properties.message_expiry_interval", expected, found
    pair.add(DifferenceKind.PROPERTY, f"The {described(recorded)} {told}.", recorded, live, change)


def _interval(entry: Entry) -> int | None:
    value: int | None = block_of(entry.packet).message_expiry_interval
    return value


def _plausible(source: Publication, live: Entry, found: int) -> bool:
    """Whether so much of the interval can be left."""
    if source.expiry is None or found > source.expiry:
        return False
    if source.performed is None:
        return True
    waited = (live.timestamp_ns - source.performed.timestamp_ns) // _SECOND
    return found >= source.expiry - max(0, waited) - SLACK_S


def _release(pair: Pair, recorded: Entry, live: Entry) -> None:
    """The PUBREL of a delivery with QoS 2."""
    expected, found = pair.releases.get(id(recorded)), pair.releases.get(id(live))
    if expected is None:
        return
    if found is not None:
        pair.tally.equal(expected)
        assert isinstance(expected.packet, Pubrel)
        assert isinstance(found.packet, Pubrel)
        for one in field_differences(expected.packet, found.packet, pair.script.version):
            pair.add(one.kind, f"The PUBREL of {described(recorded)} {one.told}.", expected, found, one.change)
    elif pair.cause is not None:
        pair.follow(expected, pair.cause)
    elif id(live) in pair.acknowledged:
        message = f"The PUBREC of {described(recorded)} was not answered with PUBREL."
        pair.add(DifferenceKind.MISSING_ANSWER, message, expected)


def _match_shared(run: ReplayRun, everything: list[Left]) -> None:
    """Match what is left on Shared Subscriptions over all of their members."""
    groups: dict[str, list[tuple[Left, Entry, bool]]] = {}
    for left in everything:
        for recorded, entries in ((True, left.recorded), (False, left.live)):
            for entry in entries:
                wanted = run.subscriptions(left.pair.script, entry.topic)
                share = next((one.topic_filter for one in wanted if one.shared), None)
                if share is not None:
                    groups.setdefault(share, []).append((left, entry, recorded))
    for members in groups.values():
        whose = {id(entry): left for left, entry, _ in members}
        pool = Left(members[0][0].pair)
        pool.recorded = sorted((one for _, one, recorded in members if recorded), key=lambda one: one.place)
        pool.live = sorted((one for _, one, recorded in members if not recorded), key=lambda one: one.place)
        taken: set[int] = set()
        for before, now in _match(pool):
            taken |= {id(before), id(now)}
            owner, other = whose[id(before)].pair, whose[id(now)].pair
            _compare(run, owner, before, now, _OF_MEMBER if owner is not other else (), other)
        for left in everything:
            left.recorded = [one for one in left.recorded if id(one) not in taken]
            left.live = [one for one in left.live if id(one) not in taken]


def _match_changed(run: ReplayRun, left: Left) -> None:
    """Pairs at the same place in a topic whose payloads differ, where nobody published the live one."""
    at = {(one.topic, left.places[id(one)]): one for one in left.live if key_of(one) not in run.publications}
    taken: set[int] = set()
    for before in left.recorded:
        now = at.pop((before.topic, left.places[id(before)]), None)
        if now is None or not isinstance(before.packet, Publish) or not isinstance(now.packet, Publish):
            continue
        if before.packet.missing:
            continue
        taken |= {id(before), id(now)}
        expected, found = before.packet.payload, now.packet.payload
        sizes = "" if len(found) == len(expected) else f" of {len(found)} bytes instead of {len(expected)}"
        message = f"The {described(before)} came with another payload{sizes}."
        left.pair.add(DifferenceKind.PAYLOAD, message, before, now, ("payload", expected, found))
    left.recorded = [one for one in left.recorded if id(one) not in taken]
    left.live = [one for one in left.live if id(one) not in taken]


def _unfinished(everything: list[Left]) -> dict[str, set[Key]]:
    """By client: messages that it got in the replay and did not acknowledge."""
    found: dict[str, set[Key]] = {}
    for left in everything:
        for _, live in left.matched:
            if id(live) not in left.pair.acknowledged:
                found.setdefault(client_of(left.pair.script), set()).add(key_of(live))
    return found


_UNPUBLISHED = (
    "; nobody publishes it in what was replayed: it was stored before, is a Will, or its publisher was left out"
)


def explain_missing(run: ReplayRun, pair: Pair, entry: Entry) -> None:
    """A delivery that did not come in the replay."""
    assert isinstance(entry.packet, Publish)
    if entry.packet.missing:
        pair.tally.not_judged(entry, UNREADABLE)
        return
    if run.was_skipped(entry) or (pair.live is None and pair.cause is None):
        pair.tally.not_judged(entry, NOT_PERFORMED)
        return
    sources = [one for one in run.publications.get(key_of(entry), ()) if one.entry.place < entry.place]
    cause = pair.cause or _subscription_cause(run, pair, entry) or _source_cause(run, sources)
    if cause is not None:
        pair.follow(entry, cause)
        return
    reason = _why_not_judged(run, pair, entry, sources)
    if reason:
        pair.tally.not_judged(entry, reason)
        return
    told = "" if sources else _UNPUBLISHED
    pair.add(DifferenceKind.MISSING_DELIVERY, f"The {described(entry)} was not delivered{told}.", entry)


def _subscription_cause(run: ReplayRun, pair: Pair, entry: Entry) -> Difference | None:
    """A refused subscription, or a session that is gone with its subscriptions and messages."""
    wanted = run.subscriptions(pair.script, entry.topic)
    causes = [run.changed.get((id(one.entry), one.position)) for one in wanted]
    refusals = [one for one in causes if one is not None and one.found >= FAILURE > one.expected]
    if refusals and len(refusals) == len(causes):
        return refusals[0]
    here = [one for one in wanted if one.script is pair.script and one.entry.place < entry.place]
    return None if here else pair.session_lost


def _source_cause(run: ReplayRun, sources: list[Publication]) -> Difference | None:
    """Why a message was not published, or was refused."""
    causes = []
    for one in sources:
        cause = run.refused.get(id(one.entry))
        if cause is None:
            cause = next((pair.cause for pair in run.pairs if pair.script is one.script and _lost(pair, one)), None)
        if cause is None:
            return None
        causes.append(cause)
    return causes[0] if causes else None


def _lost(pair: Pair, publication: Publication) -> bool:
    """Whether the broker may not have got a message, since it said nothing more to those who sent it."""
    sent = publication.performed
    if sent is None or pair.live is None:
        return True
    answers = (one.answers for one in pair.live.entries if not one.from_client)
    return all(one is None or one.place < sent.place for one in answers)


def _why_not_judged(run: ReplayRun, pair: Pair, entry: Entry, sources: list[Publication]) -> str:
    """Why nothing can be said of a missing delivery; empty where something can."""
    if sources and all(one.performed is None for one in sources):
        return NOT_PERFORMED
    if not sources and run.incomplete:
        return INCOMPLETE
    wanted = run.subscriptions(pair.script, entry.topic)
    if wanted and all(id(one.entry) not in run.performed for one in wanted):
        return NOT_PERFORMED
    if not wanted and (pair.joined or pair.script.lost_from_client):
        return INCOMPLETE
    return ""


def explain_extra(run: ReplayRun, pair: Pair, entry: Entry) -> None:
    """A delivery that the recording does not have."""
    assert isinstance(entry.packet, Publish)
    if pair.cause is not None:
        pair.cause.follows += 1  # the connection was refused in the recording alone, or ended another way
        return
    if pair.joined or pair.script.lost:
        pair.tally.not_judged(entry, INCOMPLETE)
        return
    wanted = run.subscriptions(pair.script, entry.topic)
    for one in wanted:
        cause = run.changed.get((id(one.entry), one.position))
        if cause is not None and cause.found < FAILURE <= cause.expected:
            cause.follows += 1
            return
    sources = run.publications.get(key_of(entry), [])
    for publication in sources:
        cause = run.refused.get(id(publication.entry))
        if cause is not None and cause.found is not None and cause.found < FAILURE:
            cause.follows += 1
            return
    if any(one.entry.place > pair.last_from_server for one in sources):
        # The broker said nothing more on the connection: the capture or the connection ended before.
        pair.tally.not_judged(entry, ENDED)
        return
    message = f"The {described(entry)} was not delivered in the recording."
    pair.add(DifferenceKind.EXTRA_DELIVERY, message, None, entry)


Flow = tuple[str, int, int, str]
"""Topic, QoS of the delivery and of the publication, client that published."""


def compare_order(run: ReplayRun, pair: Pair, matched: list[tuple[Entry, Entry]]) -> None:
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
            # Which one it is of its topic, counted from 1.
            before, after = (1 + sum(one[side].place < moved[0][side].place for one in found) for side in (0, 1))
            pair.add(DifferenceKind.ORDER, message, recorded, live, ("", before, after))
            for entry, _ in moved[1:]:
                pair.tally.different(entry)


def _places(found: list[tuple[Entry, Entry]]) -> list[int]:
    """Where deliveries came in the replay; nobody can tell equal ones apart, such as copies for several filters."""
    alike: dict[bytes, list[int]] = {}
    for _, live in found:
        assert isinstance(live.packet, Publish)
        alike.setdefault(live.packet.payload, []).append(live.place)
    rest = {payload: iter(sorted(places)) for payload, places in alike.items()}
    return [next(rest[live.packet.payload]) for _, live in found if isinstance(live.packet, Publish)]


def _flow(run: ReplayRun, pair: Pair, recorded: Entry, live: Entry) -> Flow | None:
    before, now = recorded.packet, live.packet
    if not isinstance(before, Publish) or not isinstance(now, Publish) or before.qos != now.qos:
        return None
    topic = recorded.topic or ""
    if before.retain or now.retain or before.dup != now.dup:
        return None  # retained messages and those sent again stand outside the order
    if any(one.shared for one in run.subscriptions(pair.script, topic)):
        return None  # the messages between went to other members
    sources = run.publications.get(key_of(recorded), [])
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
