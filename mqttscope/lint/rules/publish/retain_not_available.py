from mqttscope.lint.rules import V5, Findings, RuleContext, examples
from mqttscope.lint.shared_checks import AnnouncedLimitRule
from mqttscope.mqtt import Direction, Publish


class RetainNotAvailable(AnnouncedLimitRule):
    """A client publishes a retained message to a server that does not support retained messages.

    The server announced this in CONNACK (Retain Available 0) and closes the connection with 0x9A (Retain not
    supported).  A client that publishes before the CONNACK reaches it can only guess, so then the finding is at most
    likely.

    Instead, check Retain Available in CONNACK and publish with RETAIN 0.
    """

    code = "PUB210"
    reason_code = 0x9A
    statements = {V5: {"MQTT-3.2.2-14": ""}}
    also = {V5: ("V5-PUBLISH-retain-unavailable",)}
    sender = Direction.CLIENT_TO_SERVER
    when = "retain"

    good = examples("""
        RETAIN 0
            opened < retain_available=0; > publish a x
        available
            opened < retain_available=1; > publish a retain
        available by default
            opened; > publish a x retain
        the limit does not apply to the server
            opened < retain_available=0; < publish a x retain
    """)
    bad = examples("""
        RETAIN 1 in spite of the CONNACK
            opened < retain_available=0; > publish a x retain !retain
        sent before the CONNACK arrived
            opened < retain_available=0; crossing > publish a x retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with Retain Available in CONNACK."""
        if at.connection.retain_available:
            return None
        message = f"PUBLISH {at.topic!r} has RETAIN 1, but the server announced Retain Available 0"
        return self.ignored("retain", message, at)
