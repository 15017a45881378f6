"""Messages that a broker drops because of their size.

Of the messages of a topic that were due to a client, all up to a size arrived, and all from a larger size on did not.
That is most probably a limit of the size if the order is mixed (a shorter one arrived after a longer one was missing,
and a longer one was missing after a shorter one had arrived), and if chance would sort them like that in at most one of
20 cases.  A message that contradicts the sizes disproves it, and so does a cause that depends on time alone: a full
queue, a limit of the rate, or an end of the subscription.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

from mqttscope.explain.fates import SECOND, Published

LEAST_ORDERS = 20
"""Minimum number of ways to choose the missing messages among all."""
LEAST_OF_EACH = 2
"""Minimum number of messages that arrived, and of messages that did not."""
SIZE = "size limit for "
"""Begins the name of the cause that several messages have in common."""
Key = tuple[str, str]


@dataclass(slots=True, frozen=True)
class SizeLimit:
    """Sizes of the messages of a topic that a client got, and of the missing ones, in bytes of the PUBLISH."""

    came: int
    largest: int
    """Size of the largest message that arrived."""
    missing: int
    smallest: int
    """Size of the smallest message that did not arrive."""
    is_general: bool
    """Whether no other client got one of the missing messages."""

    @property
    def text(self) -> str:
        """The sizes as words."""
        whose = "a size limit of the broker" if self.is_general else "a size limit of the broker for this client"
        return (
            f"it got all {self.came:,} messages to this topic of up to {self.largest:,} bytes, and not one of the"
            f" {self.missing:,} with {self.smallest:,} bytes or more, in mixed order: most probably {whose}"
        )

    @property
    def advice(self) -> str:
        """Advice about the configuration of the broker."""
        return (
            "Look for a limit of the size of messages in the configuration of the broker (mosquitto:"
            f" message_size_limit), between {self.largest:,} and {self.smallest:,} bytes of the PUBLISH."
        )


def size_limit(messages: Iterable[Published], key: Key, topic: str, now_ns: int) -> SizeLimit | None:
    """The size limit that a client meets with the messages of a topic, if it most probably does."""
    came: list[tuple[int, int]] = []
    missing: list[tuple[int, int]] = []
    others = 0
    for message in messages:
        if (message.server, message.topic) != (key[0], topic):
            continue
        if key in message.got:
            came.append((message.size, message.timestamp_ns))
        elif any(held.online and held.best(message, key).applies(message, key) for held in message.held.get(key, ())):
            is_lost = message.is_received and message.timestamp_ns + SECOND <= now_ns and not message.repetition
            if not is_lost or not message.is_whole:
                return None
            missing.append((message.size, message.timestamp_ns))
            others += bool(message.got)
    if min(len(came), len(missing)) < LEAST_OF_EACH or comb(len(came) + len(missing), len(came)) < LEAST_ORDERS:
        return None
    largest, smallest = max(came)[0], min(missing)[0]
    times, missed = [time_ns for _, time_ns in came], [time_ns for _, time_ns in missing]
    if largest >= smallest or max(times) < min(missed) or max(missed) < min(times):
        return None
    return SizeLimit(len(came), largest, len(missing), smallest, not others)
