from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction


class CleanStart0WithoutExpiry(Rule):
    """A client wants to resume its session, but its session ends with the connection.

    In MQTT 5.0 Clean Start only controls how a session begins.  The Session Expiry Interval controls how long it lasts,
    and its default is 0.  This is a common mistake when a client with CleanSession 0 is ported from 3.1.1: everything
    works until the first reconnect, which loses subscriptions and queued messages.

    Instead, set a Session Expiry Interval, or Clean Start 1 if nothing has to survive.
    """

    code = "OPS106"
    slug = "clean-start-0-without-expiry"
    severity = Severity.WARNING
    versions = (V5,)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        an hour
            opened resume session_expiry_interval=3600
        a second
            opened resume session_expiry_interval=1
        Clean Start 1
            opened
        MQTT 3.1.1
            opened 3.1.1 resume
    """)
    bad = examples("""
        no expiry
            opened resume !clean_start
        an expiry of 0
            opened resume session_expiry_interval=0 !clean_start
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Treat a missing interval as 0."""
        if packet.clean_start is not False or packet.properties is None or packet.properties.session_expiry_interval:
            return None
        return self.report(
            "clean_start",
            f"CONNECT of {at.client_name!r}: Clean Start 0 but Session Expiry Interval 0, the session ends with the "
            "connection anyway",
        )
