"""What rules share that wait for a packet which does not come.

An absence is found by a timer (`RuleContext.ask`), never because the capture ends.  It is blamed on a side only where
TCP shows that the side has got what it has to react to, where nothing of the capture waits to be read, and where
neither side has ended the connection or sent DISCONNECT: a side that closes owes nothing any more.  Nor is a side
blamed whose own packet fills its stream (`is_busy`): its answers come after that.

What is owed is kept by the connection with the number of its packet and without its time.  A rule that waits notes now
and then which packet was the last one: what is as old and still owed when ``timeout`` has passed is overdue.  So a
packet costs nothing but one look at whether the rule waits already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rule import Findings, Needs, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.session.connection import C2S, S2C, Connection
from mqttscope.session.history import PeerHistory
from mqttscope.session.inflight import Exchange

SLICES = 4
"""How often within its time-out a rule looks at what is owed: what is overdue is found at most a slice too late."""


def side_name(direction: Direction) -> str:
    """``client`` or ``server``: who sends in a direction."""
    return "client" if direction is C2S else "server"


def has_closed(at: RuleContext, direction: Direction) -> bool:
    """Whether a side has ended the transport, is about to, or may have done so where the capture is incomplete."""
    connection, party = at.connection, at.history.party(direction)
    if at.history.clock_back:
        return True  # nobody knows how much time has passed
    if connection.closed_how is not None and connection.closed_how != "fin":
        return True  # a reset ends both
    if party.closing_ns or party.unread or connection.closed_by == side_name(direction):
        return True
    return connection.also_closed is not None


def is_over(at: RuleContext) -> bool:
    """Whether a side has sent DISCONNECT or ended the transport, so that neither owes anything."""
    history = at.history
    if history.client.disconnect is not None or history.server.disconnect is not None:
        return True
    return has_closed(at, C2S) or has_closed(at, S2C)


def has_arrived(sender: PeerHistory, position: int) -> bool:
    """Whether TCP shows that the other side has got the stream of a side up to a position."""
    return sender.confirmed >= position > 0


def is_busy(at: RuleContext, direction: Direction) -> bool:
    """Whether a side is in the middle of a packet that takes several segments."""
    return at.history.party(direction).begun is not None


@dataclass(slots=True)
class Mark:
    """How far a connection had come at a time."""

    packet: int
    timestamp_ns: int
    client: int
    """Stream position of the client."""
    server: int


@dataclass(slots=True)
class Waiting:
    """What a rule knows of the time of packets."""

    marks: list[Mark] = field(default_factory=list)
    """Oldest first, one for each slice of the time-out."""
    judged: int = -1
    """Number of the last packet that was reported: those before it have been, too."""
    busy_ns: dict[str, int] = field(default_factory=dict)
    """When a side was last seen in the middle of a packet, by its name."""


@dataclass(slots=True)
class Overdue:
    """A packet that should have been answered by now."""

    identifier: int
    packet: int
    sender: Direction
    """Who sent it; the other side owes the answer."""
    exchange: Exchange | None
    """What it belongs to, where this connection began it."""


class AnswerRule(Rule):
    """A rule about packets that are to be answered within ``timeout`` seconds; its ``Memory`` is `Waiting`."""

    confidence = Confidence.LIKELY
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {"timeout": 30}
    Memory = Waiting
    waits = True
    begun_by_debtor: ClassVar[bool] = False
    """Whether who owes the answer is who began the exchange."""

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        """Packet identifiers that a side has not answered, and the number of the packet that has them."""
        raise NotImplementedError

    def describe(self, one: Overdue, at: RuleContext) -> Report | None:
        raise NotImplementedError

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Begin to wait."""
        if not at.history.is_asked(self.code):
            memory: Waiting = at.memory(self)
            memory.marks = [mark(at, at.number)]
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout") // SLICES)
        return None

    def awaits(self, at: RuleContext) -> bool:
        return any(True for debtor in (C2S, S2C) for _ in self.owed(at, debtor))

    def check_due(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Look at what is as old as the time-out, and wait on while anything is owed."""
        memory: Waiting = at.memory(self)
        history = at.history
        if is_over(at):
            memory.marks = []
            return
        owed: list[Overdue] = []
        for debtor in (C2S, S2C):
            beginner = debtor if self.begun_by_debtor else debtor.opposite
            side, shared = connection.side(beginner), history.party(beginner).shared
            owed += (
                Overdue(identifier, number, debtor.opposite, side.running(identifier, "publish"))
                for identifier, number in self.owed(at, debtor)
                if number > memory.judged and identifier not in shared
            )
        for debtor in {one.sender.opposite for one in owed}:
            if is_busy(at, debtor):
                memory.busy_ns[side_name(debtor)] = at.timestamp_ns
        marks = memory.marks
        due_ns = at.timestamp_ns - self.nanoseconds("timeout")
        while len(marks) > 1 and marks[1].timestamp_ns <= due_ns:
            del marks[0]
        first = marks[0] if marks and marks[0].timestamp_ns <= due_ns else None
        if first is not None:
            late = [one for one in sorted(owed, key=lambda one: one.packet) if self._is_late(one, first, at)]
            late = [one for one in late if memory.busy_ns.get(side_name(one.sender.opposite), 0) <= due_ns]
            yield from self._folded(late, at)
            memory.judged = max((one.packet for one in late), default=memory.judged)
        if any(one.packet > memory.judged for one in owed):
            marks.append(mark(at, max(history.client.last_packet, history.server.last_packet)))
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout") // SLICES)
        else:
            memory.marks = []

    @staticmethod
    def _is_late(one: Overdue, first: Mark, at: RuleContext) -> bool:
        position = first.client if one.sender is C2S else first.server
        return one.packet <= first.packet and has_arrived(at.history.party(one.sender), position)

    def _folded(self, late: list[Overdue], at: RuleContext) -> Iterator[Report]:
        """The reports of what is overdue: one for all that is alike, however much a side owes."""
        found: dict[tuple[Direction, Severity | None, tuple[str, ...] | None], tuple[Report, int]] = {}
        for one in late:
            report = self.describe(one, at)
            if report is not None:
                key = (one.sender, report.severity, report.statements)
                kept, count = found.get(key, (report, 0))
                found[key] = kept, count + 1
        for report, count in found.values():
            if count > 1:
                report.message += f", and {count - 1:,} more"
            yield report

    def overdue(self, one: Overdue, message: str, what: str, **more: Any) -> Report:
        """A report about an answer that has not come; ``what`` names the packet that began the exchange."""
        exchange = one.exchange
        return self.report(
            "",
            message,
            sender=one.sender.opposite,
            related=() if exchange is None else (Related.to(what, exchange),),
            overdue=True,
            topic=None if exchange is None else exchange.topic,
            **more,
        )


def mark(at: RuleContext, number: int) -> Mark:
    """How far the connection has come, with the number of its last packet."""
    return Mark(number, at.timestamp_ns, at.history.client.position, at.history.server.position)
