"""Messages that a broker sends to its clients with another topic than its publisher used.

A broker that uses . and / for each other (RabbitMQ does, between MQTT and AMQP), or that adds or removes a prefix (a
mount point), sends a message with its payload shortly afterwards under the changed topic.  The report shows that if

* the payload left the broker within 0.1 s, with RETAIN 0, and the topics differ only by . and /, or by a prefix,
* at least two messages to the broker were changed like that,
* no client got one of them with its own topic, nor did one that got a changed one get any message to that topic so,
* and no captured client publishes to the changed topic itself.

The last two contradict it.  A client that was not captured may publish each payload again with another topic, so that
it is "most probably" the broker.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mqttscope.events import PacketEvent
from mqttscope.explain import describe, model
from mqttscope.explain.fates import ChangedCopy, Published
from mqttscope.session.connection import host_of

CHANGED_NS = 100_000_000
"""Maximum time between a PUBLISH of a client and its delivery with another topic."""
MAX_PAYLOADS = 4_096
"""Maximum number of payloads that are remembered, and of topics that clients publish to, the latest ones."""
LEAST_CHANGED = 2
"""Minimum number of messages with a changed topic."""
SEPARATORS = "it uses . and / for each other"
Key = tuple[str, str]


def change(published: str, delivered: str) -> str:
    """How a broker may have changed a topic, as words; empty if the topics differ by something else."""
    if published == delivered:
        return ""
    if published.replace(".", "/") == delivered.replace(".", "/"):
        return SEPARATORS
    if delivered.endswith(f"/{published}"):
        return f"it adds {describe.name(delivered.removesuffix(published))}"
    if published.endswith(f"/{delivered}"):
        return f"it removes {describe.name(published.removesuffix(delivered))}"
    return ""


def advice(how: str) -> str:
    """A piece of advice about a broker that changes topics in a way."""
    if how == SEPARATORS:
        return "Publish topics without . (RabbitMQ translates . and /), or subscribe to the changed topic."
    return "Look in the configuration of the broker for a mount point, a prefix, or a rule that changes topics."


@dataclass(slots=True)
class SentMessage:
    """A PUBLISH of a client."""

    timestamp_ns: int
    frame: int
    topic: str
    client: str
    message: Published | None
    """The message, if its topic is followed."""


class ChangedTopics:
    """Finds deliveries with another topic than their message was published with."""

    def __init__(self) -> None:
        self._sent: OrderedDict[tuple[str, int, int], SentMessage] = OrderedDict()
        """The last PUBLISH of a client by the host of its broker, checksum and length of the payload."""
        self._topics: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Topics that clients publish to, by the host of the broker."""
        self._foreign: dict[tuple[str, str], tuple[SentMessage, ChangedCopy, int, str]] = {}
        """The first delivery of a followed topic, by server and topic of a PUBLISH that is not followed; its number."""

    def note_publish(
        self, event: PacketEvent, client: str, payload: tuple[int, int], message: Published | None
    ) -> None:
        """Take a PUBLISH of a client; ``payload``: checksum and length."""
        server, topic = host_of(event.connection.server), event.topic or ""
        _put(self._topics, (server, topic), None)
        _put(self._sent, (server, *payload), SentMessage(event.timestamp_ns, event.frame, topic, client, message))

    def note_delivery(
        self, event: PacketEvent, key: Key, client: str, payload: tuple[int, int], *, is_followed: bool
    ) -> bool:
        """Take a PUBLISH of a broker that is not a copy of a known message; whether it most probably is a changed one.

        ``is_followed``: whether its own topic is one of the topics of the question.
        """
        server, topic = host_of(event.connection.server), event.topic or ""
        sent = self._sent.get((server, *payload)) if payload[1] else None
        if sent is None or getattr(event.packet, "retain", False) or (server, topic) in self._topics:
            return False
        how = change(sent.topic, topic)
        if not how or not 0 <= event.timestamp_ns - sent.timestamp_ns <= CHANGED_NS:
            return False
        copy = ChangedCopy(topic, key, client, event.frame, event.timestamp_ns, event.capture, how)
        if sent.message is not None:
            if len(sent.message.changed) < model.MAX_REPORTED:
                sent.message.changed.append(copy)
            return is_followed
        if not is_followed:
            return False
        place = server, sent.topic
        first = self._foreign.get(place)
        if first is not None:
            self._foreign[place] = first[0], first[1], first[2] + 1, how
        elif len(self._foreign) < model.MAX_REPORTED:
            self._foreign[place] = sent, copy, 1, how
        return True

    def proven(self, messages: Iterable[Published]) -> set[tuple[str, str]]:
        """Changes that a broker most probably makes: its host, and the difference of the topics."""
        counts, contradicted, messages = Counter[tuple[str, str]](), set[tuple[str, str]](), list(messages)
        unchanged = {(message.server, message.topic, key) for message in messages for key in message.got}
        for message in messages:
            copies = self._own(message)
            counts.update({(message.server, copy.how) for copy in copies})
            for copy in copies:
                if message.got or (message.server, message.topic, copy.key) in unchanged:
                    contradicted.add((message.server, copy.how))
        return {place for place, count in counts.items() if count >= LEAST_CHANGED} - contradicted

    def of(self, message: Published, proven: set[tuple[str, str]]) -> list[ChangedCopy]:
        """The copies of a message with another topic, as the broker most probably changed it."""
        return [copy for copy in self._own(message) if (message.server, copy.how) in proven]

    def _own(self, message: Published) -> list[ChangedCopy]:
        """The copies of a message with a topic that no captured client publishes to."""
        return [copy for copy in message.changed if (message.server, copy.topic) not in self._topics]

    @property
    def has_deliveries(self) -> bool:
        """Whether messages of the topics of the question were published with another topic."""
        return bool(self._foreign)

    def sentences(self, messages: list[Published]) -> Iterator[str]:
        """A sentence for each topic with messages that the broker sends with another one."""
        proven = self.proven(messages)
        rows: dict[tuple[str, str], list[Published]] = {}
        for message in messages:
            if message.changed:
                rows.setdefault((message.server, message.topic), []).append(message)
        for place, row in islice(rows.items(), model.MAX_REPORTED):
            copies = self.of(row[0], proven)
            if not copies:
                continue
            total = sum((message.server, message.topic) == place for message in messages)
            longest = max(message.changed[0].timestamp_ns - message.timestamp_ns for message in row)
            yield (
                f"The broker most probably changes topics ({copies[0].how}): it sent the payloads of {len(row):,} of"
                f" {total:,} messages to {describe.name(place[1])} within {describe.span(longest)} as"
                f" {describe.name(copies[0].topic)}; the first: frame {row[0].frame}, sent to {copies[0].client} in"
                f" frame {copies[0].frame}. {advice(copies[0].how)}"
            )
        for sent, copy, count, how in self._foreign.values():
            which = "One delivery has" if count == 1 else f"{count:,} deliveries have"
            yield (
                f"{which} the payload of a message to {describe.name(sent.topic)}; the first: frame {copy.frame} to"
                f" {copy.client}, {describe.span(copy.timestamp_ns - sent.timestamp_ns)} after {sent.client} had"
                f" published it (frame {sent.frame}). Most probably the broker changes topics ({how}). {advice(how)}"
            )


def _put(table: OrderedDict[Any, Any], key: object, value: object) -> None:
    """Add an entry, or make it the latest one."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > MAX_PAYLOADS:
        table.popitem(last=False)
