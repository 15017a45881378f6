"""The retained messages that a server must have, as far as a capture can know them, and who waits for which.

Only what a server may not drop counts: messages of QoS 1 and 2.  A topic whose message may have been changed out of
sight is forgotten (`broker_watch`), as is the one published to longest ago where there are too many.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from mqttscope.lint.broker_watch import MAX_TOPICS, SECOND_NS, Watch
from mqttscope.lint.context import ConnectionKey, RuleContext
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.topics import compile_filter
from mqttscope.session.history import NEVER_NS

MAX_WAITING = 1_000
"""Connections of a server for which retained messages are expected."""
MAX_EXPECTED = 32
"""Retained messages that one connection is expected to get; more of them may be too many for a server's queue."""
MAX_SCANNED = 1_000
"""Topics that a wildcard is compared with, newest first."""
MAX_READERS = 8
"""Clients of a topic that are remembered as having got its retained message."""
_OVERHEAD = 64
"""Bytes of a PUBLISH beside topic, payload and what it was published with: more than a server adds."""


@dataclass(slots=True)
class Kept:
    """A retained message that a client published with QoS 1 or 2 and nobody has changed since."""

    timestamp_ns: int
    packet: int
    frame: int
    capture: str
    checksum: int
    size: int
    until_ns: int
    """When it expires."""
    granted: bool
    """Whether an acknowledgment says that it was accepted, which is so in 5.0 alone."""
    acknowledged: bool = False
    """Whether there was one."""
    proven: bool = False
    """Whether the server has sent it to somebody as a retained message."""
    readers: tuple[str, ...] = ()
    """Client Identifiers of those who got it."""


@dataclass(slots=True)
class Expected:
    """A retained message that a SUBSCRIBE asks for."""

    topic_filter: str
    packet: int
    frame: int
    timestamp_ns: int
    kept_by: int
    """Number of the PUBLISH that it comes from."""


@dataclass(slots=True)
class RetainedStore(Watch):
    """Retained messages of a server, and who waits for which."""

    kept: dict[str, Kept] = field(default_factory=dict)
    waiting: dict[ConnectionKey, dict[str, Expected]] = field(default_factory=dict)

    def forget(self) -> None:
        """Nothing is certain any more."""
        self.kept.clear()
        self.waiting.clear()

    def forget_topic(self, topic: str) -> None:
        """Nothing is certain of this topic."""
        self.kept.pop(topic, None)

    def accept(self, topic: str, now_ns: int) -> None:
        """The server has the message."""
        kept = self.kept.get(topic)
        if kept is not None:
            kept.acknowledged = True

    def publish(self, packet: Publish, at: RuleContext) -> None:
        """Take a message that a client published with RETAIN 1."""
        topic, connection = at.topic, at.connection
        if topic is None:
            self.forget()  # an alias that is not known: it may be any topic
            return
        self.kept.pop(topic, None)
        if not packet.payload or packet.missing or not 0 < packet.qos < 3 or topic[0] == "$" or self.hides(topic):
            return
        if not connection.retain_available:
            return
        event = at.event
        expiry = None if packet.properties is None else packet.properties.message_expiry_interval
        self.kept[topic] = Kept(
            event.timestamp_ns,
            at.number,
            event.frame,
            event.capture,
            zlib.crc32(packet.payload),
            len(packet.raw) + len(topic),
            NEVER_NS if expiry is None else event.timestamp_ns + expiry * SECOND_NS,
            at.version is ProtocolVersion.V5,
        )
        self.wait_for_answer(at, packet, topic)
        if len(self.kept) > MAX_TOPICS:
            del self.kept[next(iter(self.kept))]

    def deliver(self, packet: Publish, topic: str, at: RuleContext) -> None:
        """Take a message with RETAIN 1 that the server sent: nobody waits for it any more, and it does have it."""
        waiting = self.waiting.get(at.key)
        if waiting is not None and waiting.pop(topic, None) is not None and not waiting:
            del self.waiting[at.key]
        kept = self.kept.get(topic)
        if kept is None or packet.missing or zlib.crc32(packet.payload) != kept.checksum:
            return
        kept.proven = kept.proven or not at.history.subscriptions.match(topic).retain_as_published
        name = at.client_name
        if name not in kept.readers:
            kept.readers = (*kept.readers, name)[-MAX_READERS:]

    def matching(self, topic_filter: str, until_ns: int, at: RuleContext) -> Iterator[tuple[str, Kept]]:
        """Messages that match, of this capture, that do not expire before and are not too long for the client."""
        if "+" in topic_filter or "#" in topic_filter:
            matches = compile_filter(topic_filter)
            names = [name for name in islice(reversed(self.kept), MAX_SCANNED) if matches(name)]
        else:
            names = [topic_filter] if topic_filter in self.kept else []
        limit = at.client.maximum_packet_size
        for name in names[: MAX_EXPECTED + 1]:
            kept = self.kept[name]
            fits = limit is None or kept.size + _OVERHEAD <= limit
            if fits and kept.acknowledged and kept.until_ns > until_ns and kept.capture == at.event.capture:
                yield name, kept
