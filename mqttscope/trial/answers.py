"""What a broker has said in a case, and what of it somebody has waited for."""

from __future__ import annotations

from collections.abc import Sequence

from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Publish


class Answers:
    """Packets of a broker in their order; ``received`` grows while they come.

    Each of them answers one packet of the client at most: who has waited for it takes it.
    """

    def __init__(self, received: Sequence[ControlPacket | Malformed]) -> None:
        self._received = received
        self._taken: set[int] = set()
        self._first = 0
        """All before this place are taken; what is sent by the thousand would take the square of it otherwise."""

    def pass_over(self) -> int:
        """Let nobody take what has come so far; returns how many that are."""
        self._first = len(self._received)
        return self._first

    def has(self, kind: PacketType, identifier: int | None = None) -> bool:
        """Whether there is a packet that nobody has taken; ``identifier``: only with this Packet Identifier."""
        return self._find(kind, identifier) is not None

    def take(self, kind: PacketType, identifier: int | None = None) -> ControlPacket | None:
        """The first one of these, which is nobody else's from now on; ``None`` where there is none."""
        return self._taken_from(self._find(kind, identifier))

    def has_delivery(self, payload: bytes) -> bool:
        """The same of a PUBLISH with this payload."""
        return self._find_delivery(payload) is not None

    def take_delivery(self, payload: bytes) -> Publish | None:
        """The first one of these."""
        found = self._taken_from(self._find_delivery(payload))
        return found if isinstance(found, Publish) else None

    def _find(self, kind: PacketType, identifier: int | None) -> int | None:
        while self._first in self._taken:
            self._taken.discard(self._first)
            self._first += 1
        for place in range(self._first, len(self._received)):
            packet = self._received[place]
            if place in self._taken or isinstance(packet, Malformed) or packet.packet_type != kind:
                continue
            if identifier is None or getattr(packet, "packet_identifier", None) == identifier:
                return place
        return None

    def _find_delivery(self, payload: bytes) -> int | None:
        for place in range(self._first, len(self._received)):
            packet = self._received[place]
            if place not in self._taken and isinstance(packet, Publish) and packet.payload == payload:
                return place
        return None

    def _taken_from(self, place: int | None) -> ControlPacket | None:
        if place is None:
            return None
        self._taken.add(place)
        packet = self._received[place]
        assert not isinstance(packet, Malformed)
        return packet

    def count(self, kind: type[ControlPacket]) -> int:
        """How many packets of a kind have come, taken or not."""
        return sum(isinstance(one, kind) for one in self._received)

    @property
    def accepted(self) -> bool:
        """Whether a CONNACK has accepted the connection."""
        return any(isinstance(one, Connack) and not one.reason_code for one in self._received)
