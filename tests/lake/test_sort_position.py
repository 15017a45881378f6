"""Where events have their place among those of other flows."""

from __future__ import annotations

import pytest

from mqttscope.lake.sort_position import AT_THE_END, BEFORE_ALL, Drop, SortPosition


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((500, 2, 7), False),
        ((500, 2, 8), True),
        ((500, 1, 9), False),
        ((500, 3, 1), True),
        ((100, 2, 5 - BEFORE_ALL), False),
        ((101, 2, 5 - BEFORE_ALL), True),
        ((AT_THE_END, 5, 1), True),
    ],
)
def test_what_comes_behind_drops(place: tuple[int, int, int], expected: bool) -> None:
    assert Drop(2, 7, 100).is_before(place) is expected


def test_drops_before_all_segments_are_before_all_time_outs() -> None:
    assert Drop(0, 3).is_before((-5, 0, 1 - BEFORE_ALL))


def test_time_outs_have_their_place_in_the_capture_that_is_read_when_their_time_has_come() -> None:
    position = SortPosition(ends=(100, 50, 300))
    position.segment(90, 0, 7)
    assert position.place() == (90, 0, 7)

    position.time_out(95, 7)
    assert position.place() == (95, 0, 7 - BEFORE_ALL)
    position.time_out(200, 3)
    assert position.place() == (200, 2, 3 - BEFORE_ALL)
    position.time_out(AT_THE_END + 5, 3)
    assert position.place() == (AT_THE_END, 3, 3 - BEFORE_ALL)
