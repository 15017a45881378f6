"""The text fits its terminal and cannot harm it."""

from __future__ import annotations

import json
import re

import pytest

from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.fleet.model import ClientNames
from mqttscope.report.fleet.text import conditions, document, doubts, group_name, people, render
from mqttscope.report.jsonl import dumps
from mqttscope.report.when import moment
from tests.report.fleet.samples import HOSTILE, NOW, empty, full


def test_keys_and_values() -> None:
    new_document = json.loads(dumps(document(full())))

    assert new_document["schema"] == 1
    assert list(new_document)[1:4] == ["lake", "asked", "overview"]
    assert new_document["asked"]["since"] == new_document["overview"]["first"] == "2026-01-02T03:04:05.123456789Z"
    assert new_document["overview"]["first_ns"] == NOW
    assert new_document["rules"]["total"] == 9
    assert new_document["by_client"]["rows"][0]["group"] == HOSTILE
    assert new_document["latency"]["end_to_end"] == {
        "count": 1_000, "p50_ns": 850_000, "p90_ns": 12_300_000, "p99_ns": 2_500_000_000, "maximum_ns": 3_000_000_000,
    }  # fmt: skip
    assert new_document["expiry"]["remaining"]["p50_s"] == 40
    assert new_document["reconnects"]["timeline"][1]["connects"] == 1
    assert new_document["reconnects"]["storms"]["rows"][0]["from"].endswith("Z")
    assert new_document["talk"]["topics"]["rows"][0]["publishers"]["count"] == 7


def test_nothing_has_the_same_keys() -> None:
    whole, nothing = document(full()), document(empty())

    assert list(whole) == list(nothing)
    assert nothing["overview"]["first"] is None
    assert nothing["rules"] == {"rows": [], "total": 0}


def test_words() -> None:
    assert moment(None) == ""
    assert moment(0) == "1970-01-01 00:00:00"
    assert moment(1 << 80).endswith(" s")
    assert (group_name(None, "client"), group_name("", "shape"), group_name("a", "property")) == (
        "(no Client Identifier)", "(empty)", "a",
    )  # fmt: skip
    assert people(ClientNames(7, ["a", "b", "c", "d"])) == "a, b, c +4"
    assert people(ClientNames(2, ["a", "b"])) == "a, b"
    assert people(ClientNames()) == ""


def test_conditions_and_doubts() -> None:
    assert conditions(empty()) == []
    assert conditions(full()) == [
        "client pump-*", "topic plant/#", "server 10.0.0.2:1883", "rule PUB", "since 2026-01-02 03:04:05",
        "until 2026-01-02 12:04:05",
    ]  # fmt: skip
    assert doubts(empty()) == []
    several = full()
    several.trust.unparsed = 2
    assert "2 stretches of bytes not parsed (818 B)" in doubts(several)
    assert "5 connections without a captured CONNECT" in doubts(several)


SECTIONS = (
    "Broken rules", "Messages lost", "Silent devices", "From publisher to subscriber", "Slowest topics", "Connecting",
    "Groups of Client Identifiers", "Rules by group of Client Identifiers", "Groups by User Property",
    "Rules by User Property", "Rules by client", "How connections ended", "Day by day",
    "From PUBLISH to its acknowledgement", "Slowest subscribers",
    "Publishers and subscribers by topic", "Topic Filters", "Retained messages", "Message Expiry Interval",
    "Missing data",
)  # fmt: skip


@pytest.mark.parametrize("width", [0, 40, 60, 80, 100, 200])
def test_it_fits(width: int) -> None:
    lines = render(full(), View(width=width)).decode().split("\n")

    assert max(map(cells, lines)) <= (width or 80)
    assert [line for line in lines if line in SECTIONS] == list(SECTIONS)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", "".join(lines))


def test_what_it_says() -> None:
    text = render(full(), View(width=120)).decode()

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
        "median 40 s left, maximum 60 s",
        "(all of 10.0.0.2:1883)",
        "(not set)",
        "(no Client Identifier)",
        "<script>alert('&\"1')</script>\\x1b[31m\\u202e\\n",
    ):
        assert part in text, part


def test_without_unicode_and_with_colour() -> None:
    assert render(full(), View(width=80, unicode=False)).isascii()
    coloured = render(full(), View(width=80, colour=True)).decode()
    assert "\x1b[1m" in coloured
    assert "\x1b[31m\\u202e" not in coloured  # of the captured name


def test_nothing() -> None:
    text = render(empty(), View()).decode()

    assert "no findings: rules run when captures are ingested" in text
    assert "nothing: all connections were captured" in text
    assert "no bursts" in text
    assert "Day by day" not in text
