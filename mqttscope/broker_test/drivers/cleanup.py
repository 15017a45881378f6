"""Removes what cases leave on a broker: sessions and retained messages of ours.

`residue` reads from a conversation what the broker may still hold; what it merely may have accepted counts as well.
A `Cleaner` removes it at once while the broker serves, otherwise when the broker is back, and at the end as far as it
can.
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
from mqttscope.session.connection import Connection

V5 = ProtocolVersion.V5
_FAILED = 0x80

LAST_S = 3.0
"""How long the end of a run may take to clean up what is left."""
MAX_NAMED = 20
"""Maximum number of things that one sentence names; further ones are counted."""


class Cleaner:
    """What is still to be removed from a broker."""

    def __init__(self, access: BrokerAccess) -> None:
        self.access = access
        self._owing: list[Conversation] = []

    def owe(self, conversation: Conversation) -> None:
        """What this conversation leaves behind has to go, whatever becomes of it."""
        self._owing.append(conversation)

    async def settle(self, version: ProtocolVersion, seconds: float) -> list[str]:
        """Remove all that is owed; returns what could not be, by name.  ``seconds`` is for each answer."""
        left: list[str] = []
        while self._owing:
            left += await self._forget(self._owing[0], version, seconds)
            del self._owing[0]
        return list(dict.fromkeys(left))

    async def finish(self, version: ProtocolVersion, seconds: float, most_s: float | None = None) -> str:
        """The last attempt, within `LAST_S` unless told; returns a sentence on what may be left, or nothing."""
        if not self._owing:
            return ""
        left: list[str] = []
        try:
            async with asyncio.timeout(LAST_S if most_s is None else most_s):
                left = await self.settle(version, seconds)
        except TimeoutError:
            left = [told for one in self._owing for told in residue(one).told()]
        left = list(dict.fromkeys(left))
        if not left:
            return ""
        return f"may be left on {self.access.target}: {name_list(left)}"

    async def _forget(self, conversation: Conversation, version: ProtocolVersion, seconds: float) -> list[str]:
        """Clean up after one conversation; returns what is left."""
        found = residue(conversation)
        left = []
        for spoken, identifier in found.sessions:
            lasting = identifier in found.lasting
            gone = await forget_session(self.access, spoken, identifier, seconds, lasting=lasting)
            if not gone and accepted(conversation):
                left.append(f"session {identifier}")
        if found.topics:
            topics = await forget_retained(self.access, version, found.topics, seconds)
            # A broker that closes for the deletion as it did for the message has not kept it.
            left += (f"retained message {topic}" for topic in topics if topic not in found.doubtful)
        return left


@dataclass(slots=True)
class Residue:
    """What has to be forgotten."""

    sessions: list[tuple[ProtocolVersion, str]] = field(default_factory=list)
    """Version and Client Identifier."""
    lasting: set[str] = field(default_factory=set)
    """Client Identifiers of those that outlive their connections."""
    topics: list[str] = field(default_factory=list)
    """Topics whose retained message may be ours."""
    doubtful: set[str] = field(default_factory=set)
    """Those of them where the broker closed the connection and had not acknowledged the message."""

    def told(self) -> list[str]:
        """What it is, for people."""
        return [
            *(f"session {identifier}" for _, identifier in self.sessions),
            *(f"retained message {topic}" for topic in self.topics),
        ]


def accepted(conversation: Conversation) -> bool:
    """Whether the broker accepted the connection, so that it may keep a session of it."""
    return any(isinstance(one, Connack) and not one.reason_code for one in conversation.packets(from_client=False))


def residue(conversation: Conversation) -> Residue:
    """What the client of a conversation may have left behind; what a broker may have tolerated counts as well.

    A message that it refused is not there, and neither is one on what is no Topic Name when it closed the connection
    and had not acknowledged it: nobody could delete that one either.
    """
    found = Residue()
    identifiers: dict[tuple[ProtocolVersion, str], None] = {}
    topics: dict[str, None] = {}
    doubtful: set[str] = set()
    taken, refused = _acknowledged(conversation)
    closed = any(one.ends and not one.from_client for one in conversation.said)
    connected = accepted(conversation)
    asked_for = any(_may_last(one) for one in conversation.packets(from_client=False))
    live = Connection(0, "", "", "", 0, 0, handshake_seen=True)
    live.assume_version(conversation.version, "the case", known=True)
    for number, item in enumerate(conversation.packets(from_client=True)):
        packet = _readable(item)
        if isinstance(packet, Connect):
            if packet.client_identifier:
                identifiers[_spoken(packet, conversation.version), packet.client_identifier] = None
                if asked_for or isinstance(item, Malformed) or _may_last(packet):
                    found.lasting.add(packet.client_identifier)
            topic = packet.will.will_topic if packet.will is not None and packet.will.will_retain else None
            if topic and (connected or _nameable(topic)):
                topics[topic] = None
        elif isinstance(packet, Publish):
            topic = live.resolve_topic(packet, Direction.CLIENT_TO_SERVER)
            identifier = packet.packet_identifier
            gone = identifier in refused or (closed and identifier not in taken and not _nameable(topic or ""))
            if packet.retain and topic and packet.payload != b"" and not gone:
                topics[topic] = None
                (doubtful.add if closed and identifier not in taken else doubtful.discard)(topic)
            live.apply(packet, Direction.CLIENT_TO_SERVER, number, 0, 0)
    for item in conversation.packets(from_client=False):
        if isinstance(item, Connack) and item.properties is not None:
            assigned = item.properties.assigned_client_identifier
            if assigned:
                identifiers[V5, assigned] = None
                found.lasting.add(assigned)
    found.sessions = list(identifiers)
    found.topics = list(topics)
    found.doubtful = doubtful & set(topics)
    return found


def _may_last(packet: ControlPacket | Malformed) -> bool:
    """Whether a CONNECT asks for a session that outlives the connection, or a CONNACK gives one (5.0 3.1.2.11.2)."""
    if not isinstance(packet, Connect | Connack):
        return False
    block = packet.properties
    if block is None:
        return isinstance(packet, Connect) and not packet.clean_start
    return bool(block.session_expiry_interval)


def _nameable(topic: str) -> bool:
    """Whether a client that keeps the protocol can send a message on it."""
    try:
        topic.encode()
    except UnicodeEncodeError:
        return False
    return is_valid_topic_name(topic)


def _acknowledged(conversation: Conversation) -> tuple[set[int], set[int]]:
    """Packet Identifiers of messages that the broker took over, and of those that it refused and never took."""
    taken: set[int] = set()
    refused: set[int] = set()
    for one in conversation.packets(from_client=False):
        if isinstance(one, Puback | Pubrec):
            (refused if (one.reason_code or 0) >= _FAILED else taken).add(one.packet_identifier)
    return taken, refused - taken


def _readable(item: ControlPacket | Malformed) -> ControlPacket | None:
    return item.packet if isinstance(item, Malformed) else item


def _spoken(packet: Connect, version: ProtocolVersion) -> ProtocolVersion:
    try:
        return ProtocolVersion(packet.protocol_level)
    except (TypeError, ValueError):
        return version


def name_list(names: list[str]) -> str:
    """Names for a sentence, as many as it may have."""
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
