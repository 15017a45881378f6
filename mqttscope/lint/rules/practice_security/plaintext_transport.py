from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import is_loopback, is_plain
from mqttscope.mqtt import Connect, Direction


class PlaintextTransport(Rule):
    """MQTT crosses the network without TLS.

    Everyone on the network path can read and change topics and payloads.  Connections within one host are not reported.

    Instead, connect with TLS, usually to port 8883.
    """

    code = "SEC103"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        within one host
            server 127.0.0.1:1883; opened
    """)
    bad = examples("""
        to another host
            opened !
        on any port
            server 192.0.2.7:18830; opened 3.1.1 !
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Report the first CONNECT of a connection."""
        connection = at.connection
        if at.history.connect_sent is not None or not is_plain(connection) or is_loopback(connection.server):
            return None
        return self.report("", f"MQTT in the clear to {connection.server}")
