from mqttscope.lint.examples import examples
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Related, Report, Rule, RuleContext, Severity
from mqttscope.lint.waiting import has_arrived, is_over
from mqttscope.mqtt.packets import Connack, Connect
from mqttscope.session.connection import KNOWN_LEVELS, S2C, Connection


class UnsupportedVersionNotRefused(Rule):
    """A server does not refuse a CONNECT with a protocol level that no specification defines.

    A server that accepts it speaks an unknown protocol; a server that ignores it leaves the client waiting.  A server
    of MQTT 3.1.1 has to answer 0x01 before it closes; a server of 5.0 may close silently, so a silent close is only
    info.  A missing answer is reported after ``timeout`` seconds, and only if TCP shows that the server got the
    CONNECT.

    Instead, answer CONNACK 0x01 (unacceptable protocol version), or 0x84 in MQTT 5.0, and close.
    """

    code = "CON529"
    severities = (Severity.ERROR, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {V3_1_1: {"MQTT-3.1.2-2": ""}}
    also = {V5: ("MQTT-3.1.2-2",)}
    needs = Needs.WHOLE
    # The unknown version is itself the subject of this rule.
    version_matters = False
    settings = {"timeout": 30}

    bad = examples("""
        accepted
            opened 3.1.1 protocol_level=0x06 < !reason_code
        the server closes without an answer
            > connect 3.1.1 protocol_level=0x06; < fin !
        no reaction
            > connect 3.1.1 protocol_level=0x06; < ack; @1 opened 5.0 client=c2; +60 @1 > fin !
    """)
    good = examples("""
        a client that closes first
            > connect; > fin; @1 opened client=c2; +60 @1 > fin
        a known version
            opened 3.1.1
        the bridge mark
            opened 3.1.1 protocol_level=0x84
    """)

    def check(self, packet: Connect | Connack, at: RuleContext) -> Findings:
        """Start the timeout, and check the answer."""
        if isinstance(packet, Connect):
            if at.history.connect is None and packet.protocol_level not in KNOWN_LEVELS:
                at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
            return None
        if packet.reason_code or at.history.connack is not None or not self._concerns(at):
            return None
        return self._report("reason_code", "accepted", at)

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether an answer has arrived."""
        sent = at.history.connect_sent
        if sent is None or is_over(at) or not self._concerns(at) or at.server.packets:
            return None
        if not has_arrived(at.history.client, sent.position):
            return None
        return self._report("", "ignored", at, overdue=True)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Report a server that closes without an answer."""
        if connection.closed_by != "server" or connection.closed_how not in ("fin", "reset"):
            return None
        if not self._concerns(at) or at.server.packets or at.history.server.malformed:
            return None
        return self._report("", "closed without an answer to", at, severity=Severity.INFO)

    @staticmethod
    def _concerns(at: RuleContext) -> bool:
        connect = at.history.connect
        return connect is not None and connect.protocol_level not in (None, *KNOWN_LEVELS)

    def _report(
        self, field: str, did: str, at: RuleContext, *, severity: Severity | None = None, overdue: bool = False
    ) -> Report:
        connect, sent = at.history.connect, at.history.connect_sent
        assert connect is not None
        return self.report(
            field,
            f"server {did} protocol level {connect.protocol_level}; expected CONNACK 0x01, or 0x84 in MQTT 5.0, and "
            "the end of the connection",
            severity=severity,
            sender=S2C,
            related=() if sent is None else (Related.to("the CONNECT", sent),),
            overdue=overdue,
        )
