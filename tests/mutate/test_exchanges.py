"""Identifiers, acknowledgements, aliases, quotas."""

from __future__ import annotations

from mqttscope.mqtt import PacketStream, PacketType, Publish
from mqttscope.mutate import Action, MutatedFlow
from mqttscope.mutate.flow import CLIENT
from tests.each import each
from tests.mutate.talk import V3_1_1, V5, check_not_applicable, good, limited, mutated


def added(case: MutatedFlow) -> list[Publish]:
    """The PUBLISH packets that a mutation sends."""
    data = b"".join(step.data for step in case.steps if step.mutated and step.action is Action.SEND)
    packets = PacketStream(version=case.version).feed(data)
    return [packet for packet in packets if isinstance(packet, Publish)]


def test_an_acknowledgement_of_nothing_has_an_identifier_that_the_flow_does_not_use() -> None:
    flow = mutated("flow:acknowledge-unknown-puback")

    assert flow.steps[flow.at].data == bytes.fromhex("4002ffff")


@each("name", ["puback", "pubrec", "pubrel", "pubcomp"])
def test_an_acknowledgement_of_something_else_stands_in_the_place_of_the_right_one(name: str) -> None:
    flow = mutated(f"flow:acknowledge-wrong-identifier-{name}")
    step = flow.steps[flow.at]
    recorded = good(V5).entries[step.entry]  # type: ignore[index]

    assert step.data[:4] == recorded.raw[:2] + b"\xff\xff"
    assert recorded.raw not in [flow_step.data for flow_step in flow.steps if flow_step.action is Action.SEND]


def test_two_messages_with_one_identifier_are_different_messages() -> None:
    publish, two = added(mutated("flow:identifier-in-use-qos-2", V3_1_1))

    assert publish.packet_identifier == two.packet_identifier
    assert publish.topic_name != two.topic_name


def test_the_receive_maximum_is_overrun_by_one() -> None:
    packets = added(mutated("flow:receive-maximum-overrun"))

    assert len(packets) == 21
    assert {packet.qos for packet in packets} == {2}
    assert len({packet.packet_identifier for packet in packets}) == 21
    assert len(added(mutated("flow:receive-maximum-filled"))) == 20


def test_a_limit_out_of_reach_is_not_overrun() -> None:
    check_not_applicable("flow:receive-maximum-overrun", flow=limited())


def test_aliases() -> None:
    packets = added(mutated("flow:topic-alias-remapped"))

    assert [bool(packet.topic_name) for packet in packets] == [True, False, True, False]
    assert len({packet.properties.topic_alias for packet in packets}) == 1  # type: ignore[union-attr]
    assert added(mutated("flow:topic-alias-unmapped"))[0].topic_name == ""


def test_every_identifier_comes_once() -> None:
    packets = added(mutated("flow:every-identifier"))

    assert [packet.packet_identifier for packet in packets] == list(range(1, 65_536))


def test_acknowledgements_change_places() -> None:
    flow = mutated("flow:acknowledge-out-of-order")
    acks = [step.data for step in flow.steps if step.action is Action.SEND and step.data[0] >> 4 == PacketType.PUBACK]

    assert acks == [bytes.fromhex("40020002"), bytes.fromhex("40020001")]
    assert flow.sender == CLIENT


def test_a_message_is_sent_again_with_dup() -> None:
    publish, two = added(mutated("flow:publish-again-on-live-connection"))

    assert (publish.dup, two.dup) == (False, True)
    assert publish.packet_identifier == two.packet_identifier


def test_the_wrong_acknowledgement_stands_where_the_right_one_stood() -> None:
    flow = mutated("flow:acknowledge-wrong-type")
    step = flow.steps[flow.at]

    assert step.entry is not None
    assert step.data[:1] == b"\x50"
    assert step.data[1:] == good(V5).entries[step.entry].raw[1:]
