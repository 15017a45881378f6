"""Delivery to subscribers (DLV)."""

from collections.abc import Iterable
from typing import ClassVar

from mqttscope.lint.message_model import Messages, Pairing
from mqttscope.lint.model import Model
from mqttscope.lint.rules import Confidence, Needs, Rule, RuleContext, Severity
from mqttscope.mqtt import Direction, Publish
from mqttscope.session.matching import Match, Subscribed

ALL_SUBSCRIPTIONS = Needs.OPENING | Needs.SESSION_BIRTH | Needs.WHOLE_RECEIVER
"""What a capture must have for the table of subscriptions to hold all of them."""
_SHOWN = 3


class MessageRule(Rule):
    """A delivery of a message whose publication was captured."""

    confidence = Confidence.LIKELY
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    models: ClassVar[tuple[type[Model], ...]] = (Messages,)
    about = (Messages, "topics")


class DeliveryRule(Rule):
    """A message to a subscriber that its subscriptions do not explain; the capture may lack what does."""

    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS


def filters_of(subscriptions: Iterable[Subscribed]) -> str:
    """The Topic Filters of subscriptions for a message: the first few."""
    names = [one.topic_filter for one in subscriptions]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def paired(packet: Publish, at: RuleContext) -> Pairing | None:
    """What a server sends for the first time, with what it had received; ``None`` where nothing can be said of it."""
    if packet.dup:
        return None
    return at.model(Messages).pairing(packet, at)


def steady_match(topic: str, since_ns: int, at: RuleContext, match: Match | None = None) -> Match | None:
    """The subscriptions of a client that match a topic, where all are known and none has changed since some time.

    ``match``: those that match, by default those of this connection.
    """
    if match is None:
        match = at.history.subscriptions.match(topic)
    if not match.known or not match.subscriptions or match.replaces or match.ended or match.extended:
        return None
    for one in match.subscriptions:
        if one.granted is None or one.granted_ns >= since_ns or one.ending_ns is not None or one.doubtful:
            return None
    return match


def waited_until_ns(packet: Publish, topic: str, at: RuleContext) -> int | None:
    """Until when a message has waited in the server for certain; ``None`` where the capture does not say.

    That is when the subscriber connected, or subscribed where the message is retained: what comes later may have
    waited in the network.
    """
    connack = at.history.connack_sent
    if connack is None:
        return None
    since_ns = connack.timestamp_ns
    if packet.retain:
        match = at.history.subscriptions.match(topic)
        if not match.retain_as_published:
            asked = [one.timestamp_ns for one in match.subscriptions if one.asks_for_retained]
            since_ns = max(since_ns, min(asked, default=0))
    return since_ns
