"""Rows that wait until it is known to which session their connection belongs.

That is known when the CONNACK is there: it may assign another Client Identifier than CONNECT had.  Rules with the scope
of a session remember nothing before, so that they miss nothing by rows that come later.  Rules with the scope of a
broker do not wait: when a run ends, they get the rows that still wait, and later the rules of the session get them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.mqtt.constants import PacketType

MAX_ROWS = 256
"""Rows of a connection that wait; then the Client Identifier that is known by then counts, whatever CONNACK says."""
MAX_BYTES = 262_144
"""The same of their bytes."""
_OPENING = (PacketType.CONNECT, PacketType.AUTH)


@dataclass(slots=True)
class ScopeRow:
    """A row of an event, without what only the way decides that it goes."""

    server: str
    place: tuple[int, int, int]
    """``emitted_ns``, ``file`` and ``frame``."""
    number: int
    """Counts the events of the connection."""
    event: bytes


@dataclass(slots=True)
class Held:
    """Rows of one connection.  Plain data: they go on with what its flow remembers."""

    session: str | None = None
    """The key of its session, once it is known."""
    rows: list[ScopeRow] = field(default_factory=list)
    size: int = 0
    """Bytes of their events."""
    told: int = 0
    """How many of them the rules of the server have had."""

    @property
    def full(self) -> bool:
        """Whether nothing more may wait."""
        return len(self.rows) >= MAX_ROWS or self.size >= MAX_BYTES

    def hold(self, row: ScopeRow) -> None:
        """Have a row wait."""
        self.rows.append(row)
        self.size += len(row.event)

    def release(self) -> Iterator[tuple[ScopeRow, bool]]:
        """All rows that wait, and whether the rules of the server have had each of them."""
        rows, told = self.rows, self.told
        self.rows, self.size, self.told = [], 0, 0
        for number, row in enumerate(rows):
            yield row, number < told

    def tell(self) -> list[ScopeRow]:
        """Rows that go on waiting when a run ends, and that the rules of the server have not had yet."""
        fresh = self.rows[self.told :]
        self.told = len(self.rows)
        return fresh


def settles(event: Any) -> bool:
    """Whether it is known from now on to which session a connection belongs.

    The CONNACK says so.  A connection that was joined behind its CONNECT does not tell any more.
    """
    if isinstance(event, PacketEvent):
        kind: int = event.packet.packet_type
    elif isinstance(event, MalformedEvent) and event.malformed.packet is not None and event.malformed.complete:
        kind = event.malformed.packet.packet_type
    else:
        return False
    if kind == PacketType.CONNACK:
        return True
    connection = event.connection
    return connection.client_identifier is None and not connection.handshake_seen and kind not in _OPENING
