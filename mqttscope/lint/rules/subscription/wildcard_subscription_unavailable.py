"""SUB213."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, crossing, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.lint.rules.subscription import and_more
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
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

    good = examples(
        lambda: [
            conversation(
                "no wildcard",
                *opened(connack=Properties(wildcard_subscription_available=0)),
                client(Subscribe(10, subscriptions=[Subscription("a/b", 1)])),
                server(Suback(10, reason_codes=[1])),
            ),
            conversation(
                "absent means available",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("a/#", 1)])),
                server(Suback(10, reason_codes=[1])),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a wildcard where the server has none",
                *opened(connack=Properties(wildcard_subscription_available=0)),
                client(Subscribe(10, subscriptions=[Subscription("a/#", 1)])).marked("subscriptions[0].topic_filter"),
            ),
            conversation(
                "in the filter of a share",
                *opened(connack=Properties(wildcard_subscription_available=0)),
                client(Subscribe(10, subscriptions=[Subscription("a", 1), Subscription("$share/g/+", 1)])).marked(
                    "subscriptions[1].topic_filter"
                ),
            ),
            conversation(
                "one finding for many filters",
                *opened(connack=Properties(wildcard_subscription_available=0)),
                client(
                    Subscribe(10, subscriptions=[Subscription(name, 1) for name in ("a", "a/#", "b/#", "+")])
                ).marked("subscriptions[1].topic_filter"),
            ),
            conversation(
                "sent before the CONNACK had arrived",
                *opened(connack=Properties(wildcard_subscription_available=0)),
                crossing(client(Subscribe(10, subscriptions=[Subscription("a/#", 1)]))).marked(
                    "subscriptions[0].topic_filter"
                ),
            ),
        ]
    )

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
