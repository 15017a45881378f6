"""Once is no proof: what several playings of one case say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mqttscope.trial.verdict import BROKER_WIDE, Ruling, Verdict, excused

MAX_PLAYINGS = 4
"""So often a case is played at most, where it harmed the broker as a whole once."""


def decided(rulings: Sequence[Ruling | None]) -> tuple[int, Ruling] | None:
    """What the playings so far come to, and the place of the one that shows it; ``None``: it is to be played again.

    ``rulings``: of each of them, ``None`` for one that did not come as far as its mutation.
    A deviation counts when it is seen twice.  A crash is proof as it is; other harm to the whole broker may need what
    an earlier playing has left there, so that it is looked for once more where it was seen once.
    """
    last, place = rulings[-1], len(rulings) - 1
    if last is not None and last.verdict is Verdict.CRASHED:
        return place, last
    if place == 0:
        return None if last is None or last.deviates else (place, last)
    times = Counter(one.verdict for one in rulings if one is not None and one.deviates)
    harm = [verdict for verdict in times if verdict in BROKER_WIDE]
    twice = next((verdict for verdict in (*harm, *times) if times[verdict] > 1), None)
    if twice not in harm and harm and len(rulings) < MAX_PLAYINGS:
        return None
    if twice is not None:
        return next((at, one) for at, one in reversed(list(enumerate(rulings))) if one and one.verdict is twice)
    first = next(one for one in rulings if one is not None)
    return place, excused(last or first, f"not the same twice: {first.verdict} first")


def told_once(rulings: Sequence[Ruling | None], accepted: Ruling) -> list[Ruling]:
    """Harm to the whole broker that was seen and is not what the case comes to."""
    return [one for one in rulings if one is not None and one.verdict in BROKER_WIDE - {accepted.verdict}]
