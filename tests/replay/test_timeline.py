"""When steps are due."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mqttscope.replay.timeline import Timeline

SECOND = 1_000_000_000


def test_recorded_time_and_faster() -> None:
    times = [10 * SECOND, 12 * SECOND, 20 * SECOND]
    assert [Timeline(times).due_ns(one) for one in times] == [0, 2 * SECOND, 10 * SECOND]
    assert Timeline(times, 4.0).due_ns(times[2]) == 10 * SECOND // 4
    assert Timeline(times, None).due_ns(times[2]) == 0
    assert Timeline(times).length_ns == 10 * SECOND
    assert Timeline([]).length_ns == 0


def test_long_silences_are_cut() -> None:
    times = [0, SECOND, 100 * SECOND, 101 * SECOND, 500 * SECOND]
    line = Timeline(times, max_gap_ns=2 * SECOND)

    assert [line.due_ns(one) // SECOND for one in times] == [0, 1, 3, 4, 6]
    assert line.cut_ns == (97 + 397) * SECOND


@given(
    st.lists(st.integers(0, 10**15), min_size=1, max_size=50),
    st.integers(1, 10**12),
    st.floats(0.01, 10_000),
)
def test_order_is_kept_and_no_silence_is_longer_than_it_may(times: list[int], gap: int, speed: float) -> None:
    line = Timeline(times, speed, gap)
    due = [line.due_ns(one) for one in sorted(times)]

    assert due == sorted(due)
    assert all(after - before <= gap / speed + 2 for before, after in pairwise(due))
