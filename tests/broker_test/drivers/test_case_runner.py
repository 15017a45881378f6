"""Acknowledgements follow what a live broker delivered, not what was recorded."""

from __future__ import annotations

from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.drivers.case_runner import BrokerAnswers, CaseAcknowledger, RecordingListener
from mqttscope.mqtt import Connack, ControlPacket, Malformed, PacketType, Pingresp, Properties, Puback, Publish
from mqttscope.mutate import Action, FlowStep
from mqttscope.replay.script import ScriptEntry
from tests.broker_test.flows import V3_1_1, V5
from tests.replay.talk import said_bytes, whole


def test_everything_is_noted_and_packets_are_handed_on() -> None:
    conversation, took = Conversation(V5), list[ControlPacket | Malformed]()
    heard = RecordingListener(conversation, took.append)
    heard.received(b"\xd0")
    heard.received(b"\x00")
    heard.ended("failed", "")

    assert [chunk.data for chunk in conversation.chunks] == [b"\xd0", b"\x00", b""]
    assert [chunk.ends for chunk in conversation.chunks] == ["", "", "fin"]
    assert [type(packet) for packet in took] == [Pingresp]


def test_an_answer_is_taken_once() -> None:
    received: list[ControlPacket | Malformed] = [Puback(packet_identifier=number) for number in (1, 2, 1)]
    answers = BrokerAnswers(received)

    assert answers.take(PacketType.PUBACK, 2) is received[1]
    assert not answers.has(PacketType.PUBACK, 2)
    assert answers.take(PacketType.PUBACK) is received[0]
    assert answers.take(PacketType.PUBACK, 1) is received[2]
    assert answers.take(PacketType.PUBACK) is None
    received.append(Puback(packet_identifier=2))
    assert answers.has(PacketType.PUBACK, 2)
    assert not answers.has(PacketType.PUBREC)


def test_what_came_before_is_nobodys() -> None:
    received: list[ControlPacket | Malformed] = [Connack(), Puback(packet_identifier=1)]
    answers = BrokerAnswers(received)

    assert answers.pass_over() == 2
    assert not answers.has(PacketType.PUBACK)
    assert (answers.count(Connack), answers.count(Publish), answers.accepted) == (1, 0, True)


def test_deliveries_are_known_by_their_payload() -> None:
    publish, two = (Publish(topic_name="a", payload=payload, properties=Properties()) for payload in (b"1", b"2"))
    answers = BrokerAnswers([publish, two, publish])

    assert answers.take_delivery(b"2") is two
    assert not answers.has_delivery(b"2")
    assert [answers.take_delivery(b"1") for _ in range(3)] == [publish, publish, None]


def test_a_refusal_is_no_acceptance() -> None:
    assert not BrokerAnswers([Connack(reason_code=0x87)]).accepted
    assert not BrokerAnswers([]).accepted


RECORDED = whole(
    "> connect client=device1 keep_alive=60",
    "< connack",
    "< publish a 1 qos=2 id=7",
    "> pubrec 7",
    "< pubrel 7",
    "> pubcomp 7",
    "> publish b 2 qos=2 id=9",
    "< pubrec 9",
    "> pubrel 9",
    "< pubcomp 9",
    version=V3_1_1,
)
DELIVERY, PUBREC, PUBCOMP, OWN, PUBREL = (RECORDED.entries[place] for place in (2, 3, 5, 6, 8))


def said(acks: CaseAcknowledger, entry: ScriptEntry, *, mutated: bool = False) -> bytes:
    return acks.data(FlowStep(Action.SEND, entry.raw, RECORDED.entries.index(entry), mutated=mutated), entry)


def came(qos: int, identifier: int | None) -> CaseAcknowledger:
    """The recorded message came, at a QoS and with an identifier."""
    acks = CaseAcknowledger(V3_1_1)
    acks.delivered(DELIVERY, Publish(topic_name="a", qos=qos, packet_identifier=identifier, payload=b"1"))
    return acks


def test_the_identifier_is_that_of_the_live_delivery() -> None:
    acks = came(2, 300)

    assert said(acks, PUBREC) == said_bytes("", "pubrec 300", V3_1_1)
    assert said(acks, PUBCOMP) == said_bytes("", "pubcomp 300", V3_1_1)


def test_a_message_that_came_at_another_qos_is_acknowledged_at_that() -> None:
    lower, none = came(1, 300), came(0, None)

    assert said(lower, PUBREC) == said_bytes("", "puback 300", V3_1_1)
    assert said(lower, PUBCOMP) == said(none, PUBREC) == said(none, PUBCOMP) == b""


def test_what_did_not_come_is_acknowledged_by_mutations_alone() -> None:
    acks = CaseAcknowledger(V3_1_1)

    assert said(acks, PUBREC) == b""
    assert said(acks, PUBREC, mutated=True) == PUBREC.raw


def test_without_pubrec_there_is_no_pubrel() -> None:
    acks = CaseAcknowledger(V3_1_1)
    assert said(acks, PUBREL) == PUBREL.raw

    acks.without_pubrec.add(OWN)
    assert said(acks, PUBREL) == b""
    assert said(acks, PUBREL, mutated=True) == PUBREL.raw


def test_a_pubrel_goes_with_its_mutated_message() -> None:
    acks = CaseAcknowledger(V3_1_1)
    acks.own[OWN] = 65_535

    assert said(acks, PUBREL) == said_bytes("", "pubrel 65535", V3_1_1)


def test_other_packets_stay_as_they_are() -> None:
    assert said(CaseAcknowledger(V3_1_1), RECORDED.entries[0]) == RECORDED.entries[0].raw
