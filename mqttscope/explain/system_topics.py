"""Messages to topics that begin with $, and subscriptions that do not match them because they begin with a wildcard.

A Topic Filter that begins with # or + does not match a Topic Name that begins with $ (5.0 and 3.1.1, MQTT-4.7.2-1).
That follows from the filter and the topic alone; another subscription of the client that matches contradicts that it
does not get the message, and so does a delivery to it.

A broker publishes to topics below $SYS itself, and a message to one that no captured client published is most probably
its own.  RETAIN does not matter for that: brokers publish them with and without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mqttscope.events import PacketEvent
from mqttscope.explain import describe, model
from mqttscope.explain.fates import Subscriber
from mqttscope.explain.nearness import is_hidden
from mqttscope.mqtt.topics import matches
from mqttscope.session.matching import FAILURE

MAX_TOPICS = 100
"""Maximum number of topics that begin with $ and that filters are compared with."""
SYSTEM = "$SYS/"
Key = tuple[str, str]


class SystemTopics:
    """Counts the messages of brokers themselves, and names the clients with a filter that does not match them."""

    def __init__(self) -> None:
        self.count = 0
        self._first = ""
        self._readers: dict[tuple[str, str], set[str]] = {}
        """Names of the clients that got a message, by the host of the broker and topic."""
        self._left_out = 0

    def note(self, known: Subscriber, topic: str, event: PacketEvent) -> bool:
        """Take a delivery without a publisher; whether the message is one of the broker itself."""
        if not topic.startswith("$"):
            return False
        place = known.server, topic
        if place in self._readers or len(self._readers) < MAX_TOPICS:
            self._readers.setdefault(place, set()).add(known.name)
        else:
            self._left_out += 1
        if not topic.startswith(SYSTEM):
            return False
        self.count += 1
        self._first = self._first or f"{describe.name(topic)} to {known.name}, frame {event.frame}"
        return True

    def sentences(self, asked: str, clients: Mapping[Key, Subscriber], *, is_empty: bool) -> Iterator[str]:
        """Sentences about the messages of brokers, and about the clients that do not get them.

        ``asked``: the Topic Filter of the question; ``is_empty``: whether no message to it was published.
        """
        if self.count:
            which = "One delivery is of a message" if self.count == 1 else f"{self.count:,} deliveries are of messages"
            yield (
                f"{which} to {SYSTEM}, which no captured client published: most probably of the broker itself; the"
                f" first: {self._first}."
            )
        yield from self._without(asked, clients, is_empty=is_empty)
        if self._left_out:
            yield (
                f"limit: filters are compared with {MAX_TOPICS:,} topics that begin with $; deliveries of others:"
                f" {self._left_out:,}."
            )

    def _without(self, asked: str, clients: Mapping[Key, Subscriber], *, is_empty: bool) -> Iterator[str]:
        """A sentence about the clients with filters that begin with a wildcard."""
        places: Mapping[tuple[str, str], set[str]] = self._readers
        if not places and is_empty and asked.startswith("$"):
            level = asked.replace("+", "x").replace("#", "x")
            places = {(server, level): set() for server in dict.fromkeys(server for server, _ in clients)}
        hidden: dict[Key, str] = {}
        examples: dict[str, str] = {}
        for (server, topic), readers in places.items():
            for key, client in clients.items():
                if client.server != server:
                    continue
                good = [
                    wanted
                    for wanted in client.filters.values()
                    if matches(wanted.plain_filter, topic, shared=False)
                ]  # fmt: skip
                if client.name in readers and good:
                    examples.setdefault(
                        describe.name(good[0].topic_filter), f"{client.name} did (frame {good[0].frame})"
                    )
                if good or client.name in readers or key in hidden:
                    continue
                live = (row for row in client.filters.values() if row.ended_ns is None and (row.code or 0) < FAILURE)
                wanted = next((row for row in live if is_hidden(topic, row.plain_filter)), None)
                if wanted is not None:
                    hidden[key] = f"{client.name} ({describe.name(wanted.topic_filter)} in frame {wanted.frame})"
        if not hidden:
            return
        names = describe.listed(list(hidden.values()), model.MAX_REPORTED)
        verb = "does" if len(hidden) == 1 else "do"
        name, example = next(iter(examples.items()), ("", ""))
        how = f"Subscribe to {name}, as {example}." if name else f"Subscribe to {describe.name(asked)}."
        yield (
            f"{names} {verb} not get these messages: a Topic Filter that begins with a wildcard does not match a topic"
            f" that begins with $ (5.0 and 3.1.1, MQTT-4.7.2-1). {how}"
        )
