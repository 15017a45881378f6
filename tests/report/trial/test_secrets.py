"""Passwords and Authentication Data in reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.mqtt import Auth, Connack, Connect, Disconnect, Properties, ProtocolVersion, Publish, encode
from mqttscope.mutate import Action, Case, select
from mqttscope.mutate.mutation import NotApplicable
from mqttscope.replay.script import Script
from mqttscope.report.trial.secrets import concealed, concealed_case, known_secrets
from mqttscope.trial.run import Result
from tests.replay.recordings import conversation
from tests.trial.flows import make_case

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


def test_the_field_is_covered_byte_for_byte() -> None:
    raw = encode(connect(b"abc"), V5)

    assert concealed([raw], V5) == [raw.replace(b"abc", b"***")]


def test_the_steps_need_not_be_packets() -> None:
    raw = encode(connect(b"abc"), V5)
    parts = [raw[at : at + 1] for at in range(len(raw))]

    assert b"".join(concealed(parts, V5)) == raw.replace(b"abc", b"***")


def test_known_secrets_are_found_where_no_field_is() -> None:
    assert known_secrets(login()) == [PASSWORD, b"token-4711"]
    assert known_secrets(None) == []
    assert concealed([b"\x30\x10corr", b"ect horse!"], V5, [PASSWORD]) == [b"\x30\x10****", b"*********!"]


def test_nothing_else_is_touched() -> None:
    case = make_case(
        "publish:qos-3",
        conversation(
            (">", replace(connect(), user_name=None, password=None)),
            ("<", Connack(session_present=False, properties=Properties())),
            (">", Publish(topic_name="a", payload=b"1", properties=Properties())),
        ),
    )
    assert concealed_case(Result(case, None)) is case


@pytest.mark.parametrize("family", ["connect", "auth", "flow", "random"])
def test_no_mutation_lets_a_secret_through(family: str) -> None:
    script, tried = login(), 0
    for one in select(family, version=V5, sender="client"):
        try:
            case = make_case(one.name, script)
        except NotApplicable:
            continue
        if sum(len(step.data) for step in case.flow.steps) > 100_000:
            continue
        tried += 1
        shown = everything(concealed_case(Result(case, None, script=script)))
        assert PASSWORD not in shown, one.name
        assert b"token-4711" not in shown, one.name
        assert len(shown) == len(everything(case)), one.name
        assert any(step.action is Action.SEND for step in case.flow.steps) or one.kind == "flow"
    assert tried > 5
