"""Recordings written down as packets: ``>`` for the client's, ``<`` for the server's."""

from __future__ import annotations

from mqttscope.events import ConnectionClosed, ConnectionOpened, PacketEvent
from mqttscope.mqtt import Connack, Connect, ControlPacket, Properties, ProtocolVersion, Publish, decode, encode
from mqttscope.replay.script import C2S, S2C, Script, ScriptReader
from mqttscope.session.connection import Connection

STEP_NS = 10_000_000
V3_1, V3_1_1, V5 = ProtocolVersion

Line = tuple[int, str, ControlPacket]
"""Number of the connection, ``>`` or ``<``, packet."""


def connect(identifier: str = "dev", version: ProtocolVersion = V5, **fields: object) -> Connect:
    """A CONNECT of this version."""
    name = "MQIsdp" if version == 3 else "MQTT"
    if version == 5:
        fields.setdefault("properties", Properties())
    return Connect(protocol_name=name, protocol_level=int(version), client_identifier=identifier, **fields)  # type: ignore[arg-type]


def connack(**fields: object) -> Connack:
    """A CONNACK; its properties count in 5.0 only."""
    fields.setdefault("properties", Properties())
    return Connack(**fields)  # type: ignore[arg-type]


def publish(topic: str = "a", **fields: object) -> Publish:
    """A PUBLISH; its properties count in 5.0 only."""
    fields.setdefault("properties", Properties())
    return Publish(topic_name=topic, **fields)  # type: ignore[arg-type]


def recordings(*lines: Line, ended: dict[int, tuple[str, str]] | None = None) -> list[Script]:
    """Scripts of connections, in the order of the lines.

    A connection opens with its first line and ends behind its last one, as ``ended`` says (``fin`` by the client
    otherwise).
    """
    reader = ScriptReader()
    open_ones: dict[int, Connection] = {}
    last = {number: at for at, (number, _, _) in enumerate(lines)}
    now = 0
    for at, (number, arrow, packet) in enumerate(lines):
        now += STEP_NS
        if number not in open_ones:
            made = Connection(number, f"10.0.0.1:{5000 + number}", "10.0.0.2:1883", "x", at, now, handshake_seen=True)
            open_ones[number] = made
            reader.feed(ConnectionOpened(made, at, now, "x"))
        connection = open_ones[number]
        version = packet.version if isinstance(packet, Connect) else connection.version
        whole = decode(encode(packet, version), version)
        assert isinstance(whole, ControlPacket), whole
        direction = C2S if arrow == ">" else S2C
        connection.identify(whole)
        topic = connection.resolve_topic(whole, direction) if isinstance(whole, Publish) else None
        reader.feed(PacketEvent(connection, direction, at, at, now, "x", whole, topic))
        connection.apply(whole, direction, at, at, now)
        if last[number] == at:
            now += STEP_NS
            connection.closed_how, connection.closed_by = (ended or {}).get(number, ("fin", "client"))
            reader.feed(ConnectionClosed(connection, at, now, "x"))
    return reader.scripts


def recorded(*lines: tuple[str, ControlPacket], ended: tuple[str, str] = ("fin", "client")) -> Script:
    """One connection."""
    return recordings(*((0, arrow, packet) for arrow, packet in lines), ended={0: ended})[0]
