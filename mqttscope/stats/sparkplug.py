"""Counts of edge nodes of Sparkplug B: births, deaths, data, gaps in the sequence, last message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqttscope.events import ConnectionClosed, Event, GapEvent, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt import Direction, Publish
from mqttscope.payloads.sparkplug_topics import NAMESPACE, read_topic
from mqttscope.payloads.sparkplug_wire import open_payload
from mqttscope.payloads.values import UndecodableError
from mqttscope.session.connection import Connection

MAX_NODES: Final = 10_000
"""Maximum number of edge nodes with a row; messages of further ones are counted together."""
_COUNTED: Final = {
    "NBIRTH": "births", "DBIRTH": "births", "NDEATH": "deaths", "DDEATH": "deaths", "NDATA": "data", "DDATA": "data",
}  # fmt: skip


@dataclass(slots=True)
class NodeRow:
    """One edge node with its devices; each count is of messages from clients and from servers."""

    node: str
    """``group/node``."""
    server: str
    births: list[int] = field(default_factory=lambda: [0, 0])
    """NBIRTH and DBIRTH."""
    deaths: list[int] = field(default_factory=lambda: [0, 0])
    """NDEATH and DDEATH."""
    data: list[int] = field(default_factory=lambda: [0, 0])
    """NDATA and DDATA."""
    gaps: list[int] = field(default_factory=lambda: [0, 0])
    """Sequence numbers that are not one more than before on the connection."""
    first_ns: int = 0
    last_ns: int = 0
    """Its last message; an NDEATH may be of the server."""


class NodeCounts:
    """The edge nodes of a run."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], NodeRow] = {}
        """Edge nodes at their servers."""
        self.left_out = 0
        """Messages of edge nodes beyond `MAX_NODES`."""
        self._numbers: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
        """Last sequence numbers by connection, direction and edge node."""

    def feed(self, event: Event) -> None:
        """Count an event; only events of connections with messages of Sparkplug matter."""
        if isinstance(event, PacketEvent):
            packet = event.packet
            if type(packet) is Publish and event.topic and event.topic.startswith(NAMESPACE) and not packet.dup:
                self.message(
                    event.connection, event.direction is not Direction.CLIENT_TO_SERVER, event.topic,
                    b"" if packet.missing else packet.payload, event.timestamp_ns,
                )  # fmt: skip
        elif isinstance(event, GapEvent | MalformedEvent | UnparsedEvent):
            numbers = self._numbers.get(event.connection.number)
            if numbers is not None:
                # A message may be missing from the capture.
                numbers[event.direction is not Direction.CLIENT_TO_SERVER].clear()
        elif isinstance(event, ConnectionClosed):
            self._numbers.pop(event.connection.number, None)

    def message(self, connection: Connection, side: int, topic: str, payload: bytes, timestamp_ns: int) -> None:
        """Count a PUBLISH without DUP; ``side``: 1 from the server.  An incomplete payload is given as empty."""
        place = read_topic(topic)
        count = None if place is None else _COUNTED.get(place.kind)
        if place is None or count is None:
            return
        node = f"{place.group}/{place.node}"
        row = self.rows.get((connection.server, node))
        if row is None:
            if len(self.rows) >= MAX_NODES:
                self.left_out += 1
                return
            row = self.rows[connection.server, node] = NodeRow(node, connection.server, first_ns=timestamp_ns)
        getattr(row, count)[side] += 1
        row.last_ns = timestamp_ns
        if place.kind != "NDEATH":
            numbers = self._numbers.setdefault(connection.number, ({}, {}))[side]
            seq, before = _seq(payload), numbers.pop(node, None)
            row.gaps[side] += None not in (seq, before) and place.kind != "NBIRTH" and seq != ((before or 0) + 1) % 256
            if seq is not None:
                numbers[node] = seq


def _seq(payload: bytes) -> int | None:
    """The sequence number of a message; ``None`` if it is absent, or cannot be read."""
    try:
        seq: int | None = open_payload(payload)[0].get("seq")
    except UndecodableError:
        return None
    return seq
