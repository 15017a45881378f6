"""Whole conversations of a public test suite: what a conforming peer continues after breaks no rule for certain.

The suite tests how one side reacts, and some of what its other side says is against the standard though nobody has to
close for it.  The standard wins; the rules that say so are listed with the reason.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import ExampleConversation, ExampleStep, segments
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.mqtt import ProtocolVersion
from tests import corpora

STANDARD_WINS = {
    "ALS202": "a Topic Alias of 65,535 where the server's Topic Alias Maximum is 0 (5.0 MQTT-3.3.2-9)",
    "AUT101": "Authentication Data without Authentication Method (5.0 3.1.2.11.10)",
    "AUT203": "an Authentication Method that CONNECT did not name (5.0 MQTT-4.12.0-6)",
    "DLV204": "a Subscription Identifier that nobody subscribed with (5.0 3.3.2.3.8)",
    "ENC108": "a byte after the last field of CONNACK (5.0 2.1.4)",
    "PRP208": "Response Information that CONNECT did not ask for (5.0 MQTT-3.1.2-28)",
    "PUB102": "DUP 1 with QoS 0 (MQTT-3.3.1-2)",
    "PUB208": "DUP 1 on a message that is sent for the first time (MQTT-3.3.1-1)",
    "RSN101": "UNSUBACK with 0xFF, which is no reason code of it (5.0 MQTT-3.11.3-2)",
    "SUB210": "UNSUBACK without reason codes (5.0 MQTT-3.11.3-1)",
}
"""Rules with certain errors in conversations that continue, and what is against the standard there."""


SEQUENCES = "vectors/mosquitto-sequences.jsonl"
pytestmark = corpora.needs(SEQUENCES)


@cache
def conversations() -> list[dict[str, Any]]:
    return [json.loads(line) for line in corpora.path(SEQUENCES).read_text("utf-8").splitlines()]


def judged(row: dict[str, Any]) -> set[str]:
    """Rules that a conversation breaks for certain."""
    tester_is_server = row["tester_role"] == "server"
    steps = tuple(
        ExampleStep(
            "client" if (other_row["op"] == "recv") is tester_is_server else "server",
            (bytes.fromhex(other_row["hex"]),),
        )
        for other_row in row["steps"]
    )
    talk = ExampleConversation(row["case"], steps, ProtocolVersion(row["version"]))
    linter = Linter((usual_rule(rule) for rule in select().values()), strict=True)
    findings = (finding for event in dissect_segments(segments(talk)) for finding in linter.feed(event))
    return {
        finding.rule
        for finding in findings
        if finding.severity is Severity.ERROR and finding.confidence is Confidence.CERTAIN
    }


def test_what_continues_breaks_nothing_for_certain() -> None:
    texts = {row["case"]: judged(row) for row in conversations() if not row["expect_disconnect"]}

    assert len(texts) > 100
    assert {case: rules - STANDARD_WINS.keys() for case, rules in texts.items() if rules - STANDARD_WINS.keys()} == {}
    assert set().union(*texts.values()) == STANDARD_WINS.keys()


@pytest.mark.long
def test_most_of_what_ends_a_connection_breaks_something_for_certain() -> None:
    """The others end by a refusal or by DISCONNECT, or the suite asks for more than the standard."""
    ends = [row for row in conversations() if row["expect_disconnect"]]

    assert sum(bool(judged(row)) for row in ends) > 0.94 * len(ends)
