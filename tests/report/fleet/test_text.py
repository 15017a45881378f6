"""The text fits its terminal and cannot harm it."""

from __future__ import annotations

import re

import pytest

from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.fleet.text import render
from tests.report.fleet.samples import empty, full

SECTIONS = (
    "Rules that were broken", "Groups of Client Identifiers", "Rules by group of Client Identifiers",
    "Groups by User Property", "Rules by User Property", "Rules by client", "Day by day",
    "From PUBLISH to its acknowledgement", "From publisher to subscriber", "Slowest topics", "Slowest subscribers",
    "Who talks on which topic", "Topic Filters", "Retained messages", "Message Expiry Interval", "Connecting",
    "How far this may be trusted",
)  # fmt: skip


@pytest.mark.parametrize("width", [0, 40, 60, 80, 100, 200])
def test_it_fits(width: int) -> None:
    lines = render(full(), View(width=width)).decode().split("\n")

    assert max(map(cells, lines)) <= (width or 80)
    assert [line for line in lines if line in SECTIONS] == list(SECTIONS)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", "".join(lines))


def test_what_it_says() -> None:
    told = render(full(), View(width=120)).decode()

    for part in (
        "1,300 findings, 20 errors among them",
        "from 2026-01-02 03:04:05 · to 2026-01-02 11:04:05 UTC",
        "restricted to client pump-*",
        "17 frames dropped while capturing",
        "6 gaps of 638 B in 2 connections",
        "1 stretch of bytes not parsed (818 B)",
        "… and 7 rules more (--top N shows N)",
        "QoS 1 from client",
        "12 more without a captured publication · 34 of content that was published more than once",
        "1 topic that nobody subscribed to",
        "10 set, 2 cleared, 1 refused, 30 delivered",
        "40 s left in the middle, 60 s at most",
        "(all of 10.0.0.2:1883)",
        "(says nothing)",
        "(no Client Identifier)",
        "<script>alert('&\"1')</script>\\x1b[31m\\u202e\\n",
    ):
        assert part in told, part


def test_without_unicode_and_with_colour() -> None:
    assert render(full(), View(width=80, unicode=False)).isascii()
    coloured = render(full(), View(width=80, colour=True)).decode()
    assert "\x1b[1m" in coloured
    assert "\x1b[31m\\u202e" not in coloured  # of the captured name


def test_nothing() -> None:
    told = render(empty(), View()).decode()

    assert "no findings: rules run when captures are taken in" in told
    assert "nothing is missing" in told
    assert "no bursts" in told
    assert "Day by day" not in told
