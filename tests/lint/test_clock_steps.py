"""Durations across a step of the capture's clock: measured without it, and at most likely."""

from __future__ import annotations

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules, select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.lint.rule import RULES, TIME_SETTINGS
from mqttscope.mqtt import Connect, Pingreq, Pingresp, Publish
from mqttscope.net.segment import Segment
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK

HOUR = 3600


def judged(talk: Conversation) -> tuple[Linter, dict[str, Finding]]:
    linter = Linter([usual_rule(rule) for rule in select().values()], strict=True)
    segments: list[Segment] = numbered(talk.tape.segments)
    return linter, {finding.rule: finding for event in dissect_segments(segments) for finding in linter.feed(event)}


def begun(talk: Conversation | None = None) -> Conversation:
    talk = (talk or Conversation()).open()
    talk.begin(Connect(client_identifier="dev1", keep_alive=10))
    talk.say(SERVER, CONNACK)
    return talk


def ping(talk: Conversation) -> Conversation:
    talk.say(CLIENT, Pingreq())
    talk.say(SERVER, Pingresp())
    return talk


@pytest.mark.parametrize("by", [-HOUR, 0, HOUR])
def test_a_client_in_time_is_not_blamed(by: int) -> None:
    talk = ping(ping(begun().wait(4)).wait(4).set_capture_clock(by).wait(4))
    linter, findings = judged(ping(talk.wait(4)).finish())

    assert findings == {}
    assert linter.quality.clock_steps == (by != 0)


@pytest.mark.parametrize(("by", "confidence"), [(-HOUR, "likely"), (0, "certain"), (HOUR, "likely")])
def test_a_duration_across_a_step_is_likely(by: int, confidence: str) -> None:
    talk = ping(ping(begun().wait(4)).wait(8).set_capture_clock(by).wait(8)).finish()
    finding = judged(talk)[1]["KAL201"]

    assert finding.message.startswith("client was silent for 16.0 s before PINGREQ")
    assert finding.confidence == confidence


@pytest.mark.parametrize(("is_set", "confidence"), [(True, "likely"), (False, "certain")])
def test_a_duration_that_one_clock_contradicts_is_likely(is_set: bool, confidence: str) -> None:
    """Only the client has a clock, and that stands while 16 s pass, or it does not."""
    talk = ping(begun(Conversation(clocks=(100_000, None))).wait(4))
    talk = talk.set_capture_clock(16) if is_set else talk.wait(16)
    linter, findings = judged(ping(talk).finish())

    assert findings["KAL201"].confidence == confidence
    assert linter.quality.clock_steps == 0


def test_a_connection_that_began_after_a_step_is_judged_as_usual() -> None:
    first = ping(ping(begun().wait(4)).set_capture_clock(HOUR)).finish()
    second = begun(Conversation(first.tape, (20_000, 90_000), (1, 2), client="192.0.2.9"))
    ping(second.wait(16)).finish()

    assert judged(second)[1]["KAL201"].confidence == "certain"


def test_what_the_bytes_prove_stays_certain_after_a_step() -> None:
    talk = ping(ping(begun().wait(4)).set_capture_clock(HOUR))
    talk.say(CLIENT, Publish(topic_name="a/#", payload=b"1"))
    findings = judged(talk.finish())[1]

    assert [(finding.severity, finding.confidence) for finding in findings.values()] == [("error", "certain")]


def test_rules_that_measure_durations_are_known_by_their_settings() -> None:
    timed = {code for code, rule in all_rules().items() if usual_rule(rule).is_timed}

    assert {"KAL201", "KAL202", "CON528", "CON530", "CON531", "DIS503", "DIS504", "DLV204", "ERR503"} <= timed
    assert not {"PUB101", "CON102", "ALS202"} & timed
    # What a setting is measured in is known of each: a new one has to be looked at.
    assert {name for rule in RULES.values() for name in rule.settings} - TIME_SETTINGS == {
        "allowed", "bytes", "connections", "connects", "counter", "length", "levels", "longest", "lowest",
        "maximum_client_identifier_bytes", "maximum_client_identifier_bytes_3x", "maximum_keep_alive",
        "maximum_packet_bytes", "maximum_payload_bytes", "maximum_qos", "maximum_subscriptions_per_packet",
        "maximum_topic_bytes", "maximum_topic_levels", "maximum_will_qos", "messages", "minimum_keep_alive",
        "packets", "percent", "profile", "refusals", "repeats", "retain_available", "rounds", "share", "shortest",
        "sparkplug_role",
        "takeovers", "topics", "uncounted_topic_prefix", "versions",
    }  # fmt: skip
