"""The path of a message: its publisher, the clients that got it, and the reason why others did not.

`MessageWatch` takes the events of a run, each before its packet is applied, and remembers the messages of one topic or
Topic Filter and the subscriptions of all clients; both are bounded, and the trace reports what was discarded.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.explain import describe, model
from mqttscope.explain.arrivals import alias_bytes, copy_of, is_sent_again
from mqttscope.explain.changed_topics import ChangedTopics
from mqttscope.explain.fates import (
    EXACTLY_ONCE,
    NEVER,
    SECOND,
    Got,
    Published,
    Subscriber,
    VainUnsubscribe,
    Wanted,
    held_by,
    why_short,
)
from mqttscope.explain.forwards import ForwardWatch, LoopWatch, Place
from mqttscope.explain.model import Evidence
from mqttscope.explain.nearness import nearest
from mqttscope.explain.oddities import announced
from mqttscope.explain.origins import Origins
from mqttscope.explain.pauses import PauseWatch
from mqttscope.explain.renamed_forwards import RenamedForwards
from mqttscope.explain.repetitions import Resend, answer_position, has_answer
from mqttscope.explain.retained_copies import RetainedCopies
from mqttscope.explain.surplus_copies import MAX_COPIES, SurplusCopy, surplus_copy
from mqttscope.explain.unfinished import UnfinishedMessages
from mqttscope.explain.wills import AnnouncedWill
from mqttscope.mqtt import PacketType, ProtocolVersion, packets
from mqttscope.mqtt.codec import truncated
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER
from mqttscope.mqtt.topics import matches, parse_shared
from mqttscope.session.connection import C2S, Connection, host_of
from mqttscope.session.history import History
from mqttscope.session.matching import FAILURE, FilterIndex

MAX_MESSAGES = 1_000
"""Maximum number of messages of the topic that are followed."""
MAX_CLIENTS = 10_000
"""Maximum number of clients with remembered subscriptions."""
MAX_FILTERS = 1_000
"""Maximum number of subscriptions of a client that are remembered, and of its connections."""
MAX_PENDING = 10_000
"""Maximum number of messages with a tracked acknowledgement, and of different wills."""
MAX_DISTINCT = 100_000
"""Maximum number of different filters of all clients that are remembered, and of subscriptions before the last ones."""
MAX_HELD = 200_000
"""Maximum number of clients that had a subscription when a message was published, over all messages."""
_ANSWERS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP)
MAX_OTHERS = 10_000
"""Maximum number of topics of other messages that are remembered, to name the nearest ones."""
MAX_NEAREST = 3
"""Maximum number of topics and of wills that are named where no message was published."""


class MessageWatch:
    """Follows the messages of a topic.  Feed it events, then ask for the `trace`."""

    def __init__(self, topic_filter: str) -> None:
        self.topic_filter = topic_filter
        self.published: dict[int, Published] = {}
        """Messages by their number."""
        self.good = 0
        """Messages that went to all who wanted them, and had to make room for others."""
        self.origins = Origins()
        self.pauses = PauseWatch()
        """Follows the segments; without them, no pause is known."""
        self.stops: deque[model.Explanation] = deque(maxlen=MAX_FILTERS)
        """The last ends of connections because their broker stopped."""
        self._paused: OrderedDict[int, Published] = OrderedDict()
        """The last message with a pause, until the next packet, by the number of its connection."""
        self._heard: OrderedDict[int, Got] = OrderedDict()
        """The last delivery with QoS 0, until a message of its client, by the number of the connection."""
        self.beyond = 0
        """Other messages that had to make room."""
        self.dropped = 0
        """Clients beyond `MAX_CLIENTS`."""
        self.forgotten = 0
        """Subscriptions and connections of clients beyond `MAX_FILTERS` and `MAX_DISTINCT`."""
        self.clients: OrderedDict[tuple[str, str], Subscriber] = OrderedDict()
        self.joined = 0
        """Clients with subscriptions from before the capture."""
        self.unfollowed = 0
        """UNSUBSCRIBE packets without a subscription beyond `model.MAX_REPORTED` of a client."""
        self.unheld = 0
        """Clients beyond `MAX_HELD`."""
        self._pending: OrderedDict[tuple[int, int], Published] = OrderedDict()
        self._sent: OrderedDict[tuple[tuple[str, str], int], Published] = OrderedDict()
        """The last message of each publisher with a packet identifier."""
        self._unreleased: OrderedDict[tuple[tuple[str, str], int], Published] = OrderedDict()
        """Messages that wait for PUBREL, by publisher and packet identifier."""
        self._unanswered: OrderedDict[tuple[int, int], Got] = OrderedDict()
        """Deliveries that the client has not answered, by connection and packet identifier."""
        self._others: dict[str, None] = {}
        """Topics of other messages."""
        self._other_topics = 0
        """Messages to topics beyond `MAX_OTHERS`."""
        self._wills: list[AnnouncedWill] = []
        """The first CONNECT packets with a will for the topics that were asked for."""
        self.unfinished = UnfinishedMessages()
        self.surplus: list[SurplusCopy] = []
        self.loops = LoopWatch()
        self._further = 0
        """Wills after the first `MAX_NEAREST`."""
        self.filters: dict[str, dict[tuple[str, str], None]] = {}
        """Clients by what their filters are compared with; some may have subscribed to something else since."""
        self._index = FilterIndex()
        """The same filters, found by the topics that they match."""
        self.used_shares: set[tuple[str, str]] = set()
        """Servers and the shares that they sent messages to."""
        self.uncompared = 0
        """Topics beyond `MAX_COMPARED`."""
        self.forwards = ForwardWatch()
        self.changes = ChangedTopics()
        self.renamed = RenamedForwards()
        self.copies = RetainedCopies()
        self.wildcard_answers: set[str] = set()
        """Hosts of the brokers that sent a retained message for a filter with a wildcard."""
        self.exactly_once: set[str] = set()
        """Hosts of the brokers that sent a PUBREC."""
        self.latest: OrderedDict[tuple[str, str], int] = OrderedDict()
        """Number of the last message by host of the broker and topic."""
        self._held = self._former = self.compared = self._count = 0
        self.expected: dict[tuple[str, str, int], dict[int, None]] = {}
        """Numbers of messages by server, topic and checksum of the payload."""
        self._complete: dict[int, None] = {}
        """Numbers of messages that went to all who wanted them."""
        self.unwanted = 0
        """Messages that no captured client had a subscription for, and that had to make room for others."""
        self._unwanted: dict[int, None] = {}
        """Numbers of such messages that are still followed."""
        self.short_sessions: OrderedDict[int, str] = OrderedDict()
        """Why the session of a connection ends with it, as words, by the number of the connection."""
        self.now_ns = 0

    def feed(self, event: Event) -> None:
        """Take one event."""
        self.now_ns = max(self.now_ns, getattr(event, "timestamp_ns", 0))
        if isinstance(event, PacketEvent):
            self._packet(event)
        elif isinstance(event, MalformedEvent | UnparsedEvent):
            self._unfinished(event)
        elif isinstance(event, ConnectionOpened):
            # The history of a connection has the acknowledgment numbers of TCP.
            event.connection.history = event.connection.history or History()
            self.forwards.note_server(event.connection.server)
        elif isinstance(event, GapEvent):
            known = self.clients.get(_key(event.connection))
            if event.direction is C2S:
                self.origins.lacks_bytes = True
            elif known is not None:
                known.gap_ns = max(known.gap_ns, event.timestamp_ns)
        elif isinstance(event, ConnectionClosed):
            self.origins.resolve()
            known = self.clients.get(_key(event.connection))
            if known is not None and event.connection.closed_how != "capture_end":
                if len(known.ends) >= MAX_FILTERS and event.connection.number not in known.ends:
                    del known.ends[next(iter(known.ends))]
                    self.forgotten += 1
                # The server may have closed before the client's DISCONNECT.
                end = event.timestamp_ns, event.frame
                known.ends[event.connection.number] = min(known.ends.get(event.connection.number, end), end)
            if known is not None and known.connection is event.connection:
                known.connection, known.keeps = None, bool(event.connection.keeps_session)
                known.was_cut = event.connection.disconnect_by is None
                if event.connection.closed_how != "capture_end":
                    known.left_ns, known.left_frame = event.timestamp_ns, event.frame
                    known.leave(event.connection)
                    known.has_room(event.timestamp_ns)

    def note_end(self, explanation: model.Explanation) -> None:
        """Take the explanation of an end, as an `Explainer` that sees all events yields it."""
        if explanation.cause is model.Cause.SERVER_RESTART:
            self.stops.append(explanation)

    def _packet(self, event: PacketEvent) -> None:
        packet, from_client = event.packet, event.direction is C2S
        if from_client and self._paused:
            paused = self._paused.pop(event.connection.number, None)
            if paused is not None and paused.frame == event.frame:
                paused.joined = packet.packet_type.name
        if isinstance(packet, packets.Publish):
            if from_client and self._heard:
                heard = self._heard.pop(event.connection.number, None)
                if heard is not None and event.timestamp_ns - heard.timestamp_ns <= SECOND:
                    heard.reply = event.frame
            if packet.qos and not from_client:
                self._fill(event)
            if packet.retain and not packet.dup and not from_client:
                self._note_retained(event, packet)
            if event.topic and matches(self.topic_filter, event.topic):
                known = self._client(event.connection)
                self.loops.feed(event, packet, known.name, is_no_local=known.has_no_local(event.topic))
                checksum = zlib.crc32(packet.payload)
                if from_client:
                    self._publish(event, packet, checksum)
                else:
                    self._deliver(event, packet, checksum)
            elif event.topic:
                self._count_other(event, packet)
                if event.topic in self._others:
                    pass
                elif len(self._others) < MAX_OTHERS:
                    self._others[event.topic] = None
                else:
                    self._other_topics += 1
            if event.topic and packet.payload and not packet.missing:
                self._note_payload(event, packet, zlib.crc32(packet.payload))
            return
        kind = packet.packet_type
        if isinstance(packet, packets.Connect) and from_client:
            if packet.bridge:
                self.loops.begin(event.connection.number)
                self.forwards.note_bridge(event.connection.number)
            self._note_end_of_session(event, packet)
            self._announced(event, packet)
        elif kind in (PacketType.PUBACK, PacketType.PUBREC) and not from_client:
            if kind == PacketType.PUBREC:
                self.exactly_once.add(host_of(event.connection.server))
            self._acknowledged(event)
        elif kind == PacketType.PUBREL and from_client:
            message = self._unreleased.pop((_key(event.connection), packet.packet_identifier or 0), None)  # type: ignore[attr-defined]
            if message is not None:
                message.released = True
        elif kind in _ANSWERS and from_client:
            self._answered(event)
        elif isinstance(packet, packets.Connack) and not from_client:
            if not packet.reason_code:
                self._accepted(event, present=bool(packet.session_present))
            elif event.connection.connack_packet is None:
                self._refused(event.connection)
        elif isinstance(packet, packets.Subscribe) and from_client:
            self._subscribe(event, packet)
        elif isinstance(packet, packets.Suback) and not from_client:
            self._granted(event, packet)
        elif isinstance(packet, packets.Disconnect):
            # From here on nothing is sent, however long the transport stays open.
            self._client(event.connection).ends[event.connection.number] = event.timestamp_ns, event.frame
            for will in self._wills:
                will.disconnect(event, packet)
        elif isinstance(packet, packets.Unsubscribe) and from_client:
            known = self._client(event.connection)
            if len(known.leaving) < MAX_FILTERS:
                known.leaving[packet.packet_identifier or 0] = tuple(packet.topic_filters or ())
            for topic_filter in packet.topic_filters or ():
                wanted = known.filters.get(topic_filter)
                if wanted is not None and wanted.ended_ns is None:
                    wanted.ended_ns, wanted.ended_frame = event.timestamp_ns, event.frame
                elif len(known.vain) >= model.MAX_REPORTED:
                    self.unfollowed += 1
                elif known.complete and not self.forgotten:
                    known.vain.append(
                        VainUnsubscribe(
                            topic_filter, event.frame, event.timestamp_ns, packet.packet_identifier,
                            event.connection.number,
                        )
                    )  # fmt: skip
        elif isinstance(packet, packets.Unsuback) and not from_client:
            self._client(event.connection).confirm(event, packet)

    def _note_payload(self, event: PacketEvent, publish: packets.Publish, checksum: int) -> None:
        """Take a PUBLISH of any topic."""
        payload, key = (checksum, len(publish.payload)), _key(event.connection)
        sightings = () if event.direction is C2S else self.forwards.sightings(*payload)
        if sightings and not publish.retain:
            self.copies.note_live(event, sightings)
        elif sightings and key in self.clients and not matches(self.topic_filter, event.topic or ""):
            self.copies.note(event, self.clients[key].name, sightings, self.topic_filter)
        name = describe.name(event.connection.client_identifier) or event.connection.client
        if event.direction is C2S:
            self.renamed.note(event, name, self.forwards.sightings(*payload), payload[1], self.topic_filter)
        self.forwards.note(event, *payload)
        if event.direction is C2S:
            message = self.published.get(self._count)
            is_last = message is not None and (message.source, message.frame) == (event.connection, event.frame)
            self.changes.note_publish(event, name, payload, message if is_last else None)
        elif not matches(self.topic_filter, event.topic or "") and key in self.clients:
            self.changes.note_delivery(event, key, self.clients[key].name, payload, is_followed=False)

    def _count_other(self, event: PacketEvent, publish: packets.Publish) -> None:
        """Count a message of another topic that the broker sends to a client."""
        known = None if event.direction is C2S else self.clients.get(_key(event.connection))
        if known is not None:
            known.sent, known.sent_surely = known.sent + 1, known.sent_surely + bool(publish.qos)

    def _note_end_of_session(self, event: PacketEvent, connect: packets.Connect) -> None:
        """Note why the session of a connection ends with it, if its CONNECT shows that."""
        why = why_short(connect, event.connection.version)
        if why:
            if len(self.short_sessions) >= MAX_PENDING:
                self.short_sessions.popitem(last=False)
            self.short_sessions[event.connection.number] = f"its CONNECT (frame {event.frame}) has {why}"

    def _client(self, connection: Connection) -> Subscriber:
        key = _key(connection)
        known = self.clients.get(key) or self._renamed(connection, key)
        if known is None:
            if len(self.clients) >= MAX_CLIENTS:
                self.clients.popitem(last=False)
                self.dropped += 1
            name = describe.name(connection.client_identifier) if connection.client_identifier else connection.client
            known = self.clients[key] = Subscriber(name, key[0])
            if connection.connect_packet is None:
                known.complete = False
        known.connection, known.number, known.address = connection, connection.number, host_of(connection.client)
        known.is_named = bool(connection.client_identifier)
        return known

    def _renamed(self, connection: Connection, key: tuple[str, str]) -> Subscriber | None:
        """A client that was known by its endpoint until the broker assigned it a Client Identifier."""
        endpoint = key[0], connection.client
        known = self.clients.get(endpoint)
        if known is None or known.number != connection.number:
            return None
        del self.clients[endpoint]
        known.name = describe.name(key[1])
        for wanted in known.filters.values():
            self.filters[wanted.plain_filter].pop(endpoint, None)
            self.filters[wanted.plain_filter][key] = None
        self.clients[key] = known
        return known

    def _refused(self, connection: Connection) -> None:
        """Nothing comes of what a client asked for before its CONNACK."""
        known = self.clients.get(_key(connection))
        if known is not None and known.connection is connection:
            known.connection = None
            known.filters = {
                name: wanted for name, wanted in known.filters.items() if wanted.connection != connection.number
            }

    def _accepted(self, event: PacketEvent, *, present: bool) -> None:
        connection = event.connection
        client = self.clients.get(_key(connection))
        before = client is not None and client.number != connection.number
        known = self._client(connection)
        for wanted in known.filters.values():
            if wanted.connection == connection.number:
                wanted.since_ns = event.timestamp_ns
        known.resumes = connection.clean_start is False
        if not known.began[0]:
            known.began = event.timestamp_ns, event.frame, present, known.resumes
        if before:
            if len(known.returns) < MAX_FILTERS:
                known.returns.append((event.timestamp_ns, event.frame, present, connection.number))
            else:
                self.forgotten += 1
        known.takes_aliases = known.takes_aliases or connection.client_side.topic_alias_maximum > 0
        if connection.client_side.maximum_packet_size is not None and len(known.largest) < MAX_FILTERS:
            known.largest[connection.number] = connection.client_side.maximum_packet_size
        if not present:
            for wanted in known.filters.values():
                # A client need not wait for CONNACK before it subscribes.
                if wanted.ended_ns is None and wanted.connection != connection.number:
                    wanted.ended_ns, wanted.ended_frame, wanted.with_session = event.timestamp_ns, event.frame, True
                    wanted.is_lost = known.resumes and known.keeps
            known.complete = True
        elif not before:
            known.complete = False

    def _subscribe(self, event: PacketEvent, subscribe: packets.Subscribe) -> None:
        known = self._client(event.connection)
        rows, rival = subscribe.subscriptions or (), 0
        identifier = None if subscribe.properties is None else subscribe.properties.first(SUBSCRIPTION_IDENTIFIER)
        if subscribe.packet_identifier is not None:
            if len(known.requests) >= MAX_FILTERS and subscribe.packet_identifier not in known.requests:
                del known.requests[next(iter(known.requests))]
                self.forgotten += 1
            asked = tuple(row.topic_filter for row in rows)
            waiting = known.requests.setdefault(subscribe.packet_identifier, [])
            rival = next((frame for frame, other in waiting if other != asked), 0)
            if rival or not waiting:
                waiting.append((event.frame, asked))
                self.forgotten += len(waiting) > model.MAX_REPORTED
                del waiting[: -model.MAX_REPORTED]
        for row in rows:
            if len(known.filters) >= MAX_FILTERS and row.topic_filter not in known.filters:
                self.forgotten += 1
                continue
            share = parse_shared(row.topic_filter)
            plain = row.topic_filter if share is None else share[1]
            if plain not in self.filters:
                if len(self.filters) >= MAX_DISTINCT:
                    self.forgotten += 1
                    continue
                self.filters[plain] = {}
                self._index.add(plain, plain)
            self.filters[plain][_key(event.connection)] = None
            former = known.filters.get(row.topic_filter)
            lasts = former is not None and former.ended_ns is None
            wanted = known.filters[row.topic_filter] = Wanted(
                row.topic_filter, plain, row.topic_filter if share is not None else "", row.maximum_qos,
                bool(row.no_local), identifier, event.timestamp_ns, event.frame, event.capture, event.connection.number,
                event.timestamp_ns, former.granted_ns if former is not None and lasts else None,
                is_presumed=share is not None and event.connection.version != ProtocolVersion.V5,
                retain_handling=row.retain_handling or 0, largest=event.connection.client_side.maximum_packet_size,
                rival=rival,
            )  # fmt: skip
            known.keeps_retain = known.keeps_retain or bool(row.retain_as_published)
            self.origins.retained_wills.ask(known, event.connection, row, wanted, existed=lasts)
            if former is not None and lasts and former.granted_ns is not None and (former.code or 0) < FAILURE:
                wanted.begun = former.begun or former
                wanted.before = wanted.begun.before
            elif former is not None and self._former < MAX_DISTINCT:
                self._former += 1
                wanted.before = former
            elif former is not None:
                self.forgotten += 1

    def _granted(self, event: PacketEvent, suback: packets.Suback) -> None:
        known = self._client(event.connection)
        waiting = known.requests.get(suback.packet_identifier or 0, [])
        asked = waiting.pop(0)[1] if waiting else ()
        if not waiting:
            known.requests.pop(suback.packet_identifier or 0, None)
        for topic_filter, code in zip(asked, suback.reason_codes or (), strict=False):
            wanted = known.filters.get(topic_filter)
            if wanted is not None:
                wanted.code = code
                if code < FAILURE and wanted.granted_ns is None:
                    wanted.granted_ns = event.timestamp_ns
                wanted.qos = min(wanted.qos, code) if code < 0x80 else wanted.qos

    def _publish(self, event: PacketEvent, publish: packets.Publish, checksum: int) -> None:
        connection = event.connection
        publisher, block, key = self._client(connection), publish.properties, _key(connection)
        earlier = self._sent.get((key, publish.packet_identifier or 0)) if publish.qos else None
        if earlier is not None and is_sent_again(earlier, event, publish, checksum):
            self._repeat(earlier, event, publish)
            return
        if publish.qos and publish.dup and (connection.number, publish.packet_identifier or 0) in self._pending:
            return
        message = Published(
            publisher.name, connection.number, key[0], event.topic or "", publish.qos, bool(publish.retain),
            len(publish.raw) + publish.missing, checksum,
            None if block is None else block.message_expiry_interval, event.frame, event.timestamp_ns, event.capture,
            key, connection, event.stream_offset + len(publish.raw) + publish.missing, is_whole=not publish.missing,
            is_empty=not publish.payload and not publish.missing, is_again=bool(publish.dup),
            alias_bytes=alias_bytes(event.topic or "", publish),
        )  # fmt: skip
        if connection.transport == "tcp" and len(publish.raw) > 1:
            message.pause = self.pauses.longest(
                (connection.client, connection.server), event.stream_offset, message.end,
                from_ns=connection.opened_ns, until_ns=event.timestamp_ns,
            )  # fmt: skip
        if message.pause is not None:
            _room(self._paused)
            self._paused[connection.number] = message
        if not publish.missing:
            message.forward = self.forwards.source_of_publish(event, checksum, len(publish.payload))
        if message.forward is not None:
            self.forwards.count_publish(event, message.forward)
        if message.retain:
            self.origins.retained_wills.replace((message.server, message.topic))
        if len(self.published) >= MAX_MESSAGES:
            self._make_room()
        self._count += 1
        self.published[self._count] = message
        self.expected.setdefault((message.server, message.topic, message.checksum), {})[self._count] = None
        if len(self.latest) >= MAX_OTHERS and (message.server, message.topic) not in self.latest:
            self.latest.popitem(last=False)
        self.latest[message.server, message.topic] = self._count
        if publish.qos and publish.packet_identifier is not None:
            if len(self._pending) >= MAX_PENDING:
                self._pending.popitem(last=False)[1].is_answer_unknown = True
            self._pending[connection.number, publish.packet_identifier] = message
            _room(self._sent)
            self._sent[key, publish.packet_identifier] = message
            if publish.qos == EXACTLY_ONCE:
                _room(self._unreleased)
                self._unreleased[key, publish.packet_identifier] = message
        for other in self.matching(message.topic):
            other_client = self.clients.get(other)
            if other_client is None or other_client.server != message.server:
                continue
            needs = held_by(other_client, message.topic)
            if not needs:
                continue
            if self._held >= MAX_HELD:
                self.unheld += 1
                continue
            self._held += len(needs)
            message.held[other] = needs
        if not message.held:
            self._unwanted[self._count] = None

    def _repeat(self, message: Published, event: PacketEvent, packet: packets.Publish) -> None:
        """Take a message that its publisher sends again (5.0 and 3.1.1, 4.4)."""
        connection = event.connection
        message.repetition = message.repetition or Resend()
        # The position of the answer belongs to the TCP streams of its own connection.
        is_same = message.source is connection
        is_unaware = is_same and has_answer(connection, message.answer_position, from_client=True) is False
        message.repetition.add(
            event, connection=message.connection, is_unaware=is_unaware, is_released=message.released
        )
        if message.answer is None:
            if message.source is not connection:
                message.source, message.end = connection, event.stream_offset + len(packet.raw) + packet.missing
            self._pending[connection.number, packet.packet_identifier or 0] = message

    def _make_room(self) -> None:
        """Let go of the oldest message that went to all who wanted it, else of one nobody wanted, else of any."""
        if self._complete:
            number = next(iter(self._complete))
            self.good += 1
        elif self._unwanted:
            number = next(iter(self._unwanted))
            self.unwanted += 1
        else:
            number = next(iter(self.published))
            self.beyond += 1
        self._complete.pop(number, None)
        self._unwanted.pop(number, None)
        message = self.published.pop(number)
        self._held -= sum(map(len, message.held.values()))
        place = message.server, message.topic, message.checksum
        del self.expected[place][number]
        if not self.expected[place]:
            del self.expected[place]

    def matching(self, topic: str) -> Iterable[tuple[str, str]]:
        """Clients that have, or had, a filter which matches a topic."""
        return dict.fromkeys(key for plain in self._index.match(topic) for key in self.filters[plain])

    def _acknowledged(self, event: PacketEvent) -> None:
        identifier = getattr(event.packet, "packet_identifier", None) or 0
        message = self._pending.pop((event.connection.number, identifier), None)
        if message is not None:
            code = getattr(event.packet, "reason_code", None) or 0
            after = describe.span(event.timestamp_ns - message.timestamp_ns)
            kind = event.packet.packet_type
            text = describe.reason(kind, code, event.connection.version) if code else "success"
            message.code, message.answer_position = code, answer_position(event)
            message.answer = Evidence.at(f"the broker acknowledged it {after} later: {kind.name} {text}", event)

    def _deliver(self, event: PacketEvent, publish: packets.Publish, checksum: int) -> None:
        connection = event.connection
        known = self._client(connection)
        key = _key(connection)
        topic = event.topic or ""
        numbers = self.expected.get((key[0], topic, checksum), {})
        identifiers = [] if publish.properties is None else publish.properties.all(SUBSCRIPTION_IDENTIFIER)
        number, share = copy_of(
            event, known, key, [(candidate, self.published[candidate]) for candidate in numbers], identifiers
        )
        if publish.retain and publish.payload and not (known.keeps_retain or self.loops.follows(connection.number)):
            self.origins.keep((key[0], topic), known.name, event)
        if publish.retain or number is None:
            self.origins.retained_wills.replace((key[0], topic), None if publish.retain else checksum)
        if number is not None:
            message = self.published[number]
            self._got(message, key, share, event, publish)
            if publish.retain:
                self._prove(message, known, event)
            self.forwards.note_copy((key[0], topic, checksum, key), message.client)
            if share:
                message.shares.add(share)
                self.used_shares.add((key[0], share))
            if message.is_complete:
                self._complete[number] = None
                self._unwanted.pop(number, None)
            return
        if self.good or self.unwanted or self.beyond:
            return  # it may be one of those that had to make room
        retained = next((self.published[candidate] for candidate in numbers if self.published[candidate].retain), None)
        if publish.retain and retained is not None:
            self._prove(retained, known, event)
        if publish.dup or self.origins.find(known, (key[0], topic), checksum, event, publish, retained):
            return
        if self._has_forward(known, (key[0], topic, checksum, key), event, publish):
            return
        payload = checksum, len(publish.payload)
        if publish.retain and self.copies.note(event, known.name, self.forwards.sightings(*payload)):
            return
        if self.changes.note_delivery(event, key, known.name, payload, is_followed=True):
            return
        latest = self.published[next(reversed(numbers))] if numbers else None
        surplus = surplus_copy(latest, key, known, event, publish)
        if surplus is not None and len(self.surplus) < MAX_COPIES:
            self.surplus.append(surplus)
        else:
            self.origins.add_unknown(known, topic, event)

    def _has_forward(self, known: Subscriber, place: Place, event: PacketEvent, packet: packets.Publish) -> bool:
        """Whether a client most probably brought a message from another broker; notes the second copy."""
        server, topic, checksum, key = place
        forward = None
        if not packet.missing and not packet.retain:
            forward = self.forwards.source_of_delivery(event, checksum, len(packet.payload))
        if forward is None:
            return False
        messages = (self.published[number] for number in self.expected.get((server, topic, checksum), ()))
        first = max((row for row in messages if key in row.got), key=lambda row: row.timestamp_ns, default=None)
        publisher = "" if first is None else first.client
        self.forwards.count_delivery(event, known.name, place, forward, publisher)
        if first is not None:
            copy = next(iter(first.got[key].values()))
            after = describe.span(event.timestamp_ns - copy.timestamp_ns)
            through = f"most probably through {forward.client}" if forward.client else "from another broker"
            copy.echo = f", and a second copy {after} after that (frame {event.frame}), {through}"
        return True

    def _prove(self, message: Published, client: Subscriber, event: PacketEvent) -> None:
        """Note that a broker kept a message, if a client that subscribed after it got it with RETAIN 1."""
        if client.keeps_retain or self.loops.follows(event.connection.number) or self.forgotten:
            return
        names = (name for name in self._index.match(message.topic) if name in client.filters)
        if any(client.filters[name].asked_ns > message.timestamp_ns for name in names):
            message.proof = Evidence.at(f"{client.name} got it with RETAIN 1 after it had subscribed", event)

    def _got(
        self, message: Published, key: tuple[str, str], share: str, event: PacketEvent, publish: packets.Publish
    ) -> None:
        """Note a delivery to a client; a repetition counts if nothing acknowledged the message before."""
        copies = message.got.setdefault(key, {})
        block = publish.properties
        names = () if block is None else tuple(block.all(SUBSCRIPTION_IDENTIFIER))
        before = copies.get(share)
        got = Got(
            event.timestamp_ns, event.frame, event.capture, event.connection.number, event.connection,
            event.stream_offset + len(publish.raw) + publish.missing, needs_answer=bool(publish.qos),
            identifier=publish.packet_identifier, size=len(publish.raw) + publish.missing,
        )  # fmt: skip
        if not publish.qos and not publish.retain:
            _room(self._heard)
            self._heard[event.connection.number] = got
        if before is not None and before.is_resent_by(event, is_exact=False):
            last = before.last
            last.repetition = last.repetition or Resend()
            is_unaware = has_answer(event.connection, last.answer_position, from_client=False) is False
            last.repetition.add(event, connection=last.connection, is_unaware=is_unaware)
            return
        if before is not None and before.is_repeated_by(event, is_exact=not before.arrived):
            before.last.again = got
        elif before is not None and before.arrived:
            before.copies += 1
            before.named[names] += 1
            before.passed_on += message.repetition is not None
            is_beside = event.timestamp_ns - before.best.timestamp_ns <= SECOND and not publish.retain
            if is_beside and not publish.dup and len(before.beside) < model.MAX_REPORTED:
                before.beside.append(event.frame)
            return
        else:
            got.named[names] += 1
            copies[share] = got
        if publish.packet_identifier is not None:
            if len(self._unanswered) >= MAX_PENDING:
                self._unanswered.popitem(last=False)[1].needs_answer = False  # its answer is not looked for
            self._unanswered[event.connection.number, publish.packet_identifier] = got

    def _note_retained(self, event: PacketEvent, publish: packets.Publish) -> None:
        """The broker answers a SUBSCRIBE with a retained message, if that can be the only reason to send it."""
        connection, known = event.connection, self.clients.get(_key(event.connection))
        if known is None or not event.topic:
            return
        names = [name for name in self._index.match(event.topic) if name in known.filters]
        for name in names:
            known.filters[name].is_answered = True
        if known.keeps_retain or connection.session_present or self.forgotten:
            return
        if self.loops.follows(connection.number):
            return  # perhaps a bridge, which gets live messages with RETAIN 1
        wanted = known.filters[names[0]] if len(names) == 1 else None
        if wanted is None or not wanted.asks_for_retained or wanted.connection != connection.number:
            return
        if wanted.retained is None:
            wanted.retained = Got(
                event.timestamp_ns, event.frame, event.capture, connection.number, connection,
                event.stream_offset + len(publish.raw) + publish.missing,
            )  # fmt: skip
        wanted.answers += 1
        wanted.last_answer_ns = event.timestamp_ns
        if "+" in wanted.plain_filter or "#" in wanted.plain_filter:
            self.wildcard_answers.add(known.server)

    @property
    def has_foreign(self) -> bool:
        """Whether deliveries are of messages from another broker, or with another topic."""
        return self.forwards.has_deliveries or self.changes.has_deliveries or self.copies.has_deliveries

    def is_whole(self, server: str, topic: str) -> bool:
        """Whether all messages are followed, and the capture has no will to a topic nor a message that came unseen."""
        is_seen = not self.origins.has_unknown and not self.has_foreign
        return is_seen and len(self.published) == self._count and not self.origins.has_wills((server, topic))

    def _fill(self, event: PacketEvent) -> None:
        """A message of QoS 1 or 2 to a client, which may use its Receive Maximum up."""
        connection, sender = event.connection, event.connection.server_side
        known = self._client(connection)
        is_new = getattr(event.packet, "packet_identifier", None) not in sender.exchanges
        known.most_in_flight = max(known.most_in_flight, sender.in_flight + is_new)
        is_full = sender.in_flight + 1 >= connection.client_side.receive_maximum
        if is_full and (not known.full or known.full[-1][1] != NEVER):
            known.full.append((event.timestamp_ns, NEVER))
            del known.full[:-MAX_FILTERS]

    def _answered(self, event: PacketEvent) -> None:
        """An answer of a client to a message."""
        connection, identifier = event.connection, event.packet.packet_identifier or 0  # type: ignore[attr-defined]
        got = self._unanswered.pop((connection.number, identifier), None)
        if got is not None:
            got.is_answered = True
            got.answered_ns, got.answer_position = event.timestamp_ns, answer_position(event)
        known = self.clients.get(_key(connection))
        if known is not None and not identifier:
            known.note_zero(event)
        # A PUBREC with a failure is the last packet of its message (5.0 4.9).
        ends = (
            event.packet.packet_type != PacketType.PUBREC or (getattr(event.packet, "reason_code", 0) or 0) >= FAILURE
        )
        if known is not None and ends:
            known.has_room(event.timestamp_ns)

    def _announced(self, event: PacketEvent, connect: packets.Connect) -> None:
        """A will for the topics that were asked for."""
        will = connect.will
        topic = None if will is None else will.will_topic
        if will is not None and topic and matches(self.topic_filter, topic):
            place = host_of(event.connection.server), topic
            self.origins.announce(event, place, zlib.crc32(will.will_payload), will)
            name = describe.name(connect.client_identifier) or event.connection.client
            if len(self._wills) < MAX_NEAREST:
                seen = Evidence.at(f"{name} announced a will to {describe.name(topic)}", event)
                self._wills.append(AnnouncedWill(seen, event.connection))
            else:
                self._further += 1

    def _unfinished(self, event: MalformedEvent | UnparsedEvent) -> None:
        """An unfinished PUBLISH."""
        known = self.clients.get(_key(event.connection))
        if known is not None and event.direction is C2S:
            known.garbled_ns = event.timestamp_ns
        raw = event.malformed.raw if isinstance(event, MalformedEvent) else event.unparsed.raw
        packet = event.malformed.packet if isinstance(event, MalformedEvent) else None
        if isinstance(event, UnparsedEvent) and event.unparsed.packet_type == PacketType.PUBLISH:
            packet = truncated(event.unparsed.raw, event.connection.version).packet
        topic = getattr(packet, "topic_name", None)
        if not isinstance(topic, str) or not topic or not matches(self.topic_filter, topic):
            return
        if event.direction is not C2S:
            is_over = isinstance(event, MalformedEvent) or event.unparsed.reason != "capture_end"
            if known is not None and is_over and len(known.parts.setdefault(topic, [])) < model.MAX_REPORTED:
                known.parts[topic].append((event.timestamp_ns, event.frame, announced(raw)))
        else:
            self.unfinished.note(event, topic)

    def instead(self) -> Iterator[str]:
        """Sentences about the nearest topics and wills, for a capture without a message to the given topics."""
        for will in self._wills:
            yield will.outcome
        if self._further:
            yield describe.more_not_shown(self._further)
        for topic in nearest(self._others, self.topic_filter)[:MAX_NEAREST]:
            yield f"The nearest topic with messages is {topic}."
        if self._other_topics:
            yield f"limit: the nearest topic is looked for among the first {MAX_OTHERS:,}."

    def with_other_slashes(self) -> list[str]:
        """The first topics with messages that differ from the given ones only by a slash at an end."""
        bare = self.topic_filter.strip("/")
        same = (topic for topic in self._others if matches(bare, topic.strip("/"), shared=False)) if bare else ()
        return list(islice(same, MAX_NEAREST))

    @property
    def unknown_answer(self) -> str:
        """The reason why the acknowledgement of a message is unknown."""
        return f"its acknowledgement is unknown: more than {MAX_PENDING:,} messages waited for theirs"


def _room(table: OrderedDict[Any, Any]) -> None:
    """Forget the oldest entry of a full table."""
    if len(table) >= MAX_PENDING:
        table.popitem(last=False)


def _key(connection: Connection) -> tuple[str, str]:
    return host_of(connection.server), connection.client_identifier or connection.client
