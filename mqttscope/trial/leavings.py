"""What a conversation may have left on the broker: sessions and retained messages of ours."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.mqtt.constants import Direction, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Connect, Publish
from mqttscope.session.connection import Connection
from mqttscope.trial.conversation import Conversation

V5 = ProtocolVersion.V5


@dataclass(slots=True)
class Leavings:
    """What has to be forgotten."""

    sessions: list[tuple[ProtocolVersion, str]] = field(default_factory=list)
    """Version and Client Identifier."""
    topics: list[str] = field(default_factory=list)
    """Topics whose retained message may be ours."""


def leavings(conversation: Conversation) -> Leavings:
    """What the client of a conversation may have left behind; what a broker may have tolerated counts as well."""
    found = Leavings()
    identifiers: dict[tuple[ProtocolVersion, str], None] = {}
    topics: dict[str, None] = {}
    live = Connection(0, "", "", "", 0, 0, handshake_seen=True)
    live.assume_version(conversation.version, "the case", known=True)
    for number, item in enumerate(conversation.packets(from_client=True)):
        packet = _readable(item)
        if isinstance(packet, Connect):
            if packet.client_identifier:
                identifiers[_spoken(packet, conversation.version), packet.client_identifier] = None
            if packet.will is not None and packet.will.will_retain and packet.will.will_topic:
                topics[packet.will.will_topic] = None
        elif isinstance(packet, Publish):
            topic = live.resolve_topic(packet, Direction.CLIENT_TO_SERVER)
            if packet.retain and topic and packet.payload != b"":
                topics[topic] = None
            live.apply(packet, Direction.CLIENT_TO_SERVER, number, 0, 0)
    for item in conversation.packets(from_client=False):
        if isinstance(item, Connack) and item.properties is not None:
            assigned = item.properties.assigned_client_identifier
            if assigned:
                identifiers[V5, assigned] = None
    found.sessions = list(identifiers)
    found.topics = list(topics)
    return found


def _readable(item: ControlPacket | Malformed) -> ControlPacket | None:
    return item.packet if isinstance(item, Malformed) else item


def _spoken(packet: Connect, version: ProtocolVersion) -> ProtocolVersion:
    try:
        return ProtocolVersion(packet.protocol_level)
    except (TypeError, ValueError):
        return version
