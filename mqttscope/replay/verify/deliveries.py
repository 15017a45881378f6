"""Compares the messages that a broker delivered, recorded and live, as sets of messages.

`compare_deliveries` matches deliveries by topic and payload, first the ones equal in everything.  The remaining
deliveries of a Shared Subscription are matched among all of its members, since the broker chooses one.  For a delivery
that only one side has, `explain_missing` and `explain_extra` decide whether it is a difference, follows from another
one, or cannot be judged.

`compare_order` compares their order as far as the specification promises one (5.0 4.6): messages of one client to one
topic that were published with one QoS come in the order of publication.  Nothing is promised between
topics, between clients, or between levels of QoS.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from mqttscope.mqtt.packets import Publish, Pubrel
from mqttscope.replay.align import Pair, align, displaced, grouped
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.verify.difference import Difference, DifferenceKind, described
from mqttscope.replay.verify.fields import FAILURE, Signature, block_of, field_differences, signature
from mqttscope.replay.verify.run import (
    ENDED,
    INCOMPLETE,
    NOT_PERFORMED,
    UNREADABLE,
    ConnectionPair,
    Key,
    Publication,
    ReplayRun,
    client_of,
    key_of,
)

MAX_CHOICES = 250_000
"""Maximum number of pairs of deliveries of one message that are compared to find the most similar ones."""
SLACK_S = 2
"""Tolerance in seconds for a broker's countdown of a Message Expiry Interval."""
_SECOND = 1_000_000_000
_OF_MEMBER = ("qos", "properties.subscription_identifier")
"""Fields that depend on the member that receives a message of a Shared Subscription."""


@dataclass(slots=True, eq=False)
class UnmatchedDeliveries:
    """Deliveries of one connection that are not matched yet, and matched ones."""

    pair: ConnectionPair
    recorded: list[ScriptEntry] = field(default_factory=list)
    live: list[ScriptEntry] = field(default_factory=list)
    matched: list[Pair] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """Index of each delivery among the deliveries of its topic, from 0."""

    def remove(self, pairs: list[Pair]) -> None:
        matched = {id(entry) for pair in pairs for entry in pair}
        self.recorded = [entry for entry in self.recorded if id(entry) not in matched]
        self.live = [entry for entry in self.live if id(entry) not in matched]


def compare_deliveries(run: ReplayRun) -> None:
    """Compare the deliveries of all connections."""
    everything = [_collect(run, pair) for pair in run.pairs]
    for unmatched in everything:
        unmatched.matched = match_alike(unmatched.recorded, unmatched.live)
        unmatched.remove(unmatched.matched)
        for recorded, live in unmatched.matched:
            _compare(run, unmatched.pair, recorded, live)
        compare_order(run, unmatched.pair, unmatched.matched)
    _match_shared(run, everything)
    unfinished = _unfinished(everything)
    for unmatched in everything:
        _match_changed(run, unmatched)
        for entry in unmatched.recorded:
            explain_missing(run, unmatched.pair, entry)
        for entry in unmatched.live:
            packet = entry.packet
            # A message that the client did not acknowledge comes once more on its next connection.
            is_repetition = isinstance(packet, Publish) and packet.dup and packet.qos > 0
            if not is_repetition or key_of(entry) not in unfinished.get(client_of(unmatched.pair.script), ()):
                explain_extra(run, unmatched.pair, entry)


def _collect(run: ReplayRun, pair: ConnectionPair) -> UnmatchedDeliveries:
    unmatched = UnmatchedDeliveries(pair)
    for entry in _deliveries(run, pair, pair.script):
        if entry.topic is None:
            pair.tally.not_judged(entry, UNREADABLE)
        else:
            unmatched.recorded.append(entry)
    if pair.live is not None:
        unmatched.live = [entry for entry in _deliveries(run, pair, pair.live) if entry.topic is not None]
    for entries in (unmatched.recorded, unmatched.live):
        counts: dict[str | None, int] = {}
        for entry in entries:
            unmatched.places[id(entry)] = counts[entry.topic] = counts.get(entry.topic, -1) + 1
    return unmatched


def _deliveries(run: ReplayRun, pair: ConnectionPair, script: Script) -> Iterable[ScriptEntry]:
    for entry in script.entries:
        delivers = not entry.from_client and isinstance(entry.packet, Publish) and id(entry) not in pair.again
        if delivers and (entry.topic is None or not run.ignores(entry.topic)):
            yield entry


def match_alike(recorded: list[ScriptEntry], live: list[ScriptEntry]) -> list[Pair]:
    """Match deliveries, in the order of the recording: equal ones in their order, then the most similar ones."""
    pairs, left, right = align(recorded, live, [lambda entry: (key_of(entry), _signature(entry))])
    others = grouped(right, key_of)
    for key, rest in grouped(left, key_of).items():
        pairs += _match_similar(rest, list(others.get(key, ())))
    return sorted(pairs, key=lambda pair: pair[0].place)


def _match_similar(rest: Collection[ScriptEntry], others: list[ScriptEntry]) -> Iterator[Pair]:
    """Match deliveries of one message to the most similar ones, each in its turn."""
    if len(rest) * len(others) > MAX_CHOICES:
        yield from zip(rest, others, strict=False)
        return
    for entry in rest:
        if others:
            best = min(range(len(others)), key=lambda index: _distance(entry, others[index]))
            yield entry, others.pop(best)


def _signature(entry: ScriptEntry) -> Signature:
    assert isinstance(entry.packet, Publish)
    return signature(entry.packet)


def _distance(recorded: ScriptEntry, live: ScriptEntry) -> int:
    before, now = _signature(recorded), _signature(live)
    different = sum(old != new for old, new in zip(before[:3], now[:3], strict=True))
    return different + len(set(before[3]) ^ set(now[3]))


def _compare(
    run: ReplayRun,
    pair: ConnectionPair,
    recorded: ScriptEntry,
    live: ScriptEntry,
    ignored: tuple[str, ...] = (),
    other: ConnectionPair | None = None,
) -> None:
    """Compare two deliveries; ``other``: the connection that got the live one, if it is another connection."""
    before, now = recorded.packet, live.packet
    assert isinstance(before, Publish)
    assert isinstance(now, Publish)
    pair.tally.equal(recorded)
    for change in field_differences(before, now, pair.script.version):
        if change.field in ignored:
            continue
        cause = _lower_qos(run, pair, recorded, before, now) if change.field == "qos" else None
        if cause is not None:
            pair.follow(recorded, cause)
            continue
        if change.field == "qos" and _sent_otherwise(run, recorded):
            pair.tally.not_judged(recorded, NOT_PERFORMED)
            continue
        difference = pair.add(change.kind, f"The {described(recorded)} {change.phrase}.", recorded, live, change.change)
        if other is not None:
            difference.live_script = other.live
    _compare_expiry(run, pair, recorded, live)
    if before.qos == now.qos == 2:
        _compare_release(pair, recorded, live)


def _lower_qos(
    run: ReplayRun, pair: ConnectionPair, recorded: ScriptEntry, before: Publish, now: Publish
) -> Difference | None:
    """The difference in a SUBACK that explains another QoS of the delivery."""
    for subscription in run.subscriptions(pair.script, recorded.topic):
        cause = run.changed.get((id(subscription.entry), subscription.position))
        if (
            cause is not None
            and cause.kind is DifferenceKind.GRANTED_QOS
            and (now.qos < before.qos) == (cause.actual < cause.expected)
        ):
            return cause
    return None


def _sent_otherwise(run: ReplayRun, recorded: ScriptEntry) -> bool:
    sources = run.publications.get(key_of(recorded), ())
    return any(run.played_with_qos(source.entry) not in (None, source.qos) for source in sources)


def _compare_expiry(run: ReplayRun, pair: ConnectionPair, recorded: ScriptEntry, live: ScriptEntry) -> None:
    """Compare the Message Expiry Interval: the published one less the waiting time of the message (5.0 3.3.2.3.3)."""
    expected, actual = _interval(recorded), _interval(live)
    if (expected is None) != (actual is None):
        phrase = "lacks its" if actual is None else "has a"
        phrase = f"{phrase} Message Expiry Interval{'' if actual is None else ', which the recorded one does not have'}"
    else:
        if expected is None or actual is None:
            return
        sources = [source for source in run.publications.get(key_of(recorded), ()) if source.expiry is not None]
        if any(_plausible(source, live, actual) for source in sources) or (not sources and actual <= expected):
            return
        phrase = f"has a Message Expiry Interval of {actual} s instead of {expected} s, which the time does not explain"
    change = "properties.message_expiry_interval", expected, actual
    pair.add(DifferenceKind.PROPERTY, f"The {described(recorded)} {phrase}.", recorded, live, change)


def _interval(entry: ScriptEntry) -> int | None:
    value: int | None = block_of(entry.packet).message_expiry_interval
    return value


def _plausible(source: Publication, live: ScriptEntry, remaining_s: int) -> bool:
    """Whether that much of the interval can be left."""
    if source.expiry is None or remaining_s > source.expiry:
        return False
    if source.performed is None:
        return True
    waited = (live.timestamp_ns - source.performed.timestamp_ns) // _SECOND
    return remaining_s >= source.expiry - max(0, waited) - SLACK_S


def _compare_release(pair: ConnectionPair, recorded: ScriptEntry, live: ScriptEntry) -> None:
    """Compare the PUBREL of a delivery with QoS 2."""
    expected, actual = pair.releases.get(id(recorded)), pair.releases.get(id(live))
    if expected is None:
        return
    if actual is not None:
        pair.tally.equal(expected)
        assert isinstance(expected.packet, Pubrel)
        assert isinstance(actual.packet, Pubrel)
        for change in field_differences(expected.packet, actual.packet, pair.script.version):
            message = f"The PUBREL of {described(recorded)} {change.phrase}."
            pair.add(change.kind, message, expected, actual, change.change)
    elif pair.cause is not None:
        pair.follow(expected, pair.cause)
    elif id(live) in pair.acknowledged:
        message = f"The PUBREC of {described(recorded)} was not answered with PUBREL."
        pair.add(DifferenceKind.MISSING_ANSWER, message, expected)


def _match_shared(run: ReplayRun, everything: list[UnmatchedDeliveries]) -> None:
    """Match the remaining deliveries of Shared Subscriptions among all of their members."""
    owners: dict[int, ConnectionPair] = {}
    groups: dict[str, tuple[list[ScriptEntry], list[ScriptEntry]]] = {}
    for unmatched in everything:
        for side, entries in enumerate((unmatched.recorded, unmatched.live)):
            for entry in entries:
                rows = run.subscriptions(unmatched.pair.script, entry.topic)
                share = next((subscription.topic_filter for subscription in rows if subscription.shared), None)
                if share is not None:
                    owners[id(entry)] = unmatched.pair
                    groups.setdefault(share, ([], []))[side].append(entry)
    matched: list[Pair] = []
    for sides in groups.values():
        recorded, live = (sorted(side, key=attrgetter("place")) for side in sides)
        for before, now in match_alike(recorded, live):
            matched.append((before, now))
            owner, other = owners[id(before)], owners[id(now)]
            _compare(run, owner, before, now, _OF_MEMBER if owner is not other else (), other)
    for unmatched in everything:
        unmatched.remove(matched)


def _match_changed(run: ReplayRun, unmatched: UnmatchedDeliveries) -> None:
    """Match deliveries at the same index of a topic that differ in payload, if no client published the live one."""
    recorded = [entry for entry in unmatched.recorded if not key_of(entry)[2]]
    live = [entry for entry in unmatched.live if key_of(entry) not in run.publications]
    matched, _, _ = align(recorded, live, [lambda entry: (entry.topic, unmatched.places[id(entry)])])
    for before, now in matched:
        assert isinstance(before.packet, Publish)
        assert isinstance(now.packet, Publish)
        expected, actual = before.packet.payload, now.packet.payload
        sizes = "" if len(actual) == len(expected) else f" of {len(actual)} bytes instead of {len(expected)}"
        message = f"The {described(before)} came with another payload{sizes}."
        unmatched.pair.add(DifferenceKind.PAYLOAD, message, before, now, ("payload", expected, actual))
    unmatched.remove(matched)


def _unfinished(everything: list[UnmatchedDeliveries]) -> dict[str, set[Key]]:
    """Messages that each client received in the replay and did not acknowledge."""
    unacknowledged: dict[str, set[Key]] = {}
    for unmatched in everything:
        for _, live in unmatched.matched:
            if id(live) not in unmatched.pair.acknowledged:
                unacknowledged.setdefault(client_of(unmatched.pair.script), set()).add(key_of(live))
    return unacknowledged


_UNPUBLISHED = "; no replayed client publishes it: it was stored before, is a Will, or its publisher was left out"


def explain_missing(run: ReplayRun, pair: ConnectionPair, entry: ScriptEntry) -> None:
    """Classify a delivery that did not come in the replay."""
    assert isinstance(entry.packet, Publish)
    if entry.packet.missing:
        pair.tally.not_judged(entry, UNREADABLE)
        return
    if run.was_skipped(entry) or (pair.live is None and pair.cause is None):
        pair.tally.not_judged(entry, NOT_PERFORMED)
        return
    sources = [source for source in run.publications.get(key_of(entry), ()) if source.entry.place < entry.place]
    cause = pair.cause or _subscription_cause(run, pair, entry) or _source_cause(run, sources)
    if cause is not None:
        pair.follow(entry, cause)
        return
    reason = _why_not_judged(run, pair, entry, sources)
    if reason:
        pair.tally.not_judged(entry, reason)
        return
    explanation = "" if sources else _UNPUBLISHED
    pair.add(DifferenceKind.MISSING_DELIVERY, f"The {described(entry)} was not delivered{explanation}.", entry)


def _subscription_cause(run: ReplayRun, pair: ConnectionPair, entry: ScriptEntry) -> Difference | None:
    """Cause of a missing delivery: a refused subscription, or a session lost with its subscriptions and messages."""
    subscriptions = run.subscriptions(pair.script, entry.topic)
    causes = [run.changed.get((id(subscription.entry), subscription.position)) for subscription in subscriptions]
    refusals = [cause for cause in causes if cause is not None and cause.actual >= FAILURE > cause.expected]
    if refusals and len(refusals) == len(causes):
        return refusals[0]
    own_rows = [row for row in subscriptions if row.script is pair.script and row.entry.place < entry.place]
    return None if own_rows else pair.session_lost


def _source_cause(run: ReplayRun, sources: list[Publication]) -> Difference | None:
    """Cause of a missing delivery: its message was not published, or was refused."""
    causes = []
    for source in sources:
        cause = run.refused.get(id(source.entry))
        if cause is None:
            pairs = (pair for pair in run.pairs if pair.script is source.script)
            cause = next((pair.cause for pair in pairs if _may_be_lost(pair, source)), None)
        if cause is None:
            return None
        causes.append(cause)
    return causes[0] if causes else None


def _may_be_lost(pair: ConnectionPair, publication: Publication) -> bool:
    """Whether the broker may not have received a message: it sent the publisher nothing afterwards."""
    sent = publication.performed
    if sent is None or pair.live is None:
        return True
    answers = (answer.answers for answer in pair.live.entries if not answer.from_client)
    return all(request is None or request.place < sent.place for request in answers)


def _why_not_judged(run: ReplayRun, pair: ConnectionPair, entry: ScriptEntry, sources: list[Publication]) -> str:
    """Why a missing delivery cannot be judged; empty if it can."""
    if sources and all(source.performed is None for source in sources):
        return NOT_PERFORMED
    if not sources and run.incomplete:
        return INCOMPLETE
    subscriptions = run.subscriptions(pair.script, entry.topic)
    if subscriptions and all(id(subscription.entry) not in run.performed for subscription in subscriptions):
        return NOT_PERFORMED
    if not subscriptions and (pair.joined or pair.script.lost_from_client):
        return INCOMPLETE
    return ""


def explain_extra(run: ReplayRun, pair: ConnectionPair, entry: ScriptEntry) -> None:
    """Classify a delivery that the recording does not have."""
    assert isinstance(entry.packet, Publish)
    if pair.cause is not None:
        pair.cause.follows += 1  # the connection was refused only in the recording, or ended in another way
        return
    if pair.joined or pair.script.lost:
        pair.tally.not_judged(entry, INCOMPLETE)
        return
    subscriptions = run.subscriptions(pair.script, entry.topic)
    for subscription in subscriptions:
        cause = run.changed.get((id(subscription.entry), subscription.position))
        if cause is not None and cause.actual < FAILURE <= cause.expected:
            cause.follows += 1
            return
    sources = run.publications.get(key_of(entry), [])
    for publication in sources:
        cause = run.refused.get(id(publication.entry))
        if cause is not None and cause.actual is not None and cause.actual < FAILURE:
            cause.follows += 1
            return
    if any(source.entry.place > pair.last_from_server for source in sources):
        # The broker sent nothing more on the connection: the capture or the connection ended before.
        pair.tally.not_judged(entry, ENDED)
        return
    message = f"The {described(entry)} was not delivered in the recording."
    pair.add(DifferenceKind.EXTRA_DELIVERY, message, None, entry)


Flow = tuple[str, int, int, str]
"""Topic, QoS of the delivery and of the publication, publishing client."""


def compare_order(run: ReplayRun, pair: ConnectionPair, matched: list[Pair]) -> None:
    """Compare the order of matched deliveries."""
    for moved, deliveries in displaced(matched, partial(_flow, run, pair), _places):
        recorded, live = moved[0]
        count = len(moved)
        phrase = "came" if count == 1 else f"and {count - 1} more of its topic came"
        message = f"The {described(recorded)} {phrase} at another place in the order of its topic."
        # Index of the delivery within its topic, from 1.
        before, after = (1 + sum(row[side].place < moved[0][side].place for row in deliveries) for side in (0, 1))
        pair.add(DifferenceKind.ORDER, message, recorded, live, ("", before, after))
        for entry, _ in moved[1:]:
            pair.tally.different(entry)


def _places(deliveries: Sequence[Pair]) -> list[int]:
    """Places of deliveries in the replay; equal ones, such as copies for several filters, are interchangeable."""
    alike: dict[bytes, list[int]] = {}
    for _, live in deliveries:
        assert isinstance(live.packet, Publish)
        alike.setdefault(live.packet.payload, []).append(live.place)
    rest = {payload: iter(sorted(places)) for payload, places in alike.items()}
    return [next(rest[live.packet.payload]) for _, live in deliveries if isinstance(live.packet, Publish)]


def _flow(run: ReplayRun, pair: ConnectionPair, recorded: ScriptEntry, live: ScriptEntry) -> Flow | None:
    before, now = recorded.packet, live.packet
    if not isinstance(before, Publish) or not isinstance(now, Publish) or before.qos != now.qos:
        return None
    topic = recorded.topic or ""
    if before.retain or now.retain or before.dup != now.dup:
        return None  # the order does not include retained and resent messages
    if any(subscription.shared for subscription in run.subscriptions(pair.script, topic)):
        return None  # the messages between went to other members
    sources = run.publications.get(key_of(recorded), [])
    if len({(source.client, source.qos) for source in sources}) != 1:
        return None  # the publishing client and its QoS are uncertain
    return topic, before.qos, sources[0].qos, sources[0].client
