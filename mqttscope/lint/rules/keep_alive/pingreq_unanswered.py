from dataclasses import dataclass

from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.rules import C2S, S2C, SECOND_NS, Confidence, Connection, Related, RuleContext, Severity, examples
from mqttscope.lint.waiting import has_arrived, is_busy, is_over
from mqttscope.mqtt import PacketType, Pingreq


@dataclass(slots=True)
class Ping:
    """The oldest PINGREQ that may be unanswered."""

    packet: int = -1
    frame: int = 0
    timestamp_ns: int = 0
    position: int = 0
    """Stream position of the client after the PINGREQ."""
    answers: int = 0
    """Number of PINGRESP packets before the PINGREQ."""
    reported: bool = False


class PingRule(Rule):
    """A rule about a PINGREQ that is not answered within ``timeout`` seconds."""

    confidence = Confidence.LIKELY
    sender = C2S
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    Memory = Ping

    def check(self, packet: Pingreq, at: RuleContext) -> Findings:
        """Store the first unanswered PINGREQ."""
        ping: Ping = at.memory(self)
        answers = at.history.server.counts[PacketType.PINGRESP]
        if ping.packet >= 0 and at.history.client.pings and answers == ping.answers:
            return None
        ping.packet, ping.frame, ping.timestamp_ns = at.number, at.event.frame, at.timestamp_ns
        ping.position, ping.answers, ping.reported = at.history.client.position, answers, False
        at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None


def waits(ping: Ping, at: RuleContext) -> bool:
    """Whether the PINGREQ is unanswered, as far as the capture is complete."""
    history = at.history
    if ping.packet < 0 or ping.reported or not history.client.pings:
        return False
    return history.server.counts[PacketType.PINGRESP] == ping.answers


class PingreqUnanswered(PingRule):
    """A PINGREQ is not answered with PINGRESP.

    The client considers the server dead, closes and reconnects, over and over.  Reported when the answer has been
    missing for ``timeout`` seconds on an open connection, and only if TCP shows that the server got the PINGREQ.

    Instead, answer each PINGREQ with PINGRESP, even while messages are queued.
    """

    code = "KAL504"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-3.12.4-1": ""}, V3_1_1: {"MQTT-3.12.4-1": ""}, V3_1: {"V31-PINGREQ-answer": ""}}
    settings = {"timeout": 30}

    good = examples("""
        answered
            opened; > pingreq; < pingresp; +60 > fin
        the client gives up
            opened; > pingreq; +20 > fin; @1 opened client=c2; +60 @1 > fin
        the server never received it
            opened; > pingreq; @1 opened client=c2; +60 @1 > fin
        the answer is not in the capture
            opened; > pingreq; lost < pingresp; @1 opened client=c2; +60 @1 > fin
        two at a time, each answered
            opened; > pingreq & pingreq; +20 < pingresp; +15 < pingresp; > fin
        the server sends one message for 45 s
            opened; > pingreq; < raw 30 64 0001 "a" 00*37; +15 < raw 00*20; +15 < raw 00*20
            +15 < raw 00*20 & pingresp; +15 > fin
    """)
    bad = examples("""
        no answer
            opened; > pingreq; < ack; +40 > fin !
        messages arrive, but no PINGRESP, in 3.1.1
            opened 3.1.1; > pingreq; +20 < publish a; +30 > pingreq !!; +20 < publish a; +20 > fin
        in 3.1, after an answered PINGREQ
            opened 3.1; > pingreq; < pingresp; +30 > pingreq; < ack; @1 opened client=c2; +50 @1 > fin !
        still missing after the server has sent one message for 45 s
            opened; > pingreq; < raw 30 64 0001 "a" 00*37; +15 < raw 00*20; +15 < raw 00*20; +15 < raw 00*20
            +35 > fin !
    """)

    def awaits(self, at: RuleContext) -> bool:
        return waits(at.memory(self), at)

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether the answer has arrived."""
        ping: Ping = at.memory(self)
        if is_over(at) or not waits(ping, at):
            return None
        if at.timestamp_ns < ping.timestamp_ns + self.nanoseconds("timeout"):
            at.ask(self, ping.timestamp_ns + self.nanoseconds("timeout"))
            return None
        if is_busy(at, S2C):
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
            return None
        if not has_arrived(at.history.client, ping.position):
            return None
        ping.reported = True
        return self.report(
            "",
            f"PINGREQ got no PINGRESP within {(at.timestamp_ns - ping.timestamp_ns) / SECOND_NS:.0f} s",
            sender=S2C,
            related=(Related.to("the PINGREQ", ping),),
            overdue=True,
        )
