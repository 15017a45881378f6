"""Which answers a broker owes."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Connect, PacketType, Pingreq, Properties, Puback, Publish, Pubrel, decode
from mqttscope.trial.owed import ANSWERS, owed
from tests.trial.flows import V5


@pytest.mark.parametrize(
    ("packet", "answers"),
    [
        (Connect(), {PacketType.CONNACK}),
        (Publish(topic_name="a"), set()),
        (Publish(topic_name="a", qos=1, packet_identifier=1), {PacketType.PUBACK}),
        (Publish(topic_name="a", qos=2, packet_identifier=1), {PacketType.PUBREC, PacketType.PUBCOMP}),
        (Pubrel(packet_identifier=1), {PacketType.PUBCOMP}),
        (Pingreq(), {PacketType.PINGRESP}),
        (Puback(packet_identifier=1, properties=Properties()), set()),
        (decode(b"\x36\x00", V5), set()),
    ],
)
def test_what_is_owed(packet: object, answers: set[PacketType]) -> None:
    assert owed(packet) == answers  # type: ignore[arg-type]
    assert answers <= ANSWERS
