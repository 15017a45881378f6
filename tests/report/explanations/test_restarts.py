"""One stop of a broker is one event."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mqttscope.explain.book import MOMENT_NS, SECOND
from mqttscope.explain.causes.case import RETURN_NS
from mqttscope.explain.causes.mqtt import GONE_NS
from mqttscope.explain.describe import span
from mqttscope.explain.model import Cause, Certainty, Evidence, Totals, UnresolvedName
from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.explanations.base import make_reporter
from mqttscope.report.explanations.restarts import MAX_NAMED, EndSummary, RestartEvents
from tests.each import each
from tests.explain.running import capture, explain, explained
from tests.lint.lint_help import steps_of
from tests.report.explanations.samples import Pages, report


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_ends_of_one_restart_are_one_block_with_its_clients(form: str) -> None:
    text, every = report(form, "broker-restarts"), report(form, "broker-restarts", every=True)

    assert text.count("broker stopped or restarted (likely)") == 1
    assert "4 connections to 127.0.0.1:1883: broker stopped or restarted" in text.replace("\\", "")
    for name in ("pump-1", "pump-2", "pump-3", "pump-4"):
        assert name in text.replace("\\", "")
    assert "2 clients came back" in text
    assert every.count("broker stopped or restarted (likely)") == 4
    assert "4 × broker stopped or restarted" in text


def test_json_keeps_each() -> None:
    result = json.loads(report("json", "broker-restarts"))["explanations"]

    assert [row["cause"] for row in result].count("server_restart") == 4


def test_a_large_restart_is_short() -> None:
    explanation = explain(capture("broker-restarts"))[0]
    pages = Pages()
    reporter = make_reporter("text", pages, View(width=80))
    for number in range(1000):
        reporter.feed(
            replace(
                explanation, connection=number, client_identifier=f"c{number}", ended_ns=explanation.ended_ns + number
            )
        )
    reporter.close(None)

    assert f"and {1000 - MAX_NAMED} more" in pages.text
    assert "it ended 1,000 connections together, and refused new ones." in " ".join(pages.text.split())
    assert len(pages.text.splitlines()) < 40
    assert max(cells(line) for line in pages.text.splitlines()) <= 80


def test_two_restarts_and_two_servers_are_events_of_their_own() -> None:
    explanation = explain(capture("broker-restarts"))[0]
    later = replace(explanation, ended_ns=explanation.ended_ns + RETURN_NS + 1)
    other = replace(explanation, server="127.0.0.1:1884")
    restarts = RestartEvents()

    assert restarts.absorb(explanation)
    assert restarts.absorb(other)
    assert [*restarts.complete_events(later.ended_ns - 1)] == []
    assert [each.first.server for each in restarts.complete_events(later.ended_ns)] == [
        explanation.server,
        other.server,
    ]
    assert restarts.absorb(later)
    assert [each.count for each in restarts.complete_events()] == [1]


@each("apart, events", [(MOMENT_NS, [2]), (MOMENT_NS + 1, [1, 1])])
def test_ends_belong_together_however_late_they_are_told(apart: int, events: list[int]) -> None:
    explanation = explain(capture("broker-restarts"))[0]
    restarts = RestartEvents()
    for ended_ns in (explanation.ended_ns, explanation.ended_ns + apart):
        assert restarts.absorb(replace(explanation, ended_ns=ended_ns))

    assert [each.count for each in restarts.complete_events()] == events


def test_refused_attempts_belong_to_the_stop_before_them() -> None:
    explanation = replace(explain(capture("broker-restarts"))[0], came_back=None)
    refused = replace(explanation, candidates=(replace(explanation.first, cause=Cause.NOT_LISTENING),))
    restarts = RestartEvents()
    for each_one, after in ((explanation, 0), (refused, 1), (refused, GONE_NS), (refused, 3 * GONE_NS)):
        assert restarts.absorb(replace(each_one, ended_ns=explanation.ended_ns + after))
    first, second = restarts.complete_events()

    assert [(each.count, each.refusals) for each in (first, second)] == [(1, 2), (0, 1)]
    assert first.afterwards[0].text == "2 attempts to connect refused, the first at this time"


def test_an_event_is_as_sure_as_its_surest_end() -> None:
    explanation = explain(capture("broker-restarts"))[0]
    sure = replace(
        explanation, candidates=(replace(explanation.first, certainty=Certainty.CERTAIN, headline="It said so."),)
    )
    restarts = RestartEvents()
    for end in (explanation, sure, explanation):
        assert restarts.absorb(end)

    (event,) = restarts.complete_events()
    assert (event.count, event.headline) == (3, "It said so.")


def test_what_a_stopped_server_refuses_is_no_cause_of_its_own() -> None:
    explanation = explain(capture("broker-restarts"))[0]
    back = Evidence("", 1, explanation.ended_ns + 10 * SECOND)
    stopped = replace(explanation, came_back=back)
    refused = replace(explanation, candidates=(replace(explanation.first, cause=Cause.NOT_LISTENING),), came_back=None)
    restarts, overview = RestartEvents(), EndSummary()
    for number, (each_one, after) in enumerate(((stopped, 0), (refused, 1), (refused, 2), (refused, 20))):
        end = replace(each_one, ended_ns=explanation.ended_ns + after * SECOND, client_identifier=f"c{number}")
        assert restarts.absorb(end)
        overview.add(end)
    first, second = restarts.complete_events()

    assert (first.refusals, second.refusals) == (2, 1)
    assert first.lasted == f"with the attempts to connect after it within {span(2 * SECOND)}"
    assert first.title.startswith("1 connection to ")
    assert [afterward.timestamp_ns for afterward in first.afterwards] == sorted(
        afterward.timestamp_ns or 0 for afterward in first.afterwards
    )
    assert "1 × broker stopped or restarted, 3 × nothing listened" in dict(overview.lines(str))["What broke"]


def test_the_first_lines_show_the_surer_one_of_two_causes() -> None:
    unsure, sure = explained(*steps_of("opened; < reset", "+5 @1 opened; @1 < disconnect code=0x93; @1 < fin"))
    overview = EndSummary()
    overview.add(unsure)
    overview.add(sure)

    assert dict(overview.lines(str))["Why"].startswith("certain: The broker disconnected the client with 0x93")


@each("is_refused, why", [(True, "certain: The broker refused the CONNECT"), (False, "hypothesis: The broker closed")])
def test_a_certain_cause_comes_before_hypotheses(is_refused: bool, why: str) -> None:
    lines = [f"@{number} opened 3.1.1 client=c{number}; @{number} > publish t on; @{number} < fin" for number in (1, 2)]
    if is_refused:
        lines.append("@9 > connect 3.1.1; @9 < connack code=4; @9 < fin")
    overview = EndSummary()
    for end in explained(*steps_of(*lines)):
        overview.add(end)

    assert dict(overview.lines(str))["Why"].startswith(why)


@each("silences, closes, cause", [(2, 8, "Keep Alive ran out"), (2, 9, "client closed"), (1, 5, "client closed")])
def test_ends_without_a_cause_come_before_others_only_if_they_are_many(silences: int, closes: int, cause: str) -> None:
    lines = ["for 1..9: @{n} opened 3.1.1 client=c{n} keep_alive=10"]
    silent = [f"@{number} opened 3.1.1 client=s{number} keep_alive=10" for number in range(20, 20 + silences)]
    ends = [f"@{number} < fin" for number in range(20, 20 + silences)]
    closed = [f"@{number} > fin" for number in range(1, closes + 1)]
    overview = EndSummary()
    for end in explained(*steps_of(*lines, *closed, *silent, f"+15 {ends[0]}", *ends[1:])):
        overview.add(end)

    first = dict(overview.lines(str))["What broke"].partition(": ")[2].partition(",")[0]
    assert first.partition("× ")[2] == cause


def test_the_first_lines_name_clients_that_could_not_resolve_names() -> None:
    rows = [UnresolvedName(f"192.0.2.{number}", 9 - number, f"likely: it {number}", "Look.") for number in range(5)]
    overview, totals = EndSummary(), Totals(unresolved=rows)

    assert overview.lines(str) == overview.lines(str, Totals()) == []
    assert dict(overview.lines(str, totals)) == {
        "What broke": "5 clients could not resolve a name",
        "Clients": "5: 192.0.2.0, 192.0.2.1, 192.0.2.2, 192.0.2.3, 192.0.2.4",
        "Since": "5",
        "Why": "likely: it 0.",
        "Look at": "Look.",
    }
    overview.add(explained(*steps_of("opened 3.1.1; > fin"))[0])
    lines = dict(overview.lines(str, totals))
    assert lines["What broke"] == "1 connection: 1 × client closed; 5 clients could not resolve a name"
    assert lines["Why"].startswith("likely: The client closed")


def test_the_first_lines_name_a_message_that_circulates() -> None:
    overview, totals = EndSummary(), Totals(loop="heuristic: a loop.")

    assert overview.lines(str, totals) == [("Loop", "heuristic: a loop.")]
    overview.add(explained(*steps_of("opened 3.1.1; > fin"))[0])
    assert [title for title, _ in overview.lines(str, totals)][-1] == "Loop"
    assert "Loop" not in dict(overview.lines(str, Totals()))


def test_the_sentence_of_a_cause_is_the_one_of_most_ends() -> None:
    explanation = explained(*steps_of("opened 3.1.1; > fin"))[0]
    overview = EndSummary()
    for headline in ("It did A.", "It did B after 1.5 ms.", "It did B after 2 ms."):
        overview.add(replace(explanation, candidates=(replace(explanation.first, headline=headline),)))

    assert dict(overview.lines(str))["Why"] == "likely: It did B after 1.5 ms."
