"""Devices and a server without sockets: what devices say as lines (tests/replay/talk.py), answers as short words."""

from __future__ import annotations

from itertools import count
from typing import Any

from mqttscope.mqtt import (
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Malformed,
    ProtocolVersion,
    Publish,
    Suback,
    Unsuback,
    decode,
    encode,
)
from mqttscope.replay.live import Close, Send
from mqttscope.replay.script import Ending, Script
from mqttscope.replay.server import (
    ConnectionMatcher,
    ServerOptions,
    ServerPlayer,
    ServerSessions,
    live_connection,
)
from mqttscope.replay.server.recorded import takers_over
from mqttscope.session import Connection
from tests.replay.talk import packet, record

V3_1, V3_1_1, V5 = ProtocolVersion
SECOND = 1_000_000_000
START = 1_000 * SECOND
HELLO = "dev > connect\ndev < connack\n"
MESSAGES = (
    HELLO
    + """
    dev > subscribe 1 t/#:2
    dev < suback 1 1
    dev < publish t/a one qos=1 id=7
    dev > puback 7
    dev > publish cmd go qos=1 id=2
    dev < puback 2 code=0x10
    dev < publish t/b two qos=1 id=8
    dev > puback 8
    dev < publish t/c three
    dev > disconnect
    dev > fin
"""
)


class Device:
    """One connection of a device."""

    def __init__(self, desk: Desk, name: str, player: ServerPlayer) -> None:
        self.desk, self.name, self.player = desk, name, player
        self.closed: Close | None = None
        self.waits: int | None = None
        self.first: list[ControlPacket] = []
        """What came in answer to its CONNECT."""

    def say(self, *lines: str) -> list[str]:
        """Say something; returns what is answered at once."""
        for line in lines:
            kind, *words = line.split()
            self.take(packet(self.name, kind, words, self.desk.version))
        return self.heard()

    def take(self, result: ControlPacket | Malformed) -> None:
        """Say a packet, as it comes through the wire."""
        raw = result.raw if isinstance(result, Malformed) else encode(result, self.desk.version)
        self.player.receive(decode(raw, self.desk.version), self.desk.now)

    def heard(self) -> list[str]:
        """What has come meanwhile."""
        return [told(control_packet) for control_packet in self.packets()]

    def packets(self) -> list[ControlPacket]:
        """The same as packets."""
        control_packets: list[ControlPacket] = []
        while True:
            action = self.player.perform(self.desk.now)
            if isinstance(action, Send):
                whole = decode(action.data, self.desk.version)
                assert isinstance(whole, ControlPacket), whole
                control_packets.append(whole)
            elif isinstance(action, Close):
                self.closed = action
                self.player.ended(Ending(action.how, "server"))
            else:
                self.waits = action.until_ns
                return control_packets

    def vanish(self) -> None:
        """End the connection."""
        self.player.ended(Ending("fin", "client"))


class Desk:
    """A recording, and devices that connect."""

    def __init__(self, text: str, version: ProtocolVersion = V5, **options: Any) -> None:
        options.setdefault("speed", None)
        self.version = version
        self.scripts: list[Script] = record(text, version)
        self.options = ServerOptions(**options)
        self.matcher = ConnectionMatcher(self.scripts)
        self.sessions = ServerSessions()
        self.now = START
        self.place = count().__next__

    def connect(self, line: str = "dev connect") -> tuple[Device, list[str]]:
        """Connect; returns the device and what it hears."""
        name, kind, *words = line.split()
        first = packet(name, kind, words, self.version)
        assert isinstance(first, Connect)
        script = self.matcher.choose(first)
        live = Script(Connection(0, name, "desk", "", 0, self.now, version=self.version), opened_ns=self.now)
        player = ServerPlayer(
            live=live_connection(live, next_place=self.place),
            script=script or Script(Connection(-1, "", "", "", 0, 0)),
            sessions=self.sessions,
            options=self.options,
            opened_ns=self.now,
            earlier=[
                other_script
                for other_script in self.scripts
                if script and other_script.opened_place < script.opened_place
            ],
            taken_over=script is not None and bool(takers_over(script, self.scripts)),
        )
        device = Device(self, name, player)
        device.take(first)
        device.first = device.packets()
        return device, [told(control_packet) for control_packet in device.first]

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.now += int(seconds * SECOND)


def told(control_packet: ControlPacket) -> str:
    """A packet in few words."""
    words = [control_packet.packet_type.name.lower()]
    identifier = getattr(control_packet, "packet_identifier", None)
    if isinstance(control_packet, Publish):
        words += [control_packet.topic_name or "-", control_packet.payload.decode() or "-", f"qos={control_packet.qos}"]
        words += [word for word in ("dup", "retain") if getattr(control_packet, word)]
    if identifier:
        words.append(f"id={identifier}")
    if isinstance(control_packet, Suback | Unsuback):
        words += [str(code) for code in control_packet.reason_codes or ()]
    elif getattr(control_packet, "reason_code", None):
        words.append(f"0x{control_packet.reason_code:02x}")  # type: ignore[attr-defined]
    if isinstance(control_packet, Connack) and control_packet.session_present:
        words.append("present")
    if isinstance(control_packet, Disconnect):
        return " ".join(words)
    block = getattr(control_packet, "properties", None)
    if block:
        words += [f"{key}={value}" for key, value in ((repr(block)[15:-1], ""),) if key]
    return " ".join(words).rstrip("=")
