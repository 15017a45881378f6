"""Numbers and names against the tables of the specifications, written down a second time."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Direction, MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.constants import REASON_CODES, RETURN_CODES, allowed_reason_codes, reason_name, type_name
from tests.mqtt.case import ALL, V3, V3_1, V3_1_1, V5

TABLES_5 = {
    PacketType.CONNACK: "00 80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f",
    PacketType.PUBACK: "00 10 80 83 87 90 91 97 99",
    PacketType.PUBREC: "00 10 80 83 87 90 91 97 99",
    PacketType.PUBREL: "00 92",
    PacketType.PUBCOMP: "00 92",
    PacketType.SUBACK: "00 01 02 80 83 87 8f 91 97 9e a1 a2",
    PacketType.UNSUBACK: "00 11 80 83 87 8f 91",
    # 8c is in table 2-6 for DISCONNECT and not in table 3-10: it is tolerated.
    PacketType.DISCONNECT: "00 04 80 81 82 83 87 89 8b 8c 8d 8e 8f 90 93 94 95 96 97 98 99 9a 9b 9c 9d 9e 9f a0 a1 a2",
    PacketType.AUTH: "00 18 19",
}
OLDER = {
    (PacketType.CONNACK, V3_1): "00 01 02 03 04 05",
    (PacketType.CONNACK, V3_1_1): "00 01 02 03 04 05",
    (PacketType.SUBACK, V3_1): "00 01 02",
    (PacketType.SUBACK, V3_1_1): "00 01 02 80",
}


@pytest.mark.parametrize("kind", PacketType)
def test_reason_codes_of_each_packet(kind: PacketType) -> None:
    assert allowed_reason_codes(kind, V5) == frozenset(bytes.fromhex(TABLES_5.get(kind, "")))
    for version in V3:
        assert allowed_reason_codes(kind, version) == frozenset(bytes.fromhex(OLDER.get((kind, version), "")))


def test_every_allowed_code_has_a_name() -> None:
    for version in ALL:
        for kind in PacketType:
            for code in allowed_reason_codes(kind, version):
                assert reason_name(kind, code, version) != "Unknown"
    assert len(REASON_CODES) == 43
    assert len(RETURN_CODES) == 6


@pytest.mark.parametrize(
    ("kind", "code", "version", "name"),
    [
        (PacketType.CONNACK, 5, V3_1_1, "Connection Refused, not authorized"),
        (PacketType.CONNACK, 0, V5, "Success"),
        (PacketType.SUBACK, 0x80, V3_1_1, "Failure"),
        (PacketType.SUBACK, 0, V5, "Granted QoS 0"),
        (PacketType.SUBACK, 1, V3_1, "Granted QoS 1"),
        (PacketType.DISCONNECT, 0, V5, "Normal disconnection"),
        (PacketType.PUBACK, 0x10, V5, "No matching subscribers"),
        (PacketType.PUBACK, 0x7E, V5, "Unknown"),
        (PacketType.CONNACK, 6, V3_1, "Unknown"),
    ],
)
def test_names_of_codes(kind: PacketType, code: int, version: ProtocolVersion, name: str) -> None:
    assert reason_name(kind, code, version) == name


def test_versions_are_the_levels_of_the_protocol_and_have_the_names_people_use() -> None:
    assert [int(version) for version in ProtocolVersion] == [3, 4, 5]
    assert [version.text for version in ProtocolVersion] == ["3.1", "3.1.1", "5.0"]
    assert [ProtocolVersion.from_text(text) for text in ("3.1", "3.1.1", "5.0", "5")] == [V3_1, V3_1_1, V5, V5]


@pytest.mark.parametrize("text", ["", "3", "4", "v5", "5.0.0", "3.1.2"])
def test_other_names_of_versions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an MQTT version"):
        ProtocolVersion.from_text(text)


def test_names_of_packet_types() -> None:
    assert [type_name(number) for number in (0, 1, 3, 15)] == ["reserved", "connect", "publish", "auth"]
    assert len(PacketType) == 15


def test_directions_have_opposites() -> None:
    assert Direction.CLIENT_TO_SERVER.opposite is Direction.SERVER_TO_CLIENT
    assert Direction.SERVER_TO_CLIENT.opposite is Direction.CLIENT_TO_SERVER


def test_reasons_are_spelled_as_their_names() -> None:
    assert all(reason.value == reason.name.lower() for reason in MalformedReason)
