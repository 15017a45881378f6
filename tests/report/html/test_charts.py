"""Charts stay inside of their frame, and no name from the wire gets out of its text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from mqttscope.report.html.charts import (
    HEIGHT,
    WIDTH,
    Bar,
    Crossing,
    Lane,
    Range,
    Stretch,
    bar_columns,
    bar_rows,
    crossing_grid,
    lane_rows,
    nice,
    range_rows,
)
from tests.report.fleet.samples import HOSTILE, HOUR, LONG, NOW


def rectangles(plot: str, kind: str) -> list[dict[str, float]]:
    found = [one for one in ElementTree.fromstring(plot).iter("rect") if one.get("class") == kind]
    return [{name: float(one.get(name) or 0) for name in ("x", "y", "width", "height")} for one in found]


@pytest.mark.parametrize(("most", "end"), [(1, 1), (2, 2), (3, 5), (6, 10), (10, 10), (11, 20), (999, 1_000)])
def test_scales_end_round(most: int, end: int) -> None:
    assert nice(most) == end


def test_columns_stand_on_each_other() -> None:
    plot = bar_columns([Bar("one", (10, 20)), Bar("two", (0, 50))], ("errors", "infos"), "findings")

    (error,), (first, second) = rectangles(plot, "errors"), rectangles(plot, "infos")
    assert first["height"] == pytest.approx(2 * error["height"], rel=0.01)
    assert first["y"] + first["height"] == pytest.approx(error["y"], abs=0.2)
    assert second["height"] == pytest.approx(HEIGHT - 32, rel=0.01)
    assert "one: 10 errors, 20 infos" in plot


@pytest.mark.parametrize("number", [1, 2, 60, 500])
def test_columns_stay_inside(number: int) -> None:
    found = rectangles(
        bar_columns([Bar(str(index), (index + 1,)) for index in range(number)], ("infos",), "x"), "infos"
    )

    assert len(found) == number
    assert all(one["x"] >= 0 and one["x"] + one["width"] <= WIDTH and 0 <= one["y"] <= HEIGHT for one in found)


def test_rows_and_ranges_stay_inside() -> None:
    for name in (HOSTILE, LONG):
        lying = bar_rows([Bar(name, (3, 0)), Bar("b", (0, 1))], ("errors", "infos"), name)
        assert all(one["x"] + one["width"] <= WIDTH for one in rectangles(lying, "errors"))
        plot = range_rows([Range(name, 10, 100, 1000, name), Range("b", 1, 1, 1, "b")], name, least="1", most="1000")
        assert [one["x"] + one["width"] <= WIDTH for one in rectangles(plot, "range")] == [True, True]
        for one in ElementTree.fromstring(plot).iter("text"):
            assert len(one.text or "") <= 40
    same = range_rows([Range("a", 5, 5, 5, "a")], "x", least="5", most="5")
    assert same.count("<text") == 2


def test_connections_lie_along_the_time() -> None:
    spans = [
        Stretch(NOW, NOW + HOUR, "fin", "a"), Stretch(NOW + 3 * HOUR, None, "open", HOSTILE),
        Stretch(NOW + 4 * HOUR, NOW, "fin", "c"),
    ]  # fmt: skip
    whole_time = Stretch(NOW, NOW + 4 * HOUR, "reset", "d")
    plot = lane_rows([Lane(HOSTILE, spans), Lane(LONG, [whole_time])], "first", "last")

    first, backwards = rectangles(plot, "fin")
    (lasting,), (whole,) = rectangles(plot, "open"), rectangles(plot, "reset")
    assert whole["width"] == pytest.approx(4 * first["width"], abs=0.2)
    assert lasting["x"] - first["x"] == pytest.approx(3 * first["width"], abs=0.2)
    assert lasting["x"] + lasting["width"] == pytest.approx(whole["x"] + whole["width"], abs=0.2)
    assert all(one["x"] + one["width"] <= WIDTH for one in (first, backwards, lasting, whole))
    assert "first</text>" in plot
    assert "last</text>" in plot
    assert "<script>" not in plot
    moment = lane_rows([Lane("a", [Stretch(NOW, NOW, "fin", "x")])], "first", "last")
    assert "last</text>" not in moment
    assert [one["width"] for one in rectangles(moment, "fin")] == [1.5]


def test_findings_lie_where_client_and_rule_cross() -> None:
    found = [Crossing("a", "X1", 5, "error"), Crossing("a", "X2", 1, "info"), Crossing("c", "X2", 9, "warning")]
    plot = crossing_grid(found)

    (error,), (info,), (warning,) = (rectangles(plot, kind) for kind in ("errors", "infos", "warnings"))
    assert info["x"] == warning["x"] < error["x"], "what is found most comes first"
    assert error["y"] == info["y"] < warning["y"]
    for size in (1, 50):
        many = crossing_grid([Crossing(LONG, f"R{number}", 10**number, "error") for number in range(size)])
        assert all(one["x"] + one["width"] <= WIDTH and one["width"] > 0 for one in rectangles(many, "errors"))


def test_nothing_is_no_plot() -> None:
    assert (
        bar_columns([], ("infos",), "x")
        == bar_rows([Bar("a", (0,))], ("infos",), "x")
        == range_rows([], "x", least="", most="")
        == lane_rows([])
        == crossing_grid([])
        == ""
    )
