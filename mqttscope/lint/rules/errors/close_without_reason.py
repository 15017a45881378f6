from mqttscope.lint.examples import examples
from mqttscope.lint.rules import C2S, S2C, V5, Connection, Findings, Needs, Related, Rule, RuleContext, Severity
from mqttscope.lint.waiting import side_name


class CloseWithoutReason(Rule):
    """A side closes the connection because of a violation without sending the reason.

    The peer sees only a broken connection, reconnects and repeats the mistake.  Reported if a side closes without
    DISCONNECT within ``timeout`` seconds of a packet with a certain violation, found by another rule, that has a Reason
    Code in the specification.  Before CONNACK no reason is required.

    Instead, send DISCONNECT with the Reason Code for the violation, then close.
    """

    code = "ERR503"
    severity = Severity.INFO
    versions = (V5,)
    statements = {V5: {"V5-ERROR-reason": ""}}
    needs = Needs.WHOLE
    reads_findings = True
    settings = {"timeout": 5}

    # Any violation is an error, so good cases are part of the bad examples, on connections of their own.
    good = examples("""
        no violation
            opened; > publish a; < fin
    """)
    bad = examples("""
        by the server
            opened; > raw 36 0a 0003 "a/b" 000a006869; < fin !; @1 opened client="it names the reason"
            @1 > raw 36 0a 0003 "a/b" 000a006869; @1 < disconnect code=0x81; @1 < fin
            @2 opened client="the other one closes"; @2 > raw 36 0a 0003 "a/b" 000a006869; @2 > fin
            @3 opened client="much later"; @3 > raw 36 0a 0003 "a/b" 000a006869; +40 @3 < fin
            @4 > raw 10 0f 0004 "MQTT" 0503003c00 0002 "c1"; @4 < fin
        by the server, after a second CONNECT
            opened; > connect; < reset !
        by the client
            opened; < raw 36 08 0001 "a" 000a006869; > fin !
    """)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Look for a certain violation before a close without DISCONNECT."""
        how, who, history = connection.closed_how, connection.closed_by, at.history
        if how not in ("fin", "reset") or who is None or history.connack is None or history.connack.reason_code:
            return None
        if history.client.disconnect is not None or history.server.disconnect is not None:
            return None
        receiver = C2S if who == "client" else S2C
        since_ns = connection.closed_ns - self.nanoseconds("timeout")
        violations = [
            row
            for row in history.reported
            if row.sender is receiver.opposite and row.certain and row.reason_code and row.timestamp_ns >= since_ns
        ]
        if not violations:
            return None
        last = violations[-1]
        return self.report(
            "",
            f"{side_name(receiver)} closed after {last.rule} without a DISCONNECT with reason 0x{last.reason_code:02x}",
            sender=receiver,
            related=(Related.to("the violation", last),),
            overdue=True,
        )
