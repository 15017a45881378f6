"""SUB214."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Subscribe
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER


class SubscriptionIdUnavailable(Rule):
    """A SUBSCRIBE carries a Subscription Identifier although the server announced that it has none.

    CONNACK said Subscription Identifiers Available 0, so the server closes the connection with 0xA1 (Subscription
    Identifiers not supported).  A client that subscribes before the CONNACK has reached it only guesses, so then the
    finding is likely at best.

    Instead, wait for the CONNACK, and find the handler of a message by its topic.
    """

    code = "SUB214"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0xA1
    versions = (V5,)
    statements = {V5: {"V5-SUBSCRIBE-id-unavailable": ""}}
    looks_at = Subscribe
    signs = ("unavailable",)
    sender = Direction.CLIENT_TO_SERVER
    needs = Needs.OPENING

    good = examples("""
        no identifier
            opened < subscription_identifier_available=0; > subscribe 10 a:1; < suback 10 1
        absent means available
            opened; > subscribe 10 a:1 subscription_identifier=1; < suback 10 1
    """)
    bad = examples("""
        an identifier where the server has none
            opened < subscription_identifier_available=0
            > subscribe 10 a:1 subscription_identifier=1 !properties.subscription_identifier
        sent before the CONNACK had arrived
            opened < subscription_identifier_available=0
            crossing > subscribe 10 a:1 subscription_identifier=1 !properties.subscription_identifier
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Compare with what CONNACK announced."""
        if at.connection.subscription_identifier_available or packet.properties is None:
            return None
        identifier = packet.properties.first(SUBSCRIPTION_IDENTIFIER)
        if identifier is None:
            return None
        severity, confidence = at.awareness()
        return self.report(
            "properties.subscription_identifier",
            f"SUBSCRIBE has Subscription Identifier {identifier}: the server announced Subscription Identifiers "
            "Available 0",
            severity=severity,
            confidence=confidence,
        )
