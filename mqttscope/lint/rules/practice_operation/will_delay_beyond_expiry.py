from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction


class WillDelayBeyondExpiry(Rule):
    """A client delays its will beyond the end of its session.

    The will is published when the delay is over or when the session ends, whichever is first, so a delay beyond the
    Session Expiry Interval has no effect.  This may be intended: then the will announces the end of the session.

    Instead, choose a Session Expiry Interval longer than the delay.
    """

    code = "OPS107"
    severity = Severity.INFO
    versions = (V5,)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        a shorter delay
            opened will=w will_payload=x will.will_delay_interval=10 session_expiry_interval=60
        an equal delay
            opened will=w will_payload=x will.will_delay_interval=60 session_expiry_interval=60
        the session never expires
            opened will=w will_payload=x will.will_delay_interval=4294967295 session_expiry_interval=4294967295
        no delay and no expiry
            opened will=w will_payload=x will.will_delay_interval=0
    """)
    bad = examples("""
        one second longer
            opened will=w will_payload=x will.will_delay_interval=61 session_expiry_interval=60
                !will.properties.will_delay_interval
        the session ends with the connection
            opened will=w will_payload=x will.will_delay_interval=60 !will.properties.will_delay_interval
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Treat missing intervals as 0."""
        if packet.will is None or packet.will.properties is None or packet.properties is None:
            return None
        delay = packet.will.properties.will_delay_interval or 0
        expiry = packet.properties.session_expiry_interval or 0
        if delay <= expiry:
            return None
        return self.report(
            "will.properties.will_delay_interval",
            f"CONNECT of {at.client_name!r}: Will Delay Interval {delay} s exceeds Session Expiry Interval {expiry} s",
        )
