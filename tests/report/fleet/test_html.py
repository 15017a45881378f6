"""The page needs nothing else, and no name from the wire gets out of its text."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mqttscope.report.fleet.html import render
from tests.report.browser import picture
from tests.report.fleet.samples import empty, full
from tests.report.html.reader import read

KNOWN = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "ul", "li", "div", "table", "thead",
    "tbody", "tr", "th", "td", "span", "svg", "g", "rect", "line", "text", "circle",
}  # fmt: skip


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


@pytest.mark.long
def test_a_browser_draws_it_light_and_dark(tmp_path: Path) -> None:
    """The page as a whole, in the colours that the system asks for, and nothing to the right of a narrow window."""
    page = render(full())
    for dark, paper, error in ((False, "ffffff", "c0392b"), (True, "15191e", "e2695c")):
        drawn = picture(page, tmp_path, dark=dark, width=500, height=3_000)
        assert {bytes.fromhex(paper), bytes.fromhex(error)} <= drawn.colours()
        assert drawn.rows[0][:3] == bytes.fromhex(paper)
        edge = {row[-3:] for row in drawn.rows}
        assert edge == {bytes.fromhex(paper)}, "something sticks out"


def test_connections_along_the_time_say_how_they_ended() -> None:
    page = render(full()).decode()

    assert "the end of the captures: open at the end" in page
    assert "(no Client Identifier)" in page
