"""Packets of a connection in a row, applied one after the other as the dissector does it."""

from __future__ import annotations

from mqttscope.mqtt import (
    Connack,
    Connect,
    ControlPacket,
    Direction,
    Malformed,
    Properties,
    ProtocolVersion,
    Publish,
    decode,
    encode,
)
from mqttscope.session import Connection

C2S, S2C = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
V3_1, V3_1_1, V5 = ProtocolVersion
SECOND = 1_000_000_000

Row = tuple[str, ControlPacket]
"""Who sends (``C`` or ``S``), and what."""


def fresh(version: ProtocolVersion = V5) -> Connection:
    """A connection of which nothing was seen yet."""
    return Connection(0, "192.0.2.4:51234", "192.0.2.2:1883", "a.pcap", 1, 0, version=version)


def wired(packet: ControlPacket, version: ProtocolVersion) -> ControlPacket:
    """The packet as a reader has it, with its bytes; one that is malformed in a value only counts as read."""
    made = decode(encode(packet, version), version)
    if isinstance(made, Malformed):
        assert made.complete
        assert made.packet is not None
        return made.packet
    return made


class Story:
    """Applies packets and keeps what was known of each one just before."""

    def __init__(self, *rows: Row, version: ProtocolVersion = V5) -> None:
        self.connection = fresh(version)
        self.number = 0
        self.topics: list[str | None] = []
        self.answers: list[int | None] = []
        """For each packet the number of the packet that began the exchange it belongs to."""
        self.tell(*rows)

    def tell(self, *rows: Row) -> Connection:
        """Apply more packets: one in a frame, one a second."""
        for who, packet in rows:
            direction = C2S if who == "C" else S2C
            read = wired(packet, self.connection.version)
            self.connection.identify(read)
            self.topics.append(self.connection.resolve_topic(read, direction) if isinstance(read, Publish) else None)
            running = self.connection.answered_by(read, direction)
            self.answers.append(None if running is None else running.packet)
            self.connection.apply(read, direction, self.number, self.number + 1, self.number * SECOND)
            self.number += 1
        return self.connection


def connect(level: int = 5, **values: object) -> Connect:
    """A CONNECT; keywords that are no field of it are properties."""
    fields = {key: values.pop(key) for key in ("client_identifier", "keep_alive", "clean_start") if key in values}
    made = Connect(protocol_level=level, protocol_name="MQIsdp" if level == 3 else "MQTT", **fields)  # type: ignore[arg-type]
    if level == 5:
        made.properties = Properties(**values)
    return made


def connack(reason_code: int = 0, *, session_present: bool = False, **values: object) -> Connack:
    """A CONNACK with properties."""
    return Connack(reason_code=reason_code, session_present=session_present, properties=Properties(**values))


def publish(
    identifier: int | None = None, qos: int = 0, topic: str = "a", *, dup: bool = False, **values: object
) -> Publish:
    """A PUBLISH with properties."""
    return Publish(
        qos=qos, dup=dup, topic_name=topic, packet_identifier=identifier, properties=Properties(**values), payload=b"x"
    )
