"""The page needs nothing else, and no name from the wire gets out of its text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from mqttscope.report.fleet.html import HEIGHT, WIDTH, Bar, Range, bar_columns, bar_rows, nice, range_rows, render
from tests.report.fleet.samples import HOSTILE, LONG, empty, full


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


def test_nothing_is_no_plot() -> None:
    assert (
        bar_columns([], ("infos",), "x")
        == bar_rows([Bar("a", (0,))], ("infos",), "x")
        == range_rows([], "x", least="", most="")
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

    # Two of groups, two of days, two of latencies, one of connecting.
    assert len(found) == 7
    for one in found:
        ElementTree.fromstring(one)


def test_everything_is_said() -> None:
    said = " ".join(read(render(full())).said)

    for part in (
        "lakes/<b>north</b>", "Restricted to client pump-*", "PUB101", "pump-#", "1.4", "2026-01-03",
        "QoS 1 from client",
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
