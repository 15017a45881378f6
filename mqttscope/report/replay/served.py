"""What a stand-in for a broker did, in words and for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mqttscope.mqtt.wire import counted
from mqttscope.replay.player.actions import Kind, Note
from mqttscope.replay.script import Script
from mqttscope.replay.serve import Served, Serving
from mqttscope.replay.stand_in.casting import said_identifier
from mqttscope.replay.verify.device import DevicePair, verify_device
from mqttscope.replay.verify.difference import Verification
from mqttscope.report.page import Page
from mqttscope.report.when import duration

_TITLES = {
    Kind.ADAPTED: "Adapted to the device",
    Kind.SESSION: "Sessions",
    Kind.ADDED: "Beside the recording",
    Kind.SKIPPED: "Not sent",
    Kind.ENDED: "Ended otherwise",
}


@dataclass(slots=True)
class ServedOutcome:
    """A run after its end."""

    pace: str
    served: list[Served] = field(default_factory=list)
    unplayed: list[Script] = field(default_factory=list)
    """Recorded connections that no device made."""
    recorded: int = 0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    complete: bool = False
    changes: list[str] = field(default_factory=list)
    """What differed from the captures from the beginning."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Why recorded connections could not be played."""
    notes: Counter[Note] = field(default_factory=Counter)
    """What was done otherwise than recorded, and how often."""

    @classmethod
    def of(cls, serving: Serving, pace: str, changes: list[str]) -> ServedOutcome:
        """Of a run that has been closed."""
        made = cls(pace, serving.served, _never(serving), len(serving.scripts), serving.sent, serving.received)
        made.seconds, made.complete = serving.clock.since_start_ns() / 1e9, serving.complete
        made.changes = changes
        made.notes.update(serving.notes)
        return made

    @property
    def played(self) -> int:
        """Connections of devices that were given a recorded one."""
        return sum(one.recorded is not None for one in self.served)

    def verify(self, *, by_order: bool) -> Verification:
        """Compare devices with recorded clients; ``by_order`` where some may have another Client Identifier."""
        pairs, extra = [], []
        for one in self.served:
            if one.recorded is None or one.played is None:
                extra.append(one.live)
                continue
            converted = one.recorded.connect if one.played is not one.recorded else None
            pairs.append(DevicePair(one.played, one.live, converted))
        return verify_device(pairs, unplayed=self.unplayed, extra=extra, identified=not by_order)


def _never(serving: Serving) -> list[Script]:
    """Recorded connections that nobody was given."""
    given = {id(one.recorded) for one in serving.served}
    return [script for script in serving.scripts if id(script) not in given]


def write_served(page: Page, outcome: ServedOutcome) -> None:
    """What was served, and what was done otherwise than recorded."""
    made = outcome.recorded - len(outcome.unplayed)
    page.line(
        [
            f"served {made:,} of {counted(outcome.recorded, 'recorded connection')}",
            f"pace {outcome.pace}",
            counted(len(outcome.served), "connection"),
            f"{counted(outcome.sent, 'packet')} sent, {outcome.received:,} received",
            duration(int(outcome.seconds * 1e9)),
        ],
        style="bold",
    )
    for script in outcome.unplayed[:20]:
        name = script.name if said_identifier(script) != "" else "(no Client Identifier)"
        page.line([f"never connected: {page.safe(name)}"], style="yellow")
    if len(outcome.unplayed) > 20:
        page.line([f"and {len(outcome.unplayed) - 20:,} more"], style="yellow")
    for why, count in outcome.left_out.most_common():
        page.line([f"{counted(count, 'connection')} not played: {page.safe(why)}"], style="yellow")
    if outcome.changes:
        page.title("Changed before it was played")
        for sentence in outcome.changes:
            page.line([f"  {page.safe(sentence)}"])
    for kind, title in _TITLES.items():
        rows = [(note.text, count) for note, count in outcome.notes.most_common() if note.kind is kind]
        if rows:
            page.title(title)
            for text, count in rows:
                page.line([f"  {count:>7,}  {page.safe(text)}"])


def served_document(outcome: ServedOutcome) -> dict[str, Any]:
    """The same for programs."""
    return {
        "schema": 1,
        "event": "serve",
        "pace": outcome.pace,
        "recorded_connections": outcome.recorded,
        "connections": len(outcome.served),
        "played": outcome.played,
        "complete": outcome.complete,
        "never_connected": [one.connection.number for one in outcome.unplayed],
        "packets_sent": outcome.sent,
        "packets_received": outcome.received,
        "seconds": round(outcome.seconds, 6),
        "left_out": [{"reason": why, "connections": count} for why, count in outcome.left_out.most_common()],
        "changes": outcome.changes,
        "notes": [{"kind": str(note.kind), "note": note.text, "times": count} for note, count in outcome.notes.items()],
    }
