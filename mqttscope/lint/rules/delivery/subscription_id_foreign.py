from collections.abc import Iterator

from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import V5, Confidence, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt import Direction, Publish
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER
from mqttscope.session.matching import ClientSubscription, Match
from mqttscope.session.subscriptions import Subscriptions


class SubscriptionIdForeign(Rule):
    """A message carries a Subscription Identifier that no matching subscription has.

    Clients use this number to select the handler of a message, so the wrong handler is called.  Identifiers that a
    filter had before it was replaced or unsubscribed may still appear on messages in flight.

    Instead, send the identifiers of the matching subscriptions only.
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
        its own identifier
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0; < publish a x subscription_identifier=7
        identifiers of two subscriptions
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0
            < publish a x subscription_identifier=8 subscription_identifier=7
        the old identifier during the new SUBSCRIBE
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 a:0 subscription_identifier=8; < publish a x subscription_identifier=7 & suback 11 0
        shortly after the UNSUBACK
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0; > unsubscribe 12 a; < unsuback 12 0
            +4.9 < publish a x subscription_identifier=7 subscription_identifier=8
        from the previous connection, and the session continues
            opened resume session_expiry_interval=3600; > subscribe 1 a:0 subscription_identifier=7; < suback 1 0
            > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 < publish a subscription_identifier=7
        replaced when the session continued, with a message queued
            opened resume session_expiry_interval=3600; > subscribe 1 a:0 subscription_identifier=7; < suback 1 0
            > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 > subscribe 1 a:0 subscription_identifier=8
            @1 < publish a subscription_identifier=7; @1 < suback 1 0
    """)
    bad = examples("""
        an identifier that was never used
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            < publish a x subscription_identifier=9 !properties.subscription_identifier
        identifier of a subscription that does not match
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 b:0 subscription_identifier=8; < suback 11 0
            < publish a x subscription_identifier=7 subscription_identifier=8 !properties.subscription_identifier
        identifier of a subscription that ended long ago
            opened; > subscribe 10 a:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0; > unsubscribe 12 a; < unsuback 12 0
            +5.5 < publish a x subscription_identifier=7 subscription_identifier=8 !properties.subscription_identifier
        unknown identifier in a continued session
            opened resume session_expiry_interval=3600; > subscribe 1 a:0 subscription_identifier=7; < suback 1 0
            > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present
            @1 < publish a subscription_identifier=8 !properties.subscription_identifier
    """)

    def check(self, packet: Publish, at: RuleContext) -> Iterator[Report] | None:
        """Look for the subscriptions with these identifiers."""
        block = packet.properties
        if block is None or block.first(SUBSCRIPTION_IDENTIFIER) is None or at.topic is None:
            return None
        table = at.history.subscriptions
        match = session_match(at.topic, at)
        carried = block.subscription_identifier
        if packet.dup or not match.known or all(number in match.identifiers for number in carried):
            return None
        return self._foreign(carried, match, table, at)

    def _foreign(self, carried: list[int], match: Match, table: Subscriptions, at: RuleContext) -> Iterator[Report]:
        grace = self.nanoseconds("grace")
        for number in dict.fromkeys(carried):
            if number in match.identifiers or not number:
                continue  # PRP106 reports the invalid identifier 0
            sure = None
            if number in match.possible_identifiers:
                over = [
                    row.ended_ns
                    for row in match.ended
                    if number == row.subscription_identifier and row.ended_ns is not None
                ]
                if not match.subscriptions or not over or at.timestamp_ns - max(over) <= grace:
                    continue
                if any(number in subscription.formerly for subscription in match.subscriptions):
                    continue
                if any(row.replaced and row.replaced.subscription_identifier == number for row in match.subscriptions):
                    continue
                sure = Confidence.LIKELY
            others = [
                row.topic_filter
                for row in (*table.live.values(), *table.ended.values(), *self._inherited(at))
                if number == row.subscription_identifier or number in row.formerly
            ]
            if others and not match.subscriptions:
                continue  # other rules report a message without a matching subscription
            owner = f"it belongs to {others[0]!r}" if others else "the client never used it"
            yield self.report(
                "properties.subscription_identifier",
                f"PUBLISH {at.topic!r} to {at.client_name!r} carries Subscription Identifier {number}, which no "
                f"matching subscription has; {owner}",
                confidence=sure,
            )

    def _inherited(self, at: RuleContext) -> Iterator[ClientSubscription]:
        """Subscriptions of earlier connections of a continued session."""
        if at.connection.session_present:
            yield from at.model(SessionModel).filters.values()
