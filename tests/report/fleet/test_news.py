"""The first sentences of a report."""

from __future__ import annotations

from mqttscope.report.fleet.model import FleetReport, NewsPeriod
from mqttscope.report.fleet.news import meaning, sentences
from tests.report.fleet.samples import NOW, empty, full


def test_at_most_seven() -> None:
    assert len(sentences(full())) == 7
    assert sentences(empty()) == [
        "Nothing was found: rules run when captures are ingested.",
        "The captures are complete: no gap, no dropped frame, and the CONNECT of each connection.",
    ]


def test_what_they_contain() -> None:
    broken, lost, silent, first, before, look, trust = sentences(full())
    assert broken.startswith("12 of 40 clients have errors; 2 of them: ")
    assert "(PUB101 qos-3)" in broken
    assert lost.startswith("2 subscribers lost 7 messages; ")
    assert silent.startswith("3 devices have fallen silent; ")
    assert first == "The first error was at 2026-01-02 03:04:05 UTC."
    assert before == (
        "In the time of equal length before, 3 clients had 5 errors, and 9 messages were lost; now"
        " more clients have errors, and fewer messages are lost."
    )
    assert look.startswith("Look first at rule PUB101, and at client ")
    assert trust == (
        "Parts are missing: 6 gaps, 17 dropped frames, 1 capture error; 7 of 120 connections are incomplete."
    )


def comparison(now: NewsPeriod, before: NewsPeriod) -> str:
    report = FleetReport("lake")
    report.news.now, report.news.before = now, before
    (sentence,) = [sentence for sentence in sentences(report) if "equal length" in sentence]
    return sentence.rpartition("; ")[2]


def test_comparison() -> None:
    some = NewsPeriod(1, 4, 2, NOW, 0, 0)
    assert comparison(some, some) == "now as many clients have errors, and as many messages are lost."
    assert (
        comparison(some, NewsPeriod(1, 1, 3, NOW, 1, 1))
        == "now fewer clients have errors, and fewer messages are lost."
    )
    assert "nothing is compared" in comparison(some, NewsPeriod())


def test_meaning() -> None:
    assert meaning("SUB211") == "A SUBACK grants a higher QoS than the SUBSCRIBE requested"
    assert meaning("ABC999") == "ABC999"
