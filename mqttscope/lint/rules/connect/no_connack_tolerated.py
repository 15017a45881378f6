from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.rules import C2S, V3_1, V3_1_1, V5, Connection, Findings, Needs, Related, Rule, Severity, examples
from mqttscope.lint.waiting import has_arrived, is_over
from mqttscope.mqtt.packets import Connect


class NoConnackTolerated(Rule):
    """A client waits indefinitely for its CONNACK.

    A server that has not answered by now will not answer later: the client is not connected and does not retry.
    Reported if neither CONNACK nor AUTH has arrived for ``timeout`` seconds and the client has not closed, and only if
    TCP shows that the server is reachable.

    Instead, close the connection after a reasonable time and reconnect.
    """

    code = "CON531"
    severity = Severity.WARNING
    statements = {V5: {"V5-CONNACK-timeout": ""}, V3_1_1: {"V311-CONNACK-timeout": ""}}
    also = {V3_1: ("V31-CONNECT-timeout",)}
    sender = C2S
    needs = Needs.WHOLE
    settings = {
        # Libraries give up after 5 to 60 seconds.
        "timeout": 60
    }
    brief = {"timeout": 60}  # a client may wait this long

    good = examples("""
        closed
            > connect; < ack; +20 > fin
        answered
            opened keep_alive=0; @1 opened client=c2 keep_alive=0; +90 @1 > fin
        AUTH is an answer too
            > connect authentication_method=m; < auth code=0x18 authentication_method=m
            @1 opened client=c2 keep_alive=0; +90 @1 > fin
        the server is unreachable
            > connect; @1 opened client=c2 keep_alive=0; +90 @1 > fin
    """)
    bad = examples("""
        two minutes
            > connect; < ack; +120 > fin !
        in 3.1.1, answered at last
            > connect 3.1.1; < ack; +120 < connack !!
        in 3.1
            > connect 3.1; < ack; @1 opened 5.0 client=c2 keep_alive=0; +90 @1 > fin !
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        if at.history.connect is None:
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether the server has answered or the client has given up."""
        sent = at.history.connect_sent
        if sent is None or is_over(at) or at.server.packets or at.history.server.malformed:
            return None
        if not has_arrived(at.history.client, sent.position):
            return None
        return self.report(
            "",
            f"client waited {(at.timestamp_ns - sent.timestamp_ns) / SECOND_NS:.0f} s for CONNACK without closing",
            sender=C2S,
            related=(Related.to("the CONNECT", sent),),
            overdue=True,
        )
