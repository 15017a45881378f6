"""What a replay did, counted over all of its connections: what the reports are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mqttscope.replay.player.actions import Kind, Note
from mqttscope.replay.script import Script
from mqttscope.replay.verify.difference import Verification


@dataclass(slots=True)
class Outcome:
    """A replay after its end, or several of the same recording."""

    broker: str
    pace: str
    recorded: list[Script] = field(default_factory=list)
    live: list[Script | None] = field(default_factory=list)
    """In the order of ``recorded``; ``None`` where there was no connection."""
    changes: list[str] = field(default_factory=list)
    """What differed from the captures before anything was sent."""
    notes: Counter[Note] = field(default_factory=Counter)
    """What was done otherwise than recorded, and how often."""
    failures: Counter[str] = field(default_factory=Counter)
    """Why connections could not be made, or broke."""
    shortfalls: Counter[str] = field(default_factory=Counter)
    """Why connections could not be played as recorded, although nothing broke."""
    never_came: Counter[str] = field(default_factory=Counter)
    """What the broker was recorded to send, was waited for, and did not come."""
    not_awaited: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages that were not waited for in full, by client and Topic Filter, since earlier ones had not come."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Why recorded connections were not played."""
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    recorded_seconds: float = 0.0
    missed: int = 0
    """What was recorded and waited for in vain."""
    too_long: int = 0
    """Expiries of the recording that took too long to be waited for."""
    not_kept: int = 0
    """Packets beyond the recording for which there was no room: they are neither compared nor judged."""
    stopped: bool = False
    """Ended before its end, by the user."""
    not_compared: str = ""
    """Why it was not compared, although that was asked for."""
    verification: Verification | None = None

    def noted(self, kind: Kind) -> list[tuple[str, int]]:
        """Notes of one kind, the most frequent first."""
        return [(note.text, count) for note, count in self.notes.most_common() if note.kind is kind]

    def add_notes(self, notes: Iterable[tuple[Note, int]]) -> None:
        """Count the notes of a connection."""
        for note, count in notes:
            self.notes[note] += count

    @property
    def short(self) -> bool:
        """Whether it could not be done as it was recorded."""
        return bool(self.shortfalls or self.never_came)

    @property
    def pairs(self) -> Sequence[tuple[Script, Script | None]]:
        """Each recorded connection with its live one."""
        return list(zip(self.recorded, self.live, strict=True))

    @property
    def performed(self) -> int:
        """Connections that were made."""
        return sum(one is not None for one in self.live)
