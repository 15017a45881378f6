from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.rules import C2S, S2C, SECOND_NS, Connection, Related, RuleContext, Severity, examples
from mqttscope.lint.waiting import has_arrived, has_closed, side_name
from mqttscope.mqtt.packets import Disconnect


class DisconnectReceivedNotClosed(Rule):
    """A side keeps the connection open after receiving DISCONNECT.

    If the sender does not close either, the connection keeps occupying a slot.  Reported if the receiver has not closed
    for ``timeout`` seconds, and only if TCP shows that it received the DISCONNECT.

    Instead, close the connection on receiving DISCONNECT unless the other side has already closed it.
    """

    code = "DIS504"
    severity = Severity.WARNING
    statements = {
        V5: {"V5-DISCONNECT-receiver-closes": ""},
        V3_1_1: {"V311-DISCONNECT-server-closes": "server"},
        V3_1: {"V31-DISCONNECT-close": "server"},
    }
    needs = Needs.WHOLE
    settings = {"timeout": 30}

    good = examples("""
        the sender closes
            opened; > disconnect; > fin; @1 opened client=c2; +60 @1 > fin
        the receiver closes
            opened 3.1; > disconnect; +2 < fin; @1 opened 5.0 client=c2; +60 @1 > fin
        the DISCONNECT never arrived
            opened; > disconnect; @1 opened client=c2; +60 @1 > fin
    """)
    bad = examples("""
        neither side closes
            opened; > disconnect; < ack; @1 opened client=c2; +60 @1 > fin !
        the client keeps it open
            opened; < disconnect code=0x8b; > ack; @1 opened client=c2; +60 @1 > fin !
        in 3.1.1
            opened 3.1.1; > disconnect; < ack; +60 < fin !
        in 3.1
            opened 3.1; > disconnect; < ack; +40 > fin !
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        if at.from_client or at.version is V5:
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether the receiver has closed."""
        client, server = at.history.client.disconnect, at.history.server.disconnect
        sent, direction = (client, C2S) if client is not None else (server, S2C)
        if sent is None or (client is not None and server is not None) or has_closed(at, direction.opposite):
            return None
        if not has_arrived(at.history.party(direction), sent.position):
            return None
        waited = (at.timestamp_ns - sent.timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"{side_name(direction.opposite)} kept the connection open {waited:.0f} s after receiving DISCONNECT",
            sender=direction.opposite,
            related=(Related.to("the DISCONNECT", sent),),
            overdue=True,
        )
