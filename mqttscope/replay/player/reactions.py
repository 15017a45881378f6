"""Acknowledgements: the recorded ones readdressed to live packet identifiers, and what a session still owes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.player.actions import Kind, Note, Session
from mqttscope.replay.script import Entry

_BEGIN = (packets.Subscribe, packets.Unsubscribe)
_END = (packets.Puback, packets.Pubcomp, packets.Suback, packets.Unsuback)
_ASKED_BY = {PacketType.PUBREL: "pubrec", PacketType.PUBCOMP: "pubrel"}
"""What an acknowledgement follows, where that is not the PUBLISH itself."""


@dataclass(slots=True)
class Reaction:
    """An acknowledgement that is to be sent."""

    packet: ControlPacket
    source: Entry | None
    """The recorded acknowledgement."""
    due_ns: int


def begins(packet: ControlPacket) -> bool:
    """Whether the packet waits for an answer that carries its identifier."""
    return isinstance(packet, _BEGIN) or (isinstance(packet, packets.Publish) and packet.qos > 0)


def ends(packet: ControlPacket | Malformed) -> bool:
    """Whether the packet ends an exchange."""
    return isinstance(packet, _END) or (isinstance(packet, packets.Pubrec) and (packet.reason_code or 0) >= 0x80)


def readdressed(recorded: Entry, identifier: int) -> ControlPacket:
    """A recorded acknowledgement for another packet identifier."""
    assert isinstance(recorded.packet, ControlPacket)
    packet = recorded.packet
    if packet.packet_identifier != identifier:  # type: ignore[attr-defined]
        packet = copy.copy(packet)
        packet.packet_identifier = identifier  # type: ignore[attr-defined]
        packet.raw = b""
    return packet


def acknowledged(answers: Iterable[Entry]) -> bool:
    """Whether the recorded client acknowledged a message at all."""
    return any(isinstance(one.packet, packets.Puback | packets.Pubrec) for one in answers)


def exactly_once(entry: Entry | None) -> bool:
    """Whether it is a PUBLISH with QoS 2."""
    return entry is not None and isinstance(entry.packet, packets.Publish) and entry.packet.qos == 2


def withheld(wanted: type[ControlPacket]) -> Note:
    """What is said of an acknowledgement that is left out."""
    return Note(
        Kind.SKIPPED, f"{wanted.__name__.upper()} that the recorded client did not send, or that would overtake one"
    )


def recorded(wanted: type[ControlPacket], answers: Iterable[Entry]) -> Entry | None:
    """The acknowledgement of this type among the recorded answers of a message."""
    return next((one for one in answers if isinstance(one.packet, wanted)), None)


def delay_ns(acknowledgement: Entry, answers: Iterable[Entry]) -> int:
    """How long its sender took for a recorded acknowledgement, in nanoseconds."""
    assert isinstance(acknowledgement.packet, ControlPacket)
    asked: Entry | None = acknowledgement.answers
    before = _ASKED_BY.get(acknowledgement.packet.packet_type)
    if before is not None:
        asked = next((one for one in answers if one.type == before), asked)
    return 0 if asked is None else max(0, acknowledgement.timestamp_ns - asked.timestamp_ns)


def owed(session: Session, identifiers: Iterable[int]) -> Iterator[ControlPacket]:
    """What a client sends again when its session goes on (5.0 4.4): PUBLISH with DUP, or PUBREL, in order."""
    for identifier in identifiers:
        one = session.unfinished[identifier]
        if one.released:
            yield packets.Pubrel(packet_identifier=identifier)
            continue
        assert isinstance(one.entry.packet, packets.Publish)
        packet = copy.copy(one.entry.packet)
        packet.dup, packet.raw = True, b""
        if one.entry.topic is not None and packet.properties is not None:
            # Topic Aliases end with the connection (5.0 3.3.2.3.4).
            packet.topic_name = one.entry.topic
            kept = packet.properties.items
            packet.properties = type(packet.properties).of(item for item in kept if item[0] != 0x23)
        yield packet


def word(packet: ControlPacket | Malformed) -> str:
    """``PUBACK``."""
    return "malformed packet" if isinstance(packet, Malformed) else packet.packet_type.name
