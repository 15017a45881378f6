"""Why a message did not arrive: who published it, who got it, and what kept it from each other client.

`MessageWatch` takes the events of a run, each before its packet is applied, and remembers the messages of one topic or
Topic Filter and the subscriptions of all clients; both are bounded, and the trace says what had no room.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from mqttscope.events import ConnectionClosed, Event, GapEvent, PacketEvent
from mqttscope.explain import describe
from mqttscope.explain.book import host
from mqttscope.explain.fates import (
    MAX_COMPARED_LENGTH,
    Delivery,
    Fate,
    Held,
    Loss,
    MessageFate,
    Published,
    Subscriber,
    Trace,
    Wanted,
    likeness,
)
from mqttscope.explain.model import Evidence
from mqttscope.mqtt import PacketType, ProtocolVersion, packets
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
"""Maximum number of clients of a message that are reported one by one."""
MAX_PENDING = 10_000
"""Maximum number of messages whose acknowledgement is looked for."""
MAX_DISTINCT = 100_000
"""Maximum number of different filters of all clients that are remembered."""
MAX_HELD = 200_000
"""Maximum number of clients that had a subscription when a message was published, over all messages."""
MAX_COMPARED = 500_000
"""Maximum number of comparisons of topics with filters that do not match them."""
SECOND = 1_000_000_000
_KEEP = (
    "Connect without Clean Start and, in 5.0, with a Session Expiry Interval; subscribe after each CONNACK with Session"
    " Present 0."
)
NO_SUBSCRIBERS = 0x10


class _Making(Protocol):
    """Makes the fate of a client, with the place that shows it."""

    def __call__(self, fate: Fate, said: str, *advice: str, frame: int = 0, now: int = 0) -> Delivery: ...


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
        self._filters: dict[str, dict[tuple[str, str], None]] = {}
        """Clients by what their filters are compared with; some may have subscribed to something else since."""
        self._index = FilterIndex()
        """The same filters, found by the topics that they match."""
        self.uncompared = 0
        """Topics beyond `MAX_COMPARED`."""
        self._near: dict[str, dict[str, tuple[float, str]]] = {}
        """Filters that are like a topic and do not match it, with the difference in words, by topic."""
        self._named: set[tuple[str, tuple[str, str]]] = set()
        """Topics, and clients whose filters come near them, that were told."""
        self._held = self._compared = self._count = 0
        self._expected: dict[tuple[str, str, int], dict[int, None]] = {}
        """Numbers of messages by server, topic and checksum of the payload."""
        self._complete: dict[int, None] = {}
        """Numbers of messages that went to all who wanted them."""
        self.unwanted = 0
        """Messages that no captured client had a subscription for, and that had to make room for others."""
        self._unwanted: dict[int, None] = {}
        """Numbers of such messages that are still followed."""
        self._now_ns = 0

    def feed(self, event: Event) -> None:
        """Take one event."""
        self._now_ns = max(self._now_ns, getattr(event, "timestamp_ns", 0))
        if isinstance(event, PacketEvent):
            self._packet(event)
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
                known.connection, known.keeps = None, _keeps(event.connection)
                known.was_cut = event.connection.disconnect_by is None
                if event.connection.closed_how != "capture_end":
                    known.left_ns, known.left_frame = event.timestamp_ns, event.frame

    def _packet(self, event: PacketEvent) -> None:
        found, from_client = event.packet, event.direction is C2S
        if isinstance(found, packets.Publish):
            if event.topic and matches(self.topic_filter, event.topic):
                if from_client:
                    self._publish(event, found)
                else:
                    self._deliver(event, found)
            return
        kind = found.packet_type
        if kind in (PacketType.PUBACK, PacketType.PUBREC) and not from_client:
            self._acknowledged(event)
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
            self._filters[one.plain_filter].pop(endpoint, None)
            self._filters[one.plain_filter][key] = None
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
        if before:
            if len(known.returns) < MAX_FILTERS:
                known.returns.append((event.timestamp_ns, event.frame, present, connection.number))
            else:
                self.forgotten += 1
        if not present:
            # A client need not wait for CONNACK before it subscribes.
            known.filters = {
                name: one
                for name, one in known.filters.items()
                if one.ended_ns is not None or one.connection == connection.number
            }
            known.complete = True
        elif not before:
            known.complete = False

    def _subscribe(self, event: PacketEvent, found: packets.Subscribe) -> None:
        known = self._client(event.connection)
        rows = found.subscriptions or ()
        if found.packet_identifier is not None:
            if len(known.requests) >= MAX_FILTERS and found.packet_identifier not in known.requests:
                del known.requests[next(iter(known.requests))]
                self.forgotten += 1
            known.requests[found.packet_identifier] = tuple(row.topic_filter for row in rows)
        for row in rows:
            if len(known.filters) >= MAX_FILTERS and row.topic_filter not in known.filters:
                self.forgotten += 1
                continue
            share = parse_shared(row.topic_filter) if event.connection.version == ProtocolVersion.V5 else None
            plain = row.topic_filter if share is None else share[1]
            if plain not in self._filters:
                if len(self._filters) >= MAX_DISTINCT:
                    self.forgotten += 1
                    continue
                self._filters[plain] = {}
                self._index.add(plain, plain)
            self._filters[plain][_key(event.connection)] = None
            before = known.filters.get(row.topic_filter)
            known.filters[row.topic_filter] = Wanted(
                row.topic_filter, plain, share is not None, row.maximum_qos,
                bool(row.no_local), event.timestamp_ns, event.frame, event.capture, event.connection.number,
                event.timestamp_ns, before.granted_ns if before is not None and before.ended_ns is None else None,
            )  # fmt: skip

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
        made = Published(
            publisher.name, connection.number, key[0], event.topic or "", found.qos, bool(found.retain),
            len(found.raw) + found.missing, zlib.crc32(found.payload),
            None if block is None else block.message_expiry_interval, event.frame, event.timestamp_ns, event.capture,
            key, connection, event.stream_offset + len(found.raw) + found.missing, is_whole=not found.missing,
        )  # fmt: skip
        if len(self.published) >= MAX_MESSAGES:
            self._make_room()
        self._count += 1
        self.published[self._count] = made
        self._expected.setdefault((made.server, made.topic, made.checksum), {})[self._count] = None
        if found.qos and found.packet_identifier is not None:
            if len(self._pending) >= MAX_PENDING:
                self._pending.popitem(last=False)[1].is_answer_unknown = True
            self._pending[connection.number, found.packet_identifier] = made
        for other in self._matching(made.topic):
            one = self.clients.get(other)
            if one is None or one.server != made.server:
                continue
            held = _held(one, made.topic)
            if held is None:
                continue
            if self._held >= MAX_HELD:
                self.unheld += 1
                continue
            self._held += 1
            made.held[other] = held
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
        self._held -= len(one.held)
        place = one.server, one.topic, one.checksum
        del self._expected[place][number]
        if not self._expected[place]:
            del self._expected[place]

    def _matching(self, topic: str) -> Iterable[tuple[str, str]]:
        """Clients that have, or had, a filter which matches a topic."""
        return dict.fromkeys(key for plain in self._index.match(topic) for key in self._filters[plain])

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
        number, share = self._copied(known, key, topic, numbers)
        if number is not None:
            one = self.published[number]
            one.got.setdefault(key, (event.timestamp_ns, event.frame, event.capture, connection.number))
            if share is not None:
                one.shares.add(share)
            if one.is_complete:
                self._complete[number] = None
                self._unwanted.pop(number, None)
            return
        if self.good or self.unwanted or self.beyond:
            return  # it may be one of those that had to make room
        if not found.dup:
            self.unknown_count += 1
            if self.unknown is None:
                retained = ", as a retained message" if found.retain else ""
                self.unknown = topic, known.name, Evidence.at(f"{known.name} received it{retained}", event)

    def _copied(
        self, known: Subscriber, key: tuple[str, str], topic: str, numbers: Iterable[int]
    ) -> tuple[int | None, str | None]:
        """Which message a delivery is a copy of, the oldest one that lacks it, and for which share, if for one.

        Messages for which the client had a subscription go before those from before it had one.  A share gets one
        copy of a message, through any of its members, and a client gets one for its other subscriptions.
        """
        alike = [(number, self.published[number]) for number in numbers]
        if len(alike) > 1:
            alike.sort(key=lambda pair: key not in pair[1].held)
        matching = [one for one in known.filters.values() if matches(one.plain_filter, topic, shared=False)]
        shares = [one.topic_filter for one in matching if one.shared]
        if not shares or any(not one.shared and one.ended_ns is None for one in matching):
            for number, one in alike:
                if key not in one.got:
                    return number, None
        for number, one in alike:
            share = next((name for name in shares if name not in one.shares), None)
            if share is not None:
                return number, share
        # A share may get a message again where the member that had it has not acknowledged it.
        again = (number for number, one in alike if key not in one.got)
        return next(again, None), None

    def trace(self) -> Trace:
        """What became of the messages; call it when the capture has ended."""
        told: list[str] = []
        self._named.clear()
        fates = [self._fate(one) for one in self.published.values()]
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
            told.append(
                f"{counted(total, 'message')} to {shape} in the capture: {good:,} went to every captured client that"
                f" wanted them, {len(troubled):,} did not, {len(idle) + self.unwanted:,} were delivered to no captured"
                " client."
            )
        elif not self.unknown:
            told.append(f"No message to {shape} is in the capture: nobody published one, as far as it shows.")
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

    def _fate(self, one: Published) -> MessageFate:
        deliveries: list[Delivery] = []
        repeats = False
        near = self._near_of(one.topic)
        keys = [*one.got, *one.held, *self._matching(one.topic)]
        keys += [key for plain in near for key in self._filters[plain]]
        for key in dict.fromkeys(keys):
            client = self.clients.get(key)
            if client is None or client.server != one.server:
                continue
            made = self._delivery(one, key, client)
            if made is None:
                continue
            if made.fate is Fate.NO_SUBSCRIPTION:
                if (one.topic, key) in self._named:
                    repeats = True
                    continue
                self._named.add((one.topic, key))
            deliveries.append(made)
        deliveries.sort(key=_told_first)
        trouble = sum(each.is_trouble for each in deliveries)
        got = sum(each.fate is Fate.DELIVERED for each in deliveries)
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

    def _delivery(self, one: Published, key: tuple[str, str], client: Subscriber) -> Delivery | None:
        """The fate for one client; ``None`` where it has nothing to do with the message."""
        got = one.got.get(key)
        if got is not None:
            now, frame, capture, number = got
            after = describe.span(now - one.timestamp_ns)
            return Delivery(client.name, number, Fate.DELIVERED, f"received it {after} later", frame, now, capture)
        held = one.held.get(key)
        if held is None or held.wanted is None or held.wanted.since_ns > one.timestamp_ns:
            return self._without(one, client)
        wanted, name, number = held.wanted, describe.name(held.wanted.topic_filter), held.number

        def made(
            fate: Fate, said: str, *advice: str, frame: int = wanted.frame, now: int = wanted.asked_ns
        ) -> Delivery:
            return Delivery(client.name, number, fate, said, frame, now, wanted.capture, advice)

        if wanted.ended_ns is not None and wanted.ended_ns <= one.timestamp_ns:
            ago = describe.span(one.timestamp_ns - wanted.ended_ns)
            return made(
                Fate.UNSUBSCRIBED, f"had ended its subscription to {name} {ago} before", frame=wanted.ended_frame,
                now=wanted.ended_ns,
            )  # fmt: skip
        if wanted.code is not None and wanted.code >= 0x80:
            return made(
                Fate.SUBSCRIPTION_REFUSED,
                f"the broker refused its subscription to {name} ({describe.code(wanted.code)})",
                "Allow the subscription in the broker's access rules, and let the client read the codes of a SUBACK.",
            )
        if one.code is not None and one.code >= 0x80:
            return made(
                Fate.MESSAGE_REFUSED, f"the broker refused the message ({describe.code(one.code)})",
                "Allow the publisher to write to the topic (0x87), or raise the quota (0x97).",
            )  # fmt: skip
        if wanted.no_local and key == one.key:
            return made(Fate.NOT_CONCERNED, f"published it itself, and its subscription to {name} has No Local")
        if wanted.shared and wanted.topic_filter in one.shares:
            return made(Fate.NOT_CONCERNED, f"another member of the share got it ({name})")
        if not one.is_received:
            return made(
                Fate.NOT_RECEIVED, "nothing shows that the broker received the message", frame=one.frame,
                now=one.timestamp_ns,
            )  # fmt: skip
        ended_ns, ended_frame = client.ends.get(held.number, (0, 0))
        if held.online and 0 < ended_ns <= one.timestamp_ns:
            held = replace(held, online=False, left_ns=ended_ns, left_frame=ended_frame)
        return self._online(one, client, held, made) if held.online else self._offline(one, client, held, made)

    def _online(self, one: Published, client: Subscriber, held: Held, made: _Making) -> Delivery:
        wanted = held.wanted
        assert wanted is not None
        name = describe.name(wanted.topic_filter)
        if held.largest is not None and one.size > held.largest:
            return made(
                Fate.TOO_LARGE, f"takes packets of at most {held.largest:,} bytes (Maximum Packet Size); this one has"
                f" {one.size:,}", "Raise the Maximum Packet Size of the client, or send smaller messages.",
            )  # fmt: skip
        if held.one_sided or client.gap_ns >= one.timestamp_ns - SECOND:
            return made(Fate.NOT_CAPTURED, "the capture lacks bytes that the broker sent it: it may have come")
        if not one.is_whole:
            return made(Fate.NOT_CAPTURED, "the capture lacks bytes of the message: it may have come")
        if held.full:
            return made(
                Fate.QUOTA_FULL, "its Receive Maximum was used up: it had not acknowledged earlier messages",
                "Let the client acknowledge messages sooner, or raise its Receive Maximum.",
            )  # fmt: skip
        # Two connections have no common order: the broker may have taken the later of two packets first.
        if held.number != one.connection:
            if wanted.granted_ns is None or wanted.granted_ns > one.timestamp_ns:
                asked = f"asked for {name} {describe.span(one.timestamp_ns - wanted.asked_ns)} before"
                said = "no SUBACK was captured"
                if wanted.granted_ns is not None:
                    said = f"its SUBACK came {describe.span(wanted.granted_ns - one.timestamp_ns)} after the message"
                return made(Fate.SUBSCRIBED_LATER, f"{asked}, and {said}: the broker may have taken the message first")
            if wanted.ended_ns is not None and wanted.ended_ns <= _due_ns(one):
                later = describe.span(wanted.ended_ns - one.timestamp_ns)
                return made(
                    Fate.UNSUBSCRIBED, f"ended its subscription to {name} {later} later", frame=wanted.ended_frame,
                    now=wanted.ended_ns,
                )  # fmt: skip
        if held.backlog:
            return made(Fate.STALLED, held.backlog, "Let the client read what comes, or subscribe to less.")
        end_ns, end_frame = client.ends.get(held.number, (0, 0))
        after = describe.span(end_ns - one.timestamp_ns)
        if one.timestamp_ns <= end_ns <= _due_ns(one):
            back = next((each for each in client.returns if each[0] >= end_ns), None)
            ended = f"its connection ended {after} after the message was published"
            place = {"frame": end_frame, "now": end_ns}
            if back is not None and back[2] and min(one.qos, wanted.qos) and self._now_ns >= back[0] + SECOND:
                return made(
                    Fate.NOT_SENT,
                    f"{ended}; it resumed its session as #{back[3]}, and the broker did not send the message in this"
                    " capture", "Look at the limit of the broker's queue for clients that are away.", **place,
                )  # fmt: skip
            return made(Fate.CONNECTION_ENDED, ended, **place)
        until = f"before its connection ended {after} later" if end_ns > one.timestamp_ns else "in this capture"
        if end_ns <= one.timestamp_ns and self._now_ns < one.timestamp_ns + SECOND:
            return made(Fate.NOT_CAPTURED, self._ends_after(one.timestamp_ns, "the message"))
        return made(
            Fate.NOT_SENT,
            f"should have got it: it is subscribed to {name}, and the broker did not send it {until}",
            "Look at the broker's access rules for reading, which need not refuse the subscription, and in its log: a"
            " full queue, a bridge, or a plugin that drops it.",
        )

    def _offline(self, one: Published, client: Subscriber, held: Held, made: _Making) -> Delivery:
        wanted = held.wanted
        assert wanted is not None
        back = next((each for each in client.returns if each[0] > one.timestamp_ns), None)
        was = "was not connected"
        if held.left_ns:
            was += f" (since {describe.span(one.timestamp_ns - held.left_ns)})"
        place = {"frame": held.left_frame, "now": held.left_ns}
        if not held.keeps:
            return made(
                Fate.SESSION_GONE, f"{was}, and its session had ended with its connection", _KEEP, **place,
            )  # fmt: skip
        if back is not None and not back[2]:
            return made(
                Fate.SESSION_GONE, f"{was}, and came back as #{back[3]} without its session (Session Present 0)",
_KEEP, **place,
            )  # fmt: skip
        if min(one.qos, wanted.qos) == 0:
            return made(
                Fate.OFFLINE, f"{was}; brokers need not keep messages of QoS 0 for it",
                "Publish and subscribe with QoS 1, so that the broker keeps messages for clients that are away.",
                **place,
            )  # fmt: skip
        if back is None:
            return made(Fate.OFFLINE, f"{was}, and did not come back in the capture", **place)
        if one.expiry is not None and back[0] - one.timestamp_ns >= one.expiry * SECOND:
            return made(
                Fate.EXPIRED, f"{was} for longer than the message was to live ({one.expiry} s)",
                "Raise the Message Expiry Interval of the publisher.", **place,
            )  # fmt: skip
        if self._now_ns < back[0] + SECOND:
            return made(Fate.NOT_CAPTURED, f"{was}; {self._ends_after(back[0], f'it came back as #{back[3]}')}")
        return made(
            Fate.NOT_SENT,
            f"{was}; it resumed its session as #{back[3]}, and the broker did not send the message in this capture",
            "Look at the limit of the broker's queue for clients that are away.", **place,
        )  # fmt: skip

    def _ends_after(self, moment_ns: int, moment: str) -> str:
        after = describe.span(self._now_ns - moment_ns)
        return f"the capture ends {after} after {moment}: the message may have come later"

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
            for key, held in message.held.items():
                reader = self.clients.get(key)
                if reader is None or key in message.got:
                    continue
                delivery = self._delivery(message, key, reader)
                if delivery is not None and _is_loss(delivery.fate, message, held, reader):
                    text = f"did not get the message to {describe.name(message.topic)} of {message.client}"
                    yield Loss(
                        reader.name, held.number, delivery.fate, message.topic, f"{text}: {delivery.said}", *place
                    )

    def _without(self, one: Published, client: Subscriber) -> Delivery | None:
        """Nothing matched when it was published: something did later, or something is like it."""
        for wanted in client.filters.values():
            if matches(wanted.plain_filter, one.topic, shared=False) and wanted.since_ns > one.timestamp_ns:
                after = describe.span(wanted.since_ns - one.timestamp_ns)
                early = wanted.asked_ns <= one.timestamp_ns
                when = f", and its connection was accepted {after} later" if early else f" {after} later"
                return Delivery(
                    client.name, client.number, Fate.SUBSCRIBED_LATER,
                    f"subscribed to {describe.name(wanted.topic_filter)}{when}", wanted.frame, wanted.asked_ns,
                    wanted.capture,
                    ("Subscribe before publishing, or publish with RETAIN what later subscribers need.",),
                )  # fmt: skip
        near = self._near_of(one.topic)
        like = [each for each in client.filters.values() if each.ended_ns is None and each.plain_filter in near]
        if not like:
            return None
        wanted = max(like, key=lambda each: near[each.plain_filter])
        name, why = describe.name(wanted.topic_filter), near[wanted.plain_filter][1]
        return Delivery(
            client.name, client.number, Fate.NO_SUBSCRIPTION,
            f"has no subscription that it matches; the nearest is {name}{why}", wanted.frame, wanted.asked_ns,
            wanted.capture, (f"Subscribe to what is published: {describe.name(one.topic)}.",),
        )  # fmt: skip

    def _near_of(self, topic: str) -> dict[str, tuple[float, str]]:
        """Filters that are like a topic and do not match it: how much, and the difference in words."""
        known = self._near.get(topic)
        if known is None:
            known = self._near[topic] = {}
            self.uncompared += len(topic) > MAX_COMPARED_LENGTH
            for plain in self._filters:
                if self._compared >= MAX_COMPARED:
                    self.uncompared += 1
                    break
                self._compared += 1
                found = likeness(topic, plain)
                if found is not None:
                    known[plain] = found
        return known


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _key(connection: Connection) -> tuple[str, str]:
    return host(connection.server), connection.client_identifier or connection.client


def _held(client: Subscriber, topic: str) -> Held | None:
    """How a client stands to a topic: its best subscription, if any."""
    found: Wanted | None = None
    for one in client.filters.values():
        if matches(one.plain_filter, topic, shared=False) and (found is None or _rank(one) > _rank(found)):
            found = one
    if found is None:
        return None
    connection = client.connection
    if connection is None:
        return Held(
            found, online=False, number=client.number, keeps=client.keeps, left_ns=client.left_ns,
            left_frame=client.left_frame, was_cut=client.was_cut,
        )  # fmt: skip
    full = connection.server_side.in_flight >= connection.client_side.receive_maximum
    return Held(
        found, True, connection.number, full, connection.client_side.maximum_packet_size, bool(connection.one_sided),
        _keeps(connection), reader=connection,
    )  # fmt: skip


def _keeps(connection: Connection) -> bool:
    """Whether a session survives its connection, as far as the client has asked for it."""
    if connection.version == ProtocolVersion.V5:
        return bool(connection.session_expiry_interval)
    return connection.clean_start is False


def _told_first(one: Delivery) -> tuple[int, str]:
    """Those who missed a message come before those whose filters come near, who got it, and whom it is not for."""
    places = {Fate.NO_SUBSCRIPTION: 1, Fate.DELIVERED: 2, Fate.NOT_CONCERNED: 3}
    return places.get(one.fate, 0), one.client


def _due_ns(one: Published) -> int:
    """When a message should have come: when the last one got it of those who did at once, else within a second."""
    until_ns = one.latest_ns + SECOND
    return max((now for now, *_ in one.got.values() if now <= until_ns), default=until_ns)


def _is_loss(fate: Fate, message: Published, held: Held, client: Subscriber) -> bool:
    """Whether a client that did not get a message had reason to expect it.

    Where it was away, it has to have come back: as a session that was kept, or after it was cut off.
    """
    if fate in (Fate.NOT_SENT, Fate.EXPIRED, Fate.TOO_LARGE):
        return True
    if fate not in (Fate.SESSION_GONE, Fate.OFFLINE) or not (held.keeps or held.was_cut):
        return False
    return any(returned_ns > message.timestamp_ns for returned_ns, *_ in client.returns)


def _rank(one: Wanted) -> tuple[bool, bool, bool, int]:
    return one.ended_ns is None, one.code is None or one.code < 0x80, one.granted_ns is not None, one.qos
