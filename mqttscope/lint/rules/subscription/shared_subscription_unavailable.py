"""SUB215."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.lint.rules.subscription import and_more
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Subscribe


class SharedSubscriptionUnavailable(Rule):
    """A client asks for a Shared Subscription although the server announced that it has none.

    CONNACK said Shared Subscription Available 0, so the server answers with 0x9E (Shared Subscriptions not supported)
    and may close the connection.  A client that subscribes before the CONNACK has reached it only guesses, so then the
    finding is likely at best.

    Instead, wait for the CONNACK, and subscribe without ``$share/``.
    """

    code = "SUB215"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x9E
    versions = (V5,)
    statements = {V5: {"V5-SUBSCRIBE-shared-unavailable": ""}}
    looks_at = Subscribe
    signs = ("unavailable",)
    sender = Direction.CLIENT_TO_SERVER
    needs = Needs.OPENING

    good = examples("""
        an ordinary subscription
            opened < shared_subscription_available=0; > subscribe 10 a:1; < suback 10 1
        absent means available
            opened; > subscribe 10 $share/g/a:1; < suback 10 1
    """)
    bad = examples("""
        a share where the server has none
            opened < shared_subscription_available=0; > subscribe 10 $share/g/a:1 !subscriptions[0].topic_filter
        sent before the CONNACK had arrived
            opened < shared_subscription_available=0
            crossing > subscribe 10 $share/g/a:1 !subscriptions[0].topic_filter
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Compare with what CONNACK announced; one finding, however many filters the packet has."""
        if at.connection.shared_subscription_available:
            return None
        rows = packet.subscriptions or ()
        wrong = [index for index, row in enumerate(rows) if row.topic_filter.startswith("$share/")]
        if not wrong:
            return None
        severity, confidence = at.awareness()
        return self.report(
            f"subscriptions[{wrong[0]}].topic_filter",
            f"SUBSCRIBE {rows[wrong[0]].topic_filter!r}{and_more(len(wrong))}: the server announced Shared "
            "Subscription Available 0",
            severity=severity,
            confidence=confidence,
        )
