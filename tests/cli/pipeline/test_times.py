"""Times of the command line."""

from __future__ import annotations

import pytest

from mqttscope.cli.pipeline.report import read_time

DAY = 86_400 * 10**9
LAST = 1_767_323_045_123_456_789


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("1970-01-02", DAY),
        ("1970-01-02T00:00Z", DAY),
        ("1970-01-02 01:00:00.000001+01:00", DAY + 1_000),
        ("24h", LAST - DAY),
        ("7d", LAST - 7 * DAY),
        ("1w", LAST - 7 * DAY),
        ("90s", LAST - 90 * 10**9),
        ("999999999d", 0),
    ],
)
def test_times(told: str, expected: int) -> None:
    assert read_time(told, LAST) == expected


@pytest.mark.parametrize("told", ["yesterday", "", "24", "h", "2026-13-01", "-1h", "1.5h"])
def test_what_is_no_time(told: str) -> None:
    with pytest.raises(ValueError, match="is not a time: 2026-01-31"):
        read_time(told, LAST)


def test_there_is_no_end_to_count_from() -> None:
    with pytest.raises(ValueError, match="nothing was captured"):
        read_time("24h", None)
