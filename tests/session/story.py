"""Packets of a connection in a row, applied one after the other as the dissector does it."""

from __future__ import annotations

from mqttscope.mqtt import ControlPacket, Direction, Malformed, ProtocolVersion, Publish, decode, encode
from mqttscope.session import Connection
from tests.packets import told

C2S, S2C = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
V3_1, V3_1_1, V5 = ProtocolVersion
SECOND = 1_000_000_000


def fresh(version: ProtocolVersion = V5) -> Connection:
    """A connection of which nothing was seen yet."""
    return Connection(0, "192.0.2.4:51234", "192.0.2.2:1883", "a.pcap", 1, 0, version=version)


def wired(packet: ControlPacket, version: ProtocolVersion) -> ControlPacket:
    """The packet as a reader has it, with its bytes; one that is malformed in a value only counts as read."""
    new_packet = decode(encode(packet, version), version)
    if isinstance(new_packet, Malformed):
        assert new_packet.complete
        assert new_packet.packet is not None
        return new_packet.packet
    return new_packet


class Story:
    """Applies packets, in words, and keeps what was known of each one just before."""

    def __init__(self, text: str = "nothing", version: ProtocolVersion = V5) -> None:
        self.connection = fresh(version)
        self.number = 0
        self.topics: list[str | None] = []
        self.answers: list[int | None] = []
        """For each packet the number of the packet that began the exchange it belongs to."""
        self.tell(text)

    def tell(self, text: str) -> Connection:
        """Apply more packets: one in a frame, one a second."""
        for side, packets in told(text, client_identifier="", keep_alive=0):
            direction = C2S if side == "client" else S2C
            for packet in packets:
                assert isinstance(packet, ControlPacket)
                read = wired(packet, self.connection.version)
                self.connection.identify(read)
                topic = self.connection.resolve_topic(read, direction) if isinstance(read, Publish) else None
                self.topics.append(topic)
                running = self.connection.answered_by(read, direction)
                self.answers.append(None if running is None else running.packet)
                self.connection.apply(read, direction, self.number, self.number + 1, self.number * SECOND)
                self.number += 1
        return self.connection
