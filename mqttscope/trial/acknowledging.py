"""Acknowledgements of a recorded flow, as they fit what a live broker delivers and answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mutate import Step
from mqttscope.replay.player import Player
from mqttscope.replay.script import Entry

ACKNOWLEDGEMENTS = (packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp)


@dataclass(slots=True)
class Acknowledging:
    """Live deliveries by the recorded ones that they stand for, and what the client's own packets have become."""

    version: ProtocolVersion
    own: dict[Entry, int | None] = field(default_factory=dict)
    """Packet Identifiers that mutated packets of the client really have; ``None`` where they have none any more."""
    without_pubrec: set[Entry] = field(default_factory=set)
    """Messages of the client at QoS 2 that got no PUBREC: their PUBREL would make no sense."""
    _live: dict[Entry, packets.Publish] = field(default_factory=dict)

    def delivered(self, entry: Entry, packet: packets.Publish) -> None:
        """A delivery came that stands for a recorded one."""
        self._live[entry] = packet

    def data(self, step: Step, entry: Entry | None) -> bytes:
        """The bytes to send in a step, empty for nothing."""
        if entry is None or entry.answers is None or not isinstance(entry.packet, ACKNOWLEDGEMENTS):
            return step.data
        if step.mutated:
            return self._addressed(step, entry)
        if entry.answers in self.without_pubrec:
            return b""
        came = self._live.get(entry.answers)
        if came is not None and came.qos != getattr(entry.answers.packet, "qos", None):
            return self._at_other_qos(entry, came)
        return self._addressed(step, entry)

    def _at_other_qos(self, entry: Entry, came: packets.Publish) -> bytes:
        """What acknowledges a message that the recorded broker delivered at another QoS than this one."""
        kind = {1: packets.Puback, 2: packets.Pubrec}.get(came.qos)
        if kind is None or not isinstance(entry.packet, packets.Puback | packets.Pubrec):
            return b""
        return encode(kind(packet_identifier=came.packet_identifier or 0), self.version)

    def _addressed(self, step: Step, entry: Entry) -> bytes:
        """The bytes with the Packet Identifier of the live delivery."""
        answered = entry.answers
        assert answered is not None
        assert isinstance(entry.packet, ACKNOWLEDGEMENTS)
        recorded = entry.packet.packet_identifier.to_bytes(2, "big")
        if answered.from_client:
            # A PUBREL: it goes with the client's own PUBLISH.
            identifier = self.own.get(answered, entry.packet.packet_identifier)
        else:
            came = self._live.get(answered)
            identifier = None if came is None else came.packet_identifier
        if identifier is None:
            # Nothing came that it could acknowledge.
            return step.data if step.mutated else b""
        if step.data[2:4] == recorded and step.data[1:2] == entry.raw[1:2]:
            return step.data[:2] + identifier.to_bytes(2, "big") + step.data[4:]
        return step.data


def deliveries(player: Player) -> list[tuple[Entry, packets.Publish]]:
    """The recorded deliveries that a player has seen come, with the live ones that stand for them."""
    return [
        (one.source, one.packet)
        for one in player.live.entries
        if not one.from_client and one.source is not None and isinstance(one.packet, packets.Publish)
    ]
