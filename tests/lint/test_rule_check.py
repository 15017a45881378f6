"""What is demanded of rules from elsewhere holds for those of this project; faults: tests/cli/test_own_rules.py."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.examples import client, conversation, opened
from mqttscope.lint.rule import V5, Rule
from mqttscope.lint.rule_check import faults_of_examples, faults_of_form
from mqttscope.mqtt.packets import Pingreq

PUB209 = all_rules()["PUB209"]


@pytest.mark.parametrize("code", [code for code in all_rules() if not code.startswith("PRF")])
def test_our_rules_have_the_form(code: str) -> None:
    assert faults_of_form(all_rules()[code]) == []


@pytest.mark.parametrize("code", ["PUB209", "SES307", "ENC101", "KAL201"])
def test_examples_of_ours_pass(code: str) -> None:
    assert list(faults_of_examples(all_rules()[code], [])) == []


def like(**changes: Any) -> type[Rule]:
    """A rule like PUB209, but for some attributes."""
    return type("Like", (PUB209,), {"code": "TSTX209", "__doc__": PUB209.__doc__, **changes})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"confidence": "certain"}, "its confidence is no member"),
        ({"statements": {V5: {"MQTT-0.0.0-0": ""}}}, "there is no statement 5.0 MQTT-0.0.0-0"),
        ({"good": []}, "it has no good examples"),
        ({"bad": ["x"]}, "it has no bad examples"),
        ({"__doc__": None}, "its docstring is not"),
    ],
)
def test_what_a_rule_lacks(changes: dict[str, Any], told: str) -> None:
    (fault,) = faults_of_form(like(**changes))
    assert fault.startswith(told)


def test_marks_of_the_connection_and_of_whole_packets_are_told_as_such() -> None:
    marked = conversation("x", *opened(), client(Pingreq()).marked(""), client(Pingreq()).marked("", at=None))

    assert list(faults_of_examples(like(bad=[marked], good=[]), [])) == [
        "bad example 'x': marked and not found: the whole of packet 2, the whole of the connection"
    ]
    assert list(faults_of_examples(like(bad=[], good=[marked]), [])) == ["good example 'x' has a mark"]
