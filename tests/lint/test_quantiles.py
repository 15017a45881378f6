"""Percentiles of durations, and durations for people."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.lint.quantiles import Spread, count, duration


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=200))
def test_percentiles_are_near_the_true_ones(values: list[int]) -> None:
    spread = Spread()
    for index, value in enumerate(values):
        spread.add(value, index)

    assert spread.number == len(values)
    assert spread.worst_ns == max(values) == values[spread.worst]
    low = statistics.median_low(values)
    assert low <= spread.percentile(0.5) <= low * 1.13 + 1
    assert spread.percentile(1) == max(values)


def test_nothing_has_no_percentiles_and_negative_counts_as_none() -> None:
    spread = Spread()

    assert spread.percentile(0.5) == 0
    spread.add(-5)
    assert spread.percentile(0.99) == 0


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (1_500, "1.5 µs"),
        (40_000_000, "40 ms"),
        (4_200_000_000, "4.2 s"),
        (119_000_000_000, "119 s"),
        (120_000_000_000, "2 min"),
        (200_000_000_000, "3 min 20 s"),
    ],
)
def test_durations_for_people(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


def test_one_and_many() -> None:
    assert count(1, "message") == "1 message"
    assert count(1200, "message") == "1,200 messages"
