"""Times after a step of the capture's clock: numbers to measure with, and what the capture has."""

from __future__ import annotations

import pickle

import pytest

from mqttscope.lake.state import dump, load
from mqttscope.session.capture_time import LAST_NS, CaptureTime, captured, shift_of, shifted


def test_a_time_is_measured_with_and_shown() -> None:
    time = CaptureTime(1_000, 5_000)

    assert time - 900 == 100
    assert 900 < time < 1_100
    assert max(900, time) is time
    assert (captured(time), shift_of(time)) == (5_000, 4_000)


def test_a_plain_number_is_what_the_capture_has() -> None:
    assert (captured(7), shift_of(7), captured(None)) == (7, 0, None)


def test_what_is_computed_gets_the_shift_of_a_time_beside_it() -> None:
    time = CaptureTime(1_000, 5_000)

    assert captured(shifted(time + 10, shift_of(time))) == 5_010
    assert type(shifted(10, 0)) is int


def test_a_time_is_written_down_and_sent_to_other_processes() -> None:
    time = CaptureTime(1 << 62, -(1 << 70))

    for copy in (pickle.loads(pickle.dumps(time)), load(dump(time))):
        assert type(copy) is CaptureTime
        assert (copy, captured(copy)) == (time, captured(time))


@pytest.mark.parametrize("edge", [-LAST_NS - 1, LAST_NS])
def test_times_stay_in_64_bits(edge: int) -> None:
    beyond = edge - 1 if edge < 0 else edge + 1

    assert [int(CaptureTime(time, 7)) for time in (edge, beyond)] == [edge, edge]
    assert captured(CaptureTime(beyond, 7)) == 7
