"""What is demanded of rules from elsewhere holds for those of this project; faults: tests/cli/test_own_rules.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.examples import client, conversation, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.retained_store import RetainedStore
from mqttscope.lint.rule import V5, Rule
from mqttscope.lint.rule_check import faults_of_examples, faults_of_form
from mqttscope.mqtt.packets import Pingreq
from tests.each import each


@dataclass
class Bare:
    """A memory that cannot be made."""

    count: int


PUB209 = all_rules()["PUB209"]


@each("code", [code for code in all_rules() if not code.startswith("PRF")])
def test_our_rules_have_the_form(code: str) -> None:
    assert faults_of_form(all_rules()[code]) == []


@pytest.mark.parametrize("code", ["PUB209", "SES307", "ENC101", "KAL201"])
def test_examples_of_ours_pass(code: str) -> None:
    assert list(faults_of_examples(all_rules()[code], [])) == []


def like(**changes: Any) -> type[Rule]:
    """A rule like PUB209, but for some attributes."""
    return type("Like", (PUB209,), {"code": "TSTX209", "__doc__": PUB209.__doc__, **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"confidence": "certain"}, "its confidence is not a member"),
        ({"statements": {V5: {"MQTT-0.0.0-0": ""}}}, "unknown statement 5.0 MQTT-0.0.0-0"),
        ({"good": []}, "it has no good examples"),
        ({"bad": ["x"]}, "it has no bad examples"),
        ({"__doc__": None}, "its docstring is not"),
        (
            {"statements": {"5.0": ("MQTT-3.3.1-4",)}},
            "statements has to be a dict by version (V3_1, V3_1_1, V5) of dicts,",
        ),
        ({"statements": {V5: ("MQTT-3.3.1-4",)}}, "statements has to be a dict by version"),
        ({"also": {V5: "MQTT-3.3.1-4"}}, "also has to be a dict by version (V3_1, V3_1_1, V5) of tuples,"),
        (
            {"settings": ["most"]},
            'settings has to be a dict of numbers, texts or lists of texts by name, such as {"most"',
        ),
        ({"looks_at": "Publish"}, "looks_at has to be a class of mqttscope.mqtt.packets, such as Publish, or a tuple"),
        ({"versions": V5}, "versions has to be a tuple of versions"),
        ({"sender": "client"}, "sender has to be a Direction or None, and is 'client'"),
        (
            {"when": "quality"},
            "when has to name an attribute of the packets that it looks at, and Publish has no 'quali",
        ),
        ({"when": ["qos"]}, "when has to be a str, a dict of str by packet class, or None, and is ['qos']"),
        (
            {"about": (RetainedStore, "topics")},
            "about has to begin with one of its models, and RetainedStore is not one",
        ),
        (
            {"about": (RetainedStore,)},
            "about has to be a tuple of one of the models and the names of one or two tables of it, or None",
        ),
        ({"once": Severity.INFO}, "it has no method sum_up"),
        ({"Memory": dict}, "Memory has to be a dataclass or None"),
        ({"Memory": Bare}, "Memory is made without values, and its field count has no default"),
    ],
)
def test_what_a_rule_lacks(changes: dict[str, Any], expected: str) -> None:
    (fault,) = faults_of_form(like(**changes))
    assert fault.startswith(expected)


def test_marks_of_the_connection_and_of_whole_packets_are_told_as_such() -> None:
    marked = conversation("x", *opened(), client(Pingreq()).marked(""), client(Pingreq()).marked("", at=None))

    assert list(faults_of_examples(like(bad=[marked], good=[]), [])) == [
        "bad example 'x': marked and not found: the whole of packet 2, the whole of the connection"
    ]
    assert list(faults_of_examples(like(bad=[], good=[marked]), [])) == ["good example 'x' has a mark"]
