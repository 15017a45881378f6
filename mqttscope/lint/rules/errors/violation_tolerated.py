from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.events import PacketEvent
from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rules import C2S, S2C, V3_1, V3_1_1, V5, Connection, Findings, Rule, examples, packet_name
from mqttscope.lint.waiting import has_arrived, has_closed, side_name
from mqttscope.mqtt.packets import Connack, Disconnect, Pingresp
from mqttscope.session.history import Violation

CLOSING = frozenset({0x81, 0x82, 0x93, 0x94, 0x95, 0x9A, 0x9B})
"""Reason codes of 5.0 for a Malformed Packet or Protocol Error; other codes may be in an acknowledgement."""
ELSEWHERE = frozenset({"FLW201", "FLW203", "PRP207", "PRP208", "RSN102", "SES208"})
"""Rules about violations that the other side may not see, or that come with a DISCONNECT.  Sender and receiver may
disagree on Receive Maximum while a PUBACK is in flight."""
OLD = frozenset(
    {
        *("CON103", "CON104", "CON107", "CON109", "CON212", "ENC101", "ENC102", "ENC106"),
        *("HDR101", "HDR102", "HDR103", "HDR104", "PUB101", "PUB103", "PUB104"),
        *("SUB101", "SUB102", "SUB103", "SUB104", "WIL101", "WIL102"),
    }
)
"""Rules about protocol violations of 3.1.1 that require either side to close (4.8)."""
NAMED = {
    (V5, "CON212"): ("MQTT-3.1.0-2",),
    (V3_1_1, "CON212"): ("MQTT-3.1.0-2",),
    (V3_1_1, "HDR102"): ("MQTT-2.2.2-2", "MQTT-4.8.0-1"),
}
"""Statements about specific violations; `_broken` returns the statements about all others."""
MAX_PENDING = 8
"""Maximum number of violations of a connection that wait for a reaction; later ones are ignored."""


@dataclass(slots=True)
class ToleratedViolations:
    """Violations on a connection, pending and reported."""

    pending: list[Violation] = field(default_factory=list)
    """Violations without a known reaction yet."""
    reported: set[str] = field(default_factory=set)
    """Rules and senders of violations that were reported."""


class ViolationTolerated(Rule):
    """A side continues after a violation by the other side that requires it to close the connection.

    Another receiver may interpret an invalid packet differently, and faults without consequences are never fixed.  The
    violation is a certain finding of another rule.  Reported when the receiver answers that packet or a later one, or
    if it has not closed for ``timeout`` seconds although TCP shows that it got the packet.  Each kind of violation is
    reported once per connection.  In MQTT 5.0 a server must close, and a client should, which is a warning; in 3.1.1
    both must, and 3.1 requires it only for CONNECT.

    Instead, close the connection; in MQTT 5.0 first send DISCONNECT with the reason.
    """

    code = "ERR501"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.1.0-2": "", "MQTT-3.1.4-1": "", "MQTT-4.13.1-1": "", "V5-ERROR-client-closes": ""},
        V3_1_1: {"MQTT-2.2.2-2": "", "MQTT-3.1.0-2": "", "MQTT-3.1.2-1": "", "MQTT-4.8.0-1": ""},
        V3_1: {"V31-CONNECT-invalid-closed": ""},
    }
    also = {
        V5: (
            "MQTT-1.5.4-1",
            "MQTT-1.5.4-2",
            "MQTT-1.5.5-1",
            "MQTT-2.1.3-1",
            "MQTT-3.1.2-3",
            "MQTT-3.3.1-4",
            "MQTT-3.3.2-7",
            "MQTT-3.6.1-1",
            "MQTT-3.8.1-1",
            "MQTT-3.8.3-2",
            "MQTT-3.8.3-4",
            "MQTT-3.8.3-5",
            "MQTT-3.10.1-1",
            "MQTT-3.10.3-2",
            "MQTT-3.14.1-1",
            "MQTT-3.15.1-1",
            "MQTT-6.0.0-1",
            "V5-PUBLISH-qos-above-max",
            "V5-PUBLISH-retain-unavailable",
            "V5-PUBLISH-alias-receive-max-disconnect",
        ),
        V3_1_1: (
            "MQTT-1.5.3-1",
            "MQTT-1.5.3-2",
            "MQTT-3.1.2-3",
            "MQTT-3.1.4-1",
            "MQTT-3.3.1-4",
            "MQTT-3.6.1-1",
            "MQTT-3.8.1-1",
            "MQTT-3.8.3-3",
            "MQTT-3.8.3-4",
            "MQTT-3.10.1-1",
            "MQTT-3.10.3-2",
            "MQTT-3.14.1-1",
            "MQTT-6.0.0-1",
        ),
    }
    reads_findings = True
    settings = {"timeout": 30}
    Memory = ToleratedViolations

    # Any tolerated violation is an error, so good cases are part of the bad examples, on connections of their own.
    good = examples("""
        no violation
            opened; > subscribe 1 a:0; < suback 1 0
        closed for another reason
            opened 3.1.1; > publish a; < fin
    """)
    bad = examples("""
        a later SUBSCRIBE is answered
            opened; > raw 36 0a 0003 "a/b" 000a006869; > subscribe 1 a:0; < suback 1 0 !!
            @1 opened client=closed-with-reason; @1 > raw 36 0a 0003 "a/b" 000a006869; @1 < disconnect code=0x81
            +10 @1 < fin
        a PINGREQ is answered, in 3.1.1; packets that were in flight or are not answers prove nothing
            opened 3.1.1; > raw 36 09 0003 "a/b" 000a6869; crossing < publish b
            > raw 36 09 0003 "a/b" 000a6869 & pingreq; < publish b; < pingresp !!; @1 opened client=closed
            @1 > raw 36 09 0003 "a/b" 000a6869; +10 @1 < fin; @2 opened client=leaves
            @2 > raw 36 09 0003 "a/b" 000a6869; +10 @2 > fin
        a malformed CONNECT is accepted, in 3.1
            version 3.1; > raw 10 10 0006 "MQIsdp" 0302003c0002ff31; < connack !!
        neither side closes
            opened; > raw 36 0a 0003 "a/b" 000a006869; < ack; @1 opened client=c2; +50 @1 > fin !
        a second CONNECT is refused, one is accepted
            opened; opened < !!; @1 opened client=c2; @1 opened < code=0x82
        by the client
            opened; > subscribe 1 a:0; < suback 1 0; < raw 36 08 0001 "a" 000a006869; < publish a qos=1 id=1
            > puback 1 !!
    """)

    def check_violation(self, violation: Violation, at: RuleContext) -> Findings:
        """Start the timeout for the other side's reaction."""
        memory: ToleratedViolations = at.memory(self)
        known = f"{violation.rule} {violation.sender}"
        if not violation.certain or known in memory.reported or len(memory.pending) >= MAX_PENDING:
            return None
        if any(pending.rule == violation.rule and pending.sender is violation.sender for pending in memory.pending):
            return None
        if self._broken(violation, at):
            memory.pending.append(violation)
            at.ask(self, violation.timestamp_ns + self.nanoseconds("timeout"))
            at.ask(self, at.timestamp_ns)
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Check the reactions to pending violations."""
        memory: ToleratedViolations = at.memory(self)
        waiting = []
        for violation in memory.pending:
            if self._settled(violation, at):
                continue
            sign = self._sign(violation, at)
            due_ns = violation.timestamp_ns + self.nanoseconds("timeout")
            if not sign and at.timestamp_ns >= due_ns:
                if not has_arrived(at.history.party(violation.sender), violation.position):
                    continue
                sign = f"the connection is open {self.set['timeout']} s later"
            if sign:
                memory.reported.add(f"{violation.rule} {violation.sender}")
                yield self._report(violation, sign, at)
            else:
                waiting.append(violation)
        memory.pending = waiting
        for violation in waiting:
            due_ns = violation.timestamp_ns + self.nanoseconds("timeout")
            if due_ns > at.timestamp_ns:
                at.ask(self, due_ns)
            at.ask(self, at.timestamp_ns)

    @staticmethod
    def _settled(violation: Violation, at: RuleContext) -> bool:
        """Whether the connection ends, because of the violation or for another reason."""
        history, event = at.history, at.event
        if history.client.disconnect is not None or history.server.disconnect is not None:
            return True
        if isinstance(event, PacketEvent):
            packet = event.packet
            if isinstance(packet, Disconnect) or (isinstance(packet, Connack) and packet.reason_code):
                return True
        return has_closed(at, C2S) or has_closed(at, S2C)

    @staticmethod
    def _sign(violation: Violation, at: RuleContext) -> str:
        """The sign that the receiver processed the violation, for the finding text; empty if it did not."""
        event = at.event
        if not isinstance(event, PacketEvent) or at.direction is violation.sender:
            return ""
        if not 0 < violation.position <= at.acknowledged:
            return ""
        packet = event.packet
        name = packet_name(packet)
        if isinstance(packet, Connack):
            return "it sends CONNACK with success" if violation.kind == "connect" else ""
        if isinstance(packet, Pingresp):
            last = at.receiver.ping_packet
            return "it answers a later PINGREQ" if last is not None and last > violation.packet else ""
        answered = at.connection.answered_by(packet, at.direction)
        if answered is None or answered.packet < violation.packet:
            return ""
        codes = getattr(packet, "reason_codes", None) or [getattr(packet, "reason_code", None) or 0]
        if answered.packet == violation.packet and all(code >= 0x80 for code in codes):
            return ""  # it has objected, and may still close
        return f"it sends {name} for {'that packet' if answered.packet == violation.packet else 'a later packet'}"

    @staticmethod
    def _broken(violation: Violation, at: RuleContext) -> tuple[str, ...]:
        """Statements that require the receiver to close; empty if it may continue."""
        by_server = violation.sender is C2S
        if at.version is V3_1:
            fits = violation.rule in OLD and violation.kind == "connect" and violation.rule != "CON212"
            return ("V31-CONNECT-invalid-closed",) if fits else ()
        if at.version is V3_1_1:
            if violation.rule not in OLD:
                return ()
            return NAMED.get((V3_1_1, violation.rule), ("MQTT-4.8.0-1",))
        if violation.reason_code not in CLOSING or violation.rule in ELSEWHERE:
            return ()
        if not by_server:
            return ("V5-ERROR-client-closes",)
        return NAMED.get(
            (V5, violation.rule),
            ("MQTT-3.1.4-1", "MQTT-4.13.1-1") if violation.kind == "connect" else ("MQTT-4.13.1-1",),
        )

    def _report(self, violation: Violation, sign: str, at: RuleContext) -> Report:
        receiver = violation.sender.opposite
        must = at.version is V3_1_1 or (at.version is V5 and receiver is S2C)
        after = (at.timestamp_ns - violation.timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"{side_name(receiver)} continued after {violation.rule} ({sign}, {after:.3g} s later); it "
            f"{'must' if must else 'should'} close the connection",
            severity=None if must else Severity.WARNING,
            sender=receiver,
            related=(Related.to("the violation", violation),),
            statements=self._broken(violation, at),
            overdue=True,
        )
