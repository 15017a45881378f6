"""What a run is counted as."""

from __future__ import annotations

from mqttscope.report.trial.outcome import RANK, result_json, summary_json
from mqttscope.trial.verdict import Verdict
from tests.report.trial.tries import LINE, run, with_reduction


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
