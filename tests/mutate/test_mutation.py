"""What mutations say about themselves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mqttscope.mqtt import PacketType, Publish, decode
from mqttscope.mutate import Chance, Demand, FlowVerdict, Mutation, MutationKind, apply
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.mutation import MALFORMED, V3_1, V3_1_1, V5, Reaction, attributes, row
from tests.mutate.talk import good


def test_the_same_key_gives_the_same_choices_on_every_version_of_python() -> None:
    assert Chance("capture", 0, 1, 2).octets(16).hex() == "b8fdc15b5812d2424422cf10a663a880"
    assert [Chance("a").below(1000), Chance("b").below(1000)] == [899, 400]
    assert Chance("order").shuffled(range(8)) == [5, 7, 0, 6, 4, 3, 1, 2]


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    assert Chance("ab", "c").octets(8) != Chance("a", "bc").octets(8)
    assert Chance("1").octets(8) == Chance(1).octets(8)


def test_bytes_do_not_depend_on_how_they_are_asked_for() -> None:
    chance, two = Chance("key"), Chance("key")

    assert b"".join(chance.octets(size) for size in (1, 40, 7, 0, 52)) == two.octets(100)


def test_numbers_are_spread_evenly() -> None:
    chance = Chance("even")
    counts = Counter(chance.below(3) for _ in range(3000))

    assert set(counts) == {0, 1, 2}
    assert min(counts.values()) > 900


def test_one_number_is_no_choice() -> None:
    assert Chance("one").below(1) == 0
    with pytest.raises(ValueError, match="no number"):
        Chance("none").below(0)


def test_shuffling_loses_nothing() -> None:
    values = list(range(100))

    assert sorted(Chance("cards").shuffled(values)) == values
    assert Chance("cards").pick(["a"]) == "a"


SHOWN = Mutation(
    "a:b",
    MutationKind.PACKET,
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
    assert SHOWN.verdict(V3_1) is FlowVerdict.LEGAL
    assert SHOWN.verdict(V5) is FlowVerdict.VIOLATION
    assert Mutation("a:c", MutationKind.WIRE, "").verdict(V5) is FlowVerdict.OPEN
    assert (
        Mutation("a:d", MutationKind.WIRE, "", statements=("5.0 x",), discouraged=True).verdict(V5)
        is FlowVerdict.DISCOURAGED
    )


def test_what_is_demanded_follows_from_the_verdict() -> None:
    assert SHOWN.reaction_in(V3_1).demand is Demand.ACCEPT
    assert SHOWN.reaction_in(V3_1_1) == Reaction(Demand.CLOSE)
    assert SHOWN.reaction_in(V5) == MALFORMED
    assert SHOWN.demanded_by(V5) == ("5.0 MQTT-4.13.1-1",)
    assert SHOWN.demanded_by(V3_1_1, SERVER) == ("3.1.1 MQTT-4.8.0-1",)
    assert SHOWN.demanded_by(V3_1) == ()


def test_a_receiver_can_be_bound_where_the_sender_is_not() -> None:
    level = Mutation("a:e", MutationKind.WIRE, "", reaction=MALFORMED, calls_for=("5.0 MQTT-3.1.2-2",))

    assert level.verdict(V5) is FlowVerdict.OPEN
    assert level.reaction_in(V5) == MALFORMED
    assert level.demanded_by(V5) == ("5.0 MQTT-3.1.2-2",)
    assert level.reaction_in(V3_1_1).demand is Demand.ANY


unchanged: Any = attributes()


def test_the_name_of_a_row_gives_its_packet_type_its_field_and_its_senders() -> None:
    packet = row("publish.topic_name:odd", "A sentence.", unchanged)
    flow = row("flow:odd-3.1", "A sentence.", unchanged)
    random = row("random:odd", "A sentence.", unchanged)

    assert (packet.kind, packet.packet_type, packet.field) == (MutationKind.PACKET, PacketType.PUBLISH, "topic_name")
    assert packet.senders == (CLIENT, SERVER)
    assert row("connack:odd", "A sentence.", unchanged).senders == (SERVER,)
    assert row("publish:odd", "A sentence.", unchanged, senders=(SERVER,)).senders == (SERVER,)
    assert row("publish:odd", "A sentence.", unchanged, field="qos").field == "qos"
    assert (flow.kind, flow.packet_type, flow.field, flow.senders) == (MutationKind.FLOW, None, "", (CLIENT,))
    assert flow.change_flow is unchanged
    assert flow.change_packet is None
    assert (random.kind, random.packet_type) == (MutationKind.RANDOM, None)
    assert random.change_packet is unchanged


def test_a_row_with_the_name_of_no_packet_is_refused() -> None:
    with pytest.raises(KeyError, match="PUBLISHED"):
        row("published:odd", "A sentence.", unchanged)


def test_statements_of_a_row_are_those_of_its_versions_some_for_one_side() -> None:
    listed = "5.0 MQTT-3.3.1-4, 3.1.1 MQTT-3.3.1-4, server 5.0 MQTT-2.2.1-4, server 3.1.1 MQTT-2.3.1-4, client 3.1 a"
    later = row(
        "publish:odd", "A sentence.", unchanged, listed, versions=(V5,), legal=(V3_1,), calls_for="5.0 a, 3.1 b"
    )
    every = row("publish:odd", "A sentence.", unchanged, listed)

    assert (later.statements, later.calls_for, later.legal_in) == (("5.0 MQTT-3.3.1-4",), ("5.0 a",), ())
    assert later.sender_statements == {CLIENT: (), SERVER: ("5.0 MQTT-2.2.1-4",)}
    assert every.statements == ("5.0 MQTT-3.3.1-4", "3.1.1 MQTT-3.3.1-4")
    assert every.broken(V3_1_1, SERVER) == ("3.1.1 MQTT-3.3.1-4", "3.1.1 MQTT-2.3.1-4")
    assert every.broken(V3_1, CLIENT) == ("3.1 a",)
    assert row("publish:odd", "A sentence.", unchanged).sender_statements == {}


def test_a_change_of_attributes_leaves_the_encoding_to_who_applies_it() -> None:
    mutation = row("publish:odd", "A sentence.", attributes(topic_name="odd", payload=b"odd"))
    case = apply(mutation, good(V5), Chance("test"), sender=CLIENT)
    changed = decode(case.steps[case.at].data, V5)

    assert isinstance(changed, Publish)
    assert (changed.topic_name, changed.payload) == ("odd", b"odd")
