"""What a server may not put up with: the Reason Code with which it ends the connection (5.0 4.13, 3.1.1 4.8)."""

from __future__ import annotations

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.topics import topic_filter_problem
from mqttscope.session.connection import Connection

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82
TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID = 0x8F, 0x90
RECEIVE_MAXIMUM_EXCEEDED, TOPIC_ALIAS_INVALID, PACKET_TOO_LARGE = 0x93, 0x94, 0x95
RETAIN_NOT_SUPPORTED, QOS_NOT_SUPPORTED = 0x9A, 0x9B
_OF_SERVERS = (packets.Connack, packets.Suback, packets.Unsuback, packets.Pingresp)
_UNSUPPORTED = (MalformedReason.PROTOCOL_NAME_INVALID, MalformedReason.PROTOCOL_VERSION_UNKNOWN)


def violation(packet: ControlPacket | Malformed, topic: str | None, live: Connection) -> int | None:
    """Why the connection has to end, looked at behind `Live.take`; ``None`` where it goes on.

    ``topic``: of a PUBLISH, its alias resolved.
    """
    if isinstance(packet, Malformed):
        return MALFORMED
    if isinstance(packet, _OF_SERVERS) or (isinstance(packet, packets.Auth) and live.version < 5):
        return PROTOCOL_ERROR
    server = live.server_side
    if server.maximum_packet_size is not None and len(packet.raw) > server.maximum_packet_size:
        return PACKET_TOO_LARGE
    if isinstance(packet, packets.Publish):
        return _publish(packet, topic, live)
    if isinstance(packet, packets.Subscribe):
        filters = [one.topic_filter for one in packet.subscriptions]
        return PROTOCOL_ERROR if not filters else _filters(filters, live)
    if isinstance(packet, packets.Unsubscribe):
        return PROTOCOL_ERROR if not packet.topic_filters else _filters(packet.topic_filters, live)
    return None


def _publish(packet: packets.Publish, topic: str | None, live: Connection) -> int | None:
    server = live.server_side
    alias = None if packet.properties is None else packet.properties.topic_alias
    if alias is not None and not 0 < alias <= server.topic_alias_maximum:
        return TOPIC_ALIAS_INVALID
    if topic is None:
        return PROTOCOL_ERROR
    if "+" in topic or "#" in topic:
        return TOPIC_NAME_INVALID
    if packet.qos > live.maximum_qos:
        return QOS_NOT_SUPPORTED
    if packet.retain and not live.retain_available:
        return RETAIN_NOT_SUPPORTED
    if packet.qos and packet.packet_identifier == 0:
        return PROTOCOL_ERROR
    if packet.qos and live.client_side.in_flight > server.receive_maximum:
        return RECEIVE_MAXIMUM_EXCEEDED
    return None


def _filters(filters: list[str], live: Connection) -> int | None:
    problems = [topic_filter_problem(one, shared=live.version >= 5) for one in filters]
    return None if not any(problems) else TOPIC_FILTER_INVALID if live.version >= 5 else PROTOCOL_ERROR


def refusal(packet: Malformed) -> int | None:
    """The CONNACK return code for a CONNECT that cannot be read; ``None`` where the connection is just closed."""
    if packet.reason in _UNSUPPORTED:
        return 0x01  # 3.1.1 MQTT-3.1.2-2; it is what clients of any version can read
    return None
