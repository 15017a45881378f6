"""Every cause and every reason code has its meaning."""

from __future__ import annotations

from mqttscope.explain.advice import ADVICE, BY_VIOLATION, OF_CONNACK, OF_DISCONNECT, refused
from mqttscope.explain.model import Cause
from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.report.explanations.base import TITLES


def test_every_cause_has_a_title_and_a_line_of_advice() -> None:
    assert set(ADVICE) == set(TITLES) == set(Cause)
    assert {cause for cause, texts in ADVICE.items() if not texts} == {Cause.NORMAL, Cause.NO_MQTT}


def test_reason_codes_are_those_of_the_packets() -> None:
    for kind, table in ((PacketType.CONNACK, OF_CONNACK), (PacketType.DISCONNECT, OF_DISCONNECT)):
        assert all(reason_name(kind, code, ProtocolVersion.V5) != "Unknown" for code in table)


def test_codes_before_5_0_mean_the_same() -> None:
    assert refused(4, ProtocolVersion.V3_1_1) == refused(0x86, ProtocolVersion.V5)
    assert refused(99, ProtocolVersion.V3_1_1)[0] is Cause.CONNECT_REFUSED
    assert BY_VIOLATION[0x95] is Cause.PACKET_TOO_LARGE
