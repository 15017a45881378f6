"""Each answer is taken once."""

from __future__ import annotations

from mqttscope.mqtt import Connack, Malformed, PacketType, Properties, Puback, Publish
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.trial.answers import Answers


def test_an_answer_is_taken_once() -> None:
    received: list[ControlPacket | Malformed] = [Puback(packet_identifier=one) for one in (1, 2, 1)]
    answers = Answers(received)

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
    answers = Answers(received)

    assert answers.pass_over() == 2
    assert not answers.has(PacketType.PUBACK)
    assert (answers.count(Connack), answers.count(Publish), answers.accepted) == (1, 0, True)


def test_deliveries_are_known_by_their_payload() -> None:
    one, two = (Publish(topic_name="a", payload=payload, properties=Properties()) for payload in (b"1", b"2"))
    answers = Answers([one, two, one])

    assert answers.take_delivery(b"2") is two
    assert not answers.has_delivery(b"2")
    assert [answers.take_delivery(b"1") for _ in range(3)] == [one, one, None]


def test_a_refusal_is_no_acceptance() -> None:
    assert not Answers([Connack(reason_code=0x87)]).accepted
    assert not Answers([]).accepted
