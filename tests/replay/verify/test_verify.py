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
    planted = {kind for table in TABLES for _, _, found in table.DIFFERENT.values() for kind, _, _ in found}

    assert planted == {str(kind) for kind in DifferenceKind} - {"not-connected"}


def test_differences_come_in_the_order_of_the_recording() -> None:
    found = compare(pairs(delivered(*ALL), delivered("publish t/a new", "publish t/x extra")))
    places = [one.recorded.place for one in found if one.recorded]

    assert [kind for kind, _, _ in told(found)] == ["payload", "missing-delivery", "missing-delivery", "extra-delivery"]
    assert places == sorted(places)


@each("name", NAMES)
def test_a_capture_does_not_differ_from_itself(name: str) -> None:
    found = verify(copied(captured(name)))

    assert told(found.differences) == []
    assert all(one.following == 0 and one.differing == 0 for one in found.tallies)
