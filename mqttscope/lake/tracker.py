"""What the tables have to remember of a connection while it is open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mqttscope.lake.held import Held
from mqttscope.lake.messages import Exchanges

Beside = tuple[Any, ...]
"""What was told of a connection beside an event (`lake.scopes`)."""


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
