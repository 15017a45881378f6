"""What the tables have to remember of a connection while it is open, and rules of all connections of a key."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.lake.messages import Exchanges
from mqttscope.lint.context import ConnectionKey, Kept
from mqttscope.lint.finding import Scope

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
    """Those of rules that need this connection alone."""
    wide_findings: dict[Scope, int] = field(default_factory=dict)
    """The others, by the scope of the rule."""
    gaps: int = 0
    events: int = 0
    """Events that were counted for the order of findings (`lake.finding_collector`)."""
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


@dataclass(slots=True)
class OpenConnection:
    """What rules that look beyond one connection need of one that is still open, beside its history."""

    asked: dict[str, int] = field(default_factory=dict)
    """Rules that want to be asked again, by code: from when on (`History.ask`)."""
    findings: dict[Scope, int] = field(default_factory=dict)
    """How many findings there were (`Tracker.wide_findings`)."""


@dataclass(slots=True)
class KeyMemory:
    """What the rules of wide scopes remember of all connections of a key (`lake.keys.stage_key`).  Plain data."""

    memories: Kept = field(default_factory=dict)
    open: dict[ConnectionKey, OpenConnection] = field(default_factory=dict)
