"""Why a message did not arrive: who published it, who got it, and what kept it from each other client.

`MessageWatch` takes the events of a run, each before its packet is applied, and remembers the messages of one topic or
Topic Filter and the subscriptions of all clients; both are bounded, and the trace says what had no room.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mqttscope.events import ConnectionClosed, Event, GapEvent, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.explain import describe
from mqttscope.explain.book import host
from mqttscope.explain.deliveries import EXACTLY_ONCE, Deliveries, LoopWatch, copy_of, nearest
from mqttscope.explain.fates import (
    NEVER,
    AnnouncedWill,
    Delivery,
    Fate,
    Got,
    Loss,
    MessageFate,
    Published,
    RetainedWills,
    Subscriber,
    Trace,
    Wanted,
    held_by,
    is_loss,
    said_goodbye,
    shown_order,
)
from mqttscope.explain.model import Evidence
from mqttscope.explain.story import announced
from mqttscope.mqtt import PacketType, ProtocolVersion, packets
from mqttscope.mqtt.codec import truncated
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER
from mqttscope.mqtt.topics import matches, parse_shared
from mqttscope.mqtt.wire import counted
from mqttscope.session.connection import C2S, Connection
from mqttscope.session.matching import FAILURE, FilterIndex

MAX_MESSAGES = 1_000
"""Maximum number of messages of the topic that are followed."""
MAX_CLIENTS = 10_000
"""Maximum number of clients whose subscriptions are remembered."""
MAX_FILTERS = 1_000
"""Maximum number of subscriptions of a client that are remembered, and of its connections."""
MAX_SHOWN = 20
"""Maximum number of messages that did not arrive everywhere and are reported one by one."""
MAX_TOLD = 20
"""Maximum number of clients of a message that are reported one by one, and of connections with one will."""
MAX_PENDING = 10_000
"""Maximum number of messages whose acknowledgement is looked for, and of different wills."""
MAX_DISTINCT = 100_000
"""Maximum number of different filters of all clients that are remembered, and of subscriptions before the last ones."""
MAX_HELD = 200_000
"""Maximum number of clients that had a subscription when a message was published, over all messages."""
_ANSWERS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP)
MAX_OTHERS = 10_000
"""Maximum number of topics of other messages that are remembered, to name the nearest ones."""
MAX_NEAREST = 3
"""Maximum number of topics, of wills, and of beginnings of messages that are named where no message was published."""
NO_SUBSCRIBERS = 0x10


class MessageWatch:
    """Follows the messages of a topic.  Feed it events, then ask for the `trace`."""

    def __init__(self, topic_filter: str) -> None:
        self.topic_filter = topic_filter
        self.published: dict[int, Published] = {}
        """By their number."""
        self.good = 0
        """Messages that went to all who wanted them, and had to make room for others."""
        self.unknown: tuple[str, str, Evidence] | None = None
        """First delivery of a message whose publishing was not captured: topic, client, place."""
        self.unknown_count = 0
        self.beyond = 0
        """Other messages that had to make room."""
        self.dropped = 0
        """Clients beyond `MAX_CLIENTS`."""
        self.forgotten = 0
        """Subscriptions and connections of clients beyond `MAX_FILTERS` and `MAX_DISTINCT`."""
        self.clients: OrderedDict[tuple[str, str], Subscriber] = OrderedDict()
        self.joined = 0
        """Clients whose subscriptions were made before the capture."""
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
        self._begun: list[Evidence] = []
        """The first messages for these topics of which the beginning alone was sent."""
        self._loops = LoopWatch()
        self._willed: OrderedDict[tuple[Any, int], list[tuple[Connection, int, Will]]] = OrderedDict()
        """Connections, the frames of their CONNECT and wills, by server and topic, and checksum of the will."""
        self._retained_wills = RetainedWills()
        self._origins: dict[str, tuple[int, str]] = {}
        """How many deliveries of what the capture announces otherwise, and the first one, by what that is."""
        self._further = 0
        """Wills and beginnings after the first `MAX_NEAREST`."""
        self.filters: dict[str, dict[tuple[str, str], None]] = {}
        """Clients by what their filters are compared with; some may have subscribed to something else since."""
        self._index = FilterIndex()
        """The same filters, found by the topics that they match."""
        self.used_shares: set[tuple[str, str]] = set()
        """Servers and the filters of shares through which they sent messages."""
        self.uncompared = 0
        """Topics beyond `MAX_COMPARED`."""
        self._deliveries = Deliveries(self)
        self._named: set[tuple[str, tuple[str, str]]] = set()
        """Topics, and clients whose filters come near them, that were told."""
        self._held = self._former = self.compared = self._count = 0
        self._expected: dict[tuple[str, str, int], dict[int, None]] = {}
        """Numbers of messages by server, topic and checksum of the payload."""
        self._complete: dict[int, None] = {}
        """Numbers of messages that went to all who wanted them."""
        self.unwanted = 0
        """Messages that no captured client had a subscription for, and that had to make room for others."""
        self._unwanted: dict[int, None] = {}
        """Numbers of such messages that are still followed."""
        self.now_ns = 0

    def feed(self, event: Event) -> None:
        """Take one event."""
        self.now_ns = max(self.now_ns, getattr(event, "timestamp_ns", 0))
        if isinstance(event, PacketEvent):
            self._packet(event)
        elif isinstance(event, MalformedEvent | UnparsedEvent):
            self._unfinished(event)
        elif isinstance(event, GapEvent):
            known = self.clients.get(_key(event.connection))
            if known is not None and event.direction is not C2S:
                known.gap_ns = max(known.gap_ns, event.timestamp_ns)
        elif isinstance(event, ConnectionClosed):
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
                    known.has_room(event.timestamp_ns)

    def _packet(self, event: PacketEvent) -> None:
        found, from_client = event.packet, event.direction is C2S
        if isinstance(found, packets.Publish):
            if found.qos and not from_client:
                self._fill(event)
            if found.retain and not found.dup and not from_client:
                self._note_retained(event, found)
            if event.topic and matches(self.topic_filter, event.topic):
                self._loops.feed(event, found, self._client(event.connection))
                if from_client:
                    self._publish(event, found)
                else:
                    self._deliver(event, found)
            elif event.topic and event.topic not in self._others:
                if len(self._others) < MAX_OTHERS:
                    self._others[event.topic] = None
                else:
                    self._other_topics += 1
            return
        kind = found.packet_type
        if isinstance(found, packets.Connect) and from_client:
            if found.bridge:
                self._loops.begin(event.connection.number)
            self._announced(event, found)
        elif kind in (PacketType.PUBACK, PacketType.PUBREC) and not from_client:
            self._acknowledged(event)
        elif kind == PacketType.PUBREL and from_client:
            made = self._unreleased.pop((_key(event.connection), found.packet_identifier or 0), None)  # type: ignore[attr-defined]
            if made is not None:
                made.released = True
        elif kind in _ANSWERS and from_client:
            self._answered(event)
        elif isinstance(found, packets.Connack) and not from_client:
            if not found.reason_code:
                self._accepted(event, present=bool(found.session_present))
            elif event.connection.connack_packet is None:
                self._refused(event.connection)
        elif isinstance(found, packets.Subscribe) and from_client:
            self._subscribe(event, found)
        elif isinstance(found, packets.Suback) and not from_client:
            self._granted(event, found)
        elif isinstance(found, packets.Disconnect):
            # From here on nothing is sent, however long the transport stays open.
            self._client(event.connection).ends[event.connection.number] = event.timestamp_ns, event.frame
            for will in self._wills:
                will.disconnect(event, found)
        elif isinstance(found, packets.Unsubscribe) and from_client:
            known = self._client(event.connection)
            for one in found.topic_filters or ():
                wanted = known.filters.get(one)
                if wanted is not None and wanted.ended_ns is None:
                    wanted.ended_ns, wanted.ended_frame = event.timestamp_ns, event.frame

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
        known.connection, known.number = connection, connection.number
        return known

    def _renamed(self, connection: Connection, key: tuple[str, str]) -> Subscriber | None:
        """A client that was known by its endpoint until the broker assigned it a Client Identifier."""
        endpoint = key[0], connection.client
        known = self.clients.get(endpoint)
        if known is None or known.number != connection.number:
            return None
        del self.clients[endpoint]
        known.name = describe.name(key[1])
        for one in known.filters.values():
            self.filters[one.plain_filter].pop(endpoint, None)
            self.filters[one.plain_filter][key] = None
        self.clients[key] = known
        return known

    def _refused(self, connection: Connection) -> None:
        """Nothing comes of what a client asked for before its CONNACK."""
        known = self.clients.get(_key(connection))
        if known is not None and known.connection is connection:
            known.connection = None
            known.filters = {name: one for name, one in known.filters.items() if one.connection != connection.number}

    def _accepted(self, event: PacketEvent, *, present: bool) -> None:
        connection = event.connection
        found = self.clients.get(_key(connection))
        before = found is not None and found.number != connection.number
        known = self._client(connection)
        for one in known.filters.values():
            if one.connection == connection.number:
                one.since_ns = event.timestamp_ns
        known.resumes = connection.clean_start is False
        if before:
            if len(known.returns) < MAX_FILTERS:
                known.returns.append((event.timestamp_ns, event.frame, present, connection.number))
            else:
                self.forgotten += 1
        if not present:
            for one in known.filters.values():
                # A client need not wait for CONNACK before it subscribes.
                if one.ended_ns is None and one.connection != connection.number:
                    one.ended_ns, one.ended_frame, one.with_session = event.timestamp_ns, event.frame, True
                    one.is_lost = known.resumes and known.keeps
            known.complete = True
        elif not before:
            known.complete = False

    def _subscribe(self, event: PacketEvent, found: packets.Subscribe) -> None:
        known = self._client(event.connection)
        rows = found.subscriptions or ()
        identifier = None if found.properties is None else found.properties.first(SUBSCRIPTION_IDENTIFIER)
        if found.packet_identifier is not None:
            if len(known.requests) >= MAX_FILTERS and found.packet_identifier not in known.requests:
                del known.requests[next(iter(known.requests))]
                self.forgotten += 1
            known.requests[found.packet_identifier] = tuple(row.topic_filter for row in rows)
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
                asks_for_retained=share is None and not row.retain_handling,
            )  # fmt: skip
            known.keeps_retain = known.keeps_retain or bool(row.retain_as_published)
            self._retained_wills.ask(known, event.connection, row, wanted, existed=lasts)
            if former is not None and lasts and former.granted_ns is not None and (former.code or 0) < FAILURE:
                wanted.begun = former.begun or former
                wanted.before = wanted.begun.before
            elif former is not None and self._former < MAX_DISTINCT:
                self._former += 1
                wanted.before = former
            elif former is not None:
                self.forgotten += 1

    def _granted(self, event: PacketEvent, found: packets.Suback) -> None:
        known = self._client(event.connection)
        asked = known.requests.pop(found.packet_identifier or 0, ())
        for one, code in zip(asked, found.reason_codes or (), strict=False):
            wanted = known.filters.get(one)
            if wanted is not None:
                wanted.code = code
                if code < FAILURE and wanted.granted_ns is None:
                    wanted.granted_ns = event.timestamp_ns
                wanted.qos = min(wanted.qos, code) if code < 0x80 else wanted.qos

    def _publish(self, event: PacketEvent, found: packets.Publish) -> None:
        connection = event.connection
        if found.qos and found.dup and (connection.number, found.packet_identifier or 0) in self._pending:
            return
        publisher = self._client(connection)
        block = found.properties
        key = _key(connection)
        earlier = self._sent.get((key, found.packet_identifier or 0)) if found.qos and found.dup else None
        if earlier is not None and earlier.answer is None and earlier.topic == event.topic:
            # The next connection of its publisher: the same message again (5.0 and 3.1.1, 4.4).
            earlier.source, earlier.end = connection, event.stream_offset + len(found.raw) + found.missing
            self._pending[connection.number, found.packet_identifier or 0] = earlier
            return
        made = Published(
            publisher.name, connection.number, key[0], event.topic or "", found.qos, bool(found.retain),
            len(found.raw) + found.missing, zlib.crc32(found.payload),
            None if block is None else block.message_expiry_interval, event.frame, event.timestamp_ns, event.capture,
            key, connection, event.stream_offset + len(found.raw) + found.missing, is_whole=not found.missing,
            is_removal=bool(found.retain) and not found.payload and not found.missing, is_again=bool(found.dup),
        )  # fmt: skip
        if made.retain:
            self._retained_wills.replace((made.server, made.topic))
        if len(self.published) >= MAX_MESSAGES:
            self._make_room()
        self._count += 1
        self.published[self._count] = made
        self._expected.setdefault((made.server, made.topic, made.checksum), {})[self._count] = None
        if found.qos and found.packet_identifier is not None:
            if len(self._pending) >= MAX_PENDING:
                self._pending.popitem(last=False)[1].is_answer_unknown = True
            self._pending[connection.number, found.packet_identifier] = made
            _room(self._sent)
            self._sent[key, found.packet_identifier] = made
            if found.qos == EXACTLY_ONCE:
                _room(self._unreleased)
                self._unreleased[key, found.packet_identifier] = made
        for other in self._matching(made.topic):
            one = self.clients.get(other)
            if one is None or one.server != made.server:
                continue
            needs = held_by(one, made.topic)
            if not needs:
                continue
            if self._held >= MAX_HELD:
                self.unheld += 1
                continue
            self._held += len(needs)
            made.held[other] = needs
        if not made.held:
            self._unwanted[self._count] = None

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
        one = self.published.pop(number)
        self._held -= sum(map(len, one.held.values()))
        place = one.server, one.topic, one.checksum
        del self._expected[place][number]
        if not self._expected[place]:
            del self._expected[place]

    def _matching(self, topic: str) -> Iterable[tuple[str, str]]:
        """Clients that have, or had, a filter which matches a topic."""
        return dict.fromkeys(key for plain in self._index.match(topic) for key in self.filters[plain])

    def _acknowledged(self, event: PacketEvent) -> None:
        identifier = getattr(event.packet, "packet_identifier", None) or 0
        made = self._pending.pop((event.connection.number, identifier), None)
        if made is not None:
            code = getattr(event.packet, "reason_code", None) or 0
            after = describe.span(event.timestamp_ns - made.timestamp_ns)
            kind = event.packet.packet_type
            text = describe.reason(kind, code, event.connection.version) if code else "success"
            made.code = code
            made.answer = Evidence.at(f"the broker acknowledged it {after} later: {kind.name} {text}", event)

    def _deliver(self, event: PacketEvent, found: packets.Publish) -> None:
        connection = event.connection
        known = self._client(connection)
        key = _key(connection)
        checksum = zlib.crc32(found.payload)
        topic = event.topic or ""
        numbers = self._expected.get((key[0], topic, checksum), {})
        identifiers = [] if found.properties is None else found.properties.all(SUBSCRIPTION_IDENTIFIER)
        number, share = copy_of(event, known, key, [(one, self.published[one]) for one in numbers], identifiers)
        if found.retain or number is None:
            self._retained_wills.replace((key[0], topic), None if found.retain else checksum)
        if number is not None:
            one = self.published[number]
            self._got(one, key, share, event, found)
            if share:
                one.shares.add(share)
                self.used_shares.add((key[0], share))
            if one.is_complete:
                self._complete[number] = None
                self._unwanted.pop(number, None)
            return
        if self.good or self.unwanted or self.beyond:
            return  # it may be one of those that had to make room
        if not found.dup and not self._has_origin(known, topic, checksum, event, found):
            self.unknown_count += 1
            if self.unknown is None:
                retained = ", as a retained message" if found.retain else ""
                self.unknown = topic, known.name, Evidence.at(f"{known.name} received it{retained}", event)

    def _has_origin(
        self, known: Subscriber, topic: str, checksum: int, event: PacketEvent, found: packets.Publish
    ) -> bool:
        """Whether a delivery is like a will of a connection that has ended, or like a retained message."""
        numbers = self._expected.get((known.server, topic, checksum), ())
        kind, of = "a retained message that was published before", ""
        retained = next((self.published[one] for one in numbers if found.retain and self.published[one].retain), None)
        if retained is not None:
            of = f"{retained.client} published that in frame {retained.frame}"
        ended = [
            row
            for row in reversed(self._willed.get(((known.server, topic), checksum), ()))
            if row[0].connack_packet is not None
            and (said_goodbye(row[0]) or 0 < row[0].closed_ns <= event.timestamp_ns)
        ]
        # A will that is due goes before one that DISCONNECT has discarded.
        for connection, frame, will in sorted(ended, key=lambda row: said_goodbye(row[0]))[: not of]:
            kind, ends = "a will whose connection had ended", f", and its #{connection.number} had ended"
            if said_goodbye(connection):
                kind, ends = "a will whose client had sent DISCONNECT, after which no will is due", ""
            else:
                self._retained_wills.publish((known.server, topic), will, checksum, connection, event)
            client = describe.name(connection.client_identifier) or connection.client
            of = f"{client} announced that in frame {frame}{ends}"
        if of:
            count, first = self._origins.get(
                kind, (0, f"{describe.name(topic)} to {known.name}, frame {event.frame}; {of}")
            )
            self._origins[kind] = count + 1, first
        return bool(of)

    def _got(
        self, one: Published, key: tuple[str, str], share: str, event: PacketEvent, found: packets.Publish
    ) -> None:
        """A client was sent a message; what was sent again counts where nothing acknowledged it before."""
        copies = one.got.setdefault(key, {})
        before = copies.get(share)
        got = Got(
            event.timestamp_ns, event.frame, event.capture, event.connection.number, event.connection,
            event.stream_offset + len(found.raw) + found.missing, needs_answer=bool(found.qos),
            identifier=found.packet_identifier,
        )  # fmt: skip
        if before is not None and before.is_repeated_by(event):
            before.last.again = got
        elif before is not None and before.arrived:
            before.copies += 1
            return
        else:
            copies[share] = got
        if found.packet_identifier is not None:
            if len(self._unanswered) >= MAX_PENDING:
                self._unanswered.popitem(last=False)[1].needs_answer = False  # its answer is not looked for
            self._unanswered[event.connection.number, found.packet_identifier] = got

    def _note_retained(self, event: PacketEvent, found: packets.Publish) -> None:
        """The broker answers a SUBSCRIBE with a retained message, if that can be the only reason to send it."""
        connection, known = event.connection, self.clients.get(_key(event.connection))
        if known is None or not event.topic or known.keeps_retain or connection.session_present or self.forgotten:
            return
        if self._loops.follows(connection.number):
            return  # perhaps a bridge, which gets live messages with RETAIN 1
        names = [name for name in self._index.match(event.topic) if name in known.filters]
        wanted = known.filters[names[0]] if len(names) == 1 else None
        if wanted and wanted.asks_for_retained and wanted.retained is None and wanted.connection == connection.number:
            wanted.retained = Got(
                event.timestamp_ns, event.frame, event.capture, connection.number, connection,
                event.stream_offset + len(found.raw) + found.missing,
            )  # fmt: skip

    def is_whole(self, server: str, topic: str) -> bool:
        """Whether all messages are followed, and the capture has no will to a topic nor a message that came unseen."""
        is_followed = len(self.published) == self._count and self.unknown is None
        return is_followed and all(place != (server, topic) for place, _ in self._willed)

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
        known = self.clients.get(_key(connection))
        # A PUBREC with a failure is the last packet of its message (5.0 4.9).
        ends = (
            event.packet.packet_type != PacketType.PUBREC or (getattr(event.packet, "reason_code", 0) or 0) >= FAILURE
        )
        if known is not None and ends:
            known.has_room(event.timestamp_ns)

    def _announced(self, event: PacketEvent, found: packets.Connect) -> None:
        """A will for the topics that were asked for."""
        will = found.will
        topic = None if will is None else will.will_topic
        if will is not None and topic and matches(self.topic_filter, topic):
            key = (host(event.connection.server), topic), zlib.crc32(will.will_payload)
            self._retained_wills.replace(*key)  # another one may come unseen
            if key not in self._willed:
                _room(self._willed)
            self._willed.setdefault(key, []).append((event.connection, event.frame, will))
            del self._willed[key][:-MAX_TOLD]
            name = describe.name(found.client_identifier) or event.connection.client
            if len(self._wills) < MAX_NEAREST:
                place = Evidence.at(f"{name} announced a will to {describe.name(topic)}", event)
                self._wills.append(AnnouncedWill(place, event.connection))
            else:
                self._further += 1

    def _unfinished(self, event: MalformedEvent | UnparsedEvent) -> None:
        """The beginning of a PUBLISH of which the rest never came."""
        known = self.clients.get(_key(event.connection))
        if known is not None and event.direction is C2S:
            known.garbled_ns = event.timestamp_ns
        raw = event.malformed.raw if isinstance(event, MalformedEvent) else event.unparsed.raw
        found = event.malformed.packet if isinstance(event, MalformedEvent) else None
        if isinstance(event, UnparsedEvent) and event.unparsed.packet_type == PacketType.PUBLISH:
            found = truncated(event.unparsed.raw, event.connection.version).packet
        topic = getattr(found, "topic_name", None)
        if not isinstance(topic, str) or not topic or not matches(self.topic_filter, topic):
            return
        if event.direction is not C2S:
            is_over = isinstance(event, MalformedEvent) or event.unparsed.reason != "capture_end"
            if known is not None and is_over and len(known.parts.setdefault(topic, [])) < MAX_TOLD:
                known.parts[topic].append((event.timestamp_ns, event.frame, announced(raw)))
        else:
            client = describe.name(event.connection.client_identifier) or event.connection.client
            self._note(self._begun, f"{client} sent the beginning of a message to {describe.name(topic)}", event)

    def _note(self, places: list[Evidence], text: str, event: PacketEvent | MalformedEvent | UnparsedEvent) -> None:
        if len(places) < MAX_NEAREST:
            places.append(Evidence.at(text, event))
        else:
            self._further += 1

    def _instead(self) -> Iterator[str]:
        """What the capture has where it has no message to the topics that were asked for."""
        for place in self._begun:
            yield f"{place.text}, and not the rest of it (frame {place.frame})."
        for will in self._wills:
            yield will.said
        if self._further:
            yield f"{self._further:,} more of these {_are(self._further)} not shown."
        for one in nearest(self._others, self.topic_filter)[:MAX_NEAREST]:
            yield f"The nearest topic with messages is {one}."
        if self._other_topics:
            yield f"limit: the nearest topic is looked for among the first {MAX_OTHERS:,}."

    def trace(self, of: Callable[[str], bool] | None = None, *, missed: bool = False) -> Trace:
        """What became of the messages; call it when the capture has ended.

        ``of`` chooses clients by their names; ``missed``: nothing but what these wanted and did not get.
        """
        told: list[str] = []
        self._named.clear()
        fates = [self._fate(one) for one in self.published.values()]
        if of is not None:
            for each_fate in fates:
                each_fate.deliveries = tuple(each for each in each_fate.deliveries if of(each.client))
        if missed:
            return self._missed(fates)
        troubled: list[MessageFate] = []
        idle: list[MessageFate] = []
        for one in fates:
            if any(each.is_trouble for each in one.deliveries):
                troubled.append(one)
            elif not any(each.fate is Fate.DELIVERED for each in one.deliveries):
                idle.append(one)
        worth = troubled + [one for one in idle if not one.is_told]
        shown = worth[:MAX_SHOWN] or fates[:3]
        shown.sort(key=lambda one: one.published.timestamp_ns if one.published else 0)
        full = {id(one) for one in shown}
        near = [
            f"{each.client} {each.said} ({one.topic})."
            for one in fates
            if id(one) not in full
            for each in one.deliveries
            if each.fate is Fate.NO_SUBSCRIPTION
        ]
        shape = describe.name(self.topic_filter)
        if fates:
            good = len(fates) - len(troubled) - len(idle) + self.good
            total = len(fates) + self.good + self.unwanted
            every, none = "every captured client that wanted them", "were delivered to no captured client"
            if of is not None:
                every, none = "those of these clients that wanted them", "were not for them"
            told.append(
                f"{counted(total, 'message')} to {shape} in the capture: {good:,} went to {every}, {len(troubled):,}"
                f" did not, {len(idle) + self.unwanted:,} {none}."
            )
        elif not self.unknown and not self._origins:
            told.append(f"The capture contains no message to {shape}.")
            told += self._instead()
        told += self._loops.sentences()
        if len(worth) > MAX_SHOWN:
            told.append(f"{len(worth) - MAX_SHOWN:,} more of them {_are(len(worth) - MAX_SHOWN)} not shown.")
        folded = len(troubled) + len(idle) - len(worth)
        if folded:
            told.append(
                f"{folded:,} of the messages that no captured client got {_are(folded)} not shown:"
                " the filters that come near their topics are named once."
            )
        if self.unknown:
            topic, client, place = self.unknown
            many = self.unknown_count
            what = "One delivery is of a message" if many == 1 else f"{many:,} deliveries are of messages"
            told.append(
                f"{what} whose publishing is not in the capture (retained, or by a client that was not captured); the"
                f" first: {describe.name(topic)} to {client}, frame {place.frame}."
            )
        for kind, (many, first) in self._origins.items():
            have = "One delivery has" if many == 1 else f"{many:,} deliveries have"
            told.append(f"{have} the topic and the payload of {kind}; the first: {first}.")
        told += self._retained_wills.remarks(self.now_ns)
        told += near[:MAX_TOLD]
        if len(near) > MAX_TOLD:
            told.append(f"{len(near) - MAX_TOLD:,} more of these {_are(len(near) - MAX_TOLD)} not shown.")
        unknown = sum(1 for one in self.clients.values() if not one.complete)
        if unknown:
            told.append(f"{counted(unknown, 'client')} may have subscriptions that were made before the capture began.")
        if self.beyond:
            told.append(f"limit: {MAX_MESSAGES:,} messages are followed; earlier ones that are not: {self.beyond:,}.")
        if self.dropped:
            told.append(f"limit: {MAX_CLIENTS:,} clients are followed; forgotten: {self.dropped:,}.")
        if self.forgotten:
            told.append(
                "limit: what is shown of clients may be wrong; forgotten subscriptions and connections:"
                f" {self.forgotten:,}."
            )
        if self.unheld or self.uncompared:
            told.append("limit: for some messages, not all clients with a matching or similar subscription are shown.")
        return Trace(shown, told)

    def _missed(self, fates: list[MessageFate]) -> Trace:
        found = [one for one in fates if any(each.is_trouble for each in one.deliveries)]
        for one in found:
            one.deliveries = tuple(each for each in one.deliveries if each.is_trouble)
        told = [f"{counted(len(found), 'message')} did not arrive; --message TOPIC shows what became of others."]
        if len(found) > MAX_SHOWN:
            told.append(f"{len(found) - MAX_SHOWN:,} more of them are not shown.")
        return Trace(found[:MAX_SHOWN], told if found else [])

    def _fate(self, one: Published) -> MessageFate:
        deliveries: list[Delivery] = []
        repeats = False
        near = self._deliveries.near_of(one.topic)
        keys = [*one.got, *one.held, *self._matching(one.topic)]
        keys += [key for plain in near for key in self.filters[plain]]
        for key in dict.fromkeys(keys):
            client = self.clients.get(key)
            if client is None or client.server != one.server:
                continue
            for made, _ in self._deliveries.of(one, key, client):
                if made.fate is Fate.NO_SUBSCRIPTION:
                    if (one.topic, key) in self._named:
                        repeats = True
                        continue
                    self._named.add((one.topic, key))
                deliveries.append(made)
        deliveries.sort(key=shown_order)
        missed = {each.client for each in deliveries if each.is_trouble}
        reached = {each.client for each in deliveries if each.fate is Fate.DELIVERED}
        trouble, got, partly = len(missed - reached), len(reached), len(missed & reached)
        evidence = [
            Evidence.at(
                f"{one.client} published it with QoS {one.qos}" + (", retained" if one.retain else "")
                + f" ({counted(one.size, 'byte')})",
                one,
            )
        ]  # fmt: skip
        if one.answer is not None:
            evidence.append(one.answer)
        elif one.is_answer_unknown:
            text = f"its acknowledgement is unknown: more than {MAX_PENDING:,} messages waited for theirs"
            evidence.append(Evidence(text))
        elif one.qos:
            evidence.append(Evidence("no acknowledgement of the broker was captured"))
        else:
            evidence.append(Evidence("with QoS 0 nothing says whether the broker got it"))
        if one.code == NO_SUBSCRIBERS:
            evidence.append(Evidence("the broker says that nobody had a subscription for it then"))
        said = f"delivered to {counted(got, 'client')}" if got else "delivered to no captured client"
        if trouble:
            said = f"{said}, not to {trouble:,}" if got else f"not delivered to {counted(trouble, 'client')}"
        if partly:
            said += f"; a further copy is missing for {partly:,}"
        if one.code is not None and one.code >= 0x80:
            said = f"refused by the broker ({describe.code(one.code)})"
        if not deliveries:
            like = "; those with one like it are named with an earlier message" if repeats else ", or one like it"
            evidence.append(Evidence(f"no captured client had a subscription that it matches{like}"))
        left = len(deliveries) - MAX_TOLD
        if left > 0:
            evidence.append(Evidence(f"{counted(left, 'more client')} {_are(left)} not shown"))
        is_told = repeats and not deliveries and (one.code or 0) < 0x80
        told = tuple(deliveries[:MAX_TOLD])
        return MessageFate(describe.name(one.topic), said, one, tuple(evidence), told, is_told)

    def losses(self) -> Iterator[Loss]:
        """What clients asked for and did not get, as far as the capture shows it; call it when the capture has ended.

        A message that a client missed because it was not meant to be connected is not among them, and neither is one
        whose topic had the same payload more than once: nobody can tell which of them did not arrive.
        """
        for client in self.clients.values():
            for wanted in client.filters.values():
                if (wanted.code or 0) >= FAILURE:
                    text = f"the broker refused its subscription to {describe.name(wanted.topic_filter)}"
                    yield Loss(
                        client.name, wanted.connection, Fate.SUBSCRIPTION_REFUSED, wanted.topic_filter,
                        f"{text} ({describe.code(wanted.code or 0)})", wanted.frame, wanted.asked_ns, wanted.capture,
                    )  # fmt: skip
        for message in self.published.values():
            place = message.frame, message.timestamp_ns, message.capture
            if (message.code or 0) >= FAILURE:
                text = f"the broker refused its message to {describe.name(message.topic)}"
                yield Loss(
                    message.client, message.connection, Fate.MESSAGE_REFUSED, message.topic,
                    f"{text} ({describe.code(message.code or 0)})", *place,
                )  # fmt: skip
                continue
            if len(self._expected[message.server, message.topic, message.checksum]) > 1:
                continue
            text = f"did not get the message to {describe.name(message.topic)} of {message.client}"
            for key in message.held:
                reader = self.clients.get(key)
                for delivery, held in () if reader is None else self._deliveries.of(message, key, reader):
                    if reader is not None and held is not None and is_loss(delivery.fate, message, held, reader):
                        yield Loss(
                            reader.name, held.number, delivery.fate, message.topic, f"{text}: {delivery.said}", *place
                        )


def _room(table: OrderedDict[tuple[Any, int], Any]) -> None:
    """Forget the oldest entry of a full table."""
    if len(table) >= MAX_PENDING:
        table.popitem(last=False)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _key(connection: Connection) -> tuple[str, str]:
    return host(connection.server), connection.client_identifier or connection.client
