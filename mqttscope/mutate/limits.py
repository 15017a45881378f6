"""What the other side announced not to take: a mutation that goes beyond it is not legal (5.0 3.1.2.11, 3.2.2.3)."""

from __future__ import annotations

from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import Connack, Disconnect, Publish, Subscribe
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.mutation import Target


def exceeded(made: bytes, where: Target) -> str:
    """The announcement that a packet goes against, in words; empty where it keeps to all of them."""
    if where.version != ProtocolVersion.V5:
        return ""
    size = where.limit("maximum_packet_size", 0)
    if size and len(made) > size:
        return f"Maximum Packet Size {size}"
    packet = decode(made, where.version)
    if where.sender == SERVER and not isinstance(packet, Publish | Connack | Disconnect | Malformed):
        block = getattr(packet, "properties", None)
        diagnostic = block and (block.user_property or block.reason_string is not None)
        if diagnostic and not where.limit("request_problem_information", 1):
            return "Request Problem Information 0"
    if isinstance(packet, Publish):
        return _publish(packet, where)
    return _subscribe(packet, where) if isinstance(packet, Subscribe) else ""


def _publish(packet: Publish, where: Target) -> str:
    alias = packet.properties.topic_alias if packet.properties else None
    if alias is not None and alias > where.limit("topic_alias_maximum", 0):
        return "a lower Topic Alias Maximum"
    if where.sender == CLIENT and packet.qos > where.limit("maximum_qos", 2):
        return "a lower Maximum QoS"
    if where.sender == CLIENT and packet.retain and not where.limit("retain_available", 1):
        return "Retain Available 0"
    return ""


def _subscribe(packet: Subscribe, where: Target) -> str:
    filters = [row.topic_filter for row in packet.subscriptions]
    if not where.limit("wildcard_subscription_available", 1) and any("+" in one or "#" in one for one in filters):
        return "Wildcard Subscription Available 0"
    if not where.limit("shared_subscription_available", 1) and any(one.startswith("$share/") for one in filters):
        return "Shared Subscription Available 0"
    identified = bool(packet.properties and packet.properties.subscription_identifier)
    if identified and not where.limit("subscription_identifier_available", 1):
        return "Subscription Identifier Available 0"
    return ""
