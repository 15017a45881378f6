from mqttscope.events import PacketEvent
from mqttscope.lint.examples import examples
from mqttscope.lint.rules import C2S, SECOND_NS, V3_1, V3_1_1, V5, Connection, Findings, Related, RuleContext, Severity
from mqttscope.lint.rules.keep_alive.pingreq_unanswered import Ping, PingRule, waits
from mqttscope.lint.waiting import has_arrived, is_over
from mqttscope.mqtt.packets import Disconnect


class MissingPingrespTolerated(PingRule):
    """A client continues to use a connection although its PINGREQ was not answered.

    The server may be gone, or may have dropped the client: everything sent from then on is lost.  Reported when the
    client sends something ``timeout`` seconds after an unanswered PINGREQ.

    Instead, close the connection if PINGRESP does not arrive within a reasonable time, and reconnect.
    """

    code = "KAL505"
    severity = Severity.WARNING
    statements = {V5: {"V5-PINGRESP-timeout": ""}, V3_1_1: {"V311-PINGRESP-timeout": ""}}
    also = {V3_1: ("V31-PINGREQ-answer",)}
    settings = {
        # Many clients check once per Keep Alive, 60 seconds by default.
        "timeout": 60
    }
    brief = {"timeout": 60}  # a client may wait this long

    good = examples("""
        answered
            opened; > pingreq; < pingresp; +40 > publish a; +40 > publish a; > fin
        the client closes
            opened; > pingreq; +20 > fin; @1 opened client=c2 keep_alive=0; +90 @1 > fin
        the answer is not in the capture
            opened; > pingreq; lost < pingresp; +40 > publish a; +40 > publish a
        the client sends nothing more
            opened; > pingreq; @1 opened client=c2 keep_alive=0; +90 @1 > fin
    """)
    bad = examples("""
        the client sends other packets
            opened; > pingreq; < ack; +40 > publish a; +40 > publish a !!; > fin
        only pings, in 3.1.1
            opened 3.1.1; > pingreq; < ack; +50 > pingreq; < ack; +50 > pingreq !!; > fin
        in 3.1
            opened 3.1; > pingreq; < ack; +40 > publish a; +40 > publish a !!
    """)

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether the client continues without an answer."""
        ping: Ping = at.memory(self)
        if is_over(at) or not waits(ping, at):
            return None
        due_ns = ping.timestamp_ns + self.nanoseconds("timeout")
        if at.timestamp_ns < due_ns:
            at.ask(self, due_ns)
            return None
        event = at.event
        if not at.from_client or not isinstance(event, PacketEvent) or isinstance(event.packet, Disconnect):
            at.ask(self, at.timestamp_ns)  # until the client sends something
            return None
        if not has_arrived(at.history.client, ping.position):
            return None
        ping.reported = True
        return self.report(
            "",
            f"client kept the connection {(at.timestamp_ns - ping.timestamp_ns) / SECOND_NS:.0f} s after an unanswered "
            "PINGREQ",
            sender=C2S,
            related=(Related.to("the PINGREQ", ping),),
            overdue=True,
        )
