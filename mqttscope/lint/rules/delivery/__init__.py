"""Delivery to subscribers (DLV)."""

from collections.abc import Iterable
from typing import ClassVar

from mqttscope.lint.message_model import Messages, Pairing
from mqttscope.lint.model import Model
from mqttscope.lint.rules import Confidence, Needs, Rule, RuleContext, Severity
from mqttscope.mqtt import Direction, Publish
from mqttscope.session.matching import ClientSubscription, Match

ALL_SUBSCRIPTIONS = Needs.OPENING | Needs.SESSION_BIRTH | Needs.WHOLE_RECEIVER
"""Needs of rules that require the complete table of subscriptions."""
_SHOWN = 3


class MessageRule(Rule):
    """A rule about a delivered message that was also captured when it was published."""

    confidence = Confidence.LIKELY
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    models: ClassVar[tuple[type[Model], ...]] = (Messages,)
    about = (Messages, "topics")


class DeliveryRule(Rule):
    """A rule about messages that no captured subscription explains."""

    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS


def filters_of(subscriptions: Iterable[ClientSubscription]) -> str:
    """The first few Topic Filters of subscriptions, for a finding."""
    names = [subscription.topic_filter for subscription in subscriptions]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def pairing_of(packet: Publish, at: RuleContext) -> Pairing | None:
    """The published message that a delivery belongs to, or ``None`` if it is a repeat or unknown."""
    if packet.dup:
        return None
    return at.model(Messages).pairing(packet, at)


def steady_match(topic: str, since_ns: int, at: RuleContext, match: Match | None = None) -> Match | None:
    """The subscriptions of a client that match a topic, if all are known and have not changed since a given time.

    ``match`` contains the matching subscriptions, by default those on this connection.
    """
    if match is None:
        match = at.history.subscriptions.match(topic)
    if not match.known or not match.subscriptions or match.replaces or match.ended or match.extended:
        return None
    for row in match.subscriptions:
        if row.granted is None or row.granted_ns >= since_ns or row.ending_ns is not None or row.doubtful:
            return None
    return match


def waited_until_ns(packet: Publish, topic: str, at: RuleContext) -> int | None:
    """Time until which a message certainly waited in the server, or ``None`` if unknown.

    That is when the subscriber connected, or subscribed if the message is retained: after that it may have waited in
    the network.
    """
    connack = at.history.connack_sent
    if connack is None:
        return None
    since_ns = connack.timestamp_ns
    if packet.retain:
        match = at.history.subscriptions.match(topic)
        if not match.retain_as_published:
            asked = [row.timestamp_ns for row in match.subscriptions if row.asks_for_retained]
            since_ns = max(since_ns, min(asked, default=0))
    return since_ns
