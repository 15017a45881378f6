from __future__ import annotations

import time
from collections.abc import Iterator

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
        pytest.param("epoch", 0, ["1767323045.123456789", "1767323046.623456789"], id="epoch, no limit"),
        pytest.param("epoch", 80, ["1767323045.123456", "1767323046.623456"], id="epoch"),
        pytest.param("relative", 80, ["    0.000000", "    1.500000"], id="relative"),
        pytest.param("relative", 40, ["    0.000", "    1.500"], id="relative, narrow"),
        pytest.param("delta", 80, ["    +0.000000", "    +1.500000"], id="delta"),
    ],
)
def test_time_column(mode: str, width: int, expected: list[str]) -> None:
    column = TimeColumn(View(width=width, time=mode))
    shown = [column.text(START_NS), column.text(START_NS + 3 * SECOND // 2)]
    assert shown == expected
    assert {len(text) for text in shown} == {column.width}


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
    assert [column.new_day(at) for at in (START_NS, START_NS + 1, START_NS + day)] == [
        "2026-01-02 UTC", None, "2026-01-03 UTC",
    ]  # fmt: skip
    assert TimeColumn(View(width=0)).new_day(START_NS) is None


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_local_times_have_the_zone_of_their_day() -> None:
    summer_ns = START_NS + 180 * 86_400 * SECOND
    wide, narrow = TimeColumn(View(width=0, time="local")), TimeColumn(View(width=80, time="local"))

    assert wide.text(START_NS) == "2026-01-02T04:04:05.123456789+01:00"
    assert wide.text(summer_ns) == "2026-07-01T05:04:05.123456789+02:00"
    assert wide.width == len(wide.text(START_NS))
    assert narrow.new_day(START_NS) == "2026-01-02 local time, +01:00"
    assert narrow.text(START_NS) == "04:04:05.123456"
    assert narrow.new_day(START_NS + 19 * 3600 * SECOND) is None
    assert narrow.new_day(START_NS + 20 * 3600 * SECOND) == "2026-01-03 local time, +01:00"
    assert narrow.new_day(summer_ns) == "2026-07-01 local time, +02:00"
    assert narrow.text(summer_ns) == "05:04:05.123456"


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("mode", ["local", "epoch", "iso"])
@pytest.mark.parametrize("at", [-1, -(1 << 62), (1 << 63) - 1, 1 << 90])
def test_times_that_no_calendar_has(mode: str, at: int) -> None:
    for width in (0, 80, 40):
        column = TimeColumn(View(width=width, time=mode))
        column.new_day(at)
        assert column.text(at)


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
