"""The page needs nothing else, and no name from the wire gets out of its text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from mqttscope.report.fleet.html import render
from tests.report.fleet.samples import empty, full

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
