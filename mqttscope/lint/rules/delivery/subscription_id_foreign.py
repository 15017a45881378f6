from collections.abc import Iterator

from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import V5, Confidence, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt import Direction, Publish
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER
from mqttscope.session.matching import Match, Subscribed
from mqttscope.session.subscriptions import Subscriptions


class SubscriptionIdForeign(Rule):
    """A message carries a Subscription Identifier that no matching subscription has.

    Clients choose the handler of a message by that number, so it goes to the wrong one.  Identifiers that a filter had
    before it was subscribed again or unsubscribed may come with messages that were under way.

    Instead, send the identifiers of the subscriptions that the topic matches, and no others.
    """

    code = "DLV204"
    scope = Scope.SESSION
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"V5-PUBLISH-foreign-subscription-id": ""}}
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"
    signs = ("foreign_identifier",)
    needs = ALL_SUBSCRIPTIONS
    settings = {"grace": 5}
    models = (SessionModel,)

    good = examples("""
        its own
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0; < publish a x subscription_identifier=7
        those of two subscriptions
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0
            < publish a x subscription_identifier=8 subscription_identifier=7
        the old one while the new SUBSCRIBE is under way
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 a:0 subscription_identifier=8; < publish a x subscription_identifier=7 & suback 11 0
        shortly after the UNSUBACK
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0; > unsubscribe 12 a; < unsuback 12 0
            +4.9 < publish a x subscription_identifier=7 subscription_identifier=8
        of the connection before, whose session continues
            opened resume session_expiry_interval=3600; > subscribe 1 a:0 subscription_identifier=7; < suback 1 0
            > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 < publish a subscription_identifier=7
        replaced when the session continued, while a message waited
            opened resume session_expiry_interval=3600; > subscribe 1 a:0 subscription_identifier=7; < suback 1 0
            > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 > subscribe 1 a:0 subscription_identifier=8
            @1 < publish a subscription_identifier=7; @1 < suback 1 0
    """)
    bad = examples("""
        one that nobody asked for
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            < publish a x subscription_identifier=9 !properties.subscription_identifier
        that of a subscription that does not match
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 b:0 subscription_identifier=8; < suback 11 0
            < publish a x subscription_identifier=7 subscription_identifier=8 !properties.subscription_identifier
        that of a subscription that ended long ago
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0; > unsubscribe 12 a; < unsuback 12 0
            +5.5 < publish a x subscription_identifier=7 subscription_identifier=8 !properties.subscription_identifier
        none of the session that continues
            opened resume session_expiry_interval=3600; > subscribe 1 a:0 subscription_identifier=7; < suback 1 0
            > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present
            @1 < publish a subscription_identifier=8 !properties.subscription_identifier
    """)

    def check(self, packet: Publish, at: RuleContext) -> Iterator[Report] | None:
        """Look up who has the identifiers."""
        block = packet.properties
        if block is None or block.first(SUBSCRIPTION_IDENTIFIER) is None or at.topic is None:
            return None
        table = at.history.subscriptions
        found = session_match(at.topic, at)
        carried = block.subscription_identifier
        if packet.dup or not found.known or all(number in found.identifiers for number in carried):
            return None
        return self._foreign(carried, found, table, at)

    def _foreign(self, carried: list[int], found: Match, table: Subscriptions, at: RuleContext) -> Iterator[Report]:
        grace = self.nanoseconds("grace")
        for number in dict.fromkeys(carried):
            if number in found.identifiers or not number:
                continue  # 0 is no identifier at all: PRP106
            sure = None
            if number in found.possible_identifiers:
                over = [
                    one.ended_ns
                    for one in found.ended
                    if number == one.subscription_identifier and one.ended_ns is not None
                ]
                if not found.subscriptions or not over or at.timestamp_ns - max(over) <= grace:
                    continue
                if any(number in one.formerly for one in found.subscriptions):
                    continue
                if any(one.replaced and one.replaced.subscription_identifier == number for one in found.subscriptions):
                    continue
                sure = Confidence.LIKELY
            others = [
                one.topic_filter
                for one in (*table.live.values(), *table.ended.values(), *self._brought(at))
                if number == one.subscription_identifier or number in one.formerly
            ]
            if others and not found.subscriptions:
                continue  # a message that matches nothing is another rule's business
            whose = f"it belongs to {others[0]!r}" if others else "the client never used it"
            yield self.report(
                "properties.subscription_identifier",
                f"PUBLISH {at.topic!r} to {at.client_name!r} carries Subscription Identifier {number}, which no "
                f"matching subscription has; {whose}",
                confidence=sure,
            )

    def _brought(self, at: RuleContext) -> Iterator[Subscribed]:
        """Subscriptions of earlier connections, where the session continues."""
        if at.connection.session_present:
            yield from at.model(SessionModel).filters.values()
