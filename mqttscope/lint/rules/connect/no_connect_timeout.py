from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.rules import C2S, S2C, V3_1, V3_1_1, V5, Connection, Findings, Report, Rule, Severity, examples
from mqttscope.lint.waiting import has_closed
from mqttscope.mqtt.packets import Connack


class NoConnectTimeout(Rule):
    """A server keeps a connection open although no CONNECT arrives.

    An attacker who opens silent connections can exhaust the server.  Reported for a CONNECT that is later than
    ``timeout`` seconds and still answered, and for a WebSocket that stays without packets for that time.  A TCP
    connection without any bytes cannot be recognized as MQTT.

    Instead, close connections that send no CONNECT within a reasonable time.
    """

    code = "CON530"
    severity = Severity.WARNING
    statements = {
        V5: {"V5-CONNECT-timeout": ""},
        V3_1_1: {"V311-CONNECT-timeout": ""},
        V3_1: {"V31-CONNECT-timeout": ""},
    }
    sender = S2C
    version_matters = False
    settings = {"timeout": 60}
    brief = {"timeout": 60}  # a server may wait this long

    good = examples("""
        in time
            +50 opened
        late, after the server has closed
            +90 > connect; < reset
        capture started in mid-connection
            midstream; +90 opened
        in time, in a WebSocket
            upgraded; +50 < fin; @1 opened client=c2
    """)
    bad = examples("""
        late, and answered
            +90 opened < !!
        late in 3.1.1
            +61 opened 3.1.1 < code=0x05 !!
        late in 3.1
            +3600 opened 3.1 < !!
        never, in a WebSocket
            upgraded; > ack; @1 > connect client=c2; +90 @1 < connack !!
    """)

    def check_opened(self, connection: Connection, at: RuleContext) -> Findings:
        """Start the timeout on a transport that announces MQTT before the first packet."""
        if connection.handshake_seen and connection.transport != "tcp":
            at.ask(self, connection.opened_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether a packet has arrived."""
        if connection.transport == "tls" and not connection.decrypted:
            return None
        if connection.gaps or at.client.packets or at.history.client.malformed:
            return None
        if has_closed(at, C2S) or has_closed(at, S2C):
            return None
        return self._idle(at.timestamp_ns - connection.opened_ns)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Check how long the server had waited."""
        sent, opened_ns = at.history.connect_sent, at.connection.opened_ns
        if sent is None or at.history.connack is not None or not at.connection.handshake_seen or at.connection.gaps:
            return None
        waited = sent.timestamp_ns - opened_ns
        if waited < self.nanoseconds("timeout") or at.connection.transport != "tcp":
            return None
        return self._idle(waited)

    def _idle(self, waited: int) -> Report:
        text = f"connection idle for {waited / SECOND_NS:.0f} s without a CONNECT; the server keeps it open"
        return self.report("", text, sender=S2C, overdue=True)
