from mqttscope.lint.rules import V5, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Direction, Disconnect


class SessionExpiryRaisedOnDisconnect(Rule):
    """A client sets a Session Expiry Interval in DISCONNECT but not in CONNECT.

    A server stores nothing for a session that ends with the connection.  So raising the interval from 0 is a protocol
    error (0x82), and the session is gone when the client returns.  The interval in CONNACK does not change this.

    Instead, send a Session Expiry Interval above 0 in CONNECT, and 0 in DISCONNECT to end the session.
    """

    code = "SES208"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"V5-DISCONNECT-expiry-from-0": ""}}
    sender = Direction.CLIENT_TO_SERVER
    when = "properties"
    needs = Needs.OPENING

    good = examples("""
        raised from 60
            opened session_expiry_interval=60; > disconnect code=0 session_expiry_interval=3600
        0 stays 0
            opened; > disconnect code=0 session_expiry_interval=0
        the server shortened it to 0
            opened session_expiry_interval=60 < session_expiry_interval=0
            > disconnect code=0 session_expiry_interval=60
    """)
    bad = examples("""
        absent in CONNECT
            opened; > disconnect code=0 session_expiry_interval=60 !properties.session_expiry_interval
        0 in CONNECT, whatever the interval in CONNACK
            opened session_expiry_interval=0 < session_expiry_interval=60
            > disconnect code=0x04 session_expiry_interval=60 !properties.session_expiry_interval
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Compare with the CONNECT."""
        interval = packet.properties.session_expiry_interval if packet.properties is not None else None
        connect, sent = at.history.connect, at.history.connect_sent
        if not interval or connect is None or sent is None:
            return None
        if connect.properties is not None and connect.properties.session_expiry_interval:
            return None
        text = f"DISCONNECT sets Session Expiry Interval {interval:,}, but it was 0 in CONNECT"
        return self.report("properties.session_expiry_interval", text, related=(Related.to("the CONNECT", sent),))
