from dataclasses import dataclass, field

from mqttscope.lint.examples import examples
from mqttscope.lint.message_model import Messages
from mqttscope.lint.rules import Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, forget_oldest, shown
from mqttscope.mqtt import Direction, Publish

MAX_REPORTED = 10_000
"""Maximum number of reported clients and topics kept; dropped ones, oldest first, are reported again."""


@dataclass(slots=True)
class ReportedDuplicates:
    """Clients and topics already reported."""

    topics: dict[tuple[str, str], bool] = field(default_factory=dict)


class DuplicateDeliveries(Rule):
    """A client receives several copies of one message.

    That is allowed with QoS 1, and if several subscriptions of the client match, but it costs bandwidth, and a client
    that counts or adds up values gets wrong results.  Each client and topic is reported once, with the reason if the
    capture shows it.

    Instead, use one subscription for each topic, and make clients ignore duplicates.
    """

    code = "OPS427"
    severity = Severity.INFO
    confidence = Confidence.LIKELY
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING
    models = (Messages,)
    Memory = ReportedDuplicates

    good = examples("""
        once
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
        two messages with the same payload
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; > publish a 21.5 qos=1 id=1; < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
        as a retained message after the live message
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 retain id=1
            < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; @1 > subscribe 1 a:1; @1 < suback 1 1
            @1 < publish a 21.5 qos=1 retain id=1; @1 > puback 1
    """)
    bad = examples("""
        two subscriptions, reported once
            @1 opened client=c2; @1 > subscribe 1 a:1 #:1; @1 < suback 1 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; @1 < publish a 21.5 qos=1 id=1 !; @1 > puback 1
            +2 > publish a other qos=1 id=1; < puback 1; @1 < publish a other qos=1 id=1; @1 > puback 1
            @1 < publish a other qos=1 id=1; @1 > puback 1
        resent by the publisher
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            > publish a 21.5 dup qos=1 id=1; < puback 1 & puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            @1 < publish a 21.5 qos=1 id=1 !; @1 > puback 1
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count the copies of messages with unique content."""
        pairing = at.model(Messages).pairing(packet, at)
        sent = None if pairing is None or pairing.retained else pairing.sole
        if pairing is None or sent is None:
            return None
        before = [copy for copy in sent.copies.get(pairing.owner, ()) if not copy.retained]
        reported: ReportedDuplicates = at.memory(self)
        if not before or (pairing.owner, sent.topic) in reported.topics:
            return None
        reported.topics[pairing.owner, sent.topic] = True
        forget_oldest(reported.topics, MAX_REPORTED)
        matching = len(at.history.subscriptions.match(sent.topic).subscriptions)
        if packet.dup:
            why = "resent because it was not acknowledged"
        elif matching > len(before):
            why = f"{matching} of its subscriptions match"
        elif sent.resent:
            why = "its publisher resent it"
        else:
            why = "the capture does not show the reason"
        return self.report(
            "",
            f"{pairing.owner!r} receives {len(before) + 1} copies of one message on {shown(sent.topic)}: {why}",
            related=(Related.to("the message as published", sent), Related.to("the first copy", before[0])),
        )
