"""Latencies in bounded memory."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from mqttscope.stats.rows import (
    COUNTS,
    MAX_BUCKETS,
    MAX_VALUE_NS,
    ConnectionRow,
    EndedRows,
    Histogram,
    RateWindow,
    TrafficCounts,
    pack,
    unpack,
)

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

    row = histogram.count, histogram.minimum, histogram.maximum, histogram.total
    assert row == (len(values), min(values), max(values), sum(values))
    assert histogram.percentile(100) == max(values)


@given(latencies | st.just([]), latencies | st.just([]))
def test_merging_is_counting_together(some: list[int], other: list[int]) -> None:
    merged = filled(some)
    merged.merge(filled(other))

    assert merged == filled(some + other)


def test_the_number_of_buckets_is_bounded() -> None:
    histogram = Histogram()
    value = 1.0
    while value < 2 * MAX_VALUE_NS:
        histogram.add(int(value))
        value *= 1.001

    assert 1_000 < len(histogram.buckets) <= MAX_BUCKETS


def test_no_latency_is_negative() -> None:
    histogram = filled([-5, -3, 7])

    assert (histogram.minimum, histogram.percentile(50), histogram.maximum) == (0, 0, 7)
    assert Histogram().percentile(99) == 0


@given(st.lists(st.integers(0, 1 << 62), min_size=1, max_size=60), st.integers(0, 1 << 62))
def test_values_below_another_are_counted_as_exactly_as_percentiles(values: list[int], limit: int) -> None:
    histogram = filled(values)
    least, most = (sum(value < limit * factor for value in values) for factor in (0.98, 1.02))
    assert least <= histogram.below(limit) <= most
    assert histogram.below(max(values) + 1) == len(values)


def counted(counts: dict[int, int]) -> list[int]:
    return [counts.get(place, 0) for place in range(COUNTS)]


traffics = st.builds(
    TrafficCounts,
    st.dictionaries(st.integers(0, COUNTS - 1), st.integers(1, 2**70), max_size=5).map(counted),
    st.builds(RateWindow, *[st.integers(-2, 2**60)] * 5),
    st.dictionaries(st.integers(0, 15), latencies.map(filled), max_size=2),
    st.dictionaries(st.integers(0, 15), st.integers(1, 10**6), max_size=2),
)


@given(traffics)
def test_traffic_that_was_packed_is_the_same(traffic: TrafficCounts) -> None:
    assert unpack(pack(traffic)) == traffic


def test_rows_that_were_packed_are_the_same_in_the_order_of_their_numbers() -> None:
    rows, ended = [], EndedRows()
    for number in (7, 3, 2**40, 5):
        traffic = TrafficCounts(counted({number % COUNTS: number}))
        traffic.latency(2, 40, 2 * number)
        traffic.unanswered[4] = 1
        row = ConnectionRow(number, traffic=traffic, client_identifier=f"dev{number}", in_flight_peak=(1, number))
        row.ending, row.version, row.keep_alive, row.receive_maximum = "broken", "5.0", 60, (None, 20)
        row.opened_ns, row.ended_ns, row.also_closed_ns = 2**62, 2**62 + number, None
        rows.append(row)
        assert unpack(ended.append(row)) == traffic
    ended.sort()
    rows.sort(key=lambda row: row.number)

    assert list(ended.packets) == [row.traffic.packets for row in rows]
    assert list(ended) == rows == [ended[place] for place in range(len(ended))]
