"""Verdicts of what was seen on one connection."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.mqtt import Connack, Disconnect, PacketType, Puback, Suback
from mqttscope.trial.verdict import Observation, Verdict, excused, judge, ruling_json
from tests.trial.flows import V3_1, V3_1_1, make_case, script

CLOSE = "publish:qos-3"
LEGAL = "publish.topic_name:spaces"
REFUSE = "subscribe.subscriptions.topic_filter:hash-not-last"


@pytest.mark.parametrize(
    ("name", "seen", "verdict"),
    [
        (CLOSE, {"ended": "fin"}, Verdict.CONFORMING),
        (CLOSE, {"ended": "reset"}, Verdict.CONFORMING),
        (CLOSE, {"ended": "fin", "answers": [Disconnect(reason_code=0x81)]}, Verdict.CONFORMING),
        (CLOSE, {"ended": "fin", "answers": [Disconnect(reason_code=0x9B)]}, Verdict.WRONG_REASON),
        # Reasons of its own: it is shutting down, it is busy.
        (CLOSE, {"ended": "fin", "answers": [Disconnect(reason_code=0x8B)]}, Verdict.CONFORMING),
        (CLOSE, {"fenced": True}, Verdict.TOLERATED),
        (CLOSE, {"fenced": False}, Verdict.NO_ANSWER),
        (CLOSE, {"left": True}, Verdict.CONFORMING),
        (CLOSE, {"fenced": False, "answers": [Disconnect(reason_code=0x81)]}, Verdict.TOLERATED),
        (CLOSE, {"answers": [Connack(reason_code=0)], "accepted": True}, Verdict.TOLERATED),
        (REFUSE, {"fenced": True, "answers": [Suback(reason_codes=[0x8F])]}, Verdict.CONFORMING),
        (REFUSE, {"fenced": True, "answers": [Suback(reason_codes=[1])]}, Verdict.TOLERATED),
        (LEGAL, {"fenced": True}, Verdict.CONFORMING),
        (LEGAL, {"fenced": True, "missing": [PacketType.PUBACK]}, Verdict.NO_ANSWER),
        (LEGAL, {"fenced": False}, Verdict.NO_ANSWER),
        (LEGAL, {"ended": "fin"}, Verdict.REFUSED_LEGAL),
        (LEGAL, {"ended": "fin", "left": True}, Verdict.CONFORMING),
        (LEGAL, {"ended": "fin", "answers": [Disconnect(reason_code=0x82)]}, Verdict.REFUSED_LEGAL),
        # Who may publish where is the broker's own affair.
        (LEGAL, {"fenced": True, "answers": [Puback(reason_code=0x87)]}, Verdict.CONFORMING),
        (LEGAL, {"fenced": True, "answers": [Puback(reason_code=0x10)]}, Verdict.CONFORMING),
        (LEGAL, {"fenced": True, "answers": [Suback(reason_codes=[0x80])]}, Verdict.REFUSED_LEGAL),
        (
            LEGAL,
            {"fenced": True, "answers": [Suback(reason_codes=[0x80])], "recorded_codes": frozenset({0x80})},
            Verdict.CONFORMING,
        ),
        ("random:bits", {"ended": "fin"}, Verdict.CONFORMING),
        ("random:bits", {"fenced": False}, Verdict.CONFORMING),
    ],
)
def test_in_5_0(name: str, seen: dict[str, Any], verdict: Verdict) -> None:
    assert judge(make_case(name, script()), Observation(**seen)).verdict is verdict


def test_before_5_0_a_malformed_connect_gets_no_answer() -> None:
    case = make_case("connect:reserved-connect-flag", script(V3_1_1))
    answered = judge(case, Observation(ended="fin", answers=[Connack(reason_code=2)]))

    assert answered.verdict is Verdict.WRONG_REASON
    assert answered.statements == ("3.1.1 MQTT-3.1.4-1",)
    assert not judge(case, Observation(ended="fin")).deviates


def test_3_1_demands_no_close() -> None:
    assert not judge(make_case(CLOSE, script(V3_1)), Observation(fenced=True)).deviates


def test_who_may_connect_is_the_brokers_affair() -> None:
    case = make_case("connect.keep_alive:maximum", script(V3_1_1))

    assert not judge(case, Observation(ended="fin", answers=[Connack(reason_code=5)])).deviates


def test_an_excuse_keeps_the_reason_and_takes_the_blame() -> None:
    ruling = judge(make_case(CLOSE, script()), Observation(fenced=True))
    made = excused(ruling, "it was not on the wire")

    assert not made.deviates
    assert made.statements == ()
    assert made.why.startswith("it was not on the wire (")
    assert ruling_json(ruling) == {"verdict": "tolerated", "why": ruling.why, "statements": ["5.0 MQTT-4.13.1-1"]}
