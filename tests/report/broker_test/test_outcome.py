"""What a run is counted as."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.broker_test.verdict import Verdict
from mqttscope.mqtt import Auth, Connack, Connect, Disconnect, Properties, ProtocolVersion, Publish, encode
from mqttscope.mutate import Action, Case, select
from mqttscope.mutate.mutation import NotApplicableError
from mqttscope.replay.script import Script
from mqttscope.report.broker_test import outcome
from tests.broker_test.flows import make_case
from tests.replay.recordings import conversation
from tests.report.broker_test.tries import LINE, run, secret, with_reduction

V3_1, V3_1_1, V5 = ProtocolVersion
PASSWORD = b"correct horse"


def connect(password: bytes = PASSWORD) -> Connect:
    return Connect(
        protocol_level=5, client_identifier="device1", properties=Properties(), user_name="me", password=password
    )


def login() -> Script:
    """A connection with a password, and Authentication Data in both directions."""
    method = Properties(authentication_method="PLAIN", authentication_data=b"token-4711")
    return conversation(
        (">", replace(connect(), properties=method)),
        ("<", Auth(reason_code=0x18, properties=method)),
        (">", Auth(reason_code=0x18, properties=method)),
        ("<", Connack(session_present=False, properties=method)),
        (">", Publish(topic_name="a/b", payload=b"1", properties=Properties())),
        (">", Disconnect()),
    )


def everything(case: Case) -> bytes:
    """All bytes that the report of a case has."""
    changes = (part for one in case.flow.changes for part in (one.removed, one.inserted))
    return b"\0".join([*(one.data for one in case.flow.steps), *changes])


def test_the_field_is_covered_byte_for_byte_and_the_steps_need_not_be_packets() -> None:
    raw = encode(connect(b"abc"), V5)
    parts = [raw[at : at + 1] for at in range(len(raw))]

    assert outcome.concealed([raw], V5) == [raw.replace(b"abc", b"***")]
    assert b"".join(outcome.concealed(parts, V5)) == raw.replace(b"abc", b"***")
    # Known secrets are found where no field is.
    assert outcome.known_secrets(login()) == [PASSWORD, b"token-4711"]
    assert outcome.known_secrets(None) == []
    assert outcome.concealed([b"\x30\x10corr", b"ect horse!"], V5, [PASSWORD]) == [b"\x30\x10****", b"*********!"]


def test_nothing_else_is_touched() -> None:
    case = make_case(
        "publish:qos-3",
        conversation(
            (">", replace(connect(), user_name=None, password=None)),
            ("<", Connack(session_present=False, properties=Properties())),
            (">", Publish(topic_name="a", payload=b"1", properties=Properties())),
        ),
    )
    assert outcome.concealed_case(CaseResult(case, None)) is case


@pytest.mark.parametrize("family", ["connect", "auth", "flow", "random"])
def test_no_mutation_lets_a_secret_through(family: str) -> None:
    script, tried = login(), 0
    for one in select(family, version=V5, sender="client"):
        try:
            case = make_case(one.name, script)
        except NotApplicableError:
            continue
        if sum(len(step.data) for step in case.flow.steps) > 100_000:
            continue
        tried += 1
        shown = everything(outcome.concealed_case(CaseResult(case, None, script=script)))
        assert PASSWORD not in shown, one.name
        assert b"token-4711" not in shown, one.name
        assert len(shown) == len(everything(case)), one.name
        assert any(step.action is Action.SEND for step in case.flow.steps) or one.kind == "flow"
    assert tried > 5


def test_counts() -> None:
    made = run()

    assert made.verdicts == {Verdict.TOLERATED: 1, Verdict.CONFORMING: 2}
    assert [one.case.mutation.name for one in made.deviations] == ["publish:qos-3"]
    assert made.by_statement()["5.0 MQTT-3.3.1-4"] == {Verdict.TOLERATED: 1}
    assert made.by_statement()["5.0 (legal)"] == {Verdict.CONFORMING: 1}
    assert set(made.by_mutation()) == {"publish:qos-3", "publish.topic_name:spaces", "random:bits"}
    assert set(outcome.RANK) == set(Verdict)


def test_the_worst_comes_first() -> None:
    made = run("mqtt://h", ("publish:qos-3", Verdict.TOLERATED), ("random:bits", Verdict.CRASHED))

    assert [one.case.mutation.name for one in made.deviations] == ["random:bits", "publish:qos-3"]


def test_for_programs() -> None:
    made = with_reduction(run())
    first = outcome.result_json(made.results[0], made.reduced[0])
    summary = outcome.summary_json(made)

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
    row = json.loads(outcome.case_line(made.results[0], made))
    summary = json.loads(outcome.summary_lines([made]))

    assert row["left_behind"] == ["retained message a/\\xed\\xa0\\x80"]
    assert row["broker"] == summary["broker"] == {"length": 10, "hex": b"\xff=mqtt://h".hex()}
    assert summary["capture"] == {"length": 12, "hex": b"odd \xff.pcapng".hex()}
    assert summary["stopped"] == "a \\xff"
    assert summary["not_played"][1]["reason"] == "no \\xed\\xa0\\x80"
    assert json.loads(outcome.document([made]))["results"][0]["left_behind"] == row["left_behind"]


def test_the_document_is_one_for_any_number_of_brokers() -> None:
    alone, both = json.loads(outcome.document([run()])), json.loads(outcome.document([run("a"), run("b")], matrix=True))

    assert (alone["event"], len(alone["results"])) == ("mutate", 3)
    assert (both["event"], [one["broker"] for one in both["runs"]]) == ("matrix", ["a", "b"])
    assert both["runs"][0]["results"] == alone["results"]


def test_what_was_sent_is_told_where_the_broker_deviates_or_one_case_is_played() -> None:
    made = run()
    shown = [outcome.case_json(one, made)["case"] for one in made.results]
    made.alone = True

    assert ["steps" in one for one in shown] == ["changes" in one for one in shown] == [True, False, False]
    assert all("steps" in outcome.case_json(one, made)["case"] for one in made.results)


def test_passwords_are_hidden_unless_asked_for() -> None:
    made = with_reduction(secret())
    hidden = outcome.case_json(made.results[0], made)
    made.show_secrets = True
    shown = outcome.case_json(made.results[0], made)

    assert b"open sesame".hex() not in str(hidden)
    assert hidden["case"]["redacted"] is hidden["reduced"]["redacted"] is True
    assert hidden["reduced"]["shell"] == ""
    assert b"open sesame".hex() in shown["case"]["steps"][0]["data"]
    assert shown["reduced"]["shell"] == LINE
    assert "redacted" not in shown["case"]
