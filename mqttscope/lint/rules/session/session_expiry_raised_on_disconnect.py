from mqttscope.lint.rules import V5, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Direction, Disconnect


class SessionExpiryRaisedOnDisconnect(Rule):
    """A client asks in DISCONNECT for a session that its CONNECT said would end with the connection.

    The server need not have kept anything to make it last, so raising the Session Expiry Interval from 0 is a protocol
    error (0x82).  The session is gone when the client comes back.  What CONNACK said does not change this.

    Instead, send a Session Expiry Interval above 0 in CONNECT, and 0 in DISCONNECT when the session is to end.
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
        0 in CONNECT, whatever CONNACK says
            opened session_expiry_interval=0 < session_expiry_interval=60
            > disconnect code=0x04 session_expiry_interval=60 !properties.session_expiry_interval
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Compare with CONNECT."""
        interval = packet.properties.session_expiry_interval if packet.properties is not None else None
        connect, sent = at.history.connect, at.history.connect_sent
        if not interval or connect is None or sent is None:
            return None
        if connect.properties is not None and connect.properties.session_expiry_interval:
            return None
        told = f"DISCONNECT sets Session Expiry Interval {interval:,}, it was 0 in CONNECT"
        return self.report("properties.session_expiry_interval", told, related=(Related.to("the CONNECT", sent),))
