"""Base of the rules about messages that a server should send to a subscriber and did not.

The wait begins when the server acknowledges the message to its publisher.  An explanation other than a mistake
withholds the finding or lowers its severity (`AwaitingRule.judge`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.message_model import EXPECT_NS, NARROW, ExpectedMessage, ExpectedMessages, Messages, fits
from mqttscope.lint.rule import Findings, Needs, Rule
from mqttscope.mqtt import ControlPacket, Direction, Puback, Pubcomp
from mqttscope.session.connection import Connection


@dataclass(slots=True)
class AwaitingTimers:
    """Connections that a rule has scheduled a check for, and the last message that it judged."""

    asked: dict[ConnectionKey, bool] = field(default_factory=dict)
    judged: dict[ConnectionKey, int] = field(default_factory=dict)
    """Number of the last message that was judged."""


class AwaitingRule(Rule):
    """A rule about messages that did not arrive, with a setting ``timeout`` in seconds."""

    severities = (Severity.ERROR, Severity.WARNING)
    needs = Needs.OPENING | Needs.WHOLE
    models = (Messages,)
    looks_at: ClassVar[type[ControlPacket] | tuple[type[ControlPacket], ...]] = (Puback, Pubcomp)
    sender: ClassVar[Direction | None] = Direction.SERVER_TO_CLIENT
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {"timeout": 30}
    Memory = AwaitingTimers

    def concerns(self, model: Messages) -> bool:
        return True

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """The server accepts a message: schedule a check of its subscribers after the timeout."""
        model = at.model(Messages)
        message = model.awaiting(packet, at) if model.awaited and self.concerns(model) else None
        if message is None:
            return None
        timers: AwaitingTimers = at.memory(self)
        for _, session in model.lacking(message, at.timestamp_ns):
            if session.key is not None and session.key not in timers.asked and fits(message, session):
                timers.asked[session.key] = True
                at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"), session.key)
        return None

    def waiting(self, model: Messages, at: RuleContext) -> ExpectedMessages | None:
        return model.expected.get(at.key)

    def awaits(self, at: RuleContext) -> bool:
        model = at.model(Messages)
        return self.concerns(model) and bool(self.waiting(model, at))

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge the messages that did not arrive in time."""
        timers: AwaitingTimers = at.memory(self)
        timers.asked.pop(at.key, None)
        model = at.model(Messages)
        pauses_until_ns = at.history.subscriptions.pauses_until_ns(at.timestamp_ns)
        if pauses_until_ns:
            timers.asked[at.key] = True
            at.ask(self, pauses_until_ns)
            return None
        last, reports = timers.judged.get(at.key, -1), []
        for message in (self.waiting(model, at) or {}).values():
            if message.number <= last:
                continue
            due_ns = message.since_ns + self.nanoseconds("timeout")
            if due_ns > at.timestamp_ns:
                timers.asked[at.key] = True
                at.ask(self, due_ns)
                break
            timers.judged[at.key] = message.number
            if at.timestamp_ns - message.since_ns <= EXPECT_NS + self.nanoseconds("timeout") and self.is_judged(
                message, model, at
            ):
                report = self.judge(message, model, at)
                if report is not None:
                    reports.append(report)
        return reports

    def judge(self, message: ExpectedMessage, model: Messages, at: RuleContext) -> Report | None:
        """Judge one message that did not arrive although nothing excuses that yet."""
        raise NotImplementedError

    def is_judged(self, message: ExpectedMessage, model: Messages, at: RuleContext) -> bool:
        """Whether nothing in the capture can have prevented or hidden the delivery of the message."""
        sent, history, owner = message.sent, at.history, at.client_name
        session = model.table.sessions.get(owner)
        if session is None or session.key != at.key or message.held.ending or not model.holds(message):
            return False
        if session.held.get(message.held.topic_filter) is not message.held or model.hides(sent.topic):
            return False
        if sent.expiry is not None and sent.timestamp_ns + (sent.expiry - 2) * SECOND_NS <= at.timestamp_ns:
            return False
        if history.client.disconnect is not None or history.server.disconnect is not None or history.clock_back:
            return False
        if history.connect is None or history.connect.bridge or at.server.in_flight >= self.window(at):
            return False
        if history.behind_a_hole or history.client.acknowledged > history.server.position + 1:
            return False
        if history.client.blocked_ns > message.since_ns:
            return False  # its receive window was closed: the server had to wait
        return history.server.begun is None  # else a packet is under way

    @staticmethod
    def window(at: RuleContext) -> int:
        """Maximum number of messages that the server may have in flight before it waits for the client."""
        return min(at.client.receive_maximum, NARROW)

    def doubt(
        self, message: ExpectedMessage, model: Messages, at: RuleContext, *, overtaken: bool = False
    ) -> dict[str, Any] | None:
        """Severity and confidence: an error only if the server alone explains the loss.

        That takes proof of three things: messages of this publisher on the topic reached this client before; the
        client reads what it receives; the server's window was never full and is empty now.  ``None``: the client may
        not be allowed to read the topic.  ``overtaken``: the server sent a later message, so it was not waiting.
        """
        sent, history = message.sent, at.history
        known = model.topics[sent.topic]
        last_ns = at.server.last_timestamp_ns
        is_read = (
            overtaken
            or (last_ns is not None and last_ns > message.since_ns)
            or (history.client.segment_ns > message.since_ns and history.client.acknowledged >= history.server.position)
        )
        # Some brokers wait for each acknowledgment before they send the next message.
        free = at.server.in_flight_peak < self.window(at) and (overtaken or not at.server.in_flight)
        if (sent.publisher, at.client_name) in known.routes:
            if is_read and free and not at.is_apart(sent.capture):
                return {}
        elif message.held.topic_filter != sent.topic:
            return None
        elif sent.publisher not in known.proven and sent.version.value < 5:
            return None  # before 5.0 a server acknowledges what it drops
        return {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC}

    def lost(
        self, message: ExpectedMessage, model: Messages, at: RuleContext, what: str, *before: Related
    ) -> Report | None:
        """The report of a message that did not arrive, unless `doubt` withholds it."""
        doubt = self.doubt(message, model, at)
        return None if doubt is None else self.report_of(message, what, doubt, *before)

    @staticmethod
    def report_of(message: ExpectedMessage, what: str, doubt: dict[str, Any], *before: Related) -> Report:
        """The report of a message that did not arrive, with the severity and confidence of `doubt`."""
        return Report(
            "",
            what,
            related=(
                *before,
                Related.to("the message as published", message.sent),
                Related.to("the SUBSCRIBE", message.held),
            ),
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=message.sent.topic,
            **doubt,
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Forget the connection: everything that was due has been judged."""
        timers: AwaitingTimers = at.memory(self)
        timers.asked.pop(at.key, None)
        timers.judged.pop(at.key, None)
        return None
