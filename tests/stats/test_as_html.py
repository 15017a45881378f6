"""Statistics as a page: charts and tables of what the text report has, without credentials, and nothing that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mqttscope.report.base import View
from mqttscope.stats.as_html import ENDINGS, overview, render
from mqttscope.stats.as_text import render as as_text
from mqttscope.stats.collect import Statistics
from tests.report.browser import elements
from tests.report.html.reader import read
from tests.report.html.test_page import HOSTILE
from tests.stats.talk import NAMES, S2C, SECOND, Talk, events_of, statistics_of

TOKEN = "pump?api_key=dozjgNryP4J3jVmNHl0w5N"


def measured(*names: str) -> Statistics:
    statistics = Statistics(along=True)
    for event in events_of(*names):
        statistics.feed(event)
    statistics.finish()
    return statistics


def said(page: bytes | str) -> str:
    return " ".join(read(page if isinstance(page, bytes) else page.encode()).texts)


def test_a_page_says_what_the_text_says() -> None:
    for name in NAMES[::9]:
        statistics = statistics_of(name)
        words = set(re.findall(r"[A-Z]{6,}|\d+\.\d+ [mµ]s", as_text(statistics, View(width=400)).decode()))
        assert words <= set(re.findall(r"[A-Z]{6,}|\d+\.\d+ [mµ]s", said(render(statistics)))), name


def test_charts_are_xml_and_say_what_they_show() -> None:
    text = "".join(overview(measured("misdelivered")))
    charts = re.findall(r'<svg role="img" aria-label.*?</svg>', text, re.S)

    for chart in charts:
        ElementTree.fromstring(chart)
    assert [re.findall(r'aria-label="(.*?)"', chart)[0] for chart in charts] == [
        "packets over time", "bytes over time", "handshakes by latency",
    ]  # fmt: skip
    for part in ("13 connections", "ended with DISCONNECT", "each bar is 500 ms", "PINGREQ → PINGRESP by the client"):
        assert part in text, part
    # Each packet is in one bar.
    assert sum(map(int, re.findall(r": (\d+) packets</title>", charts[0]))) == 172


def test_each_latency_is_in_one_bar() -> None:
    statistics = measured("misdelivered")
    text = "".join(overview(statistics))
    (chart,) = re.findall(r'<svg role="img" aria-label="handshakes.*?</svg>', text, re.S)
    most = sorted((latency.count for latency in statistics.totals.traffic.latencies.values()), reverse=True)[:5]

    names = re.findall(r'<i class="part\d"></i>(.*?)</span>', text)
    assert len(names) == len(set(names)) == 5
    assert [sum(map(int, re.findall(rf"(\d+) {name}[,<]", chart))) for name in names] == most


def test_how_connections_ended_is_seen() -> None:
    text = "".join(overview(measured("refused-connects", "broker-restarts", "device-restarts")))

    for ending in ("disconnected", "broken", "refused", "open"):
        assert f'<rect class="{ending}"' in text
        assert ENDINGS[ending] in text


def hostile_names() -> bytes:
    """The page of clients and topics with names that try to be markup."""
    statistics = Statistics(along=True)
    for number, name in enumerate([*HOSTILE, TOKEN]):
        talk = Talk(statistics, number, name)
        talk.publish(f"a/{name}", number)
        talk.publish(name, number, S2C)
        talk.close(SECOND)
    statistics.finish()
    return render(statistics)


def test_names_are_text_without_credentials() -> None:
    page = hostile_names()

    assert not read(page).tags & {"img", "iframe", "object"}
    assert b"dozjgNryP4J3" not in page
    assert "\u202e" not in page.decode()


@pytest.mark.long
def test_a_browser_shows_such_names_as_text_and_filters_by_them(tmp_path: Path) -> None:
    asks = "filter.value='pump';filter.dispatchEvent(new Event('input'))"
    shown = elements(hostile_names(), tmp_path, act=asks)

    assert "data-owned" not in shown
    rows = [row for row in re.findall(r"<tr.*?</tr>", shown, re.S) if "<th" not in row]
    assert 0 < sum("hidden" not in row.partition(">")[0] for row in rows) < len(rows)
    assert all(("pump" in row) is ("hidden" not in row.partition(">")[0]) for row in rows)


def test_tables_are_chosen_and_limited() -> None:
    statistics = statistics_of("misdelivered")
    text = said(render(statistics, tables=("topic",), top=3))

    assert "Clients" not in text
    assert "… and 8 topics more (--top N shows N)" in text


def test_nothing_counted_is_a_page_too() -> None:
    statistics: Any = Statistics(along=True)
    statistics.finish()
    assert "<h1>Statistics</h1>" in render(statistics).decode()
