"""Retained messages (RET)."""

from mqttscope.lint.rules import RuleContext
from mqttscope.session.matching import Subscribed


def askers(topic: str, at: RuleContext) -> list[Subscribed] | None:
    """The subscriptions that a message with RETAIN 1 can answer: those in force, ended and replaced ones.

    ``None`` where the flag may come from the publisher (Retain As Published, a bridge before 5.0), or where not all
    subscriptions are known.
    """
    match = at.history.subscriptions.match(topic)
    connect = at.history.connect
    if not match.subscriptions or not match.known or match.retain_as_published or match.extended:
        return None
    if connect is not None and connect.bridge:
        return None
    replaced = [one.replaced for one in match.subscriptions if one.replaced is not None]
    return [*match.subscriptions, *match.ended, *replaced]
