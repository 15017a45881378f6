"""Plots: bars as tall as what they count, scales that end round, names that stay inside."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from mqttscope.report.fleet.plots import HEIGHT, WIDTH, Bar, Range, columns, nice, ranges, rows
from tests.report.fleet.samples import HOSTILE, LONG


def rectangles(plot: str, kind: str) -> list[dict[str, float]]:
    found = [one for one in ElementTree.fromstring(plot).iter("rect") if one.get("class") == kind]
    return [{name: float(one.get(name) or 0) for name in ("x", "y", "width", "height")} for one in found]


@pytest.mark.parametrize(("most", "end"), [(1, 1), (2, 2), (3, 5), (6, 10), (10, 10), (11, 20), (999, 1_000)])
def test_scales_end_round(most: int, end: int) -> None:
    assert nice(most) == end


def test_columns_stand_on_each_other() -> None:
    plot = columns([Bar("one", (10, 20)), Bar("two", (0, 50))], ("errors", "infos"), "findings")

    (error,), (first, second) = rectangles(plot, "errors"), rectangles(plot, "infos")
    assert first["height"] == pytest.approx(2 * error["height"], rel=0.01)
    assert first["y"] + first["height"] == pytest.approx(error["y"], abs=0.2)
    assert second["height"] == pytest.approx(HEIGHT - 32, rel=0.01)
    assert "one: 10 errors, 20 infos" in plot


@pytest.mark.parametrize("number", [1, 2, 60, 500])
def test_columns_stay_inside(number: int) -> None:
    found = rectangles(columns([Bar(str(index), (index + 1,)) for index in range(number)], ("infos",), "x"), "infos")

    assert len(found) == number
    assert all(one["x"] >= 0 and one["x"] + one["width"] <= WIDTH and 0 <= one["y"] <= HEIGHT for one in found)


def test_rows_and_ranges_stay_inside() -> None:
    for name in (HOSTILE, LONG):
        lying = rows([Bar(name, (3, 0)), Bar("b", (0, 1))], ("errors", "infos"), name)
        assert all(one["x"] + one["width"] <= WIDTH for one in rectangles(lying, "errors"))
        plot = ranges([Range(name, 10, 100, 1000, name), Range("b", 1, 1, 1, "b")], name, least="1", most="1000")
        assert [one["x"] + one["width"] <= WIDTH for one in rectangles(plot, "range")] == [True, True]
        for one in ElementTree.fromstring(plot).iter("text"):
            assert len(one.text or "") <= 40
    same = ranges([Range("a", 5, 5, 5, "a")], "x", least="5", most="5")
    assert same.count("<text") == 2


def test_nothing_is_no_plot() -> None:
    assert (
        columns([], ("infos",), "x")
        == rows([Bar("a", (0,))], ("infos",), "x")
        == ranges([], "x", least="", most="")
        == ""
    )
