"""Latencies in bounded memory."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from mqttscope.stats.rows import MAX_BUCKETS, MAX_VALUE_NS, Histogram

latencies = st.lists(st.integers(0, 10**12) | st.integers(0, 5000) | st.integers(0, MAX_VALUE_NS), min_size=1)


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(latencies, st.floats(0.1, 100))
def test_a_percentile_is_at_most_one_percent_off_the_nearest_rank(values: list[int], percent: float) -> None:
    exact = sorted(values)[max(1, ceil(len(values) * percent / 100)) - 1]

    # Half a nanosecond is lost to rounding.
    assert abs(filled(values).percentile(percent) - exact) <= exact / 100 + 0.5


@given(latencies)
def test_count_lowest_highest_and_sum_are_exact(values: list[int]) -> None:
    histogram = filled(values)

    assert (histogram.count, histogram.minimum, histogram.maximum, histogram.total) == (
        len(values),
        min(values),
        max(values),
        sum(values),
    )
    assert histogram.percentile(100) == max(values)


@given(latencies, latencies)
def test_merging_is_counting_together(one: list[int], other: list[int]) -> None:
    merged = filled(one)
    merged.merge(filled(other))

    assert merged == filled(one + other)


@given(latencies)
def test_merging_with_an_empty_one_changes_nothing(values: list[int]) -> None:
    histogram, empty = filled(values), Histogram()
    histogram.merge(Histogram())
    empty.merge(histogram)

    assert histogram == filled(values) == empty


def test_the_number_of_buckets_is_bounded() -> None:
    histogram = Histogram()
    value = 1.0
    while value < 2 * MAX_VALUE_NS:
        histogram.add(int(value))
        value *= 1.001

    assert 1_000 < len(histogram.buckets) <= MAX_BUCKETS


def test_what_is_longer_than_any_capture_counts_as_the_longest() -> None:
    assert filled([1 << 80]).maximum == MAX_VALUE_NS


def test_a_clock_that_was_set_back_gives_no_negative_latency() -> None:
    histogram = filled([-5, -3, 7])

    assert (histogram.minimum, histogram.percentile(50), histogram.maximum) == (0, 0, 7)


def test_without_values_every_percentile_is_0() -> None:
    assert Histogram().percentile(99) == 0


@given(st.lists(st.integers(0, 1 << 62), min_size=1, max_size=60), st.integers(0, 1 << 62))
def test_values_below_another_are_counted_as_exactly_as_percentiles(values: list[int], limit: int) -> None:
    found = Histogram()
    for value in values:
        found.add(value)

    least, most = (sum(value < limit * factor for value in values) for factor in (0.98, 1.02))
    assert least <= found.below(limit) <= most
    assert found.below(max(values) + 1) == len(values)
