"""Base of the rules about packets that never arrive.

A missing packet is found by a timer (`RuleContext.ask`), never by the end of the capture.  A side is blamed only if TCP
shows that it has received the packet to answer, if no captured bytes wait to be read, and if neither side has closed
the connection or sent DISCONNECT: a side that closes owes nothing.  A side is not blamed while it sends a packet of
several segments (`is_busy`): its answers follow that packet.

The connection stores what is owed, by packet number and without times.  A waiting rule records the number of the last
packet now and then: everything up to that number that is still owed after ``timeout`` is overdue.  So a packet costs
only one test whether the rule already waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar

from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rule import Findings, Needs, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.session.connection import C2S, S2C, Connection
from mqttscope.session.history import PeerHistory
from mqttscope.session.inflight import Exchange

SLICES = 4
"""Number of checks per timeout: an overdue packet is found at most one slice late."""


def side_name(direction: Direction) -> str:
    """``client`` or ``server``: the sender in a direction."""
    return "client" if direction is C2S else "server"


def has_closed(at: RuleContext, direction: Direction) -> bool:
    """Whether a side has closed the transport, is about to, or may have done so outside the capture."""
    connection, party = at.connection, at.history.party(direction)
    if at.history.clock_back:
        return True  # the elapsed time is unknown
    if connection.closed_how is not None and connection.closed_how != "fin":
        return True  # a reset ends both
    if party.closing_ns or party.unread or connection.closed_by == side_name(direction):
        return True
    return connection.also_closed is not None


def is_over(at: RuleContext) -> bool:
    """Whether a side has sent DISCONNECT or closed the transport, so that neither side owes anything."""
    history = at.history
    if history.client.disconnect is not None or history.server.disconnect is not None:
        return True
    return has_closed(at, C2S) or has_closed(at, S2C)


def has_arrived(sender: PeerHistory, position: int) -> bool:
    """Whether TCP shows that the other side has received a side's bytes up to a position."""
    return sender.confirmed >= position > 0


def is_busy(at: RuleContext, direction: Direction) -> bool:
    """Whether a side is in the middle of sending a packet of several segments."""
    return at.history.party(direction).begun is not None


@dataclass(slots=True)
class ConnectionMark:
    """Progress of a connection at a time."""

    packet: int
    timestamp_ns: int
    client: int
    """Stream position of the client."""
    server: int


@dataclass(slots=True)
class AnswerTimer:
    """Packet numbers and times of a waiting rule."""

    marks: list[ConnectionMark] = field(default_factory=list)
    """Oldest first, one per slice of the timeout."""
    judged: int = -1
    """Number of the last reported packet; all earlier ones are reported too."""
    busy_ns: dict[str, int] = field(default_factory=dict)
    """When a side was last in the middle of a packet, by side name."""


@dataclass(slots=True)
class OverduePacket:
    """A packet that should have been answered by now."""

    identifier: int
    packet: int
    sender: Direction
    """Direction of the packet; the receiver owes the answer."""
    exchange: Exchange | None
    """Exchange of the packet, if it began on this connection."""


class AnswerRule(Rule):
    """A rule about packets to be answered within ``timeout`` seconds; its ``Memory`` is `AnswerTimer`."""

    confidence = Confidence.LIKELY
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {"timeout": 30}
    Memory = AnswerTimer
    waits = True
    begun_by_debtor: ClassVar[bool] = False
    """Whether the side that owes the answer began the exchange."""

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        """Packet identifiers that a side has not answered, with the number of their packet."""
        raise NotImplementedError

    def describe(self, packet: OverduePacket, at: RuleContext) -> Report | None:
        raise NotImplementedError

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Begin to wait."""
        if not at.history.is_asked(self.code):
            memory: AnswerTimer = at.memory(self)
            memory.marks = [mark(at, at.number)]
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout") // SLICES)
        return None

    def awaits(self, at: RuleContext) -> bool:
        return any(True for debtor in (C2S, S2C) for _ in self.owed(at, debtor))

    def check_due(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report packets older than the timeout, and wait on while any answer is owed."""
        memory: AnswerTimer = at.memory(self)
        history = at.history
        if is_over(at):
            memory.marks = []
            return
        owed: list[OverduePacket] = []
        for debtor in (C2S, S2C):
            beginner = debtor if self.begun_by_debtor else debtor.opposite
            side, shared = connection.side(beginner), history.party(beginner).shared
            owed += (
                OverduePacket(identifier, number, debtor.opposite, side.running(identifier, "publish"))
                for identifier, number in self.owed(at, debtor)
                if number > memory.judged and identifier not in shared
            )
        for debtor in {packet.sender.opposite for packet in owed}:
            if is_busy(at, debtor):
                memory.busy_ns[side_name(debtor)] = at.timestamp_ns
        marks = memory.marks
        due_ns = at.timestamp_ns - self.nanoseconds("timeout")
        while len(marks) > 1 and marks[1].timestamp_ns <= due_ns:
            del marks[0]
        first = marks[0] if marks and marks[0].timestamp_ns <= due_ns else None
        if first is not None:
            late = [packet for packet in sorted(owed, key=attrgetter("packet")) if self._is_late(packet, first, at)]
            late = [packet for packet in late if memory.busy_ns.get(side_name(packet.sender.opposite), 0) <= due_ns]
            yield from self._folded(late, at)
            memory.judged = max((packet.packet for packet in late), default=memory.judged)
        if any(packet.packet > memory.judged for packet in owed):
            marks.append(mark(at, max(history.client.last_packet, history.server.last_packet)))
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout") // SLICES)
        else:
            memory.marks = []

    @staticmethod
    def _is_late(packet: OverduePacket, first: ConnectionMark, at: RuleContext) -> bool:
        position = first.client if packet.sender is C2S else first.server
        return packet.packet <= first.packet and has_arrived(at.history.party(packet.sender), position)

    def _folded(self, late: list[OverduePacket], at: RuleContext) -> Iterator[Report]:
        """The reports of overdue packets: one for all similar packets."""
        counted: dict[tuple[Direction, Severity | None, tuple[str, ...] | None], tuple[Report, int]] = {}
        for packet in late:
            report = self.describe(packet, at)
            if report is not None:
                key = (packet.sender, report.severity, report.statements)
                first, count = counted.get(key, (report, 0))
                counted[key] = first, count + 1
        for report, count in counted.values():
            if count > 1:
                report.message += f", and {count - 1:,} more"
            yield report

    def overdue(self, packet: OverduePacket, message: str, what: str, **more: Any) -> Report:
        """A report about a missing answer; ``what`` names the packet that began the exchange."""
        exchange = packet.exchange
        return self.report(
            "",
            message,
            sender=packet.sender.opposite,
            related=() if exchange is None else (Related.to(what, exchange),),
            overdue=True,
            topic=None if exchange is None else exchange.topic,
            **more,
        )


def mark(at: RuleContext, number: int) -> ConnectionMark:
    """Progress of the connection, with the number of its last packet."""
    return ConnectionMark(number, at.timestamp_ns, at.history.client.position, at.history.server.position)
