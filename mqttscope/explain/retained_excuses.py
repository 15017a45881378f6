"""Reasons why a client that subscribed later rightly got no copy of a retained message.

The broker had refused the message, it had expired, the client asked for no retained messages, the message is larger
than the client takes, or a will to the topic with Will Retain 1 was due in between.  The delivery of such a will need
not be in the capture: with an empty payload it removes the retained message, and nobody is sent that later.  A delivery
of the message with RETAIN 1 after the will was due contradicts that.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqttscope.explain import describe
from mqttscope.explain.arrivals import LARGER, over_limit
from mqttscope.explain.fates import Fate, Published, Subscriber, Wanted
from mqttscope.mqtt.parts import Will
from mqttscope.session.matching import FAILURE


@dataclass(slots=True, frozen=True)
class RetainedExcuse:
    """Why a broker has no copy to send, as the end of a sentence."""

    fate: Fate
    text: str
    advice: tuple[str, ...] = ()


def excuse_of(
    message: Published, client: Subscriber, wanted: Wanted, due: tuple[int, Will] | None
) -> RetainedExcuse | None:
    """The first reason that the capture shows; ``due``: the will that it had to retain, and its frame."""
    if (message.code or 0) >= FAILURE:
        refused = f"; the broker had refused the message ({describe.code(message.code or 0)}), and"
        if message.is_empty:
            return RetainedExcuse(Fate.NOT_CONCERNED, f"{refused} it removed no retained message")
        return RetainedExcuse(Fate.MESSAGE_REFUSED, f"{refused} keeps no copy of it")
    if message.expires_ns <= wanted.asked_ns:
        text = f"; the message had expired (Message Expiry Interval {message.expiry} s)"
        return RetainedExcuse(Fate.EXPIRED, text, ("Raise the Message Expiry Interval of the publisher.",))
    if wanted.retain_handling == NEVER_SENT:
        text = f" with Retain Handling {NEVER_SENT}: it asked for no retained messages (5.0 3.8.3.1)"
        return RetainedExcuse(Fate.NOT_CONCERNED, text, ("Subscribe with Retain Handling 0 to get them.",))
    if limit := over_limit(message, client, wanted, wanted.largest):
        return RetainedExcuse(Fate.TOO_LARGE, f", and {limit}", (LARGER,))
    if due is None:
        return None
    frame, will = due
    did = "replaced" if will.will_payload else "removed"
    text = f"; by then the will of frame {frame}, with Will Retain 1, most probably had {did} this retained message"
    return RetainedExcuse(Fate.NOT_CONCERNED, text)


NEVER_SENT = 2
"""Retain Handling of a subscription that gets no retained messages."""
