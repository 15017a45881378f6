"""One stop of a broker is one event."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mqttscope.explain.book import MOMENT_NS, SECOND
from mqttscope.explain.causes.case import RETURN_NS
from mqttscope.explain.causes.mqtt import GONE_NS
from mqttscope.explain.describe import span
from mqttscope.explain.model import Cause, Certainty, Evidence
from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.explanations.base import make_reporter
from mqttscope.report.explanations.restarts import MAX_NAMED, FirstLines, Restarts
from tests.each import each
from tests.explain.running import capture, explain, explained
from tests.lint.lint_help import steps_of
from tests.report.explanations.samples import Pages, report


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_ends_of_one_restart_are_one_block_with_its_clients(form: str) -> None:
    told, every = report(form, "broker-restarts"), report(form, "broker-restarts", every=True)

    assert told.count("broker stopped or restarted (likely)") == 1
    assert "4 connections to 127.0.0.1:1883: broker stopped or restarted" in told.replace("\\", "")
    for name in ("pump-1", "pump-2", "pump-3", "pump-4"):
        assert name in told.replace("\\", "")
    assert "2 clients came back" in told
    assert every.count("broker stopped or restarted (likely)") == 4
    assert "4 × broker stopped or restarted" in told


def test_json_keeps_each() -> None:
    found = json.loads(report("json", "broker-restarts"))["explanations"]

    assert [one["cause"] for one in found].count("server_restart") == 4


def test_a_large_restart_is_short() -> None:
    one = explain(capture("broker-restarts"))[0]
    pages = Pages()
    made = make_reporter("text", pages, View(width=80))
    for number in range(1000):
        made.feed(replace(one, connection=number, client_identifier=f"c{number}", ended_ns=one.ended_ns + number))
    made.close(None)

    assert f"and {1000 - MAX_NAMED} more" in pages.text
    assert "it ended 1,000 connections together, and refused new ones." in " ".join(pages.text.split())
    assert len(pages.text.splitlines()) < 40
    assert max(cells(line) for line in pages.text.splitlines()) <= 80


def test_two_restarts_and_two_servers_are_events_of_their_own() -> None:
    one = explain(capture("broker-restarts"))[0]
    later = replace(one, ended_ns=one.ended_ns + RETURN_NS + 1)
    other = replace(one, server="127.0.0.1:1884")
    restarts = Restarts()

    assert restarts.takes(one)
    assert restarts.takes(other)
    assert [*restarts.due(later.ended_ns - 1)] == []
    assert [each.first.server for each in restarts.due(later.ended_ns)] == [one.server, other.server]
    assert restarts.takes(later)
    assert [each.count for each in restarts.due()] == [1]


@each("apart, events", [(MOMENT_NS, [2]), (MOMENT_NS + 1, [1, 1])])
def test_ends_belong_together_however_late_they_are_told(apart: int, events: list[int]) -> None:
    one = explain(capture("broker-restarts"))[0]
    restarts = Restarts()
    for ended_ns in (one.ended_ns, one.ended_ns + apart):
        assert restarts.takes(replace(one, ended_ns=ended_ns))

    assert [each.count for each in restarts.due()] == events


def test_refused_attempts_belong_to_the_stop_before_them() -> None:
    one = replace(explain(capture("broker-restarts"))[0], came_back=None)
    refused = replace(one, candidates=(replace(one.first, cause=Cause.NOT_LISTENING),))
    restarts = Restarts()
    for each_one, after in ((one, 0), (refused, 1), (refused, GONE_NS), (refused, 3 * GONE_NS)):
        assert restarts.takes(replace(each_one, ended_ns=one.ended_ns + after))
    first, second = restarts.due()

    assert [(each.count, each.refusals) for each in (first, second)] == [(1, 2), (0, 1)]
    assert first.afterwards[0].text == "2 attempts to connect refused, the first at this time"


def test_an_event_is_as_sure_as_its_surest_end() -> None:
    one = explain(capture("broker-restarts"))[0]
    sure = replace(one, candidates=(replace(one.first, certainty=Certainty.CERTAIN, headline="It said so."),))
    restarts = Restarts()
    for end in (one, sure, one):
        assert restarts.takes(end)

    (event,) = restarts.due()
    assert (event.count, event.headline) == (3, "It said so.")


def test_what_a_stopped_server_refuses_is_no_cause_of_its_own() -> None:
    one = explain(capture("broker-restarts"))[0]
    back = Evidence("", 1, one.ended_ns + 10 * SECOND)
    stopped = replace(one, came_back=back)
    refused = replace(one, candidates=(replace(one.first, cause=Cause.NOT_LISTENING),), came_back=None)
    restarts, overview = Restarts(), FirstLines()
    for number, (each_one, after) in enumerate(((stopped, 0), (refused, 1), (refused, 2), (refused, 20))):
        end = replace(each_one, ended_ns=one.ended_ns + after * SECOND, client_identifier=f"c{number}")
        assert restarts.takes(end)
        overview.add(end)
    first, second = restarts.due()

    assert (first.refusals, second.refusals) == (2, 1)
    assert first.lasted == f"ended within {span(0)}"
    assert [told.timestamp_ns for told in first.afterwards] == sorted(
        told.timestamp_ns or 0 for told in first.afterwards
    )
    assert "1 × broker stopped or restarted, 3 × nothing listened" in dict(overview.lines(str))["What broke"]


def test_the_first_lines_show_the_surer_one_of_two_causes() -> None:
    unsure, sure = explained(*steps_of("opened; < reset", "+5 @1 opened; @1 < disconnect code=0x93; @1 < fin"))
    overview = FirstLines()
    overview.add(unsure)
    overview.add(sure)

    assert dict(overview.lines(str))["Why"].startswith("certain: The broker disconnected the client with 0x93")
