"""What the tables have to remember of a connection while it is open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mqttscope.lake.held import Held
from mqttscope.lake.messages import Exchanges

Beside = tuple[Any, ...]
"""What was told of a connection beside an event (`lake.scopes`)."""

LATE = 1 << 40
"""Connections with such numbers are of captures that came later than newer ones (`lake.late`)."""
MAX_HOLES = 256
"""Of one connection; when there are more, the two that came first become one, with all between them."""


@dataclass(slots=True)
class Hole:
    """Bytes of a stream that no capture had when they were given up."""

    from_client: bool
    start: int
    """Stream offset of the first one."""
    end: int


@dataclass(slots=True)
class Tracker:
    """One connection.  Plain data: it can be written down and taken up again."""

    connection_id: str
    exchanges: Exchanges = field(default_factory=Exchanges)
    findings: int = 0
    gaps: int = 0
    events: int = 0
    """Events that were written down for wider scopes."""
    beside: Beside = ()
    """What the last one of them said beside itself."""
    hole: bool = False
    """Whether that was behind a hole (`History.behind_a_hole`)."""
    held: Held = field(default_factory=Held)
    """Those that wait until it is known to which session the connection belongs."""
    holes: list[Hole] = field(default_factory=list)
    """What was given up of its streams: a capture that comes late may have it."""
    late: bool = False
    """Its captures came later than newer ones."""

    def note_hole(self, from_client: bool, start: int, length: int) -> None:
        """Know one hole more."""
        self.holes.append(Hole(from_client, start, start + length))
        if len(self.holes) > MAX_HOLES:
            first = self.holes.pop(0)
            other = next((one for one in self.holes if one.from_client is first.from_client), None)
            if other is not None:
                other.start, other.end = min(first.start, other.start), max(first.end, other.end)
            else:
                self.holes.append(first)
