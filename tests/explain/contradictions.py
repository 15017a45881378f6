"""What `explain --message` says about messages against a second reading of the packets, which shares no table with it.

A `Reading` goes through the packets of a capture once and keeps what they prove by themselves: which client was sent
what, what was granted, released, refused and resumed.  `contradictions` then yields every sentence that one of these
facts disproves.  It proves nothing where the capture lacks bytes, and it does not judge which cause is the best one.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mqttscope.events import ConnectionClosed, Event, PacketEvent
from mqttscope.explain.fates import Delivery, Fate, MessageFate, Trace
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.mqtt import packets
from mqttscope.mqtt.parts import Subscription
from mqttscope.session.connection import C2S, Connection

Client = tuple[str, str]
"""Host of the server, and Client Identifier or endpoint."""
NEVER = 1 << 62
GOT = (Fate.DELIVERED, Fate.NOT_ACKNOWLEDGED)


def covers(topic_filter: str, topic: str) -> bool:
    """Whether an ordinary Topic Filter matches a topic, level by level."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(levels) or level not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)


@dataclass
class Sending:
    """A PUBLISH of a client."""

    frame: int
    client: Client
    topic: str
    payload: bytes
    qos: int
    identifier: int
    wanted: dict[Client, str] = field(default_factory=dict)
    """The connected clients that were granted a filter which matches it, with that filter."""


class Reading:
    """The facts of one capture."""

    def __init__(self, events: list[Event]) -> None:
        self.connections: dict[int, Connection] = {}
        self.ends: dict[int, int] = {}
        """Frame of the end of each connection that ended before the capture did."""
        self.accepted: dict[Client, list[tuple[int, bool, int]]] = defaultdict(list)
        """Frame, Session Present and connection of each CONNACK that accepts a client."""
        self.sendings: list[Sending] = []
        self.copies: dict[tuple[Client, str, bytes], list[int]] = defaultdict(list)
        """Frames of the PUBLISH packets to each client, by topic and payload."""
        self.releases: dict[tuple[Client, int], list[int]] = defaultdict(list)
        self.answers: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        """Frame and reason code of each PUBACK and PUBREC of the server, by connection and packet identifier."""
        self.refused: set[Client] = set()
        self.unsubscribed: set[Client] = set()
        self.members: set[Client] = set()
        """Clients that asked for a Shared Subscription."""
        self._asked: dict[tuple[int, int], list[Subscription]] = {}
        self._granted: dict[Client, dict[str, tuple[bool, int]]] = defaultdict(dict)
        """No Local and connection of the ordinary filters that each client was granted."""
        for event in events:
            closes = isinstance(event, ConnectionClosed) and event.connection.closed_how != "capture_end"
            leaves = isinstance(event, PacketEvent) and isinstance(event.packet, packets.Disconnect)
            if isinstance(event, ConnectionClosed | PacketEvent) and (closes or leaves):
                self._ends(event.connection, event.frame)
        for event in events:
            if isinstance(event, PacketEvent):
                self.connections[event.connection.number] = event.connection
                (self._from_client if event.direction is C2S else self._from_server)(event)

    def client(self, number: int | None) -> Client:
        """The client of a connection."""
        connection = self.connections[number or 0]
        return connection.server.rpartition(":")[0], connection.client_identifier or connection.client

    def _ends(self, connection: Connection, frame: int) -> None:
        self.ends[connection.number] = min(frame, self.ends.get(connection.number, NEVER))

    def _from_client(self, event: PacketEvent) -> None:
        packet, number, client = event.packet, event.connection.number, self.client(event.connection.number)
        if isinstance(packet, packets.Publish):
            sending = Sending(
                event.frame, client, event.topic or "", packet.payload, packet.qos, packet.packet_identifier or 0
            )
            self.sendings.append(sending)
            for other, filters in self._granted.items():
                for name, (no_local, _) in filters.items():
                    is_for = other[0] == client[0] and not (no_local and other == client)
                    if is_for and covers(name, sending.topic) and self.is_connected(other, event.frame):
                        sending.wanted[other] = name
        elif isinstance(packet, packets.Subscribe):
            self._asked[number, packet.packet_identifier or 0] = list(packet.subscriptions or ())
            for row in packet.subscriptions or ():
                if row.no_local and row.topic_filter in self._granted[client]:
                    self._granted[client][row.topic_filter] = True, number
            if any(row.topic_filter.startswith("$share/") for row in packet.subscriptions or ()):
                self.members.add(client)
        elif isinstance(packet, packets.Unsubscribe):
            self.unsubscribed.add(client)
            for name in packet.topic_filters or ():
                self._granted[client].pop(name, None)
        elif isinstance(packet, packets.Pubrel):
            self.releases[client, packet.packet_identifier or 0].append(event.frame)

    def _from_server(self, event: PacketEvent) -> None:
        packet, number, client = event.packet, event.connection.number, self.client(event.connection.number)
        if isinstance(packet, packets.Publish):
            self.copies[client, event.topic or "", packet.payload].append(event.frame)
        elif isinstance(packet, packets.Connack) and not packet.reason_code:
            self.accepted[client].append((event.frame, bool(packet.session_present), number))
            if not packet.session_present:
                granted = self._granted[client]
                self._granted[client] = {name: row for name, row in granted.items() if row[1] == number}
        elif isinstance(packet, packets.Suback):
            asked = self._asked.pop((number, packet.packet_identifier or 0), [])
            for row, code in zip(asked, packet.reason_codes or (), strict=False):
                if code >= 0x80:
                    self.refused.add(client)
                    self._granted[client].pop(row.topic_filter, None)
                elif not row.topic_filter.startswith("$share/"):
                    self._granted[client][row.topic_filter] = bool(row.no_local), number
        elif isinstance(packet, packets.Puback | packets.Pubrec):
            answer = event.frame, packet.reason_code or 0
            self.answers[number][packet.packet_identifier or 0].append(answer)

    def is_connected(self, client: Client, frame: int) -> bool:
        """Whether a client had a connection that was accepted before a frame and ended after it."""
        return any(
            accepted < frame < self.ends.get(number, NEVER) for accepted, _, number in self.accepted.get(client, ())
        )


def contradictions(reading: Reading, trace: Trace) -> Iterator[str]:
    """The sentences about messages that the packets disprove."""
    for message in trace.messages:
        published = message.published
        assert published is not None
        sent = [
            sending
            for sending in reading.sendings
            if (sending.frame, sending.topic, zlib.crc32(sending.payload))
            == (published.frame, published.topic, published.checksum)
        ]
        if not sent:
            yield f"{message.topic}: frame {published.frame} has no such message"
            continue
        fates: dict[Client, list[Delivery]] = defaultdict(list)
        for delivery in message.deliveries:
            fates[reading.client(delivery.connection)].append(delivery)
        for problem in (
            *_of_message(reading, message, sent[0], fates),
            *(
                problem
                for client, rows in fates.items()
                for row in rows
                for problem in _of(reading, sent[0], client, row)
            ),
        ):
            yield f"frame {published.frame}, {message.topic}: {problem}"


def _of_message(
    reading: Reading, message: MessageFate, sent: Sending, fates: dict[Client, list[Delivery]]
) -> Iterator[str]:
    alike = [
        sending
        for sending in reading.sendings
        if (sending.client[0], sending.topic, sending.payload) == (sent.client[0], sent.topic, sent.payload)
    ]
    for client, rows in fates.items():
        has_it = any(row.fate in GOT for row in rows)
        copies = reading.copies.get((client, sent.topic, sent.payload), [])
        later = [frame for frame in copies if frame > sent.frame]
        if len(alike) == 1 and bool(later) is not has_it and len(copies) == len(later):
            yield f"{client[1]} was sent it {len(later)} times, and is said: {', '.join(row.outcome for row in rows)}"
    for client, name in sent.wanted.items():
        if client not in fates and not message.is_covered:
            yield f"{client[1]} was granted {name}, and is not named"
    if any("no captured client had a subscription" in evidence.text for evidence in message.evidence) and sent.wanted:
        yield f"it says that nobody had a subscription: {', '.join(sent.wanted.values())}"


def _of(reading: Reading, sent: Sending, client: Client, row: Delivery) -> Iterator[str]:
    fate, who = row.fate, f"{client[1]} {row.fate}: {row.outcome}"
    later = [row for row in reading.accepted.get(client, ()) if row[0] > sent.frame]
    is_granted = client in sent.wanted
    if is_granted and fate in (Fate.NO_SUBSCRIPTION, Fate.SUBSCRIPTION_REFUSED, Fate.NOT_CONCERNED):
        yield f"{who}, and it was granted {sent.wanted[client]}"
    if is_granted and (fate is Fate.OFFLINE or "was not connected" in row.outcome):
        yield f"{who}, and it was connected"
    if is_granted and fate is Fate.SUBSCRIBED_LATER and "may have taken" not in row.outcome:
        yield f"{who}, and it was granted {sent.wanted[client]} before"
    if fate is Fate.SESSION_GONE and "had ended with its session" in row.outcome:
        if all(present for frame, present, _ in reading.accepted.get(client, ()) if frame < sent.frame):
            yield f"{who}, and no CONNACK before has Session Present 0"
    elif fate is Fate.SESSION_GONE and later and later[0][1]:
        yield f"{who}, and its next connection has Session Present 1"
    if "it resumed its session" in row.outcome and not (later and later[0][1]):
        yield f"{who}, and its next connection has Session Present 0"
    if fate is Fate.NOT_RELEASED:
        same = (
            sending.frame
            for sending in reading.sendings
            if (sending.client, sending.identifier) == (sent.client, sent.identifier)
        )
        until = next((frame for frame in same if frame > sent.frame), NEVER)
        if any(sent.frame < frame < until for frame in reading.releases.get((sent.client, sent.identifier), ())):
            yield f"{who}, and it was released"
    if fate is Fate.NOT_RECEIVED and sent.qos:
        own = (answers for number, answers in reading.answers.items() if reading.client(number) == sent.client)
        if any(frame > sent.frame for answers in own for frame, _ in answers.get(sent.identifier, ())):
            yield f"{who}, and the server answered"
    if fate is Fate.MESSAGE_REFUSED and not any(
        code >= 0x80 for answers in reading.answers.values() for _, code in answers.get(sent.identifier, ())
    ):
        yield f"{who}, and no answer refuses it"
    if fate is Fate.SUBSCRIPTION_REFUSED and client not in reading.refused:
        yield f"{who}, and no SUBACK refuses anything"
    if fate is Fate.UNSUBSCRIBED and client not in reading.unsubscribed:
        yield f"{who}, and it never unsubscribed"
    if fate is Fate.OTHER_MEMBER and client not in reading.members:
        yield f"{who}, and it is in no share"
    if fate is Fate.CONNECTION_ENDED and row.connection not in reading.ends:
        yield f"{who}, and that did not end"


def contradictions_of(events: Iterable[Event]) -> list[str]:
    """What is said about all messages of a conversation, and its packets disprove."""
    watch = MessageWatch("#")
    left_events = []
    for event in events:
        watch.feed(event)
        left_events.append(event)
    return list(contradictions(Reading(left_events), MessageReport(watch).trace()))
