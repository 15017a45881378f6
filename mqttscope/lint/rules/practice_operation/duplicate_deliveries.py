from dataclasses import dataclass, field

from mqttscope.lint.examples import examples
from mqttscope.lint.message_model import Messages
from mqttscope.lint.rules import Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, forget_oldest, shown
from mqttscope.mqtt import Direction, Publish

MAX_TOLD = 10_000
"""Clients and topics that were reported; the oldest is forgotten first, and reported again."""


@dataclass(slots=True)
class Told:
    """Clients and topics that were reported."""

    topics: dict[tuple[str, str], bool] = field(default_factory=dict)


class DuplicateDeliveries(Rule):
    """A client gets one message several times.

    That is allowed with QoS 1, and where several subscriptions of the client match, but it costs bandwidth, and a
    client that counts or adds up what it gets has to know.  Each client and topic is reported once, with the reason as
    far as the capture shows it.

    Instead, hold one subscription for each topic; make clients ignore what they have got before.
    """

    code = "OPS427"
    severity = Severity.INFO
    confidence = Confidence.LIKELY
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING
    models = (Messages,)
    Memory = Told

    good = examples("""
        once
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
        two messages with the same payload
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; > publish a 21.5 qos=1 id=1; < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
        retained, after it had come
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 retain id=1
            < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; @1 > subscribe 1 a:1; @1 < suback 1 1
            @1 < publish a 21.5 qos=1 retain id=1; @1 > puback 1
    """)
    bad = examples("""
        for two subscriptions, reported once
            @1 opened client=c2; @1 > subscribe 1 a:1 #:1; @1 < suback 1 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; @1 < publish a 21.5 qos=1 id=1 !; @1 > puback 1
            +2 > publish a other qos=1 id=1; < puback 1; @1 < publish a other qos=1 id=1; @1 > puback 1
            @1 < publish a other qos=1 id=1; @1 > puback 1
        sent again by the publisher
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            > publish a 21.5 dup qos=1 id=1; < puback 1 & puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            @1 < publish a 21.5 qos=1 id=1 !; @1 > puback 1
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count the copies of messages that cannot be mistaken for others."""
        found = at.model(Messages).pairing(packet, at)
        sent = None if found is None or found.retained else found.sole
        if found is None or sent is None:
            return None
        before = [one for one in sent.copies.get(found.owner, ()) if not one.retained]
        told: Told = at.memory(self)
        if not before or (found.owner, sent.topic) in told.topics:
            return None
        told.topics[found.owner, sent.topic] = True
        forget_oldest(told.topics, MAX_TOLD)
        matching = len(at.history.subscriptions.match(sent.topic).subscriptions)
        if packet.dup:
            why = "sent again, since it was not acknowledged"
        elif matching > len(before):
            why = f"{matching} of its subscriptions match"
        elif sent.resent:
            why = "its publisher has sent it again"
        else:
            why = "nobody can see why"
        return self.report(
            "",
            f"{found.owner!r} gets {len(before) + 1} copies of one message on {shown(sent.topic)}: {why}",
            related=(Related.to("the message as published", sent), Related.to("the first copy", before[0])),
        )
