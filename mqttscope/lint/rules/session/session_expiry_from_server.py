from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, roles_guessed
from mqttscope.mqtt import Direction, Disconnect


class SessionExpiryFromServer(Rule):
    """A server sends a Session Expiry Interval in DISCONNECT.

    Only the client may change how long its session is kept after the connection.  A client treats the property as a
    protocol error, or relies on a lifetime that the server does not keep.

    Instead, announce another Session Expiry Interval in CONNACK.
    """

    code = "SES109"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.14.2-2": ""}}
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"

    good = examples("""
        only a reason code
            opened; < disconnect code=0x8b reason_string=update
        allowed from the client
            opened session_expiry_interval=60; > disconnect code=0 session_expiry_interval=0
    """)
    bad = examples("""
        even 0
            opened; < disconnect code=0x8b session_expiry_interval=0 !properties.session_expiry_interval
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Report the property if present."""
        interval = packet.properties.session_expiry_interval if packet.properties is not None else None
        if interval is None or roles_guessed(at):
            return None
        text = f"DISCONNECT from the server has Session Expiry Interval {interval:,}"
        return self.report("properties.session_expiry_interval", text)
