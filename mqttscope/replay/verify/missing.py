"""Deliveries that only one side has: whether they are differences, follow from others, or cannot be judged."""

from __future__ import annotations

from mqttscope.mqtt.packets import Publish
from mqttscope.replay.script import Entry
from mqttscope.replay.verify.difference import Difference, Kind, described
from mqttscope.replay.verify.fields import FAILURE
from mqttscope.replay.verify.run import ENDED, INCOMPLETE, NOT_PERFORMED, UNREADABLE, Pair, Publication, Run

_UNPUBLISHED = (
    "; nobody publishes it in what was replayed: it was stored before, is a Will, or its publisher was left out"
)


def explain_missing(run: Run, pair: Pair, entry: Entry) -> None:
    """A delivery that did not come in the replay."""
    assert isinstance(entry.packet, Publish)
    if entry.packet.missing:
        pair.tally.not_judged(entry, UNREADABLE)
        return
    if run.was_skipped(entry) or (pair.live is None and pair.cause is None):
        pair.tally.not_judged(entry, NOT_PERFORMED)
        return
    key = entry.topic or "", entry.packet.payload, entry.packet.missing
    sources = [one for one in run.publications.get(key, ()) if one.entry.place < entry.place]
    cause = pair.cause or _subscription_cause(run, pair, entry) or _source_cause(run, sources)
    if cause is not None:
        pair.follow(entry, cause)
        return
    reason = _why_not_judged(run, pair, entry, sources)
    if reason:
        pair.tally.not_judged(entry, reason)
        return
    told = "" if sources else _UNPUBLISHED
    message = f"The {described(entry)} was not delivered{told}."
    pair.add(Difference(Kind.MISSING_DELIVERY, pair.script, entry, message=message))


def _subscription_cause(run: Run, pair: Pair, entry: Entry) -> Difference | None:
    """A refused subscription, or a session that is gone with its subscriptions and messages."""
    wanted = run.subscriptions(pair.script, entry.topic or "")
    causes = [run.changed.get((id(one.entry), one.position)) for one in wanted]
    refusals = [one for one in causes if one is not None and one.found >= FAILURE > one.expected]
    if refusals and len(refusals) == len(causes):
        return refusals[0]
    here = [one for one in wanted if one.script is pair.script and one.entry.place < entry.place]
    return None if here else pair.session_lost


def _source_cause(run: Run, sources: list[Publication]) -> Difference | None:
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


def _why_not_judged(run: Run, pair: Pair, entry: Entry, sources: list[Publication]) -> str:
    """Why nothing can be said of a missing delivery; empty where something can."""
    if sources and all(one.performed is None for one in sources):
        return NOT_PERFORMED
    if not sources and run.incomplete:
        return INCOMPLETE
    wanted = run.subscriptions(pair.script, entry.topic or "")
    if wanted and all(id(one.entry) not in run.performed for one in wanted):
        return NOT_PERFORMED
    if not wanted and (pair.joined or pair.script.lost_from_client):
        return INCOMPLETE
    return ""


def explain_extra(run: Run, pair: Pair, entry: Entry) -> None:
    """A delivery that the recording does not have."""
    assert isinstance(entry.packet, Publish)
    if pair.cause is not None:
        pair.cause.follows += 1  # the connection was refused in the recording alone, or ended another way
        return
    if pair.joined or pair.script.lost:
        pair.tally.not_judged(entry, INCOMPLETE)
        return
    wanted = run.subscriptions(pair.script, entry.topic or "")
    for one in wanted:
        cause = run.changed.get((id(one.entry), one.position))
        if cause is not None and cause.found < FAILURE <= cause.expected:
            cause.follows += 1
            return
    sources = run.publications.get((entry.topic or "", entry.packet.payload, entry.packet.missing), [])
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
    pair.add(Difference(Kind.EXTRA_DELIVERY, pair.script, None, entry, message=message))
