"""Figures for people."""

from __future__ import annotations

import pytest

from mqttscope.report.numbers import per_second, percent, size


@pytest.mark.parametrize(
    ("count", "written"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (5 * 10**15, "5,000.0 TB"),
    ],
)
def test_sizes(count: int, written: str) -> None:
    assert size(count) == written


def test_rates_and_shares() -> None:
    assert [per_second(value) for value in (None, 0.0123, 1.26, 1234.5)] == ["", "0.012", "1.3", "1,234"]
    assert [percent(1, 3), percent(0, 3), percent(1, 0)] == ["33 %", "", ""]
