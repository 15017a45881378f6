"""Rows of packets become the packets that they were made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mqttscope.lake.declared import PayloadPart, packet_columns, packet_fields
from mqttscope.lake.packets import malformed_of, packet_of, topic_of, unparsed_of, version_of
from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.constants import ProtocolVersion, type_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Auth, Connect, Disconnect, Puback, Publish
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import Properties
from tests.each import each
from tests.lake.reading import CAPTURES, Row, in_process, options, usual

V5, V3_1_1 = ProtocolVersion.V5, ProtocolVersion.V3_1_1
KEPT = PayloadPart(65_536)


def columns(packet: ControlPacket, version: ProtocolVersion, only: tuple[str, ...] | None = None) -> Row:
    """The columns of a packet as a row has them."""
    bad: list[Row] = []
    other: list[Row] = []
    result: Row = dict.fromkeys(packet_columns()) | packet_fields(packet, version, KEPT, bad, other, only)
    return result | {"not_utf8": bad, "other_properties": other}


def full(value: Any, like: Any) -> Any:
    """Values as a table gives them back: structs have all of their fields."""
    if isinstance(like, dict) and isinstance(value, dict):
        return {name: full(value.get(name), each) for name, each in like.items()}
    if isinstance(like, list) and isinstance(value, list) and len(like) == len(value):
        return [full(*both) for both in zip(value, like, strict=True)]
    return value


@each("path", CAPTURES)
def test_packets_of_captures_come_back(path: Path) -> None:
    for row in usual(path).get("packets", ()):
        if row["event"] == "packet":
            control_packet = packet_of(row)
            assert control_packet is not None
            assert type_name(control_packet.packet_type) == row["type"]
            assert control_packet.header_flags == row["header_flags"]
            assert control_packet.missing == (row["missing"] or 0)
            document = columns(control_packet, version_of(row))
            again = decode(control_packet.raw, version_of(row))
            # Its own bytes say the same, where none are missing; secrets are asterisks in both.
            assert control_packet.missing or again == control_packet
            # But for lengths that are written with more bytes than they need.
            assert len(control_packet.raw) + control_packet.missing in (row["length"], row["length"] - 1)
        else:
            damaged = malformed_of(row)
            assert (str(damaged.reason), damaged.offset) == (row["malformed"]["reason"], row["malformed"]["offset"])
            assert damaged.raw == row["malformed"]["raw"]
            if damaged.packet is None:
                continue
            document = columns(damaged.packet, version_of(row), tuple(row["malformed"]["fields_read"]))
        for name in packet_columns():
            if name != "payload_sha256" or not (row["missing"] or row["malformed"]):
                assert full(document[name], row[name]) == row[name], (name, row["frame"])
        topic = topic_of(row)
        assert topic is None or topic.encode("utf-8", "surrogateescape").decode("utf-8", "replace") == row["topic"]


def row_of(packet: ControlPacket, version: ProtocolVersion, **more: Any) -> Row:
    """The row of a packet that is made here."""
    from mqttscope.mqtt.codec import encode

    raw = encode(packet, version)
    document = columns(packet, version)
    input_document = {
        "type": type_name(packet.packet_type), "version": version.text, "remaining_length": len(raw) - 2,
        "length": len(raw), "header_flags": packet.header_flags, "topic": None, "missing": None,
    }  # fmt: skip
    document |= input_document
    return document | more


def test_secrets_are_asterisks_of_their_length() -> None:
    will = Will("w", b"gone", 1, True, Properties(authentication_data=b"xyz"))
    row = row_of(
        Connect(protocol_level=5, client_identifier="a", will=will, user_name="u", password=b"hunter2",
                properties=Properties(authentication_method="m", authentication_data=b"12345")), V5,
    )  # fmt: skip
    packet = packet_of(row)

    assert isinstance(packet, Connect)
    assert packet.password == b"*******"
    assert packet.properties == Properties(authentication_method="m", authentication_data=b"*****")
    assert packet.will is not None
    assert (packet.will.will_topic, packet.will.will_payload, packet.will.will_qos) == ("w", b"gone", 1)
    assert len(packet.raw) == row["length"]
    assert b"hunter2" not in packet.raw


def test_a_payload_that_is_not_kept_is_missing() -> None:
    packet = Publish(topic_name="a/b", qos=1, packet_identifier=7, payload=b"0123456789")
    row = row_of(packet, V3_1_1)
    nothing, some = packet_of(row | {"payload": None}), packet_of(row | {"payload": b"0123"})

    assert isinstance(nothing, Publish)
    assert isinstance(some, Publish)
    assert (nothing.payload, nothing.missing, some.payload, some.missing) == (b"", 10, b"0123", 6)
    # The length in its header is that of the packet.
    assert nothing.raw[1] == some.raw[1] == row["remaining_length"]
    assert len(nothing.raw) + 10 == len(some.raw) + 6 == row["length"]


@each(
    "packet",
    [
        Puback(7),
        Puback(7, 0x10),
        Puback(7, 0x10, Properties(reason_string="no")),
        Puback(7, 0, Properties()),
        Disconnect(),
        Disconnect(0),
        Disconnect(0x8E),
        Auth(0x18, Properties(authentication_method="m")),
    ],
)
def test_what_was_left_out_is_left_out(packet: ControlPacket) -> None:
    row = row_of(packet, V5)
    control_packet = packet_of(row)

    assert control_packet is not None
    assert len(control_packet.raw) == row["length"]
    assert type(control_packet) is type(packet)


def test_texts_that_are_not_utf_8_and_odd_properties_come_back() -> None:
    block = Properties.of(
        [(0x03, "a"), (0x03, "b\udcff"), (0x23, 1), (0x23, 2), (0x26, ("k\udcff", "v")), (0x7E, b"ab")]
    )
    packet = packet_of(row_of(Publish(topic_name="a\udcff", properties=block, payload=b"1"), V5))

    assert isinstance(packet, Publish)
    assert packet.topic_name == "a\udcff"
    assert packet.properties is not None
    # First what has a column, in the order of the table, then the rest.
    assert packet.properties.items == (
        (0x03, "a"),
        (0x23, 1),
        (0x26, ("k\udcff", "v")),
        (0x03, "b\udcff"),
        (0x23, 2),
        (0x7E, b"ab"),
    )


def test_what_is_no_packet() -> None:
    assert packet_of({"type": "publish2"}) is None
    row = {"reason": "gap", "length": 9, "raw": None, "raw_length": 4, "redacted": True, "missing": 5, "packet_type": 1}
    unparsed = unparsed_of(row)
    assert (unparsed.raw, unparsed.missing, unparsed.length, unparsed.packet_type) == (b"****", 5, 9, 1)


def test_rows_of_a_lake_without_payloads() -> None:
    path = next(capture for capture in CAPTURES if capture.parent.name == "v5-qos")
    packets = [packet_of(row) for row in in_process([path], options(payload_limit=0))["packets"]]
    sizes = [row["payload_length"] for row in usual(path)["packets"] if row["type"] == "publish"]

    assert [packet.missing for packet in packets if isinstance(packet, Publish)] == sizes
    assert not any(isinstance(packet, Malformed) for packet in packets)
    assert any(isinstance(packet, Publish) and packet.packet_identifier for packet in packets)
