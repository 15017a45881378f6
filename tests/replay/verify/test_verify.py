"""Comparisons as a whole: every kind is planted somewhere, and captures do not differ from themselves."""

from __future__ import annotations

from mqttscope.replay.verify import verify
from mqttscope.replay.verify.difference import DifferenceKind
from tests.each import each
from tests.replay.recordings import NAMES, captured
from tests.replay.talk import ALL, compare, copied, delivered, pairs, told
from tests.replay.verify import test_answers, test_deliveries

TABLES = (test_answers, test_deliveries)


def test_every_kind_of_difference_is_planted() -> None:
    planted = {kind for table in TABLES for _, _, differences in table.DIFFERENT.values() for kind, _, _ in differences}

    assert planted == {str(kind) for kind in DifferenceKind} - {"not-connected"}


def test_differences_come_in_the_order_of_the_recording() -> None:
    differences = compare(pairs(delivered(*ALL), delivered("publish t/a new", "publish t/x extra")))
    places = [difference.recorded.place for difference in differences if difference.recorded]

    assert [kind for kind, _, _ in told(differences)] == [
        "payload",
        "missing-delivery",
        "missing-delivery",
        "extra-delivery",
    ]
    assert places == sorted(places)


@each("name", NAMES)
def test_a_capture_does_not_differ_from_itself(name: str) -> None:
    verification = verify(copied(captured(name)))

    assert told(verification.differences) == []
    assert all(tally.following == 0 and tally.differing == 0 for tally in verification.tallies)
