"""What the tables remember of a connection that is open."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import dump, load
from mqttscope.lake.tables import Collector
from mqttscope.lake.tracker import MAX_HOLES, Hole, KeyMemory, OpenConnection, Tracker
from mqttscope.lint.finding import Scope
from tests.lake.reading import CAPTURES, all_of_them, collected, ordered, usual

PATH = next(path for path in CAPTURES if path.parent.name == "planted-violations")


def test_trackers_are_plain_data() -> None:
    collector = Collector(LakeOptions(payload_limit=65_536, rules=all_of_them()))
    for number, event in enumerate(dissect(open_capture([PATH]), collector.options.reading())):
        collector.feed(event)
        if number % 5 == 0 and (connection := getattr(event, "connection", None)) is not None:
            tracker = collector.trackers.get(connection.number)
            if tracker is not None:
                again = load(dump(tracker))
                assert again == tracker
                collector.adopt(connection, again)
    assert ordered(collected(collector)) == ordered(usual(PATH))


def test_holes_are_kept_with_their_direction_in_the_order_they_came() -> None:
    tracker = Tracker("a")
    tracker.note_hole(True, 10, 5)
    tracker.note_hole(False, 0, 1)

    assert tracker.holes == [Hole(True, 10, 15), Hole(False, 0, 1)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10_000), st.integers(1, 50)), max_size=MAX_HOLES + 60))
def test_holes_are_bounded_and_none_is_forgotten(holes: list[tuple[bool, int, int]]) -> None:
    """Where there are too many, two of one direction become one: more may be missing than was said, never less."""
    tracker = Tracker("a")
    for hole in holes:
        tracker.note_hole(*hole)

    assert len(tracker.holes) == min(len(holes), MAX_HOLES)
    for from_client, start, length in holes:
        assert any(
            one.from_client is from_client and one.start <= start and start + length <= one.end for one in tracker.holes
        )


def test_the_two_holes_that_came_first_become_one_with_all_between_them() -> None:
    tracker = Tracker("a")
    for number in range(MAX_HOLES):
        tracker.note_hole(True, 100 * number, 1)
    tracker.note_hole(True, 100 * MAX_HOLES, 1)

    assert tracker.holes[0] == Hole(True, 0, 101)
    assert tracker.holes[1:] == [Hole(True, 100 * number, 100 * number + 1) for number in range(2, MAX_HOLES + 1)]


def test_the_only_hole_of_a_direction_is_never_joined_with_one_of_the_other() -> None:
    tracker = Tracker("a")
    tracker.note_hole(False, 7, 1)
    for number in range(MAX_HOLES):
        tracker.note_hole(True, 10 * number, 1)

    # It cannot become one with any other, and so is kept as the newest; the next one too many finds two to join.
    assert Hole(False, 7, 8) in tracker.holes
    tracker.note_hole(True, 10 * MAX_HOLES, 1)
    assert Hole(False, 7, 8) in tracker.holes
    assert tracker.holes[0] == Hole(True, 0, 11)


def test_what_keys_remember_is_plain_data() -> None:
    memory = KeyMemory(open={("a", 1): OpenConnection({"OPS401": 5}, {Scope.BROKER: 2})})  # type: ignore[dict-item]

    assert load(dump(memory)) == memory
