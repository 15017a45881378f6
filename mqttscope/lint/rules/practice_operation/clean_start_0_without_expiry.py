from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction


class CleanStart0WithoutExpiry(Rule):
    """A client wants to resume its session but lets it end with the connection.

    In MQTT 5.0 Clean Start says only how a session begins.  How long it lives is the Session Expiry Interval, and one
    that is left out is 0.  It is the usual slip when a client with CleanSession 0 is moved from 3.1.1: everything
    works until the first reconnect, when subscriptions and queued messages are gone.

    Instead, set a Session Expiry Interval, or Clean Start 1 where nothing has to survive.
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
        """What is left out counts as 0."""
        if packet.clean_start is not False or packet.properties is None or packet.properties.session_expiry_interval:
            return None
        return self.report(
            "clean_start",
            f"CONNECT of {at.client_name!r}: Clean Start 0 but Session Expiry Interval 0, the session ends with the "
            "connection anyway",
        )
