"""SUB213."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.lint.rules.subscription import and_more
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Subscribe
from mqttscope.mqtt.topics import parse_shared


class WildcardSubscriptionUnavailable(Rule):
    """A client subscribes with a wildcard although the server announced that it has none.

    CONNACK said Wildcard Subscription Available 0, so the server answers with 0xA2 (Wildcard Subscriptions not
    supported) and may close the connection.  A client that subscribes before the CONNACK has reached it only guesses,
    so then the finding is likely at best.

    Instead, wait for the CONNACK, and subscribe to each topic by its name.
    """

    code = "SUB213"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0xA2
    versions = (V5,)
    statements = {V5: {"V5-SUBSCRIBE-wildcard-unavailable": ""}}
    looks_at = Subscribe
    signs = ("unavailable",)
    sender = Direction.CLIENT_TO_SERVER
    needs = Needs.OPENING

    good = examples("""
        no wildcard
            opened < wildcard_subscription_available=0; > subscribe 10 a/b:1; < suback 10 1
        absent means available
            opened; > subscribe 10 a/#:1; < suback 10 1
    """)
    bad = examples("""
        a wildcard where the server has none
            opened < wildcard_subscription_available=0; > subscribe 10 a/#:1 !subscriptions[0].topic_filter
        in the filter of a share
            opened < wildcard_subscription_available=0; > subscribe 10 a:1 $share/g/+:1 !subscriptions[1].topic_filter
        one finding for many filters
            opened < wildcard_subscription_available=0
            > subscribe 10 a:1 a/#:1 b/#:1 +:1 !subscriptions[1].topic_filter
        sent before the CONNACK had arrived
            opened < wildcard_subscription_available=0; crossing > subscribe 10 a/#:1 !subscriptions[0].topic_filter
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Compare with what CONNACK announced; one finding, however many filters the packet has."""
        if at.connection.wildcard_subscription_available:
            return None
        rows = packet.subscriptions or ()
        wrong = [index for index, row in enumerate(rows) if _has_wildcard(row.topic_filter)]
        if not wrong:
            return None
        severity, confidence = at.awareness()
        return self.report(
            f"subscriptions[{wrong[0]}].topic_filter",
            f"SUBSCRIBE {rows[wrong[0]].topic_filter!r}{and_more(len(wrong))}: the server announced Wildcard "
            "Subscription Available 0",
            severity=severity,
            confidence=confidence,
        )


def _has_wildcard(topic_filter: str) -> bool:
    share = parse_shared(topic_filter)
    name = topic_filter if share is None else share[1]
    return "+" in name or "#" in name
