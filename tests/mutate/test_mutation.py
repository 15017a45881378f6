"""What mutations say about themselves."""

from __future__ import annotations

from mqttscope.mutate import Demand, Kind, Mutation, Verdict
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.mutation import MALFORMED, V3_1, V3_1_1, V5, Reaction

SHOWN = Mutation(
    "a:b",
    Kind.PACKET,
    "An example.",
    senders=(CLIENT, SERVER),
    statements=("3.1.1 MQTT-3.3.1-4", "5.0 MQTT-3.3.1-4"),
    sender_statements={SERVER: ("5.0 MQTT-2.2.1-4",)},
    legal_in=(V3_1,),
    reaction=MALFORMED,
)


def test_statements_belong_to_a_version_and_some_to_a_sender() -> None:
    assert SHOWN.broken(V3_1_1) == ("3.1.1 MQTT-3.3.1-4",)
    assert SHOWN.broken(V5) == ("5.0 MQTT-3.3.1-4",)
    assert SHOWN.broken(V5, SERVER) == ("5.0 MQTT-3.3.1-4", "5.0 MQTT-2.2.1-4")


def test_the_verdict_is_that_of_the_version() -> None:
    assert SHOWN.verdict(V3_1) is Verdict.LEGAL
    assert SHOWN.verdict(V5) is Verdict.VIOLATION
    assert Mutation("a:c", Kind.WIRE, "").verdict(V5) is Verdict.OPEN
    assert Mutation("a:d", Kind.WIRE, "", statements=("5.0 x",), discouraged=True).verdict(V5) is Verdict.DISCOURAGED


def test_what_is_demanded_follows_from_the_verdict() -> None:
    assert SHOWN.reaction_in(V3_1).demand is Demand.ACCEPT
    assert SHOWN.reaction_in(V3_1_1) == Reaction(Demand.CLOSE)
    assert SHOWN.reaction_in(V5) == MALFORMED
    assert SHOWN.demanded_by(V5) == ("5.0 MQTT-4.13.1-1",)
    assert SHOWN.demanded_by(V3_1_1, SERVER) == ("3.1.1 MQTT-4.8.0-1",)
    assert SHOWN.demanded_by(V3_1) == ()


def test_a_receiver_can_be_bound_where_the_sender_is_not() -> None:
    level = Mutation("a:e", Kind.WIRE, "", reaction=MALFORMED, calls_for=("5.0 MQTT-3.1.2-2",))

    assert level.verdict(V5) is Verdict.OPEN
    assert level.reaction_in(V5) == MALFORMED
    assert level.demanded_by(V5) == ("5.0 MQTT-3.1.2-2",)
    assert level.reaction_in(V3_1_1).demand is Demand.ANY
