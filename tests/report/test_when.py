from __future__ import annotations

import pytest

from mqttscope.report.base import View
from mqttscope.report.when import TimeColumn, duration, seconds
from tests.report.make import START_NS

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("mode", "width", "expected"),
    [
        pytest.param(
            "iso", 0, ["2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:06.623456789Z"], id="iso, no limit"
        ),
        pytest.param("iso", 200, ["2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:06.623456789Z"], id="iso, wide"),
        pytest.param("iso", 80, ["03:04:05.123456", "03:04:06.623456"], id="iso in 80 columns is the time of day"),
        pytest.param("iso", 40, ["03:04:05.123", "03:04:06.623"], id="iso in 40 columns has milliseconds"),
        pytest.param("relative", 80, ["    0.000000", "    1.500000"], id="relative"),
        pytest.param("relative", 40, ["    0.000", "    1.500"], id="relative, narrow"),
        pytest.param("delta", 80, ["    +0.000000", "    +1.500000"], id="delta"),
    ],
)
def test_time_column(mode: str, width: int, expected: list[str]) -> None:
    column = TimeColumn(View(width=width, time=mode))
    shown = [column.text(START_NS), column.text(START_NS + 3 * SECOND // 2)]
    assert shown == expected
    assert {len(one) for one in shown} == {column.width}


def test_time_that_runs_backwards_is_negative() -> None:
    relative = TimeColumn(View(time="relative"))
    relative.text(START_NS)
    assert relative.text(START_NS - 1500) == "   -0.000001"
    delta = TimeColumn(View(time="delta"))
    delta.text(START_NS)
    assert delta.text(START_NS - SECOND).strip() == "-1.000000"


def test_a_new_day_is_told_once_where_the_column_has_no_date() -> None:
    column = TimeColumn(View(width=80))
    day = 86_400 * SECOND
    assert [column.new_day(at) for at in (START_NS, START_NS + 1, START_NS + day)] == ["2026-01-02", None, "2026-01-03"]
    assert TimeColumn(View(width=0)).new_day(START_NS) is None


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (0, "0 µs"),
        (54_321, "54 µs"),
        (12_345_678, "12.3 ms"),
        (2_500_000_000, "2.50 s"),
        (200 * SECOND, "3 min 20 s"),
        (5 * 3600 * SECOND + 120 * SECOND, "5 h 2 min"),
        (-12_345_678, "-12.3 ms"),
    ],
)
def test_durations(nanoseconds: int, expected: str) -> None:
    assert duration(nanoseconds) == expected
    assert duration(nanoseconds, unicode=False) == expected.replace("µ", "u")


@pytest.mark.parametrize(
    ("value", "expected"), [(60, "60 s"), (86_400, "86400 s (24 h)"), (0xFFFFFFFF, "never"), (0, "0 s")]
)
def test_intervals_of_the_protocol(value: int, expected: str) -> None:
    assert seconds(value) == expected
