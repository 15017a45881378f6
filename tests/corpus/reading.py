"""Reading a whole capture and summing up what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqttscope.capture import open_capture
from mqttscope.dissect import Options, dissect
from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt import Publish
from mqttscope.net.frame import CaptureError
from mqttscope.session import Connection


@dataclass(slots=True)
class Found:
    """The events of one capture by kind, each kind in the order of the frames."""

    events: list[Event] = field(default_factory=list)
    packets: list[PacketEvent] = field(default_factory=list)
    malformed: list[MalformedEvent] = field(default_factory=list)
    gaps: list[GapEvent] = field(default_factory=list)
    unparsed: list[UnparsedEvent] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    closed: list[Connection] = field(default_factory=list)
    errors: list[CaptureError] = field(default_factory=list)

    @property
    def count(self) -> int:
        """MQTT packets, malformed ones included."""
        return len(self.packets) + len(self.malformed)

    @property
    def both(self) -> list[PacketEvent | MalformedEvent]:
        """All of them by number."""
        both: list[PacketEvent | MalformedEvent] = [*self.packets, *self.malformed]
        return sorted(both, key=lambda event: event.number)

    @property
    def whole(self) -> list[PacketEvent]:
        """Well-formed packets of which the capture has every byte."""
        return [event for event in self.packets if not event.packet.missing]

    def types(self) -> Counter[str]:
        """How many whole packets there are of each type."""
        return Counter(event.type for event in self.whole)

    def topics(self) -> list[str]:
        """The topic of every whole PUBLISH, empty where it cannot be known."""
        return [event.topic or "" for event in self.whole if isinstance(event.packet, Publish)]

    def versions(self) -> set[str]:
        """Versions that were seen or assumed on evidence."""
        named = [
            connection
            for connection in self.connections
            if connection.version_known or connection.version_evidence.startswith("a ")
        ]
        return {connection.version.text for connection in named if "unknown" not in connection.version_evidence}

    def streams(self) -> dict[tuple[int, str], list[bytes]]:
        """The bytes of the packets, malformed ones too, by connection and direction."""
        by_stream: dict[tuple[int, str], list[bytes]] = {}
        for event in self.both:
            raw = event.packet.raw if isinstance(event, PacketEvent) else event.malformed.raw
            by_stream.setdefault((event.connection.number, str(event.direction)), []).append(raw)
        return by_stream


def collect(events: Iterable[Event]) -> Found:
    """Sort events by kind."""
    result = Found()
    places: list[tuple[type[Any], list[Any]]] = [
        (PacketEvent, result.packets),
        (MalformedEvent, result.malformed),
        (GapEvent, result.gaps),
        (UnparsedEvent, result.unparsed),
        (CaptureError, result.errors),
    ]
    for event in events:
        result.events.append(event)
        if isinstance(event, ConnectionOpened):
            result.connections.append(event.connection)
        elif isinstance(event, ConnectionClosed):
            result.closed.append(event.connection)
        for kind, place in places:
            if isinstance(event, kind):
                place.append(event)
    for _, place in places[:4]:
        place.sort(key=lambda each: each.frame)
    return result


def read(path: Path, options: Options | None = None) -> Found:
    """Everything that is found in one capture."""
    return collect(dissect(open_capture([path]), options))
