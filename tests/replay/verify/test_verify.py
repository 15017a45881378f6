"""Comparisons as a whole: every kind is planted somewhere, and captures do not differ from themselves."""

from __future__ import annotations

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.replay.script import Script, read_scripts
from mqttscope.replay.verify import verify
from mqttscope.replay.verify.difference import DifferenceKind
from tests.conftest import ROOT
from tests.each import each
from tests.replay.talk import ALL, compare, copied, delivered, pairs, told
from tests.replay.verify import test_answers, test_deliveries

CAPTURES = sorted(path.parent.name for path in (ROOT / "captures").glob("*/capture.pcapng"))
TABLES = (test_answers, test_deliveries)


def test_every_kind_of_difference_is_planted() -> None:
    planted = {kind for table in TABLES for _, _, found in table.DIFFERENT.values() for kind, _, _ in found}

    assert planted == {str(kind) for kind in DifferenceKind} - {"not-connected"}


def test_differences_come_in_the_order_of_the_recording() -> None:
    found = compare(pairs(delivered(*ALL), delivered("publish t/a new", "publish t/x extra")))
    places = [one.recorded.place for one in found if one.recorded]

    assert [kind for kind, _, _ in told(found)] == ["payload", "missing-delivery", "missing-delivery", "extra-delivery"]
    assert places == sorted(places)


def scripts(name: str) -> list[Script]:
    return read_scripts(dissect(open_capture([str(ROOT / "captures" / name / "capture.pcapng")])))


@each("name", CAPTURES)
def test_a_capture_does_not_differ_from_itself(name: str) -> None:
    found = verify(copied(scripts(name)))

    assert told(found.differences) == []
    assert all(one.following == 0 and one.differing == 0 for one in found.tallies)
