"""Captures and made-up events for the tests of statistics."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, PacketEvent
from mqttscope.mqtt.constants import Direction, ProtocolVersion
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.session.connection import Connection
from mqttscope.stats.collect import Statistics
from tests.conftest import ROOT

CAPTURES = ROOT / "captures"
NAMES = sorted(path.parent.name for path in CAPTURES.glob("*/capture.pcapng"))
C2S, S2C = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
SECOND = 1_000_000_000


def path(name: str) -> Path:
    return CAPTURES / name / "capture.pcapng"


def expected(name: str) -> dict[str, Any]:
    about: dict[str, Any] = tomllib.loads((CAPTURES / name / "about.toml").read_text("utf-8"))["expect"]
    return about


def events_of(*names: str) -> Iterable[Event]:
    return dissect(open_capture([str(path(name)) for name in names]))


def statistics_of(*names: str, limits: dict[str, int] | None = None) -> Statistics:
    statistics = Statistics(limits=limits)
    for event in dissect(statistics.frames(open_capture([str(path(name)) for name in names]))):
        statistics.feed(event)
    statistics.finish()
    return statistics


class Talk:
    """Makes up events of one connection and applies their packets as a dissection does."""

    def __init__(self, statistics: Statistics, number: int = 0, identifier: str | None = "dev") -> None:
        self.statistics = statistics
        self.connection = Connection(
            number, f"192.0.2.{number % 250}:{50_000 + number}", "192.0.2.1:1883", "made", 1, 0
        )
        self.connection.version, self.connection.version_known = ProtocolVersion.V5, True
        self.packets = 0
        statistics.feed(ConnectionOpened(self.connection, 1, 0, "made"))
        if identifier is not None:
            self.send(Connect(client_identifier=identifier, protocol_level=5, raw=b"\x10" + bytes(20)))

    def send(self, packet: Any, at_ns: int = 0, direction: Direction = C2S, topic: str | None = None) -> None:
        self.connection.identify(packet)
        if isinstance(packet, Publish) and topic is None:
            topic = self.connection.resolve_topic(packet, direction)
        event = PacketEvent(self.connection, direction, self.packets, 1, at_ns, "made", packet, topic)
        self.statistics.feed(event)
        self.connection.apply(packet, direction, self.packets, 1, at_ns)
        self.packets += 1

    def publish(self, topic: str, at_ns: int = 0, direction: Direction = C2S, payload: bytes = b"x") -> None:
        raw = b"\x30\x10" + bytes(10) + payload
        self.send(Publish(topic_name=topic, payload=payload, raw=raw), at_ns, direction)

    def close(self, at_ns: int = 0) -> None:
        self.statistics.feed(ConnectionClosed(self.connection, 1, at_ns, "made"))
