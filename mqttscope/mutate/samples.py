"""Valid sample packets and property values, for fields that a recorded packet lacks."""

from __future__ import annotations

from typing import Any

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS, ControlPacket
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import BY_NAME, Properties

V3_1, V3_1_1, V5 = ProtocolVersion
TOPIC = "mqttscope/mutate"
PROPERTY_VALUES: dict[str, Any] = {
    "payload_format_indicator": 0,
    "message_expiry_interval": 60,
    "content_type": "text/plain",
    "response_topic": "mqttscope/response",
    "correlation_data": b"correlation",
    "subscription_identifier": 1,
    "session_expiry_interval": 60,
    "assigned_client_identifier": "assigned1",
    "server_keep_alive": 60,
    "authentication_method": "PLAIN",
    "authentication_data": b"data",
    "request_problem_information": 1,
    "will_delay_interval": 1,
    "request_response_information": 0,
    "response_information": "mqttscope/information",
    "server_reference": "other.example",
    "reason_string": "reason",
    "receive_maximum": 10,
    "topic_alias_maximum": 10,
    "topic_alias": 1,
    "maximum_qos": 1,
    "retain_available": 1,
    "user_property": ("name", "value"),
    "maximum_packet_size": 100_000,
    "wildcard_subscription_available": 1,
    "subscription_identifier_available": 1,
    "shared_subscription_available": 1,
}
"""A valid value of each property (5.0 table 2-4)."""


def sample(packet_type: PacketType, version: ProtocolVersion, packet_identifier: int = 1) -> ControlPacket:
    """A valid packet of a type."""
    block = Properties() if version == V5 else None
    if packet_type == PacketType.CONNECT:
        connect = packets.Connect(protocol_level=version.value, keep_alive=60, client_identifier="mqttscope")
        connect.protocol_name, connect.properties = "MQIsdp" if version == V3_1 else "MQTT", block
        return connect
    if packet_type == PacketType.CONNACK:
        return packets.Connack(session_present=False, properties=block)
    if packet_type == PacketType.PUBLISH:
        return packets.Publish(topic_name=TOPIC, payload=b"mutate", properties=block)
    if packet_type == PacketType.SUBSCRIBE:
        rows = [Subscription(TOPIC, 0)]
        return packets.Subscribe(packet_identifier=packet_identifier, subscriptions=rows, properties=block)
    if packet_type == PacketType.UNSUBSCRIBE:
        return packets.Unsubscribe(packet_identifier=packet_identifier, topic_filters=[TOPIC], properties=block)
    if packet_type == PacketType.SUBACK:
        return packets.Suback(packet_identifier=packet_identifier, reason_codes=[0], properties=block)
    if packet_type == PacketType.UNSUBACK:
        codes = [0] if version == V5 else None
        return packets.Unsuback(packet_identifier=packet_identifier, reason_codes=codes, properties=block)
    packet = PACKETS[packet_type]()
    if hasattr(packet, "packet_identifier"):
        packet.packet_identifier = packet_identifier
    return packet


def with_property(block: Properties | None, name: str, value: Any) -> Properties:
    """The block with a property replaced, or appended if the block lacks it."""
    number = BY_NAME[name].identifier
    items = [] if block is None else list(block.items)
    for index, (identifier, _) in enumerate(items):
        if identifier == number:
            items[index] = (number, value)
            return Properties.of(items)
    return Properties.of([*items, (number, value)])


def without_properties(block: Properties | None, *names: str) -> Properties | None:
    return block and block.without(*(BY_NAME[name].identifier for name in names))


def set_block(packet: Any, prefix: str, block: Properties) -> None:
    (packet.will if prefix else packet).properties = block


def ensure_block(packet: Any, prefix: str) -> Properties:
    """The property block of a 5.0 packet; a missing block is created, with the reason code in front of it."""
    owner = packet
    if prefix:
        ensure_will(packet, V5)
        owner = packet.will
    elif getattr(packet, "reason_code", 0) is None:
        packet.reason_code = 0
    if owner.properties is None:
        owner.properties = Properties()
    block: Properties = owner.properties
    return block


def ensure_will(packet: packets.Connect, version: ProtocolVersion) -> None:
    if packet.will is None:
        block = Properties() if version == V5 else None
        packet.will = Will(will_topic="mqttscope/will", will_payload=b"gone", properties=block)


def ensure(packet: Any, path: str, version: ProtocolVersion) -> None:
    """Give the packet a field with a valid value, unless it has the field."""
    prefix = "will." if path.startswith("will.") else ""
    inner = path.removeprefix(prefix)
    if inner.startswith("properties."):
        block = ensure_block(packet, prefix)
        name = inner.removeprefix("properties.")
        number = BY_NAME[name].identifier
        if not block.all(number):
            block = with_property(block, name, PROPERTY_VALUES[name])
            if name == "authentication_data" and block.authentication_method is None:
                block = with_property(block, "authentication_method", PROPERTY_VALUES["authentication_method"])
        set_block(packet, prefix, block)
    elif prefix:
        ensure_will(packet, version)
    elif path == "user_name" and packet.user_name is None:
        packet.user_name = "user"
    elif path == "password" and packet.password is None:
        # Before 5.0 a password needs a user name (3.1.1 MQTT-3.1.2-22).
        packet.user_name = "user" if packet.user_name is None else packet.user_name
        packet.password = b"password"
    elif path == "packet_identifier" and packet.packet_identifier is None:
        packet.qos = 1
        packet.packet_identifier = 1
    elif path == "reason_code" and packet.reason_code is None:
        packet.reason_code = 0
    elif path.startswith("topic_filters") and not packet.topic_filters:
        packet.topic_filters = [TOPIC]
    elif path.startswith("subscriptions") and not packet.subscriptions:
        packet.subscriptions = [Subscription(TOPIC, 0)]
    elif path.startswith("reason_codes") and not packet.reason_codes:
        packet.reason_codes = [0]
