"""Delivery to subscribers (DLV)."""

from collections.abc import Iterable

from mqttscope.lint.rule import Needs
from mqttscope.session.matching import Subscribed

ALL_SUBSCRIPTIONS = Needs.OPENING | Needs.SESSION_BIRTH | Needs.WHOLE_RECEIVER
"""What a capture must have for the table of subscriptions to hold all of them."""
SECOND_NS = 1_000_000_000
_SHOWN = 3


def filters_of(subscriptions: Iterable[Subscribed]) -> str:
    """The Topic Filters of subscriptions for a message: the first few."""
    names = [one.topic_filter for one in subscriptions]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
