"""Removes the sessions and retained messages that cases leave on a broker.

`residue` lists the state that a conversation may have left on the broker, including state that it may have rejected.
A `Cleaner` removes this state at once while the broker serves, else when the broker is back, and at the end as far as
possible.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.drivers.probe_client import BrokerAccess, forget_retained, forget_session
from mqttscope.mqtt.constants import Direction, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Connect, Puback, Publish, Pubrec
from mqttscope.mqtt.topics import is_valid_topic_name
from mqttscope.replay.drivers.run import name_list
from mqttscope.session.connection import Connection

V5 = ProtocolVersion.V5
_FAILED = 0x80
LAST_S = 3.0
"""Timeout of the cleanup at the end of a run."""


class Cleaner:
    """State that must still be removed from a broker."""

    def __init__(self, access: BrokerAccess) -> None:
        self.access = access
        self._pending: list[Conversation] = []

    def remember(self, conversation: Conversation) -> None:
        """Remember to clean up after this conversation."""
        self._pending.append(conversation)

    async def settle(self, version: ProtocolVersion, seconds: float) -> list[str]:
        """Clean up; returns the names of everything left.  ``seconds`` is the timeout of each answer."""
        left: list[str] = []
        while self._pending:
            left += await self._forget(self._pending[0], version, seconds)
            del self._pending[0]
        return list(dict.fromkeys(left))

    async def finish(self, version: ProtocolVersion, seconds: float, most_s: float | None = None) -> str:
        """Make the last attempt, within ``most_s`` or `LAST_S`; returns a sentence on the state left, or nothing."""
        if not self._pending:
            return ""
        left: list[str] = []
        try:
            async with asyncio.timeout(LAST_S if most_s is None else most_s):
                left = await self.settle(version, seconds)
        except TimeoutError:
            left = [name for conversation in self._pending for name in residue(conversation).names()]
        left = list(dict.fromkeys(left))
        if not left:
            return ""
        return f"may be left on {self.access.target}: {name_list(left)}"

    async def _forget(self, conversation: Conversation, version: ProtocolVersion, seconds: float) -> list[str]:
        """Clean up after one conversation; returns the names of everything left."""
        leftovers = residue(conversation)
        left = []
        for spoken, identifier in leftovers.sessions:
            lasting = identifier in leftovers.lasting
            gone = await forget_session(self.access, spoken, identifier, seconds, lasting=lasting)
            if not gone and accepted(conversation):
                left.append(f"session {identifier}")
        if leftovers.topics:
            topics = await forget_retained(self.access, version, leftovers.topics, seconds)
            # A broker that closes on the deletion, as it did on the message, has not stored the message.
            left += (f"retained message {topic}" for topic in topics if topic not in leftovers.doubtful)
        return left


@dataclass(slots=True)
class Residue:
    """State that a conversation may have left on the broker."""

    sessions: list[tuple[ProtocolVersion, str]] = field(default_factory=list)
    """Sessions by version and Client Identifier."""
    lasting: set[str] = field(default_factory=set)
    """Client Identifiers of sessions that outlive their connections."""
    topics: list[str] = field(default_factory=list)
    """Topics that may have a retained message of ours."""
    doubtful: set[str] = field(default_factory=set)
    """Topics of messages that the broker had not acknowledged when it closed the connection."""

    def names(self) -> list[str]:
        """Names of all sessions and retained messages, for messages to the user."""
        return [
            *(f"session {identifier}" for _, identifier in self.sessions),
            *(f"retained message {topic}" for topic in self.topics),
        ]


def accepted(conversation: Conversation) -> bool:
    """Whether the broker accepted the connection and may therefore store a session."""
    answers = conversation.packets(from_client=False)
    return any(isinstance(packet, Connack) and not packet.reason_code for packet in answers)


def residue(conversation: Conversation) -> Residue:
    """State that the client of a conversation may have left behind, even in packets that the broker may not accept.

    Refused messages are not included.  Neither are unacknowledged messages with an invalid Topic Name if the broker
    closed the connection: no client could delete them.
    """
    leftovers = Residue()
    identifiers: dict[tuple[ProtocolVersion, str], None] = {}
    topics: dict[str, None] = {}
    doubtful: set[str] = set()
    confirmed, refused = _acknowledged_identifiers(conversation)
    closed = any(chunk.ends and not chunk.from_client for chunk in conversation.chunks)
    connected = accepted(conversation)
    asked_for = any(_may_last(packet) for packet in conversation.packets(from_client=False))
    live = Connection(0, "", "", "", 0, 0, handshake_seen=True)
    live.assume_version(conversation.version, "the case", known=True)
    for number, item in enumerate(conversation.packets(from_client=True)):
        packet = _readable(item)
        if isinstance(packet, Connect):
            if packet.client_identifier:
                identifiers[_version_of(packet, conversation.version), packet.client_identifier] = None
                if asked_for or isinstance(item, Malformed) or _may_last(packet):
                    leftovers.lasting.add(packet.client_identifier)
            topic = packet.will.will_topic if packet.will is not None and packet.will.will_retain else None
            if topic and (connected or _is_publishable(topic)):
                topics[topic] = None
        elif isinstance(packet, Publish):
            topic = live.resolve_topic(packet, Direction.CLIENT_TO_SERVER)
            identifier = packet.packet_identifier
            is_lost = closed and identifier not in confirmed
            gone = identifier in refused or (is_lost and not _is_publishable(topic or ""))
            if packet.retain and topic and packet.payload != b"" and not gone:
                topics[topic] = None
                (doubtful.add if is_lost else doubtful.discard)(topic)
            live.apply(packet, Direction.CLIENT_TO_SERVER, number, 0, 0)
    for item in conversation.packets(from_client=False):
        if isinstance(item, Connack) and item.properties is not None:
            assigned = item.properties.assigned_client_identifier
            if assigned:
                identifiers[V5, assigned] = None
                leftovers.lasting.add(assigned)
    leftovers.sessions = list(identifiers)
    leftovers.topics = list(topics)
    leftovers.doubtful = doubtful & set(topics)
    return leftovers


def _may_last(packet: ControlPacket | Malformed) -> bool:
    """Whether a CONNECT requests, or a CONNACK grants, a session that outlives the connection (5.0 3.1.2.11.2)."""
    if not isinstance(packet, Connect | Connack):
        return False
    block = packet.properties
    if block is None:
        return isinstance(packet, Connect) and not packet.clean_start
    return bool(block.session_expiry_interval)


def _is_publishable(topic: str) -> bool:
    """Whether a client that obeys the protocol can publish to the topic."""
    try:
        topic.encode()
    except UnicodeEncodeError:
        return False
    return is_valid_topic_name(topic)


def _acknowledged_identifiers(conversation: Conversation) -> tuple[set[int], set[int]]:
    """Packet Identifiers of messages that the broker accepted, and of messages that it only refused."""
    confirmed: set[int] = set()
    refused: set[int] = set()
    for packet in conversation.packets(from_client=False):
        if isinstance(packet, Puback | Pubrec):
            (refused if (packet.reason_code or 0) >= _FAILED else confirmed).add(packet.packet_identifier)
    return confirmed, refused - confirmed


def _readable(item: ControlPacket | Malformed) -> ControlPacket | None:
    return item.packet if isinstance(item, Malformed) else item


def _version_of(packet: Connect, version: ProtocolVersion) -> ProtocolVersion:
    try:
        return ProtocolVersion(packet.protocol_level)
    except (TypeError, ValueError):
        return version
