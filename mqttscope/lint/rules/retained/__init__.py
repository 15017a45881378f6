"""Retained messages (RET)."""

from mqttscope.lint.rules import RuleContext
from mqttscope.session.matching import ClientSubscription


def asking_subscriptions(topic: str, at: RuleContext) -> list[ClientSubscription] | None:
    """The subscriptions that a message with RETAIN 1 may answer: current, ended and replaced ones.

    ``None`` if the flag may come from the publisher (Retain As Published, a bridge before 5.0), or if not all
    subscriptions are known.
    """
    match = at.history.subscriptions.match(topic)
    connect = at.history.connect
    if not match.subscriptions or not match.known or match.retain_as_published or match.extended:
        return None
    if connect is not None and connect.bridge:
        return None
    replaced = [subscription.replaced for subscription in match.subscriptions if subscription.replaced is not None]
    return [*match.subscriptions, *match.ended, *replaced]
