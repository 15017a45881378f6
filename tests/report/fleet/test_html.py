"""The page needs nothing else, and no name from the wire gets out of its text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mqttscope.report.fleet.html import (
    HEIGHT,
    WIDTH,
    Bar,
    Range,
    bar_columns,
    bar_rows,
    crossing_grid,
    lane_rows,
    nice,
    range_rows,
    render,
)
from mqttscope.report.fleet.model import Crossing, Lane, Span
from tests.report.browser import picture
from tests.report.fleet.samples import HOSTILE, HOUR, LONG, NOW, SERVER, empty, full


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
    spans = [Span(NOW, NOW + HOUR, "fin"), Span(NOW + 3 * HOUR, None, "open"), Span(NOW + 4 * HOUR, NOW, "fin")]
    plot = lane_rows([Lane(SERVER, HOSTILE, 3, spans), Lane(SERVER, LONG, 1, [Span(NOW, NOW + 4 * HOUR, "reset")])])

    first, backwards = rectangles(plot, "fin")
    (lasting,), (whole,) = rectangles(plot, "open"), rectangles(plot, "reset")
    assert whole["width"] == pytest.approx(4 * first["width"], abs=0.2)
    assert lasting["x"] - first["x"] == pytest.approx(3 * first["width"], abs=0.2)
    assert lasting["x"] + lasting["width"] == pytest.approx(whole["x"] + whole["width"], abs=0.2)
    assert all(one["x"] + one["width"] <= WIDTH for one in (first, backwards, lasting, whole))
    assert "the end of the captures: open" in plot
    moment = lane_rows([Lane(SERVER, "a", 1, [Span(NOW, NOW, "fin")])])
    assert [one["width"] for one in rectangles(moment, "fin")] == [1.5]


def test_findings_lie_where_client_and_rule_cross() -> None:
    found = [Crossing("a", "X1", 5, "error"), Crossing("a", "X2", 1, "info"), Crossing(None, "X2", 9, "warning")]
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


ALONE = {"meta"}
KNOWN = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "ul", "li", "div", "table", "thead",
    "tbody", "tr", "th", "td", "span", "svg", "g", "rect", "line", "text", "circle",
}  # fmt: skip


class Reader(HTMLParser):
    """Tags, their attributes and the text of a page; every tag is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def read(page: bytes) -> Reader:
    reader = Reader()
    reader.feed(page.decode())
    reader.close()
    assert reader.open == []
    return reader


def test_it_is_whole_and_harmless() -> None:
    page = render(full())
    reader = read(page)

    assert reader.tags <= KNOWN
    assert not {name for name in reader.attributes if name.startswith("on") or name in ("src", "href", "style")}
    assert b"<script" not in page
    assert b"http://" not in page
    assert b"https://" not in page
    assert "\u202e" not in page.decode()
    assert "\x1b" not in page.decode()
    assert any("<script>alert('&\"1')</script>\\x1b[31m\\u202e\\n" in one for one in reader.said)
    assert not any(len(one) > 1_000 for one in reader.said if ":root" not in one)


def test_plots_are_xml() -> None:
    page = render(full()).decode()
    found = re.findall(r"<svg .*?</svg>", page, re.S)

    # One of clients and rules, two of groups, three of days, three of latencies, one of endings, one of connecting.
    assert len(found) == 11
    for one in found:
        ElementTree.fromstring(one)


def test_everything_is_said() -> None:
    said = " ".join(read(render(full())).said)

    for part in (
        "lakes/<b>north</b>", "Restricted to client pump-*", "PUB101", "pump-#", "1.4", "2026-01-03",
        "QoS 1 from client", "Connections along the time", "and 6 more clients", "OPS103", "longer",
        "12.3 ms", "Deliveries without a captured publication: 12", "Topics that nobody subscribed to: 1",
        "held", "4 had it reduced", "CONNECT packets in 60 min each", "(all clients)", "ends in the middle of a frame",
        "and 7 more", "How far this may be trusted: 1 capture error; 17 frames dropped",
    ):  # fmt: skip
        assert part in said, part


def test_nothing() -> None:
    page = render(empty())

    assert "<svg" not in page.decode()
    said = " ".join(read(page).said)
    assert "No findings" in said
    assert "Nothing is missing from the captures." in said


def test_a_browser_draws_it_light_and_dark(tmp_path: Path) -> None:
    """The page as a whole, in the colours that the system asks for, and nothing to the right of a narrow window."""
    page = render(full())
    for dark, paper, error in ((False, "ffffff", "c0392b"), (True, "15191e", "e2695c")):
        drawn = picture(page, tmp_path, dark=dark, width=500, height=3_000)
        assert {bytes.fromhex(paper), bytes.fromhex(error)} <= drawn.colours()
        assert drawn.rows[0][:3] == bytes.fromhex(paper)
        edge = {row[-3:] for row in drawn.rows}
        assert edge == {bytes.fromhex(paper)}, "something sticks out"
