"""Bars."""

from __future__ import annotations

import pytest

from mqttscope.report.page import bar


@pytest.mark.parametrize(
    ("share", "unicode", "drawn"),
    [
        (0, True, ""),
        (1, True, "████"),
        (0.5, True, "██"),
        (0.53125, True, "██▏"),
        (0.0001, True, "▏"),
        (2, True, "████"),
        (-1, True, ""),
        (0.5, False, "##"),
        (0.0001, False, "#"),
    ],
)
def test_bars(share: float, unicode: bool, drawn: str) -> None:
    assert bar(share, 4, unicode=unicode) == drawn
