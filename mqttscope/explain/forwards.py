"""Messages that a client takes from one broker to another one: a bridge, or a program like one.

A PUBLISH with the same payload, and with the same topic or another one with the same last level, was captured shortly
before, and a client was in the place to carry it:

* the client that publishes was sent it by another broker, or runs on the host of a broker that had it, or has the
  bridge bit and another broker had it;
* a broker sends a message that no captured client published there: its host has a connection as a client to another
  broker, or a client with the bridge bit has one, and was sent the message there.

The capture does not show a program from inside: a second publisher with the same payload within this time would look
alike.  So each sentence has "most probably" in it, and a message without a payload proves nothing.  Addresses of
brokers that share a host with all their clients (loopback) prove nothing either.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from mqttscope.events import PacketEvent
from mqttscope.explain import describe
from mqttscope.lint.rules.practice_operation.message_loop import Loop, Loops, MessageLoop
from mqttscope.mqtt import packets
from mqttscope.session.connection import C2S, Connection, host_of

FORWARD_NS = 1_000_000_000
"""Maximum time between the PUBLISH that a client gets and the one that it sends, if both have the same topic."""
RENAMED_NS = 100_000_000
"""The maximum if the topics only have the same last level."""
MAX_PAYLOADS = 4_096
"""Maximum number of payloads that are remembered, the latest ones."""
MAX_SIGHTINGS = 16
"""Maximum number of PUBLISH packets with one payload that are remembered, the latest ones."""
MAX_BRIDGES = 1_000
"""Maximum number of connections with the bridge bit that are remembered, the latest ones."""
MAX_ROWS = 10
"""Maximum number of sentences about messages that were forwarded."""
MAX_FOLLOWED = 1_000
"""Maximum number of connections of bridges and of clients with No Local that are followed, the latest ones."""
MAX_LOOPS = 10
"""Maximum number of loops that are reported."""
MAX_BROUGHT = 10_000
"""Maximum number of deliveries that are remembered to find a second copy, the latest ones."""


@dataclass(slots=True)
class Sighting:
    """A PUBLISH that was captured."""

    timestamp_ns: int
    frame: int
    connection: Connection
    topic: str
    from_client: bool
    is_retained: bool = False
    """Whether it has RETAIN 1."""


@dataclass(slots=True)
class Forward:
    """How a message came to a broker."""

    client: str
    """Name of the client that carried it; empty if no captured client did."""
    text: str
    retained: str = ""
    """Who published it to another broker with RETAIN 1, as words."""
    is_returned: bool = False
    """Whether that client had published the message itself to the broker that sent it."""


@dataclass(slots=True)
class ForwardRow:
    """Messages that one client brought."""

    first: str
    """The first of them, with its frame."""
    count: int = 0
    returned: int = 0
    """Number of messages that came back to the client that had published them."""
    doubled: int = 0
    """Number of deliveries beside which the same client got another copy."""
    publishers: dict[str, None] = field(default_factory=dict)
    """Names of the clients that published these other copies."""


Place = tuple[str, str, int, tuple[str, str]]
"""Host of the broker, topic, checksum of the payload, and key of the client that got it."""


class ForwardWatch:
    """Remembers PUBLISH packets by payload, and finds who carried one from one broker to another."""

    def __init__(self) -> None:
        self._sightings: OrderedDict[tuple[int, int], deque[Sighting]] = OrderedDict()
        """PUBLISH packets by checksum and length of their payload, oldest first."""
        self._bridges: OrderedDict[int, None] = OrderedDict()
        self._deliveries: dict[tuple[str, str], ForwardRow] = {}
        """Rows by the client that carried the message and the client that got it."""
        self._published: dict[str, ForwardRow] = {}
        """Rows by the client that published the message."""
        self._brought: OrderedDict[Place, ForwardRow] = OrderedDict()
        self._left_out = 0
        self._first_server = ""
        self._is_idle = True
        """Whether all connections are to one server, without a bridge bit: nothing can be forwarded."""

    def note_server(self, server: str) -> None:
        """Take the server of a connection that begins."""
        self._first_server = self._first_server or server
        self._is_idle = self._is_idle and server == self._first_server

    def note_bridge(self, number: int) -> None:
        """Remember a connection with the bridge bit."""
        self._is_idle = False
        if len(self._bridges) >= MAX_BRIDGES:
            self._bridges.popitem(last=False)
        self._bridges[number] = None

    def note(self, event: PacketEvent, checksum: int, length: int) -> None:
        """Remember a PUBLISH; call it after the questions about it."""
        if self._is_idle:
            return
        key = checksum, length
        known = self._sightings.get(key)
        if known is None:
            if len(self._sightings) >= MAX_PAYLOADS:
                self._sightings.popitem(last=False)
            known = self._sightings[key] = deque(maxlen=MAX_SIGHTINGS)
        else:
            self._sightings.move_to_end(key)
        topic, is_retained = event.topic or "", bool(getattr(event.packet, "retain", False))
        known.append(
            Sighting(event.timestamp_ns, event.frame, event.connection, topic, event.direction is C2S, is_retained)
        )

    def sightings(self, checksum: int, length: int) -> Iterable[Sighting]:
        """The latest PUBLISH packets with a payload, oldest first."""
        return self._sightings.get((checksum, length), ()) if length else ()

    def _before(self, event: PacketEvent, checksum: int, length: int) -> Iterator[Sighting]:
        """Earlier PUBLISH packets that may be the same message, the latest first."""
        topic = event.topic or ""
        for sighting in reversed(self._sightings.get((checksum, length), ()) if length else ()):
            limit_ns = FORWARD_NS if sighting.topic == topic else RENAMED_NS
            is_alike = sighting.topic == topic or _last_level(sighting.topic) == _last_level(topic)
            if is_alike and 0 <= event.timestamp_ns - sighting.timestamp_ns <= limit_ns:
                yield sighting

    def source_of_publish(self, event: PacketEvent, checksum: int, length: int) -> Forward | None:
        """How the client that publishes a message most probably came by it: a message that it was sent weighs most."""
        best, rank = None, 0
        for sighting in self._before(event, checksum, length):
            forward, weight = self._carried(event, sighting)
            if weight > rank:
                best, rank = forward, weight
        for sighting in self._before(event, checksum, length) if best is not None else ():
            is_elsewhere = sighting.connection.server != event.connection.server and sighting.topic == event.topic
            if best is not None and is_elsewhere and sighting.from_client and sighting.is_retained:
                best.retained = f"{_name(sighting.connection)} had published it (frame {sighting.frame})"
        return best

    def _carried(self, event: PacketEvent, sighting: Sighting) -> tuple[Forward | None, int]:
        """How the client that publishes may have come by one PUBLISH, and how much that weighs; 0: it did not."""
        connection, other = event.connection, sighting.connection
        name, theirs, when = _name(connection), _name(other), _when(event, sighting)
        is_bridge, is_same_topic = connection.number in self._bridges, sighting.topic == event.topic
        if other.server == connection.server:
            if not is_bridge or other is connection or not is_same_topic:
                return None, 0
            if sighting.from_client:
                return Forward(name, f"{theirs} had published it to this broker, {when}"), 1
            if other.number not in self._bridges:
                return None, 0
            return Forward(name, f"this broker had sent it to the bridge {theirs}, {when}", is_returned=True), 2
        had = f"{other.server} had sent {_it(event, sighting)} to {theirs}"
        if sighting.from_client:
            had = f"{theirs} had published {_it(event, sighting)} to {other.server}"
        elif _is_same_client(connection, other):
            return Forward(name, f"{had}, {when}"), 5
        elif is_same_topic and _shares_host(connection, other):
            return Forward(name, f"{had} on the same host, {when}"), 4
        if _runs_beside(connection, other):
            return Forward(name, f"{had}, on the host of {name}, {when}"), 2 + sighting.from_client
        return (Forward(name, f"{had}, {when}"), 1 + sighting.from_client) if is_bridge else (None, 0)

    def source_of_delivery(self, event: PacketEvent, checksum: int, length: int) -> Forward | None:
        """How a message that no captured client published to its broker most probably came there."""
        connection, far = event.connection, None
        for sighting in self._before(event, checksum, length):
            other = sighting.connection
            if other.server == connection.server or _is_same_client(connection, other):
                continue
            is_elsewhere = host_of(other.server) != host_of(connection.server)
            if sighting.from_client:
                far = far or (sighting if is_elsewhere else None)
                continue
            is_beside = is_elsewhere and host_of(other.client) == host_of(connection.server)
            if other.number not in self._bridges and not is_beside:
                continue
            name = _name(other)
            text = f"{other.server} had sent {_it(event, sighting)} to {name}, {_when(event, sighting)}"
            own = self._own_publish(sighting, checksum, length)
            if own is not None:
                text += f", and {name} had published it there itself (frame {own.frame})"
            return Forward(name, text, is_returned=own is not None)
        if far is None or far.topic != event.topic:
            return None
        name, server = _name(far.connection), far.connection.server
        return Forward("", f"{name} had published it to {server}, {_when(event, far)}")

    def _own_publish(self, sighting: Sighting, checksum: int, length: int) -> Sighting | None:
        """The PUBLISH of the same client that had brought the message to the broker."""
        for earlier in self._sightings.get((checksum, length), ()):
            is_own = earlier.from_client and earlier.connection is sighting.connection
            after_ns = sighting.timestamp_ns - earlier.timestamp_ns
            if is_own and earlier.topic == sighting.topic and 0 <= after_ns <= FORWARD_NS:
                return earlier
        return None

    def count_publish(self, event: PacketEvent, forward: Forward) -> None:
        """Count a message that has a `source_of_publish`."""
        row = self._published.get(forward.client)
        if row is None:
            if len(self._published) >= MAX_ROWS:
                self._left_out += 1
                return
            first = f"{describe.name(event.topic)} in frame {event.frame}: {forward.text}"
            row = self._published[forward.client] = ForwardRow(first)
        row.count += 1
        row.returned += forward.is_returned

    def count_delivery(self, event: PacketEvent, reader: str, place: Place, forward: Forward, publisher: str) -> None:
        """Count a delivery; ``publisher``: the client that published a copy which the reader has got already."""
        if not forward.client:
            reader = ""  # one sentence for all readers
        row = self._deliveries.get((forward.client, reader))
        if row is None:
            if len(self._deliveries) >= MAX_ROWS:
                self._left_out += 1
                return
            first = f"{describe.name(event.topic)} in frame {event.frame}: {forward.text}"
            row = self._deliveries[forward.client, reader] = ForwardRow(first)
        row.count += 1
        row.returned += forward.is_returned
        if publisher:
            row.doubled += 1
            row.publishers[publisher] = None
        else:
            if len(self._brought) >= MAX_BROUGHT:
                self._brought.popitem(last=False)
            self._brought[place] = row

    def note_copy(self, place: Place, publisher: str) -> None:
        """Note a delivery of a message that was published to the broker: it may be the second copy."""
        row = self._brought.pop(place, None) if self._brought else None
        if row is not None:
            row.doubled += 1
            row.publishers[publisher] = None

    @property
    def has_deliveries(self) -> bool:
        """Whether a message came to a broker on such a way."""
        return bool(self._deliveries)

    def sentences(self) -> Iterator[str]:
        """A sentence for each client that carried messages."""
        for (client, reader), row in self._deliveries.items():
            which = "One delivery" if row.count == 1 else f"{row.count:,} deliveries"
            if not client:
                verb, those = ("is of a message", "it") if row.count == 1 else ("are of messages", "them")
                yield (
                    f"{which} {verb} that clients published to another address; the first: {row.first}. A bridge"
                    f" carried {those}, or both addresses are of one broker."
                )
                continue
            text = f"{which} to {reader} came most probably through {client}; the first: {row.first}."
            if row.doubled:
                names = list(row.publishers)
                more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
                text += f" {reader} got {row.doubled:,} of {row.count:,} twice: {names[0]}{more} published them, too."
            yield text + _advice(row)
        for client, row in self._published.items():
            which = "One message was" if row.count == 1 else f"{row.count:,} messages were"
            text = f"{which} most probably forwarded by {client}; the first: {row.first}."
            yield text + (_advice(row) if row.returned else "")
        if self._left_out:
            yield f"limit: {MAX_ROWS:,} clients that forward messages are shown; further messages: {self._left_out:,}."


def _advice(row: ForwardRow) -> str:
    if row.returned:
        return (
            " Messages come back to the client that forwards them: give its subscriptions No Local (MQTT 5.0), or let"
            " it forward each topic in one direction only."
        )
    return " Let one bridge alone carry each topic." if row.doubled else ""


def _name(connection: Connection) -> str:
    return describe.name(connection.client_identifier) or connection.client


def _when(event: PacketEvent, sighting: Sighting) -> str:
    return f"{describe.span(event.timestamp_ns - sighting.timestamp_ns)} before (frame {sighting.frame})"


def _it(event: PacketEvent, sighting: Sighting) -> str:
    return "it" if sighting.topic == event.topic else f"{describe.name(sighting.topic)} with the same payload"


def _last_level(topic: str) -> str:
    return topic.rpartition("/")[2]


def _is_same_client(connection: Connection, other: Connection) -> bool:
    """Whether two connections are of one client, by its Client Identifier and its host."""
    if connection is other:
        return True
    identifier = connection.client_identifier
    has_same_name = bool(identifier) and identifier == other.client_identifier
    return has_same_name and host_of(connection.client) == host_of(other.client)


def _runs_beside(connection: Connection, other: Connection) -> bool:
    """Whether a client connects from the host of another broker than its own."""
    return host_of(connection.client) == host_of(other.server) != host_of(connection.server)


def _shares_host(connection: Connection, other: Connection) -> bool:
    """Whether two clients connect from one host, and neither broker runs there."""
    place = host_of(connection.client)
    return place == host_of(other.client) and place not in (host_of(connection.server), host_of(other.server))


class LoopWatch:
    """Follows messages to clients that a broker does not send their own messages by itself."""

    def __init__(self) -> None:
        self._followed: OrderedDict[int, Loops] = OrderedDict()
        """By connection: with the bridge bit from its CONNECT on, others from a message on."""
        self._found: dict[tuple[int, str], tuple[str, Loop, int]] = {}
        """Client, loop and frame of the last round that is needed for a report, by connection and topic."""
        self._forgotten = self._left_out = 0

    def begin(self, number: int) -> None:
        """Follow the messages of a connection."""
        if number not in self._followed:
            if len(self._followed) >= MAX_FOLLOWED:
                self._followed.popitem(last=False)
                self._forgotten += 1
            self._followed[number] = Loops()

    def follows(self, number: int) -> bool:
        """Whether the messages of a connection are followed."""
        return number in self._followed

    def feed(self, event: PacketEvent, publish: packets.Publish, name: str, *, is_no_local: bool) -> None:
        """Take a message that a client sent or was sent; ``is_no_local``: whether it asked with No Local."""
        number, topic = event.connection.number, event.topic or ""
        if is_no_local:
            self.begin(number)
        loops = self._followed.get(number)
        if loops is None or publish.dup:
            return
        rounds, pause_ns = _setting("rounds"), _setting("seconds") * FORWARD_NS
        loop = loops.feed(topic, publish.payload, event.timestamp_ns, pause_ns, from_client=event.direction is C2S)
        if loop.rounds < rounds or (number, topic) in self._found:
            return
        if len(self._found) < MAX_LOOPS:
            self._found[number, topic] = name, loop, event.frame
        elif loop.rounds == rounds:
            self._left_out += 1

    def sentences(self) -> Iterator[str]:
        """One sentence for each loop."""
        for (number, topic), (name, loop, frame) in self._found.items():
            yield (
                f"The same message to {describe.name(topic)} came back to {name} (#{number}) {loop.rounds:,} times"
                f" within {describe.span(loop.last_ns - loop.began_ns)} (frame {frame}), and its broker does not send"
                " it what it published itself: most probably the message circulates between brokers. Forward each topic"
                " in one direction only."
            )
        if self._left_out:
            yield f"limit: {MAX_LOOPS:,} messages that circulate are shown; further ones: {self._left_out:,}."
        if self._forgotten:
            yield f"limit: {MAX_FOLLOWED:,} connections of bridges are followed; forgotten: {self._forgotten:,}."


def _setting(name: str) -> int:
    """A threshold of the rule."""
    return cast(int, MessageLoop.settings[name])
