from __future__ import annotations

import pytest

from mqttscope.report.base import Clock
from tests.report.make import START_NS


@pytest.mark.parametrize(
    ("timestamp_ns", "expected"),
    [
        (START_NS, "2026-01-02T03:04:05.123456789Z"),
        (0, "1970-01-01T00:00:00.000000000Z"),
        (5, "1970-01-01T00:00:00.000000005Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (253_402_300_800_000_000_001, "253402300800.000000001"),
    ],
)
def test_iso_times(timestamp_ns: int, expected: str) -> None:
    assert Clock().iso(timestamp_ns) == expected


def test_the_clock_keeps_no_second_too_long() -> None:
    clock = Clock()
    times = [START_NS, START_NS + 1, 253_402_300_800_000_000_000, START_NS, START_NS + 10**9, START_NS]
    assert [clock.iso(time) for time in times] == [Clock().iso(time) for time in times]
