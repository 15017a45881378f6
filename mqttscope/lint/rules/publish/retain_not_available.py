"""PUB210."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish


class RetainNotAvailable(Rule):
    """A client publishes a retained message to a server that keeps none.

    The server said so in CONNACK (Retain Available 0) and closes the connection with 0x9A (Retain not supported).  A
    client that publishes before the CONNACK has reached it only guesses, so then the finding is likely at best.

    Instead, look at Retain Available in CONNACK and publish with RETAIN 0.
    """

    code = "PUB210"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x9A
    versions = (V5,)
    statements = {V5: {"MQTT-3.2.2-14": ""}}
    also = {V5: ("V5-PUBLISH-retain-unavailable",)}
    looks_at = Publish
    sender = Direction.CLIENT_TO_SERVER
    when = "retain"
    needs = Needs.OPENING

    good = examples("""
        RETAIN 0
            opened < retain_available=0; > publish a x
        available
            opened < retain_available=1; > publish a retain
        available by default
            opened; > publish a x retain
        what binds the client does not bind the server
            opened < retain_available=0; < publish a x retain
    """)
    bad = examples("""
        RETAIN 1 all the same
            opened < retain_available=0; > publish a x retain !retain
        sent before the CONNACK had arrived
            opened < retain_available=0; crossing > publish a x retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with what CONNACK announced."""
        if at.connection.retain_available:
            return None
        severity, confidence = at.awareness()
        return self.report(
            "retain",
            f"PUBLISH {at.topic!r} has RETAIN 1, the server announced Retain Available 0",
            severity=severity,
            confidence=confidence,
        )
