"""Counts along the time: nothing is lost when pieces become longer, and they stay few."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from mqttscope.report.html.along import MAX_PIECES, WIDTHS, TimelineCounts

START_NS = 1_767_323_045_123_456_789
SECOND = 10**9


def test_lengths_are_multiples_of_each_other() -> None:
    assert all(wider % number == 0 for number, wider in pairwise(WIDTHS))


@pytest.mark.parametrize("span_ns", [1, 10**6, 50 * 10**6, SECOND, 3_600 * SECOND, 10**17, 10**18])
def test_everything_is_counted_in_few_pieces(span_ns: int) -> None:
    drawn = random.Random(span_ns)
    times = [START_NS + drawn.randrange(span_ns) for _ in range(2_000)]
    along = TimelineCounts("packets", "errors")
    for at, now in enumerate(times):
        along.add(now, at % 2)
    bars = along.bars()

    assert 1 <= len(bars) <= MAX_PIECES
    assert [sum(bar.pieces[kind] for bar in bars) for kind in (0, 1)] == [1_000, 1_000]
    # Each piece holds what lies in it.
    first = min(times) // along.width_ns
    for at, bar in enumerate(bars):
        assert sum(bar.pieces) == sum(time // along.width_ns == first + at for time in times)


def test_the_order_does_not_matter() -> None:
    times = [START_NS + at**3 * 10**6 for at in range(200)]
    pairs = []
    for order in (times, times[::-1], random.Random(1).sample(times, len(times))):
        along = TimelineCounts("packets")
        for now in order:
            along.add(now)
        pairs.append((along.width_ns, along.bars()))
    assert pairs[0] == pairs[1] == pairs[2]


@pytest.mark.parametrize(
    ("span_ns", "name", "expected"),
    [
        (20 * 10**6, "03:04:05.123", "2026-01-02 UTC; each bar is 1 ms"),
        (200 * SECOND, "03:04:05", "2026-01-02 UTC; each bar is 5 s"),
        (30 * 3_600 * SECOND, "01-02 03:00", "2026-01-02 UTC; each bar is 30 min"),
        (50 * 86_400 * SECOND, "01-02 00:00", "2026-01-02 UTC; each bar is 12 h"),
        (100 * 86_400 * SECOND, "2026-01-02", "2026-01-02 UTC; each bar is 1 d"),
    ],
)
def test_times_are_as_exact_as_bars_are_short(span_ns: int, name: str, expected: str) -> None:
    along = TimelineCounts("packets")
    along.add(START_NS)
    along.add(START_NS + span_ns)

    assert along.bars()[0].name == name
    assert along.scale_text() == expected


def test_times_that_are_no_dates_are_counted_too() -> None:
    along = TimelineCounts("packets")
    for now in (0, 1 << 63, 1 << 70, START_NS):
        along.add(now)
    assert sum(bar.pieces[0] for bar in along.bars()) == 4
    assert "<svg" in along.chart("packets")


def test_nothing_or_one_piece_is_no_chart() -> None:
    along = TimelineCounts("packets")
    assert (along.chart("x"), along.scale_text(), along.bars()) == ("", "", [])
    along.add(START_NS)
    assert along.chart("x") == ""
