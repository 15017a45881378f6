"""Deliveries of messages that no captured client published then: a will, a retained message, or something unseen.

A delivery is of a will if it has the topic and payload of the will of a connection that had ended, or that its
server ended within a second after the delivery: a broker publishes the will first, and closes then.  An end by
DISCONNECT disproves that, and so does an end by the client alone.  A delivery with RETAIN 1 after a SUBSCRIBE on the
same connection, of a filter that asks for retained messages, is caused by that SUBSCRIBE; a client with Retain As
Published gets live messages with RETAIN 1 too, which proves nothing.

A will that is published while its device is back under another Client Identifier replaces what the device published
since.  The devices are one if both connections come from one address, or have the same user name and will topic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise

from mqttscope.events import PacketEvent
from mqttscope.explain import describe, model
from mqttscope.explain.fates import SECOND, Published, Subscriber, Wanted
from mqttscope.explain.model import Evidence
from mqttscope.explain.system_topics import SystemTopics
from mqttscope.explain.wills import RetainedWills, due_time, said_goodbye
from mqttscope.mqtt import packets
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.topics import matches
from mqttscope.session.connection import Connection, host_of

MAX_WILLS = 10_000
"""Maximum number of different wills, of published ones, and of deliveries that wait for the end of a connection."""
STATE_NS = 2 * SECOND
"""Minimum time after the return of a client within which it publishes its state."""
RETAINED = "a retained message that was published before"
ENDED = "the will of a connection that had ended"
DISCARDED = "the will of a client that had sent DISCONNECT, so that no will is due"
Place = tuple[str, str]
"""Host of the broker, and topic."""


@dataclass(slots=True)
class OriginRow:
    """Deliveries with one kind of origin."""

    first: str
    """The first of them, as words."""
    count: int = 0
    readers: dict[str, str] = field(default_factory=dict)
    """Words about the first delivery to each further client, by its name."""


@dataclass(slots=True)
class WillMessage:
    """A will that was published."""

    connection: Connection
    """Its own."""
    name: str
    timestamp_ns: int
    frame: int
    """Frame of the first delivery."""
    is_retained: bool


@dataclass(slots=True)
class EarlyWill:
    """A delivery that is like the will of connections that are still open."""

    known: Subscriber
    event: PacketEvent
    place: Place
    checksum: int
    rows: list[tuple[Connection, int, Will]]


class Origins:
    """Finds the origin of deliveries, and counts them."""

    def __init__(self) -> None:
        self.unknown: tuple[str, str, Evidence] | None = None
        """First delivery of a message that was not captured when published: topic, client, place."""
        self.unknown_count = self.unknown_retained = 0
        self.lacks_bytes = False
        """Whether the capture lacks bytes of a client, which may be a PUBLISH."""
        self.system = SystemTopics()
        self.kinds: dict[str, OriginRow] = {}
        self.retained_wills = RetainedWills()
        self._willed: OrderedDict[tuple[Place, int], list[tuple[Connection, int, Will]]] = OrderedDict()
        """Connections, the frames of their CONNECT and wills, by server and topic, and checksum of the will."""
        self._early: list[EarlyWill] = []
        self.retained_copies: OrderedDict[Place, list[Evidence]] = OrderedDict()
        """The first and the last delivery of a retained message of each topic, the latest `MAX_WILLS` topics."""
        self.dropped = 0
        """Wills and deliveries beyond `MAX_WILLS`."""
        self.published: OrderedDict[tuple[Place, int], WillMessage] = OrderedDict()
        """Wills that were published, by place and number of their connection."""

    def announce(self, event: PacketEvent, place: Place, checksum: int, will: Will) -> None:
        """Take a will of a CONNECT."""
        key = place, checksum
        self.retained_wills.replace(*key)  # another one may come unseen
        if key not in self._willed and len(self._willed) >= MAX_WILLS:
            self._willed.popitem(last=False)
            self.dropped += 1
        self._willed.setdefault(key, []).append((event.connection, event.frame, will))
        del self._willed[key][: -model.MAX_REPORTED]

    def keep(self, place: Place, reader: str, event: PacketEvent) -> None:
        """Take a delivery with RETAIN 1 and a payload, to a client that gets no live messages with RETAIN 1."""
        copies = self.retained_copies.setdefault(place, [])
        copies.append(Evidence.at(f"{reader} got", event))
        del copies[1:-1]
        if len(self.retained_copies) > MAX_WILLS:
            self.retained_copies.popitem(last=False)

    def has_wills(self, place: Place) -> bool:
        """Whether the capture has a will to a topic."""
        return any(known == place for known, _ in self._willed)

    def due_will(
        self, place: Place, from_ns: int, until_ns: int, clients: Mapping[Place, Subscriber]
    ) -> tuple[int, Will] | None:
        """Frame and will with Will Retain 1 that a broker had to publish in a time."""
        for (known, _), rows in self._willed.items():
            for connection, frame, will in rows if known == place else ():
                client = clients.get((place[0], connection.client_identifier or connection.client))
                if will.will_retain and from_ns <= due_time(connection, will, client) <= until_ns:
                    return frame, will
        return None

    def find(
        self, known: Subscriber, place: Place, checksum: int, event: PacketEvent, publish: packets.Publish,
        retained: Published | None,
    ) -> bool:  # fmt: skip
        """Whether a delivery is like a will of a connection that has ended, or like a message that is retained."""
        if publish.retain and retained is not None:
            of = f"{retained.client} published that in frame {retained.frame}{_asked(known, event)}"
            self._count(RETAINED, known, place, event, of)
            return True
        self.resolve()
        rows = [row for row in reversed(self._willed.get((place, checksum), ())) if row[0].connack_packet is not None]
        ended = [row for row in rows if said_goodbye(row[0]) or 0 < row[0].closed_ns <= event.timestamp_ns]
        # A will that is due goes before one that DISCONNECT has discarded.
        for row in sorted(ended, key=lambda each: said_goodbye(each[0])):
            self._publish(row, known, place, checksum, event)
            return True
        if not rows:
            return False
        if len(self._early) >= MAX_WILLS:
            self.dropped += 1
            return False
        self._early.append(EarlyWill(known, event, place, checksum, rows))
        return True

    def resolve(self) -> None:
        """Take the ends of connections that show whether an earlier delivery was of their will."""
        waiting, self._early = self._early, []
        for early in waiting:
            over = [row for row in early.rows if row[0].closed_ns > 0]
            due = next((row for row in over if _ends_at(row[0], early.event.timestamp_ns)), None)
            early.rows = [row for row in early.rows if row not in over]
            if due is not None:
                self._publish(due, early.known, early.place, early.checksum, early.event)
            elif early.rows:
                self._early.append(early)
            else:
                self.add_unknown(early.known, early.place[1], early.event)

    def settle(self) -> None:
        """Count the deliveries that wait for an end as unseen messages, at the end of the capture."""
        self.resolve()
        for early in self._early:
            self.add_unknown(early.known, early.place[1], early.event)
        self._early.clear()

    @property
    def has_unknown(self) -> bool:
        """Whether a message came that no captured client published, and nothing else explains."""
        return self.unknown is not None or bool(self._early) or bool(self.system.count)

    def add_unknown(self, known: Subscriber, topic: str, event: PacketEvent) -> None:
        """Count a delivery without an origin."""
        if self.system.note(known, topic, event):
            return
        self.unknown_count += 1
        self.unknown_retained += bool(getattr(event.packet, "retain", False))
        if self.unknown is None or event.timestamp_ns < (self.unknown[2].timestamp_ns or 0):
            retained = ", as a retained message" if getattr(event.packet, "retain", False) else ""
            self.unknown = topic, known.name, Evidence.at(f"{known.name} received it{retained}", event)

    def _publish(
        self, row: tuple[Connection, int, Will], known: Subscriber, place: Place, checksum: int, event: PacketEvent
    ) -> None:
        connection, frame, will = row
        kind, ends = ENDED, f", and its #{connection.number} had ended"
        client = describe.name(connection.client_identifier) or connection.client
        if said_goodbye(connection):
            kind, ends = DISCARDED, ""
        else:
            if connection.closed_ns > event.timestamp_ns:
                after = describe.span(connection.closed_ns - event.timestamp_ns)
                ends = f", and the broker ended its #{connection.number} {after} after the delivery"
            self.retained_wills.publish(place, will, checksum, connection, event)
            key = place, connection.number
            if key not in self.published:
                if len(self.published) >= MAX_WILLS:
                    self.published.popitem(last=False)
                    self.dropped += 1
                self.published[key] = WillMessage(
                    connection, client, event.timestamp_ns, event.frame, bool(will.will_retain)
                )
        self._count(kind, known, place, event, f"{client} announced that in frame {frame}{ends}")

    def _count(self, kind: str, known: Subscriber, place: Place, event: PacketEvent, of: str) -> None:
        row = self.kinds.get(kind)
        if row is None:
            row = self.kinds[kind] = OriginRow(
                f"{describe.name(place[1])} to {known.name}, frame {event.frame}; {of}", readers={known.name: ""}
            )
        elif known.name not in row.readers and len(row.readers) < model.MAX_REPORTED:
            asked = _asked(known, event) if kind == RETAINED else ""
            row.readers[known.name] = f"{known.name} (frame {event.frame}{asked})"
        row.count += 1

    def replacement(self, message: Published, from_ns: int, until_ns: int) -> WillMessage | None:
        """The will that replaced a retained message in a time, if one did."""
        place, from_ns = (message.server, message.topic), max(from_ns, message.latest_ns)
        for (known, _), will in self.published.items():
            if known == place and will.is_retained and from_ns < will.timestamp_ns <= until_ns:
                return will
        return None

    def sentences(
        self, messages: Iterable[Published], clients: Mapping[Place, Subscriber], now_ns: int
    ) -> Iterator[str]:
        """Sentences about all of them; call `settle` before.  ``clients``: by host of the broker and identifier."""
        messages = list(messages)
        if self.unknown:
            topic, client, place = self.unknown
            many = self.unknown_count
            which = "One delivery is of a message" if many == 1 else f"{many:,} deliveries are of messages"
            # A broker sends a retained message with RETAIN 1 for a SUBSCRIBE, and any other time with RETAIN 0.
            origin = "retained, or by a client that was not captured"
            if not self.unknown_retained:
                origin = "by a client that was not captured, or by the broker"
            if self.lacks_bytes:
                origin += ", or the capture lacks the PUBLISH, since it lacks bytes of clients"
            yield (
                f"{which} that no captured client published: {origin}; the"
                f" first: {describe.name(topic)} to {client}, frame {place.frame}."
            )
        for kind, row in self.kinds.items():
            have = "One delivery has" if row.count == 1 else f"{row.count:,} deliveries have"
            others = [words for words in row.readers.values() if words]
            also = f"; also to {', '.join(others)}" if others else ""
            yield f"{have} the topic and the payload of {kind}; the first: {row.first}{also}."
        yield from self._overwritten(messages)
        yield from islice(self._stale(messages, clients, now_ns), model.MAX_REPORTED)
        if self.dropped:
            yield f"limit: {MAX_WILLS:,} wills are followed to their deliveries; forgotten: {self.dropped:,}."

    def _overwritten(self, messages: list[Published]) -> Iterator[str]:
        """Sentences about wills that came after a message of the same device, which was back under another name."""
        count = 0
        for (place, _), will in self.published.items():
            topic = place[1]
            silent_ns = will.connection.client_side.last_timestamp_ns or will.connection.opened_ns
            later = [
                message
                for message in messages
                if (message.server, message.topic) == place and silent_ns < message.timestamp_ns < will.timestamp_ns
            ]
            message = next((each for each in reversed(later) if each.source is not will.connection), None)
            how = "" if message is None else self._likeness(will.connection, message.source, place)
            if message is None or not how or self._is_shared(place):
                continue
            count += 1
            if count > model.MAX_REPORTED:
                yield describe.more_not_shown(1)
                return
            replaced = (
                " It replaced that retained message (Will Retain 1)." if will.is_retained and message.retain else ""
            )
            yield (
                f"The will of {will.name} (#{will.connection.number}, frame {will.frame}) came"
                f" {describe.span(will.timestamp_ns - message.timestamp_ns)} after {message.client} had published to"
                f" {describe.name(topic)} (frame {message.frame}): most probably one device, {how}, that was back"
                f" under another Client Identifier.{replaced} Keep one Client Identifier, so that a new connection ends"
                " the old one first."
            )

    def _stale(self, messages: list[Published], clients: Mapping[Place, Subscriber], now_ns: int) -> Iterator[str]:
        """Sentences about retained wills of clients that came back and did not replace them with their state.

        Proof is a delivery of the retained message after that, or a state that the client had published before.
        """
        for (place, number), will in self.published.items():
            key = place[0], will.connection.client_identifier or ""
            of_topic = [message for message in messages if (message.server, message.topic) == place]
            later = [message for message in of_topic if message.timestamp_ns > will.timestamp_ns]
            client, copies = clients.get(key), self.retained_copies.get(place, [])
            back = next((row for row in client.returns if row[3] > number), None) if client and key[1] else None
            if back is None or not will.is_retained or any(message.retain for message in later):
                continue
            since_ns = max(will.timestamp_ns, back[0]) + STATE_NS
            copy = next((row for row in reversed(copies) if (row.timestamp_ns or 0) > since_ns), None)
            own = [message for message in later if message.key == key]
            had_state = bool(own) or any(message.key == key for message in of_topic)
            if copy is None and (not had_state or now_ns < since_ns):
                continue
            what = "has not published to it since"
            if own:
                what = f"has published to it with RETAIN 0 only (frame {own[0].frame}), which does not replace it"
            text = f"The retained message of {describe.name(place[1])} is the will of {will.name} (#{number}, frame"
            text += f" {will.frame}), although {will.name} is back as #{back[3]} (frame {back[1]}): it {what}"
            proof = "" if copy is None else f"; {copy.text} the will in frame {copy.frame}"
            yield f"{text}{proof}. Publish the state with RETAIN 1 after each CONNACK."

    def _likeness(self, old: Connection, new: Connection, place: Place) -> str:
        """Why two connections are most probably of one device, as words; empty if nothing shows that."""
        if not old.client_identifier or old.client_identifier == new.client_identifier or new.opened_ns < old.opened_ns:
            return ""
        if new not in self._with_will(place):
            return ""
        if host_of(old.client) == host_of(new.client):
            return f"of the address {host_of(new.client)} and with the same will topic"
        if old.user_name and old.user_name == new.user_name:
            return "with the same user name and will topic"
        return ""

    def _with_will(self, place: Place) -> list[Connection]:
        """Connections with a will to a topic."""
        return [row[0] for (known, _), rows in self._willed.items() if known == place for row in rows]

    def _is_shared(self, place: Place) -> bool:
        """Whether clients with a will to one topic were active at the same time, so that they are different devices."""
        spans = sorted(
            (connection.opened_ns, connection.client_side.last_timestamp_ns or connection.opened_ns)
            for connection in self._with_will(place)
        )
        return any(later[0] < earlier[1] for earlier, later in pairwise(spans))


def _ends_at(connection: Connection, now_ns: int) -> bool:
    """Whether a server ended a connection within a second after a time, and the client had not sent DISCONNECT."""
    is_due = connection.closed_by == "server" and not said_goodbye(connection)
    return is_due and 0 <= connection.closed_ns - now_ns <= SECOND


def _asked(known: Subscriber, event: PacketEvent) -> str:
    """Words about the SUBSCRIBE that most probably caused a delivery with RETAIN 1."""
    wanted = caused_by(known, event)
    return "" if wanted is None else f", and the new SUBSCRIBE of {known.name} (frame {wanted.frame}) asked for it"


def caused_by(known: Subscriber, event: PacketEvent) -> Wanted | None:
    """The SUBSCRIBE of a client that a delivery with RETAIN 1 answers."""
    if known.keeps_retain:
        return None
    asked = [
        wanted
        for wanted in known.filters.values()
        if wanted.connection == event.connection.number
        and wanted.asks_for_retained
        and wanted.ended_ns is None
        and matches(wanted.plain_filter, event.topic or "", shared=False)
    ]
    return max(asked, key=lambda wanted: wanted.asked_ns, default=None)
