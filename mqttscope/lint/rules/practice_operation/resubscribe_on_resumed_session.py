from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import count
from mqttscope.lint.topics import Seen
from mqttscope.mqtt import Direction, Subscribe


class ResubscribeOnResumedSession(Rule):
    """A client subscribes again although its session was resumed.

    The subscriptions are part of the session and still there.  Each one that is made again brings all its retained
    messages once more, unless Retain Handling keeps them away.  One connection does not show what the session held,
    so this is likely rather than certain, and reported for the first SUBSCRIBE soon after the CONNACK.

    Instead, look at Session Present and subscribe only when it is 0, or with Retain Handling 1.
    """

    code = "OPS218"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Seconds after the CONNACK in which a SUBSCRIBE is taken for what the client does after each connect.
        "seconds": 5,
    }
    Memory = Seen

    good = examples("""
        nothing is subscribed
            opened resume session_expiry_interval=3600 < present
        the session is new
            opened resume session_expiry_interval=3600; > subscribe 1 a:0; < suback 1 0
        Retain Handling keeps retained messages away
            opened resume session_expiry_interval=3600 < present
            > subscribe 1 a:0,retain_handling=1 b:0,retain_handling=2; < suback 1 0 0
        something new, later
            opened 3.1.1 resume < present; +6 > subscribe 1 a:0; < suback 1 0
        the client could not know yet
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
        """The client must have known of the session."""
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
