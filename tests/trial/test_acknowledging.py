"""Acknowledgements follow what a live broker delivered, not what was recorded."""

from __future__ import annotations

from mqttscope.mqtt import Connack, Connect, ControlPacket, Puback, Pubcomp, Publish, Pubrec, Pubrel, encode
from mqttscope.mutate import Action, Step
from mqttscope.replay.script import Entry
from mqttscope.trial.acknowledging import Acknowledging
from tests.replay.recordings import conversation
from tests.trial.flows import V3_1_1

RECORDED = conversation(
    (">", Connect(client_identifier="device1", keep_alive=60)),
    ("<", Connack(session_present=False)),
    ("<", Publish(topic_name="a", qos=2, packet_identifier=7, payload=b"1")),
    (">", Pubrec(packet_identifier=7)),
    ("<", Pubrel(packet_identifier=7)),
    (">", Pubcomp(packet_identifier=7)),
    (">", Publish(topic_name="b", qos=2, packet_identifier=9, payload=b"2")),
    ("<", Pubrec(packet_identifier=9)),
    (">", Pubrel(packet_identifier=9)),
    ("<", Pubcomp(packet_identifier=9)),
)
DELIVERY, PUBREC, PUBCOMP, OWN, PUBREL = (RECORDED.entries[place] for place in (2, 3, 5, 6, 8))


def said(acks: Acknowledging, entry: Entry, *, mutated: bool = False) -> bytes:
    return acks.data(Step(Action.SEND, entry.raw, RECORDED.entries.index(entry), mutated=mutated), entry)


def came(packet: Publish) -> Acknowledging:
    acks = Acknowledging(V3_1_1)
    acks.delivered(DELIVERY, packet)
    return acks


def delivery(qos: int, identifier: int | None) -> Publish:
    return Publish(topic_name="a", qos=qos, packet_identifier=identifier, payload=b"1")


def wire(packet: ControlPacket) -> bytes:
    return encode(packet, V3_1_1)


def test_the_identifier_is_that_of_the_live_delivery() -> None:
    acks = came(delivery(2, 300))

    assert said(acks, PUBREC) == wire(Pubrec(packet_identifier=300))
    assert said(acks, PUBCOMP) == wire(Pubcomp(packet_identifier=300))


def test_a_message_that_came_at_another_qos_is_acknowledged_at_that() -> None:
    lower, none = came(delivery(1, 300)), came(delivery(0, None))

    assert said(lower, PUBREC) == wire(Puback(packet_identifier=300))
    assert said(lower, PUBCOMP) == said(none, PUBREC) == said(none, PUBCOMP) == b""


def test_what_did_not_come_is_acknowledged_by_mutations_alone() -> None:
    acks = Acknowledging(V3_1_1)

    assert said(acks, PUBREC) == b""
    assert said(acks, PUBREC, mutated=True) == PUBREC.raw


def test_without_pubrec_there_is_no_pubrel() -> None:
    acks = Acknowledging(V3_1_1)
    assert said(acks, PUBREL) == PUBREL.raw

    acks.without_pubrec.add(OWN)
    assert said(acks, PUBREL) == b""
    assert said(acks, PUBREL, mutated=True) == PUBREL.raw


def test_a_pubrel_goes_with_its_mutated_message() -> None:
    acks = Acknowledging(V3_1_1)
    acks.own[OWN] = 65_535

    assert said(acks, PUBREL) == wire(Pubrel(packet_identifier=65_535))


def test_other_packets_stay_as_they_are() -> None:
    assert said(Acknowledging(V3_1_1), RECORDED.entries[0]) == RECORDED.entries[0].raw
