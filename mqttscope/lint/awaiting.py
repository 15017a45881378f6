"""What rules share that await messages which a server should send to a subscriber.

A message is awaited from the time on when its publisher knows that it was accepted.  What else than a mistake may
explain that it has not come withholds the finding or lowers its severity (`AwaitingRule.judge`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.message_model import EXPECT_NS, NARROW, Expected, Messages, fits
from mqttscope.lint.rule import Findings, Needs, Rule
from mqttscope.mqtt import ControlPacket, Direction, Puback, Pubcomp
from mqttscope.session.connection import Connection


@dataclass(slots=True)
class Timers:
    """Whom a rule is going to ask about, and what it has judged."""

    asked: dict[ConnectionKey, bool] = field(default_factory=dict)
    judged: dict[ConnectionKey, int] = field(default_factory=dict)
    """Number of the last message that was judged."""


class AwaitingRule(Rule):
    """A rule about messages that did not come, with a setting ``timeout`` in seconds."""

    severities = (Severity.ERROR, Severity.WARNING)
    needs = Needs.OPENING | Needs.WHOLE
    models = (Messages,)
    looks_at: ClassVar[type[ControlPacket] | tuple[type[ControlPacket], ...]] = (Puback, Pubcomp)
    sender: ClassVar[Direction | None] = Direction.SERVER_TO_CLIENT
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {"timeout": 30}
    Memory = Timers

    def concerns(self, model: Messages) -> bool:
        return True

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """The server accepts a message: ask about its subscribers when time is up."""
        model = at.model(Messages)
        one = model.awaiting(packet, at) if model.awaited and self.concerns(model) else None
        if one is None:
            return None
        timers: Timers = at.memory(self)
        for _, session in model.lacking(one, at.timestamp_ns):
            if session.key is not None and session.key not in timers.asked and fits(one, session):
                timers.asked[session.key] = True
                at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"), session.key)
        return None

    def waiting(self, model: Messages, at: RuleContext) -> dict[tuple[str, int], Expected] | None:
        return model.expected.get(at.key)

    def awaits(self, at: RuleContext) -> bool:
        model = at.model(Messages)
        return self.concerns(model) and bool(self.waiting(model, at))

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge what has not come in time."""
        timers: Timers = at.memory(self)
        timers.asked.pop(at.key, None)
        model = at.model(Messages)
        pauses_until_ns = at.history.subscriptions.pauses_until_ns(at.timestamp_ns)
        if pauses_until_ns:
            timers.asked[at.key] = True
            at.ask(self, pauses_until_ns)
            return None
        last, found = timers.judged.get(at.key, -1), []
        for one in (self.waiting(model, at) or {}).values():
            if one.number <= last:
                continue
            due_ns = one.since_ns + self.nanoseconds("timeout")
            if due_ns > at.timestamp_ns:
                timers.asked[at.key] = True
                at.ask(self, due_ns)
                break
            timers.judged[at.key] = one.number
            if at.timestamp_ns - one.since_ns <= EXPECT_NS + self.nanoseconds("timeout") and self.is_judged(
                one, model, at
            ):
                report = self.judge(one, model, at)
                if report is not None:
                    found.append(report)
        return found

    def judge(self, one: Expected, model: Messages, at: RuleContext) -> Report | None:
        """Judge one message that has not come, and that nothing excuses so far."""
        raise NotImplementedError

    def is_judged(self, one: Expected, model: Messages, at: RuleContext) -> bool:
        """Whether nothing that the capture shows may have kept the message away, or hidden it."""
        sent, history, owner = one.sent, at.history, at.client_name
        session = model.table.sessions.get(owner)
        if session is None or session.key != at.key or one.held.ending or not model.holds(one):
            return False
        if session.held.get(one.held.topic_filter) is not one.held or model.hides(sent.topic):
            return False
        if sent.expiry is not None and sent.timestamp_ns + (sent.expiry - 2) * SECOND_NS <= at.timestamp_ns:
            return False
        if history.client.disconnect is not None or history.server.disconnect is not None or history.clock_back:
            return False
        if history.connect is None or history.connect.bridge or at.server.in_flight >= self.window(at):
            return False
        if history.behind_a_hole or history.client.acknowledged > history.server.position + 1:
            return False
        return history.server.begun is None  # else a packet is under way

    @staticmethod
    def window(at: RuleContext) -> int:
        """How many messages the server may have in flight before it waits for the client."""
        return min(at.client.receive_maximum, NARROW)

    def doubt(
        self, one: Expected, model: Messages, at: RuleContext, *, overtaken: bool = False
    ) -> dict[str, Any] | None:
        """Severity and confidence: an error only where nothing but the server explains it.

        The same publisher's messages of the topic have reached this client before, so that both may do what they do;
        the client reads what it gets; and the server has not had as many messages in flight to it as it may have had to
        stop at, nor still has one.  ``None``: the client may simply not be allowed to read the topic.  ``overtaken``: a
        later message was sent to the client, which shows that the server was not waiting for it.
        """
        sent, history = one.sent, at.history
        known = model.topics[sent.topic]
        last_ns = at.server.last_timestamp_ns
        is_read = (
            overtaken
            or (last_ns is not None and last_ns > one.since_ns)
            or (history.client.segment_ns > one.since_ns and history.client.acknowledged >= history.server.position)
        )
        # Some brokers wait for each acknowledgment before they send the next message.
        free = at.server.in_flight_peak < self.window(at) and (overtaken or not at.server.in_flight)
        if (sent.publisher, at.client_name) in known.routes:
            if is_read and free and not at.is_apart(sent.capture):
                return {}
        elif one.held.topic_filter != sent.topic:
            return None
        elif sent.publisher not in known.proven and sent.version.value < 5:
            return None  # before 5.0 a server acknowledges what it drops
        return {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC}

    def lost(self, one: Expected, model: Messages, at: RuleContext, what: str, *before: Related) -> Report | None:
        """The report of a message that has not come, unless `doubt` withholds it."""
        doubt = self.doubt(one, model, at)
        return None if doubt is None else self.report_of(one, what, doubt, *before)

    @staticmethod
    def report_of(one: Expected, what: str, doubt: dict[str, Any], *before: Related) -> Report:
        """The report of a message that has not come, with what `doubt` says of it."""
        return Report(
            "",
            what,
            related=(
                *before,
                Related.to("the message as published", one.sent),
                Related.to("the SUBSCRIBE", one.held),
            ),
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=one.sent.topic,
            **doubt,
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """What was due by now has been judged."""
        timers: Timers = at.memory(self)
        timers.asked.pop(at.key, None)
        timers.judged.pop(at.key, None)
        return None
