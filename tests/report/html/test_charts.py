"""Charts stay inside of their frame at every width, and no name from the wire gets out of its text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from mqttscope.report.html.charts import (
    Bar,
    ChartLane,
    GridCell,
    LaneStretch,
    LatencyRange,
    columns,
    crossing_grid,
    lanes,
    nice,
    ranges,
    share_bar,
)
from mqttscope.report.html.pieces import exact_moment
from tests.report.fleet.samples import HOSTILE, HOUR, LONG, NOW
from tests.report.html.reader import read


def rectangles(plot: str, kind: str) -> list[dict[str, float]]:
    """Places of the rectangles of a class, in percent."""
    result = re.findall(rf'<rect class="{kind}".*?(?:/>|</rect>)', plot)
    shown = [ElementTree.fromstring(rectangle) for rectangle in result]
    return [
        {name: float((node.get(name) or "0").rstrip("%")) for name in ("x", "y", "width", "height")} for node in shown
    ]


def labels(plot: str) -> list[str]:
    return re.findall(r"<text [^>]*>(.*?)</text>", plot)


@pytest.mark.parametrize(("most", "end"), [(1, 1), (2, 2), (3, 5), (6, 10), (10, 10), (11, 20), (999, 1_000)])
def test_scales_end_round(most: int, end: int) -> None:
    assert nice(most) == end


def test_columns_stand_on_each_other_and_have_their_numbers() -> None:
    plot = columns([Bar("one", (10, 20)), Bar("two", (0, 50))], ("errors", "infos"), "findings", str.upper)

    (error,), (first, second) = rectangles(plot, "errors"), rectangles(plot, "infos")
    assert first["height"] == pytest.approx(2 * error["height"], rel=0.01)
    assert first["y"] + first["height"] == pytest.approx(error["y"], abs=0.2)
    assert second["height"] == pytest.approx(100, rel=0.01)
    assert "one: 10 ERRORS, 20 INFOS" in plot
    assert re.findall('<td class="number">(.*?)</td>', plot) == ["10", "20", "0", "50"]
    assert "<span>50</span><span>25</span><span>0</span>" in plot
    read(plot.encode())


@pytest.mark.parametrize("number", [1, 2, 60, 500])
def test_columns_stay_inside(number: int) -> None:
    durations = rectangles(
        columns([Bar(str(index), (index + 1,)) for index in range(number)], ("infos",), "x"), "infos"
    )

    assert len(durations) == number
    assert all(
        seconds["x"] >= 0 and seconds["x"] + seconds["width"] <= 100 and 0 <= seconds["y"] <= 100
        for seconds in durations
    )


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([f"12:00:{at:02}" for at in range(60)], ["12:00:00", "12:00:15", "12:00:30", "12:00:45", "12:00:59"]),
        ([f"2026-01-02 12:00:{at:02}" for at in range(2)], ["12:00:00", "12:00:01"]),
        (["2026-01-02 12:00:00", "2026-01-03 12:00:00"], ["2026-01-02 12:00:00", "2026-01-03 12:00:00"]),
        ([HOSTILE], ["&lt;script&gt;alert(&#x27;&amp;&quot;1&#x27;)&lt;/script&gt;\\x1b[31m\\u202e\\n"]),
    ],
)
def test_labels_of_an_axis_fit(names: list[str], shown: list[str]) -> None:
    assert labels(columns([Bar(name, (1,)) for name in names], ("infos",), "x")) == shown


def test_ranges_stay_inside() -> None:
    plot = ranges([LatencyRange(HOSTILE, 3, 10, 100, 1000), LatencyRange("b", 1, 1, 1, 1)])

    assert all(rectangle["x"] + rectangle["width"] <= 100 for rectangle in rectangles(plot, "range"))
    assert re.findall('<td class="number">(.*?)</td>', plot)[:4] == ["3", "0 µs", "0 µs", "1 µs"]
    assert "<td" in ranges([LatencyRange("a", 1, 5, 5, 5)], numbers=False)
    assert "<script>" not in plot


def test_connections_lie_along_the_time() -> None:
    spans = [
        LaneStretch(NOW, NOW + HOUR, "fin", "a"), LaneStretch(NOW + 3 * HOUR, None, "open", HOSTILE),
        LaneStretch(NOW + 4 * HOUR, NOW, "fin", "c"),
    ]  # fmt: skip
    whole_time = LaneStretch(NOW, NOW + 4 * HOUR, "reset", "d")
    plot = lanes([ChartLane(HOSTILE, spans), ChartLane(LONG, [whole_time])], exact_moment)

    first, backwards = rectangles(plot, "fin")
    (lasting,), (whole,) = rectangles(plot, "open"), rectangles(plot, "reset")
    assert whole["width"] == pytest.approx(4 * first["width"], abs=0.2)
    assert lasting["x"] - first["x"] == pytest.approx(3 * first["width"], abs=0.2)
    assert lasting["x"] + lasting["width"] == pytest.approx(whole["x"] + whole["width"], abs=0.2)
    assert all(seconds["x"] + seconds["width"] <= 100 for seconds in (first, backwards, lasting, whole))
    assert "<span>2026-01-02 03:04:05.123</span><span>07:04:05.123</span>" in plot
    assert "<script>" not in plot
    moment = lanes([ChartLane("a", [LaneStretch(NOW, NOW, "fin", "x")])], exact_moment)
    assert moment.count("<span>") == 1
    assert [rectangle["width"] for rectangle in rectangles(moment, "fin")] == [0.3]


def test_errors_come_first_in_the_grid() -> None:
    cells = [GridCell("a", "X1", 500, "info"), GridCell("b", "X2", 1, "error"), GridCell("b", "X1", 5, "info")]
    plot = crossing_grid(cells)

    assert re.findall("<th(?: [^>]*)?>(.*?)</th>", plot) == ["client", "X2", "X1"]
    assert re.findall('<td class="name">(.*?)</td>', plot) == ["b", "a"]
    assert re.findall('<td class="([a-z]+ s.)">(.*?)</td>', plot) == [
        ("errors s1", "1"), ("infos s2", "5"), ("infos s3", "500"),
    ]  # fmt: skip
    assert "<script>" not in crossing_grid([GridCell(HOSTILE, HOSTILE, 1, "error")])


def test_bars_stay_in_their_room() -> None:
    assert 'width="50.0%"' in share_bar([0.5])
    assert 'width="0.5%"' in share_bar([0.000001])
    assert 'width="100.0%"' in share_bar([7.0])
    assert "<rect" not in share_bar([0.0])
    assert [rectangle["x"] for rectangle in rectangles(share_bar([0.2, 0.3], ("a", "b")), "b")] == [20.0]


def test_nothing_is_no_plot() -> None:
    assert columns([], ("infos",), "x") == ranges([]) == lanes([], exact_moment) == crossing_grid([]) == ""
