"""DLV204."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import V5, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, SECOND_NS
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish, Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER, Properties
from mqttscope.session.matching import Match
from mqttscope.session.subscriptions import Subscriptions


def _subscribe(number: int, topic_filter: str, packet_identifier: int) -> Subscribe:
    block = Properties(subscription_identifier=number)
    return Subscribe(packet_identifier, block, [Subscription(topic_filter, 0)])


def _message(*identifiers: int, topic: str = "a") -> Publish:
    return Publish(topic_name=topic, properties=Properties(subscription_identifier=list(identifiers)), payload=b"x")


_SEVEN = (client(_subscribe(7, "a", 10)), server(Suback(10, reason_codes=[0])))


class SubscriptionIdForeign(Rule):
    """A message carries a Subscription Identifier that no matching subscription has.

    Clients choose the handler of a message by that number, so it goes to the wrong one.  Identifiers that a filter had
    before it was subscribed again or unsubscribed may come with messages that were under way.

    Instead, send the identifiers of the subscriptions that the topic matches, and no others.
    """

    code = "DLV204"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"V5-PUBLISH-foreign-subscription-id": ""}}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"
    signs = ("foreign_identifier",)
    needs = ALL_SUBSCRIPTIONS
    settings = {"grace": 5}

    good = examples(
        lambda: [
            conversation("its own", *opened(), *_SEVEN, server(_message(7))),
            conversation(
                "those of two subscriptions",
                *opened(),
                *_SEVEN,
                client(_subscribe(8, "#", 11)),
                server(Suback(11, reason_codes=[0])),
                server(_message(8, 7)),
            ),
            conversation(
                "the old one while the new SUBSCRIBE is under way",
                *opened(),
                *_SEVEN,
                client(_subscribe(8, "a", 11)),
                server(_message(7), Suback(11, reason_codes=[0])),
            ),
            conversation(
                "shortly after the UNSUBACK",
                *opened(),
                *_SEVEN,
                client(_subscribe(8, "#", 11)),
                server(Suback(11, reason_codes=[0])),
                client(Unsubscribe(12, topic_filters=["a"])),
                server(Unsuback(12, reason_codes=[0])),
                server(_message(7, 8), after=4.9),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "one that nobody asked for",
                *opened(),
                *_SEVEN,
                server(_message(9)).marked("properties.subscription_identifier"),
            ),
            conversation(
                "that of a subscription that does not match",
                *opened(),
                *_SEVEN,
                client(_subscribe(8, "b", 11)),
                server(Suback(11, reason_codes=[0])),
                server(_message(7, 8)).marked("properties.subscription_identifier"),
            ),
            conversation(
                "that of a subscription that ended long ago",
                *opened(),
                *_SEVEN,
                client(_subscribe(8, "#", 11)),
                server(Suback(11, reason_codes=[0])),
                client(Unsubscribe(12, topic_filters=["a"])),
                server(Unsuback(12, reason_codes=[0])),
                server(_message(7, 8), after=5.5).marked("properties.subscription_identifier"),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Iterator[Report] | None:
        """Look up who has the identifiers."""
        block = packet.properties
        if block is None or block.first(SUBSCRIPTION_IDENTIFIER) is None or at.topic is None:
            return None
        table = at.history.subscriptions
        found = table.match(at.topic)
        carried = block.subscription_identifier
        if packet.dup or not found.known or all(number in found.identifiers for number in carried):
            return None
        return self._foreign(carried, found, table, at)

    def _foreign(self, carried: list[int], found: Match, table: Subscriptions, at: RuleContext) -> Iterator[Report]:
        grace = float(self.set["grace"]) * SECOND_NS
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
                for one in (*table.live.values(), *table.ended.values())
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
