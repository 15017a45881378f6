"""What a run is counted as."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.broker_test.verdict import BrokerVerdict
from mqttscope.mqtt import Auth, Connack, Connect, Disconnect, Properties, ProtocolVersion, Publish, encode
from mqttscope.mutate import Action, MutationCase, select
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


def everything(case: MutationCase) -> bytes:
    """All bytes that the report of a case has."""
    changes = (part for change in case.flow.changes for part in (change.removed, change.inserted))
    return b"\0".join([*(step.data for step in case.flow.steps), *changes])


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
    for mutation in select(family, version=V5, sender="client"):
        try:
            case = make_case(mutation.name, script)
        except NotApplicableError:
            continue
        if sum(len(step.data) for step in case.flow.steps) > 100_000:
            continue
        tried += 1
        shown = everything(outcome.concealed_case(CaseResult(case, None, script=script)))
        assert PASSWORD not in shown, mutation.name
        assert b"token-4711" not in shown, mutation.name
        assert len(shown) == len(everything(case)), mutation.name
        assert any(step.action is Action.SEND for step in case.flow.steps) or mutation.kind == "flow"
    assert tried > 5


def test_counts() -> None:
    broker_run = run()

    assert broker_run.verdicts == {BrokerVerdict.TOLERATED: 1, BrokerVerdict.CONFORMING: 2}
    assert [deviation.case.mutation.name for deviation in broker_run.deviations] == ["publish:qos-3"]
    assert broker_run.by_statement()["5.0 MQTT-3.3.1-4"] == {BrokerVerdict.TOLERATED: 1}
    assert broker_run.by_statement()["5.0 (legal)"] == {BrokerVerdict.CONFORMING: 1}
    assert set(broker_run.by_mutation()) == {"publish:qos-3", "publish.topic_name:spaces", "random:bits"}
    assert set(outcome.RANK) == set(BrokerVerdict)


def test_the_worst_comes_first() -> None:
    broker_run = run("mqtt://h", ("publish:qos-3", BrokerVerdict.TOLERATED), ("random:bits", BrokerVerdict.CRASHED))

    assert [deviation.case.mutation.name for deviation in broker_run.deviations] == ["random:bits", "publish:qos-3"]


def test_for_programs() -> None:
    broker_run = with_reduction(run())
    first = outcome.result_json(broker_run.results[0], broker_run.reduced[0])
    summary = outcome.summary_json(broker_run)

    assert (first["schema"], first["event"], first["verdict"], first["number"]) == (1, "case", "tolerated", 0)
    assert first["statements"] == ["5.0 MQTT-4.13.1-1"]
    assert first["case"]["statements"] == ["5.0 MQTT-3.3.1-4"]
    assert first["reduced"]["shell"] == LINE
    assert summary["verdicts"] == {"tolerated": 1, "conforming": 2}
    assert (summary["cases"], summary["deviations"], summary["too_long"]) == (3, 1, 2)
    assert summary["not_played"] == [{"reason": "the broker said \x1b[31mno", "cases": 1}]


def test_bytes_that_are_no_text_are_written_as_in_other_reports() -> None:
    broker_run = run()
    broker_run.broker, broker_run.capture, broker_run.stopped = "\udcff=mqtt://h", "odd \udcff.pcapng", "a \udcff"
    broker_run.results[0] = replace(broker_run.results[0], unclean=("retained message a/\udced\udca0\udc80",))
    broker_run.not_played["no \ud800"] = 1
    row = json.loads(outcome.case_line(broker_run.results[0], broker_run))
    summary = json.loads(outcome.summary_lines([broker_run]))

    assert row["left_behind"] == ["retained message a/\\xed\\xa0\\x80"]
    assert row["broker"] == summary["broker"] == {"length": 10, "hex": b"\xff=mqtt://h".hex()}
    assert summary["capture"] == {"length": 12, "hex": b"odd \xff.pcapng".hex()}
    assert summary["stopped"] == "a \\xff"
    assert summary["not_played"][1]["reason"] == "no \\xed\\xa0\\x80"
    assert json.loads(outcome.document([broker_run]))["results"][0]["left_behind"] == row["left_behind"]


def test_the_document_is_one_for_any_number_of_brokers() -> None:
    alone, both = json.loads(outcome.document([run()])), json.loads(outcome.document([run("a"), run("b")], matrix=True))

    assert (alone["event"], len(alone["results"])) == ("mutate", 3)
    assert (both["event"], [row["broker"] for row in both["runs"]]) == ("matrix", ["a", "b"])
    assert both["runs"][0]["results"] == alone["results"]


def test_what_was_sent_is_told_where_the_broker_deviates_or_one_case_is_played() -> None:
    broker_run = run()
    shown = [outcome.case_json(result, broker_run)["case"] for result in broker_run.results]
    broker_run.alone = True

    assert ["steps" in each for each in shown] == ["changes" in each for each in shown] == [True, False, False]
    assert all("steps" in outcome.case_json(result, broker_run)["case"] for result in broker_run.results)


def test_passwords_are_hidden_unless_asked_for() -> None:
    broker_run = with_reduction(secret())
    hidden = outcome.case_json(broker_run.results[0], broker_run)
    broker_run.show_secrets = True
    shown = outcome.case_json(broker_run.results[0], broker_run)

    assert b"open sesame".hex() not in str(hidden)
    assert hidden["case"]["redacted"] is hidden["reduced"]["redacted"] is True
    assert hidden["reduced"]["shell"] == ""
    assert b"open sesame".hex() in shown["case"]["steps"][0]["data"]
    assert shown["reduced"]["shell"] == LINE
    assert "redacted" not in shown["case"]
