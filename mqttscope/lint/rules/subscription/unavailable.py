"""SUB213 to SUB215: subscription features that the server does not support, according to CONNACK."""

from typing import ClassVar

from mqttscope.lint.rules import V5, Findings, RuleContext, examples
from mqttscope.lint.rules.subscription import and_more
from mqttscope.lint.shared_checks import AnnouncedLimitRule
from mqttscope.mqtt import Direction, Subscribe
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER
from mqttscope.mqtt.topics import parse_shared


class UnavailableRule(AnnouncedLimitRule):
    """A rule about topic filters that need an unsupported feature."""

    sender = Direction.CLIENT_TO_SERVER
    signs = ("unavailable",)
    announced: ClassVar[str]
    """The CONNACK property that announces the feature."""

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Compare with CONNACK; one finding for all filters of the packet."""
        if getattr(at.connection, self.announced):
            return None
        rows = packet.subscriptions or ()
        wrong = [index for index, row in enumerate(rows) if self.needs_it(row.topic_filter)]
        if not wrong:
            return None
        feature = self.announced.replace("_", " ").title()
        message = f"SUBSCRIBE {rows[wrong[0]].topic_filter!r}{and_more(len(wrong))}: the server announced {feature} 0"
        return self.ignored(f"subscriptions[{wrong[0]}].topic_filter", message, at)

    def needs_it(self, topic_filter: str) -> bool:
        """Whether a filter needs the unsupported feature."""
        raise NotImplementedError


class WildcardSubscriptionUnavailable(UnavailableRule):
    """A client subscribes with a wildcard although the server does not support wildcards.

    CONNACK had Wildcard Subscription Available 0, so the server answers with 0xA2 (Wildcard Subscriptions not
    supported) and may close the connection.  A client that subscribes before the CONNACK reaches it can only guess, so
    then the finding is at most likely.

    Instead, wait for the CONNACK, and subscribe to each topic by its name.
    """

    code = "SUB213"
    announced = "wildcard_subscription_available"
    reason_code = 0xA2
    statements = {V5: {"V5-SUBSCRIBE-wildcard-unavailable": ""}}

    good = examples("""
        no wildcard
            opened < wildcard_subscription_available=0; > subscribe 10 a/b:1; < suback 10 1
        supported by default
            opened; > subscribe 10 a/#:1; < suback 10 1
    """)
    bad = examples("""
        a wildcard that the server does not support
            opened < wildcard_subscription_available=0; > subscribe 10 a/#:1 !subscriptions[0].topic_filter
        in the filter of a Shared Subscription
            opened < wildcard_subscription_available=0; > subscribe 10 a:1 $share/g/+:1 !subscriptions[1].topic_filter
        one finding for many filters
            opened < wildcard_subscription_available=0
            > subscribe 10 a:1 a/#:1 b/#:1 +:1 !subscriptions[1].topic_filter
        sent before the CONNACK arrived
            opened < wildcard_subscription_available=0; crossing > subscribe 10 a/#:1 !subscriptions[0].topic_filter
    """)

    def needs_it(self, topic_filter: str) -> bool:
        """Whether the filter has a wildcard outside the name of a share."""
        share = parse_shared(topic_filter)
        name = topic_filter if share is None else share[1]
        return "+" in name or "#" in name


class SubscriptionIdUnavailable(AnnouncedLimitRule):
    """A SUBSCRIBE has a Subscription Identifier although the server does not support Subscription Identifiers.

    CONNACK had Subscription Identifiers Available 0, so the server closes the connection with 0xA1 (Subscription
    Identifiers not supported).  A client that subscribes before the CONNACK reaches it can only guess, so then the
    finding is at most likely.

    Instead, wait for the CONNACK, and choose the handler of a message by its topic.
    """

    code = "SUB214"
    sender = Direction.CLIENT_TO_SERVER
    signs = ("unavailable",)
    reason_code = 0xA1
    statements = {V5: {"V5-SUBSCRIBE-id-unavailable": ""}}

    good = examples("""
        no identifier
            opened < subscription_identifier_available=0; > subscribe 10 a:1; < suback 10 1
        supported by default
            opened; > subscribe 10 a:1 subscription_identifier=1; < suback 10 1
    """)
    bad = examples("""
        an identifier that the server does not support
            opened < subscription_identifier_available=0
            > subscribe 10 a:1 subscription_identifier=1 !properties.subscription_identifier
        sent before the CONNACK arrived
            opened < subscription_identifier_available=0
            crossing > subscribe 10 a:1 subscription_identifier=1 !properties.subscription_identifier
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Check the property of the packet."""
        if at.connection.subscription_identifier_available or packet.properties is None:
            return None
        identifier = packet.properties.first(SUBSCRIPTION_IDENTIFIER)
        if identifier is None:
            return None
        message = f"SUBSCRIBE has Subscription Identifier {identifier}: the server announced Subscription Identifiers "
        return self.ignored("properties.subscription_identifier", f"{message}Available 0", at)


class SharedSubscriptionUnavailable(UnavailableRule):
    """A client requests a Shared Subscription although the server does not support Shared Subscriptions.

    CONNACK had Shared Subscription Available 0, so the server answers with 0x9E (Shared Subscriptions not supported)
    and may close the connection.  A client that subscribes before the CONNACK reaches it can only guess, so then the
    finding is at most likely.

    Instead, wait for the CONNACK, and subscribe without ``$share/``.
    """

    code = "SUB215"
    announced = "shared_subscription_available"
    reason_code = 0x9E
    statements = {V5: {"V5-SUBSCRIBE-shared-unavailable": ""}}

    good = examples("""
        an ordinary subscription
            opened < shared_subscription_available=0; > subscribe 10 a:1; < suback 10 1
        supported by default
            opened; > subscribe 10 $share/g/a:1; < suback 10 1
    """)
    bad = examples("""
        a Shared Subscription that the server does not support
            opened < shared_subscription_available=0; > subscribe 10 $share/g/a:1 !subscriptions[0].topic_filter
        sent before the CONNACK arrived
            opened < shared_subscription_available=0
            crossing > subscribe 10 $share/g/a:1 !subscriptions[0].topic_filter
    """)

    def needs_it(self, topic_filter: str) -> bool:
        """Whether the filter is shared."""
        return topic_filter.startswith("$share/")
