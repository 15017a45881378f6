"""What differs between recorded connections and their replay, by meaning; and how long either broker took.

    found = verify(pairs, skipped=player.skipped)
    for difference in found.differences: ...

Packet Identifiers, DUP, Topic Aliases, times and Reason Strings do not count; deliveries are compared as sets of
messages, and their order only where the specification promises one.  What the recording does not show, and what the
replay did not perform, is counted as not judged.  What follows from a difference is counted with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.answers import compare_answers
from mqttscope.replay.verify.deliveries import compare_deliveries
from mqttscope.replay.verify.difference import Verification
from mqttscope.replay.verify.run import IGNORED_TOPICS, ReplayRun


def verify(
    pairs: Iterable[tuple[Script, Script | None]],
    *,
    skipped: Iterable[Entry] = (),
    ignored_topics: Iterable[str] = IGNORED_TOPICS,
) -> Verification:
    """Compare recorded connections with their replay, all of one recording at once.

    The second of each pair is ``None`` for a connection that was never made.  ``skipped`` are the recorded packets
    that the replay left out on purpose; deliveries of topics that ``ignored_topics`` match are left out altogether.
    """
    run = ReplayRun(pairs, skipped, ignored_topics)
    for pair in run.pairs:
        compare_answers(run, pair)
    compare_deliveries(run)
    found = Verification()
    for pair in run.pairs:
        found.differences += sorted(pair.differences, key=attrgetter("place"))
        found.tallies.append(pair.tally)
    return found
