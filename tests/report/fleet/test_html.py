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
    "tbody", "tr", "th", "td", "span", "svg", "g", "rect", "line", "text", "header", "section", "i", "figure",
    "details", "summary", "script", "a",
}  # fmt: skip


def test_it_is_whole_and_harmless() -> None:
    page = render(full())
    reader = read(page)

    assert reader.tags <= KNOWN
    assert not {name for name in reader.attributes if name.startswith("on") or name in ("src", "style")}
    links = re.findall(rb'href="([^"]*)"', page)
    assert links
    assert all(link.startswith(b"#") and b'id="%b"' % link[1:] in page for link in links)
    assert page.count(b"<script") == 1
    assert b"http://" not in page
    assert b"https://" not in page
    assert "\u202e" not in page.decode()
    assert "\x1b" not in page.decode()
    assert any("<script>alert('&\"1')</script>\\x1b[31m\\u202e\\n" in text for text in reader.texts)
    assert not any(len(text) > 1_000 for text in reader.texts if ":root" not in text and '"use strict"' not in text)


def test_plots_are_xml() -> None:
    page = render(full()).decode()
    result = re.findall(r"<svg .*?</svg>", page, re.S)

    for each in result:
        ElementTree.fromstring(each)
    assert re.findall('<svg role="img" aria-label="(.*?)"', page) == [
        "CONNECT packets over time", "Findings over time", "Packets over time",
        "Messages that clients published over time", "messages by latency",
    ]  # fmt: skip
    # Three connections of a timeline, two groups of each kind, two days, two topics and a subscriber.
    assert page.count('<svg class="lane"') == 3
    assert page.count('<svg class="share"') == 9


def test_everything_is_said() -> None:
    text = " ".join(read(render(full())).texts)

    for part in (
        "lakes/<b>north</b>", "Restricted to client pump-*", "PUB101", "pump-#", "1.4", "2026-01-03",
        "QoS 1 from client", "Timeline of connections", "and 6 more clients", "OPS103", "longer",
        "12.3 ms", "12 more without a captured publication", "1 topic that nobody subscribed to",
        "held", "4 reduced by the waiting time", "CONNECT packets in 60 min each", "(all of 10.0.0.2:1883)",
        "ends in the middle of a frame", "and 7 rules more", "Missing data: 1 capture error; 17 frames dropped",
        "12 of 40 clients have errors; 2 of them: ",
    ):  # fmt: skip
        assert part in text, part


def test_nothing() -> None:
    page = render(empty())

    assert "<svg" not in page.decode()
    text = " ".join(read(page).texts)
    assert "Nothing was found" in text
    assert "Nothing is missing from the captures." in text


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
