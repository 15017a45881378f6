"""What a run is counted as."""

from __future__ import annotations

import json
from dataclasses import replace

from mqttscope.report.trial.outcome import (
    RANK,
    case_json,
    case_line,
    document,
    result_json,
    summary_json,
    summary_lines,
)
from mqttscope.trial.verdict import Verdict
from tests.report.trial.tries import LINE, run, secret, with_reduction


def test_counts() -> None:
    made = run()

    assert made.verdicts == {Verdict.TOLERATED: 1, Verdict.CONFORMING: 2}
    assert [one.case.mutation.name for one in made.deviations] == ["publish:qos-3"]
    assert made.by_statement()["5.0 MQTT-3.3.1-4"] == {Verdict.TOLERATED: 1}
    assert made.by_statement()["5.0 (legal)"] == {Verdict.CONFORMING: 1}
    assert set(made.by_mutation()) == {"publish:qos-3", "publish.topic_name:spaces", "random:bits"}
    assert set(RANK) == set(Verdict)


def test_the_worst_comes_first() -> None:
    made = run("mqtt://h", ("publish:qos-3", Verdict.TOLERATED), ("random:bits", Verdict.CRASHED))

    assert [one.case.mutation.name for one in made.deviations] == ["random:bits", "publish:qos-3"]


def test_for_programs() -> None:
    made = with_reduction(run())
    first = result_json(made.results[0], made.reduced[0])
    summary = summary_json(made)

    assert (first["schema"], first["event"], first["verdict"], first["number"]) == (1, "case", "tolerated", 0)
    assert first["statements"] == ["5.0 MQTT-4.13.1-1"]
    assert first["case"]["statements"] == ["5.0 MQTT-3.3.1-4"]
    assert first["reduced"]["shell"] == LINE
    assert summary["verdicts"] == {"tolerated": 1, "conforming": 2}
    assert (summary["cases"], summary["deviations"], summary["too_long"]) == (3, 1, 2)
    assert summary["not_played"] == [{"reason": "the broker said \x1b[31mno", "cases": 1}]


def test_bytes_that_are_no_text_are_written_as_in_other_reports() -> None:
    made = run()
    made.broker, made.capture, made.stopped = "\udcff=mqtt://h", "odd \udcff.pcapng", "a \udcff"
    made.results[0] = replace(made.results[0], unclean=("retained message a/\udced\udca0\udc80",))
    made.not_played["no \ud800"] = 1
    row = json.loads(case_line(made.results[0], made))
    summary = json.loads(summary_lines([made]))

    assert row["left_behind"] == ["retained message a/\\xed\\xa0\\x80"]
    assert row["broker"] == summary["broker"] == {"length": 10, "hex": b"\xff=mqtt://h".hex()}
    assert summary["capture"] == {"length": 12, "hex": b"odd \xff.pcapng".hex()}
    assert summary["stopped"] == "a \\xff"
    assert summary["not_played"][1]["reason"] == "no \\xed\\xa0\\x80"
    assert json.loads(document([made]))["results"][0]["left_behind"] == row["left_behind"]


def test_the_document_is_one_for_any_number_of_brokers() -> None:
    alone, both = json.loads(document([run()])), json.loads(document([run("a"), run("b")], matrix=True))

    assert (alone["event"], len(alone["results"])) == ("mutate", 3)
    assert (both["event"], [one["broker"] for one in both["runs"]]) == ("matrix", ["a", "b"])
    assert both["runs"][0]["results"] == alone["results"]


def test_what_was_sent_is_told_where_the_broker_deviates_or_one_case_is_played() -> None:
    made = run()
    shown = [case_json(one, made)["case"] for one in made.results]
    made.alone = True

    assert ["steps" in one for one in shown] == ["changes" in one for one in shown] == [True, False, False]
    assert all("steps" in case_json(one, made)["case"] for one in made.results)


def test_passwords_are_hidden_unless_asked_for() -> None:
    made = with_reduction(secret())
    hidden = case_json(made.results[0], made)
    made.show_secrets = True
    shown = case_json(made.results[0], made)

    assert b"open sesame".hex() not in str(hidden)
    assert hidden["case"]["redacted"] is hidden["reduced"]["redacted"] is True
    assert hidden["reduced"]["shell"] == ""
    assert b"open sesame".hex() in shown["case"]["steps"][0]["data"]
    assert shown["reduced"]["shell"] == LINE
    assert "redacted" not in shown["case"]
