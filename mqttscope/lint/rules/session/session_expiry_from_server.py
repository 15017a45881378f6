from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, sides_guessed
from mqttscope.mqtt import Direction, Disconnect


class SessionExpiryFromServer(Rule):
    """A server sends a Session Expiry Interval in DISCONNECT.

    Only the client may change how long its session is kept when the connection ends.  A client takes the property for
    a protocol error, or believes in a lifetime that the server does not keep to.

    Instead, announce another Session Expiry Interval in CONNACK.
    """

    code = "SES109"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.14.2-2": ""}}
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"

    good = examples("""
        a reason only
            opened; < disconnect code=0x8b reason_string=update
        from the client it is right
            opened session_expiry_interval=60; > disconnect code=0 session_expiry_interval=0
    """)
    bad = examples("""
        even 0
            opened; < disconnect code=0x8b session_expiry_interval=0 !properties.session_expiry_interval
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """The property must not be there."""
        interval = packet.properties.session_expiry_interval if packet.properties is not None else None
        if interval is None or sides_guessed(at):
            return None
        told = f"DISCONNECT from the server has Session Expiry Interval {interval:,}"
        return self.report("properties.session_expiry_interval", told)
