"""One case and its surroundings."""

from __future__ import annotations

from mqttscope.explain import Cause
from mqttscope.explain.advice import ADVICE
from mqttscope.explain.causes.case import candidate, in_order, other_side
from mqttscope.explain.model import Certainty, Evidence
from mqttscope.lint.examples import client, closes, opened
from mqttscope.mqtt.packets import Publish
from tests.explain.running import only


def test_special_advice_comes_before_the_advice_for_the_cause() -> None:
    new_candidate = candidate(Cause.TAKEN_OVER, Certainty.LIKELY, "It was.", [None, Evidence("so")], advice=("first",))

    assert new_candidate.reasons == (Evidence("so"),)
    assert new_candidate.advice == ("first", *ADVICE[Cause.TAKEN_OVER])


def test_the_other_side() -> None:
    assert (other_side("client"), other_side("server")) == ("server", "client")


def test_the_last_packet_is_told_with_the_time_to_the_end() -> None:
    explanation = only(*opened(), client(Publish(topic_name="a")), closes("client", after=2))

    assert explanation.first.reasons[1].text.startswith("the last packet of the client, 2.0")
    assert explanation.first.reasons[1].text.endswith("PUBLISH q0 a (6 bytes)")


def test_evidence_is_in_the_order_of_time() -> None:
    late, early, follows = Evidence("late", 2, 20), Evidence("early", 1, 10), Evidence("follows")

    assert in_order([late, None, follows, early]) == (early, late, follows)
