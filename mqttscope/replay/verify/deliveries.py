"""The messages that the broker delivered, recorded and live, compared as what they are: sets of messages.

Deliveries are matched by topic and payload, first those that mean the same altogether.  What is left on a Shared
Subscription is matched among all of its members, since the broker chooses one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from mqttscope.mqtt.packets import Publish, Pubrel
from mqttscope.mqtt.properties import EMPTY
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import Difference, Kind, described
from mqttscope.replay.verify.fields import EXPIRY, Signature, field_differences, signature
from mqttscope.replay.verify.missing import explain_extra, explain_missing
from mqttscope.replay.verify.order import compare_order
from mqttscope.replay.verify.run import NOT_PERFORMED, UNREADABLE, Key, Pair, Publication, Run, client_of

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


def compare_deliveries(run: Run) -> None:
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


def key_of(entry: Entry) -> Key:
    """What tells messages apart."""
    assert isinstance(entry.packet, Publish)
    return entry.topic or "", entry.packet.payload, entry.packet.missing


def _collect(run: Run, pair: Pair) -> Left:
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


def _deliveries(run: Run, pair: Pair, script: Script) -> Iterable[Entry]:
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
    if not recorded or not live:
        return []
    by_signature: dict[Signature, deque[Entry]] = {}
    for entry in live:
        by_signature.setdefault(_signature(entry), deque()).append(entry)
    pairs, rest = [], []
    for entry in recorded:
        same = by_signature.get(_signature(entry))
        if same:
            pairs.append((entry, same.popleft()))
        else:
            rest.append(entry)
    others = [one for same in by_signature.values() for one in same]
    others.sort(key=lambda one: one.place)
    if len(rest) * len(others) > MAX_CHOICES:
        return pairs + list(zip(rest, others, strict=False))
    for entry in rest:
        if not others:
            break
        best = min(range(len(others)), key=lambda index: _distance(entry, others[index]))
        pairs.append((entry, others.pop(best)))
    return pairs


def _signature(entry: Entry) -> Signature:
    assert isinstance(entry.packet, Publish)
    return signature(entry.packet)


def _distance(recorded: Entry, live: Entry) -> int:
    before, now = _signature(recorded), _signature(live)
    return sum(one != other for one, other in zip(before[:3], now[:3], strict=True)) + len(set(before[3]) ^ set(now[3]))


def _compare(
    run: Run, pair: Pair, recorded: Entry, live: Entry, ignored: tuple[str, ...] = (), other: Pair | None = None
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
        message = f"The {described(recorded)} {one.told}."
        made = Difference(one.kind, pair.script, recorded, live, one.field, one.expected, one.found, message)
        made.live_script = None if other is None else other.live
        pair.add(made)
    _expiry(run, pair, recorded, live)
    if before.qos == now.qos == 2:
        _release(pair, recorded, live)


def _lower_qos(run: Run, pair: Pair, recorded: Entry, before: Publish, now: Publish) -> Difference | None:
    """The SUBACK that granted another QoS, which explains that of the delivery."""
    for one in run.subscriptions(pair.script, recorded.topic or ""):
        cause = run.changed.get((id(one.entry), one.position))
        if (
            cause is not None
            and cause.kind is Kind.GRANTED_QOS
            and (now.qos < before.qos) == (cause.found < cause.expected)
        ):
            return cause
    return None


def _sent_otherwise(run: Run, recorded: Entry) -> bool:
    """Whether the replay sent the message with another QoS itself."""
    sources = run.publications.get(key_of(recorded), ())
    return any(run.played_with_qos(one.entry) not in (None, one.qos) for one in sources)


def _expiry(run: Run, pair: Pair, recorded: Entry, live: Entry) -> None:
    """The Message Expiry Interval: what was published less the time that the message waited (5.0 3.3.2.3.3)."""
    expected, found = _interval(recorded), _interval(live)
    name = "properties.message_expiry_interval"
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
    message = f"The {described(recorded)} {told}."
    pair.add(Difference(Kind.PROPERTY, pair.script, recorded, live, name, expected, found, message))


def _interval(entry: Entry) -> int | None:
    block = getattr(entry.packet, "properties", None) or EMPTY
    value: int | None = block.first(EXPIRY)
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
            message = f"The PUBREL of {described(recorded)} {one.told}."
            pair.add(Difference(one.kind, pair.script, expected, found, one.field, one.expected, one.found, message))
    elif pair.cause is not None:
        pair.follow(expected, pair.cause)
    elif id(live) in pair.acknowledged:
        message = f"The PUBREC of {described(recorded)} was not answered with PUBREL."
        pair.add(Difference(Kind.MISSING_ANSWER, pair.script, expected, message=message))


def _match_shared(run: Run, everything: list[Left]) -> None:
    """Match what is left on Shared Subscriptions over all of their members."""
    groups: dict[str, list[tuple[Left, Entry, bool]]] = {}
    for left in everything:
        for recorded, entries in ((True, left.recorded), (False, left.live)):
            for entry in entries:
                wanted = run.subscriptions(left.pair.script, entry.topic or "")
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


def _match_changed(run: Run, left: Left) -> None:
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
        left.pair.add(Difference(Kind.PAYLOAD, left.pair.script, before, now, "payload", expected, found, message))
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
