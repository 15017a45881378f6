from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rules import S2C, SECOND_NS, V3_1_1, V5, Connection, Findings, Needs, Rule, RuleContext, examples
from mqttscope.lint.waiting import has_arrived, is_over
from mqttscope.mqtt import Connect, Direction
from mqttscope.session.connection import CONNECTING, KNOWN_LEVELS


class ConnectUnanswered(Rule):
    """A server does not answer a CONNECT.

    The client cannot find out whether it is connected, and retries after its own timeout.  Reported if a well-formed
    CONNECT was not answered with CONNACK or AUTH for ``timeout`` seconds while the connection stays open, and only if
    TCP shows that the server got it.  A server that closes instead refuses silently; that is allowed, and reported as
    info.

    Instead, answer each CONNECT with a CONNACK, even if you refuse it.
    """

    code = "CON527"
    severities = (Severity.ERROR, Severity.INFO)
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-3.1.4-5": ""}, V3_1_1: {"MQTT-3.1.4-4": ""}}
    sender = Direction.CLIENT_TO_SERVER
    needs = Needs.WHOLE
    settings = {"timeout": 30}

    good = examples("""
        answered
            opened; +60 > fin
        answered late
            > connect; +29 < connack; +60 > fin
        AUTH is an answer too
            > connect authentication_method=m; < auth code=0x18 authentication_method=m; > ack; +60 > fin
        the client gives up before the timeout
            > connect; +20 > fin
        the server never received it
            > connect; @1 opened client=c2; +60 @1 > fin
        the capture lost the CONNACK
            > connect; lost < connack; @1 opened client=c2; +60 @1 > fin
    """)
    bad = examples("""
        no answer
            > connect; < ack; +40 > fin !
        no answer in 3.1.1, while other clients are served
            > connect 3.1.1; < ack; @1 opened client=c2; +60 @1 > fin !
        the server closes instead
            > connect 3.1; < fin !
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        if at.history.connect is None and packet.protocol_level in KNOWN_LEVELS:
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether an answer has arrived."""
        sent = at.history.connect_sent
        if sent is None or is_over(at) or not self._waits(connection, at):
            return None
        if not has_arrived(at.history.client, sent.position):
            return None
        seconds = (at.timestamp_ns - sent.timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"CONNECT of {at.client_name!r} got no CONNACK within {seconds:.0f} s",
            sender=S2C,
            related=(Related.to("the CONNECT", sent),),
            overdue=True,
        )

    def awaits(self, at: RuleContext) -> bool:
        return at.history.connect_sent is not None and self._waits(at.connection, at)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Report a close without an answer."""
        sent, connect = at.history.connect_sent, at.history.connect
        if sent is None or connect is None or connect.protocol_level not in KNOWN_LEVELS:
            return None
        if connection.closed_by != "server" or connection.closed_how not in ("fin", "reset"):
            return None
        if not self._waits(connection, at):
            return None
        return self.report(
            "",
            f"CONNECT of {at.client_name!r} got no CONNACK: the server closed the connection",
            severity=Severity.INFO,
            sender=S2C,
            related=(Related.to("the CONNECT", sent),),
            statements=(),
        )

    @staticmethod
    def _waits(connection: Connection, at: RuleContext) -> bool:
        """Whether a well-formed CONNECT still has no answer."""
        history = at.history
        if history.connect is None or history.connect_malformed is not None or connection.phase is not CONNECTING:
            return False
        return history.connack_malformed is None and not at.server.packets and not history.server.malformed
