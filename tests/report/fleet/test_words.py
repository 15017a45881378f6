"""Words that text and page share."""

from __future__ import annotations

from mqttscope.report.fleet.model import Names
from mqttscope.report.fleet.words import conditions, doubts, moment, named, people
from tests.report.fleet.samples import empty, full


def test_words() -> None:
    assert moment(None) == ""
    assert moment(0) == "1970-01-01 00:00:00"
    assert moment(1 << 80).endswith(" s")
    assert (named(None, "client"), named("", "shape"), named("a", "property")) == (
        "(no Client Identifier)", "(empty)", "a",
    )  # fmt: skip
    assert people(Names(7, ["a", "b", "c", "d"])) == "a, b, c +4"
    assert people(Names(2, ["a", "b"])) == "a, b"
    assert people(Names()) == ""


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
