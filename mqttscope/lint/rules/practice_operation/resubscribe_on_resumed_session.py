from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import count
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Direction, Subscribe


class ResubscribeOnResumedSession(Rule):
    """A client repeats its subscriptions although its session was resumed.

    The subscriptions are part of the session and still active.  Each repeated one triggers all its retained messages
    again, unless Retain Handling prevents that.  One connection does not show all subscriptions of the session, so this
    is only likely, and reported for the first SUBSCRIBE soon after the CONNACK.

    Instead, check Session Present and subscribe only if it is 0, or use Retain Handling 1.
    """

    code = "OPS218"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Seconds after the CONNACK: a SUBSCRIBE within this time counts as part of the connect routine.
        "seconds": 5,
    }
    Memory = ReportedTexts

    good = examples("""
        no SUBSCRIBE
            opened resume session_expiry_interval=3600 < present
        the session is new
            opened resume session_expiry_interval=3600; > subscribe 1 a:0; < suback 1 0
        Retain Handling prevents retained messages
            opened resume session_expiry_interval=3600 < present
            > subscribe 1 a:0,retain_handling=1 b:0,retain_handling=2; < suback 1 0 0
        a new subscription, later
            opened 3.1.1 resume < present; +6 > subscribe 1 a:0; < suback 1 0
        the client had not received the CONNACK yet
            opened 3.1.1 resume < present; crossing > subscribe 1 a:0; < suback 1 0
    """)
    bad = examples("""
        at once, reported once
            opened resume session_expiry_interval=3600 < present; > subscribe 1 a:0 b:0 !; < suback 1 0 0
            > subscribe 2 c:0; < suback 2 0
        MQTT 3.1.1
            opened 3.1.1 resume < present; > subscribe 1 a:0 !; < suback 1 0
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Check that the client had received Session Present 1."""
        connack = at.history.connack_sent
        if at.connection.session_present is not True or connack is None or not at.knew(connack):
            return None
        if at.timestamp_ns - connack.timestamp_ns > self.set["seconds"] * 1_000_000_000:
            return None
        rows = [row for row in packet.subscriptions or () if at.version is not V5 or row.retain_handling == 0]
        if not rows or not at.memory(self).first(""):
            return None
        return self.report(
            "",
            f"{at.client_name!r} resubscribes {count(len(rows), 'filter')} although Session Present is 1",
            confidence=Confidence.LIKELY,
        )
