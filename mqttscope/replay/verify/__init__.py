"""Differences in meaning between recorded connections and their replay, and latencies of both brokers.

    verification = verify(pairs, skipped=player.skipped)
    for difference in verification.differences: ...

Packet Identifiers, DUP, Topic Aliases, times and Reason Strings are ignored.  Deliveries are compared as sets of
messages, and their order only where the specification promises one.  Packets that the recording does not show, or that
the replay did not perform, count as not judged.  Consequences of a difference are counted with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.verify.answers import compare_answers
from mqttscope.replay.verify.deliveries import compare_deliveries
from mqttscope.replay.verify.difference import Verification
from mqttscope.replay.verify.run import IGNORED_TOPICS, ReplayRun


def verify(
    pairs: Iterable[tuple[Script, Script | None]],
    *,
    skipped: Iterable[ScriptEntry] = (),
    ignored_topics: Iterable[str] = IGNORED_TOPICS,
) -> Verification:
    """Compare recorded connections with their replay, all of one recording at once.

    The second of each pair is ``None`` if the connection was never made.  ``skipped``: recorded packets that the replay
    left out on purpose.  Deliveries of topics that ``ignored_topics`` match are ignored.
    """
    run = ReplayRun(pairs, skipped, ignored_topics)
    for pair in run.pairs:
        compare_answers(run, pair)
    compare_deliveries(run)
    verification = Verification()
    for pair in run.pairs:
        verification.differences += sorted(pair.differences, key=attrgetter("place"))
        verification.tallies.append(pair.tally)
    return verification
