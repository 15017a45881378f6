"""Messages that a bridge may have published with another topic, without a prefix or with one more.

A client publishes the payload of an earlier PUBLISH of another connection within a second, and one of the two topics
ends with the other one.  Bridges do so by their configuration, and so does a program that publishes a state twice: this
is a candidate for a message that is missing, and no proof.  A PUBLISH of this client with payload and topic of the
earlier one contradicts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from mqttscope.events import PacketEvent
from mqttscope.explain import describe, model
from mqttscope.explain.changed_topics import SEPARATORS, change
from mqttscope.explain.forwards import FORWARD_NS, Sighting
from mqttscope.mqtt.topics import matches

MAX_ROWS = 1_000
"""Maximum number of pairs of topics that are remembered."""
LEAST_BYTES = 4
"""Minimum length of a payload: shorter ones are equal by chance."""
ADVICE = "Compare the topics and prefixes in the configuration of the bridge (mosquitto: topic, in bridge.conf)."
Pair = tuple[str, str, str]
"""Name of the client, and the topics before and after."""


@dataclass(slots=True)
class RenamedForward:
    """Messages that one client published with another topic."""

    sentence: str
    """The first of them."""
    count: int = 0
    is_contradicted: bool = False
    """Whether it also published one with the topic of before."""


class RenamedForwards:
    """Finds messages that a client publishes with another topic than an earlier client."""

    def __init__(self) -> None:
        self._rows: dict[Pair, RenamedForward] = {}

    def note(
        self, event: PacketEvent, client: str, sightings: Iterable[Sighting], length: int, topic_filter: str
    ) -> None:
        """Take a PUBLISH of a client, with the earlier ones of its payload; ``topic_filter``: of the question."""
        topic = event.topic or ""
        for before in sightings if length >= LEAST_BYTES else ():
            after_ns = event.timestamp_ns - before.timestamp_ns
            if before.connection is event.connection or not 0 <= after_ns <= FORWARD_NS:
                continue
            how = change(before.topic, topic)
            if before.topic == topic:
                for pair, row in self._rows.items():
                    row.is_contradicted = row.is_contradicted or pair[:2] == (client, topic)
            if not how or how == SEPARATORS:
                continue
            if not (matches(topic_filter, topic) or matches(topic_filter, before.topic)):
                continue
            pair = client, before.topic, topic
            if pair not in self._rows and len(self._rows) < MAX_ROWS:
                other = describe.name(before.connection.client_identifier) or before.connection.client
                did = "published" if before.from_client else "got"
                self._rows[pair] = RenamedForward(
                    f"{client} published to {event.connection.server} as {describe.name(topic)} (frame {event.frame})"
                    f" the payload that {other} had {did} as {describe.name(before.topic)} (frame {before.frame})"
                    f" {describe.span(after_ns)} before: perhaps it forwards messages, and {how.removeprefix('it ')}"
                )
            if pair in self._rows:
                self._rows[pair].count += 1
            return

    def sentences(self) -> Iterator[str]:
        """A sentence for each pair of topics."""
        for row in islice(self._rows.values(), model.MAX_REPORTED):
            if not row.is_contradicted:
                more = f", so with {row.count:,} messages" if row.count > 1 else ""
                yield f"{row.sentence}{more}. {ADVICE}"
