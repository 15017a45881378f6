"""Counts and measures the traffic of captures: per capture, connection, client and topic, in bounded memory.

`Statistics` takes the events of a dissection, and its frames.  Rows beyond a limit are not lost: they are counted
together, in the rows named ``other``.  When a connection ends, `summarise` reads its final state; `Statistics.finish`
computes the totals (`add_up`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from mqttscope.dissect.fast_path import FrameCounts
from mqttscope.events import (
    ClockStep,
    ConnectionClosed,
    ConnectionOpened,
    DiscardedEvent,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt import Connack, ControlPacket, Direction, PacketType, ProtocolVersion, Publish
from mqttscope.mqtt.packets import Acknowledgement
from mqttscope.mqtt.properties import TOPIC_ALIAS
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, Frame
from mqttscope.payloads.sparkplug_topics import NAMESPACE
from mqttscope.report.html.along import TimelineCounts
from mqttscope.session.connection import CONNECTING, REFUSED, Connection, host_of
from mqttscope.session.inflight import SENT, ConnectionSide
from mqttscope.stats import rows as at
from mqttscope.stats.rows import (
    CaptureRow,
    ClientRow,
    ConnectionOutcomes,
    ConnectionRow,
    EndedRows,
    RateWindow,
    TopicCounts,
    TrafficCounts,
)
from mqttscope.stats.sparkplug import NodeCounts

if TYPE_CHECKING:
    from mqttscope.capture.taps import Taps

MAX_CAPTURES: Final = 10_000
MAX_CONNECTIONS: Final = 50_000
"""Maximum number of ended connections with a row."""
MAX_LIVE_CONNECTIONS: Final = 131_072
"""Maximum number of open connections; beyond it the oldest is counted as ended.  A dissection has fewer."""
MAX_CLIENTS: Final = 50_000
MAX_TOPICS: Final = 100_000
MAX_NAME_CHARACTERS: Final = 32 * 1024 * 1024
"""Maximum characters of all Topic Names, and of all Client Identifiers; either may be 64 KiB long."""
MAX_TOPIC_CLIENTS: Final = 1_000
"""Maximum number of clients distinguished for one direction of one topic."""
MAX_TOPIC_CLIENT_PAIRS: Final = 1_000_000
"""Maximum number of clients distinguished for all topics together."""
MAX_RELEASES: Final = 1_000_000
"""Maximum number of PUBREL packets waiting for PUBCOMP, all connections together."""
TAKEN_OVER: Final = 0x8E
"""Reason code of a DISCONNECT: another connection uses the Client Identifier."""
NAMED_TOPICS: Final = 10
"""Maximum number of topics named per client and direction."""

_SECOND: Final = 1_000_000_000
_C2S: Final = Direction.CLIENT_TO_SERVER
_CONNECT: Final = 1
_PUBREC: Final = 5
_PUBREL: Final = 6
_PUBCOMP: Final = 7
_PINGRESP: Final = 13
"""Packet types as plain numbers, which are faster to compare."""


class Statistics:
    """Counts events and frames.  Read the rows after `finish`."""

    def __init__(self, *, along: bool = False, limits: Mapping[str, int] | None = None) -> None:
        """``along``: also count packets and bytes over time.

        ``limits``: limits that replace the defaults, by their names in `limits`.
        """
        self.limits = {
            "captures": MAX_CAPTURES,
            "connections": MAX_CONNECTIONS,
            "live_connections": MAX_LIVE_CONNECTIONS,
            "clients": MAX_CLIENTS,
            "topics": MAX_TOPICS,
            "name_characters": MAX_NAME_CHARACTERS,
            "topic_clients": MAX_TOPIC_CLIENTS,
            "topic_client_pairs": MAX_TOPIC_CLIENT_PAIRS,
            "releases": MAX_RELEASES,
            **(limits or {}),
        }
        self.captures: dict[str, CaptureRow] = {}
        self.connections = EndedRows()
        """Connections that have ended."""
        self.clients: dict[object, ClientRow] = {}
        self.topics: dict[str | None, TopicCounts] = {}
        self.totals = CaptureRow("")
        """Complete after `finish`."""
        self.other_capture = CaptureRow("")
        self.other_captures = 0
        self.other_traffic = TrafficCounts()
        """Traffic of the connections without a row."""
        self.other_outcomes = ConnectionOutcomes()
        self.other_client = ClientRow(-1, None)
        self.other_topic = TopicCounts("", 0)
        self.nodes = NodeCounts()
        """Edge nodes of Sparkplug."""
        self.missed_releases = 0
        """PUBREL packets without a measured time to PUBCOMP because of the limit."""
        self.early_closed = 0
        """Connections counted as ended because too many were open."""
        self.taps: Taps | None = None
        """The taps of these captures; with taps, captures overlap in time instead of following each other."""
        self.along = TimelineCounts("packets", "bytes") if along else None
        self._live: dict[int, ConnectionRow] = {}
        self._releases = 0
        self._pairs = 0
        self._topic_characters = 0
        self._client_characters = 0
        self._max_topic_clients = self.limits["topic_clients"]
        self._max_pairs = self.limits["topic_client_pairs"]
        self._name = ""
        self._capture = self.other_capture
        self._window = RateWindow()
        self._finished = False

    def frames(self, source: Iterable[Frame | CaptureNotice]) -> Iterator[Frame | CaptureNotice]:
        """Count frames and pass them on."""
        name, row = "", self.other_capture
        for frame in source:
            if type(frame) is Frame:
                if frame.capture != name or not name:
                    name = frame.capture
                    row = self._capture_row(name)
                row.frames += 1
                row.frame_bytes += frame.original_length
                row.captured_bytes += len(frame.data)
                now = row.final_ns = frame.timestamp_ns
                if row.last_ns is None or now > row.last_ns:
                    row.last_ns = now
                    if row.first_ns is None:
                        row.first_ns = row.opening_ns = now
                elif now < row.first_ns:  # type: ignore[operator]
                    row.first_ns = now
            yield frame

    def add_frames(self, capture: str, counts: FrameCounts) -> None:
        """Count frames that did not pass through `frames`."""
        row = self._capture_row(capture)
        row.frames += counts.frames
        row.frame_bytes += counts.frame_bytes
        row.captured_bytes += counts.captured_bytes
        row.first_ns = counts.first_ns if row.first_ns is None else min(row.first_ns, counts.first_ns)
        row.last_ns = counts.last_ns if row.last_ns is None else max(row.last_ns, counts.last_ns)

    def feed(self, event: Event) -> None:
        """Count an event, before its packet changes the state of its connection."""
        if type(event) is PacketEvent:
            self._packet(event)
        elif isinstance(event, ConnectionClosed):
            row = self._live.get(event.connection.number)
            self.nodes.feed(event)
            if row is not None:
                self._end(row, event.timestamp_ns)
        elif isinstance(event, ConnectionOpened):
            if event.connection.number not in self._live:
                self._begin(event.connection, event.timestamp_ns)
        elif isinstance(event, CaptureError):
            row_of_capture = self._capture_row(event.capture)
            row_of_capture.error_count += 1
            if len(row_of_capture.errors) < at.MAX_ERRORS:
                row_of_capture.errors.append((event.message, event.offset, event.frames))
        elif isinstance(event, CaptureDrops):
            self._capture_row(event.capture).dropped += event.dropped
        elif isinstance(event, ClockStep):
            row_of_capture = self._capture_row(event.capture)
            row_of_capture.clock_steps += event.by_ns != 0
            row_of_capture.stepped_ns += event.by_ns
        elif isinstance(event, MalformedEvent):
            found_bytes = len(event.malformed.raw) + event.malformed.missing
            self._bad(event, at.MALFORMED, at.MALFORMED_BYTES, found_bytes)
        elif isinstance(event, UnparsedEvent):
            self._bad(event, at.UNPARSED, at.UNPARSED_BYTES, event.unparsed.length)
        elif isinstance(event, DiscardedEvent) and event.reason != "damaged":
            row_of_capture = self._capture_row(event.capture)
            row_of_capture.discarded_segments += 1
            row_of_capture.discarded_bytes += event.length
        elif isinstance(event, GapEvent):
            self._bad(event, at.GAPS, at.GAP_BYTES, event.length)

    def _packet(self, event: PacketEvent) -> None:
        connection = event.connection
        row = self._live.get(connection.number)
        now = event.timestamp_ns
        if row is None:
            row = self._begin(connection, now)
        if row.revision != connection.revision:
            self._identify(row, connection)
        if event.capture != self._name:
            self._name = event.capture
            self._capture = self._capture_row(event.capture)
        packet = event.packet
        raw = packet.raw
        kind: int = raw[0] >> 4 if raw else packet.packet_type
        size = len(raw) + packet.missing
        second = now // _SECOND
        row.last_ns = now
        traffic, total = row.traffic, self._capture.traffic
        # Not ``+=``: a compiler cannot infer the type of an item that is changed in place.
        counts, sums = traffic.counts, total.counts
        if event.direction is _C2S:
            from_server = 0
            place = at.PACKETS + kind
            before = connection.client_side.last_timestamp_ns
            if before is not None and now - before > row.longest_silence_ns and kind != _CONNECT:
                # After the first FIN nothing is expected from the client.
                until = connection.closed_ns or now
                row.longest_silence_ns = max(row.longest_silence_ns, min(now, until) - before)
        else:
            from_server = 1
            place = at.PACKETS + 16 + kind
        counts[place] = counts[place] + 1
        sums[place] = sums[place] + 1
        place += at.BYTES
        counts[place] = counts[place] + size
        sums[place] = sums[place] + size
        traffic.window.add(second, size)
        total.window.add(second, size)
        self._window.add(second, size)
        if self.along is not None:
            self.along.add(now)
            self.along.add(now, 1, size)
        if type(packet) is Publish:
            self._publish(event, packet, from_server, size, second, row)
        elif kind in _ANSWERS:
            self._answer(event, packet, kind, from_server, row)

    def _publish(
        self, event: PacketEvent, packet: Publish, from_server: int, size: int, second: int, row: ConnectionRow
    ) -> None:
        counts, sums = row.traffic.counts, self._capture.traffic.counts
        payload = len(packet.payload) + packet.missing
        topic = event.topic
        topic_row = self.topics.get(topic) or self.topic_row(topic, event.timestamp_ns)
        block = packet.properties
        if block is not None and block.items and block.first(TOPIC_ALIAS) is not None:
            place = (at.ALIAS_SETS if packet.topic_name else at.ALIAS_HITS) + from_server
            counts[place] = counts[place] + 1
            sums[place] = sums[place] + 1
            if not packet.topic_name:
                saved = topic_row.length if topic_row is not self.other_topic else _length(topic)
                place = at.SAVED + from_server
                counts[place] = counts[place] + saved
                sums[place] = sums[place] + saved
        place = at.PAYLOAD + from_server
        counts[place] = counts[place] + payload
        sums[place] = sums[place] + payload
        qos: int = 4 * from_server + packet.qos
        place = at.QOS + qos
        counts[place] = counts[place] + 1
        sums[place] = sums[place] + 1
        if packet.retain:
            place = at.RETAIN + from_server
            counts[place] = counts[place] + 1
            sums[place] = sums[place] + 1
            topic_row.retain[from_server] = topic_row.retain[from_server] + 1
        if packet.dup:
            place = at.DUP + from_server
            counts[place] = counts[place] + 1
            sums[place] = sums[place] + 1
            topic_row.dup[from_server] = topic_row.dup[from_server] + 1
        topic_row.messages[from_server] = topic_row.messages[from_server] + 1
        topic_row.bytes[from_server] = topic_row.bytes[from_server] + size
        topic_row.payload[from_server] = topic_row.payload[from_server] + payload
        topic_row.qos[qos] = topic_row.qos[qos] + 1
        topic_row.window.add(second, size)
        topic_row.last_ns = event.timestamp_ns
        number = row.client_row.number  # type: ignore[union-attr]
        by_client, by_server = topic_row.clients
        known = by_server if from_server else by_client
        if number not in known:
            self.note_client(topic_row, from_server, number)
        if topic is not None and topic.startswith(NAMESPACE):
            self.nodes.feed(event)

    def note_client(self, topic_row: TopicCounts, from_server: int, number: int) -> None:
        """Note a new client of a topic, within the limits."""
        known = topic_row.clients[from_server]
        if number < 0 or len(known) >= self._max_topic_clients or self._pairs >= self._max_pairs:
            topic_row.complete[from_server] = False
        else:
            known.add(number)
            self._pairs += 1

    def _answer(
        self, event: PacketEvent, packet: ControlPacket, kind: int, from_server: int, row: ConnectionRow
    ) -> None:
        """Measure the time between a request and this answer."""
        connection, now = event.connection, event.timestamp_ns
        identifier: int = packet.packet_identifier if isinstance(packet, Acknowledgement) else 0
        if kind == _PUBREL:
            key = 2 * identifier + from_server
            if key in row.releases:
                return
            if self._releases < self.limits["releases"]:
                row.releases[key] = now
                self._releases += 1
            else:
                self.missed_releases += 1
            return
        asked_by = 1 - from_server
        if isinstance(packet, Connack):
            row.connack_reason_code = packet.reason_code
            if connection.phase is CONNECTING and connection.connect_timestamp_ns is not None:
                self._measured(row, 2 * at.CONNECT_CONNACK + asked_by, now - connection.connect_timestamp_ns)
            return
        if kind == _PINGRESP:
            side = connection.receiver(event.direction)
            if side.ping_packet is not None:
                self._measured(row, 2 * at.PINGREQ_PINGRESP + asked_by, now - side.ping_timestamp_ns)
            return
        exchange = connection.answered_by(packet, event.direction)
        if kind == _PUBCOMP:
            released_ns = row.releases.pop(2 * identifier + asked_by, None)
            if released_ns is not None:
                self._releases -= 1
                self._measured(row, 2 * at.PUBREL_PUBCOMP + asked_by, now - released_ns)
        if exchange is not None:
            qos, handshake = _ANSWERS[kind]
            if exchange.qos == qos and (kind != _PUBREC or exchange.phase is SENT):
                self._measured(row, 2 * handshake + asked_by, now - exchange.timestamp_ns)

    def _measured(self, row: ConnectionRow, key: int, nanoseconds: int) -> None:
        if nanoseconds < 0:
            return  # the clock was set back, or the two are in captures that overlap
        bucket = at.bucket_of(nanoseconds)
        row.traffic.latency(key, bucket, nanoseconds)
        self._capture.traffic.latency(key, bucket, nanoseconds)

    def _bad(self, event: MalformedEvent | UnparsedEvent | GapEvent, place: int, bytes_place: int, size: int) -> None:
        row = self._live.get(event.connection.number) or self._begin(event.connection, event.timestamp_ns)
        row.last_ns = event.timestamp_ns
        from_server = int(event.direction is not _C2S)
        self.nodes.feed(event)
        for counts in (row.traffic.counts, self._capture_row(event.capture).traffic.counts):
            counts[place + from_server] += 1
            counts[bytes_place + from_server] += size

    def _capture_row(self, name: str) -> CaptureRow:
        row = self.captures.get(name)
        if row is None:
            if len(self.captures) >= self.limits["captures"]:
                self.other_captures += 1
                return self.other_capture
            row = self.captures[name] = CaptureRow(name)
        return row

    def topic_row(self, topic: str | None, now: int) -> TopicCounts:
        """The row of a topic, or of all topics beyond the limit."""
        row = self.topics.get(topic)
        if row is not None:
            return row
        characters = len(topic or "")
        full = self._topic_characters + characters > self.limits["name_characters"]
        if full or len(self.topics) >= self.limits["topics"]:
            return self.other_topic
        self._topic_characters += characters
        row = self.topics[topic] = TopicCounts(topic, _length(topic), first_ns=now)
        return row

    def _client_row(self, identifier: str | None, now: int, address: str) -> ClientRow:
        # An empty Client Identifier does not identify a client: the server assigns one to each connection.
        key: object = identifier or (identifier, address)
        row = self.clients.get(key)
        if row is None:
            characters = len(identifier or "")
            full = self._client_characters + characters > self.limits["name_characters"]
            if full or len(self.clients) >= self.limits["clients"]:
                return self.other_client
            self._client_characters += characters
            row = self.clients[key] = ClientRow(len(self.clients), identifier, first_ns=now)
        if address not in row.addresses:
            if len(row.addresses) < at.MAX_ADDRESSES:
                row.addresses[address] = None
            else:
                row.more_addresses = True
        return row

    def _identify(self, row: ConnectionRow, connection: Connection) -> None:
        row.revision = connection.revision
        address = host_of(connection.client)
        row.client_row = self._client_row(connection.client_identifier, connection.opened_ns, address)

    def _begin(self, connection: Connection, now: int) -> ConnectionRow:
        if len(self._live) >= self.limits["live_connections"]:
            self.early_closed += 1
            oldest = next(iter(self._live.values()))
            self._end(oldest, oldest.last_ns)
        row = self._live[connection.number] = ConnectionRow(connection.number, connection, last_ns=now)
        return row

    def _end(self, row: ConnectionRow, now: int) -> None:
        """Count a connection that has ended, with its final state."""
        connection = row.live
        assert connection is not None
        if row.client_row is None:
            self._identify(row, connection)
        del self._live[row.number]
        self._releases -= len(row.releases)
        outcomes = summarise(row, connection, now)
        capture = self._capture_row(row.capture)
        capture.outcomes.merge(outcomes)
        for key, count in row.traffic.unanswered.items():
            capture.traffic.unanswered[key] = capture.traffic.unanswered.get(key, 0) + count
        sums, counts = capture.traffic.counts, row.traffic.counts
        for place in range(at.TCP, at.COUNTS):
            sums[place] = sums[place] + counts[place]
        client = row.client_row
        assert client is not None
        client.connections += 1
        client.accepted += row.outcome == "accepted"
        client.refused += row.outcome == "refused"
        client.unanswered += row.outcome == "unanswered"
        client.disconnected += row.ending == "disconnected"
        client.broken += row.ending == "broken"
        client.taken_over += row.disconnect_by == "server" and row.disconnect_reason == TAKEN_OVER
        client.longest_silence_ns = max(client.longest_silence_ns, row.longest_silence_ns)
        share = row.keep_alive_share
        if share is not None:
            client.keep_alive_share = max(client.keep_alive_share or 0.0, share)
        client.first_ns = row.opened_ns if client.first_ns is None else min(client.first_ns, row.opened_ns)
        client.last_ns = row.ended_ns if client.last_ns is None else max(client.last_ns, row.ended_ns)
        if len(self.connections) < self.limits["connections"]:
            client.count(row.traffic, self.connections.append(row))
        else:
            client.count(row.traffic, None)
            self.other_traffic.merge(row.traffic)
            self.other_outcomes.merge(outcomes)

    def live_row(self, connection: Connection) -> ConnectionRow:
        """The row of an open connection, with its client."""
        row = self._live[connection.number]
        if row.client_row is None or row.revision != connection.revision:
            self._identify(row, connection)
        return row

    def kernel_rows(self, capture: str) -> tuple[RateWindow, CaptureRow, TopicCounts, int]:
        """For the kernel: the current second, the rows of a capture and of other topics, and the limit of PUBRELs."""
        return self._window, self._capture_row(capture), self.other_topic, self.limits["releases"]

    def capture_names(self) -> list[str]:
        """Names of the captures, including captures with only copies of another tap's frames."""
        copied = set() if self.taps is None else self.taps.copied()
        return [*self.captures, *sorted(copied - self.captures.keys())]

    def finish(self) -> None:
        """Count the open connections as ended, and compute the totals."""
        if self._finished:
            return
        self._finished = True
        for number in list(self._live):
            row = self._live[number]
            self._end(row, row.last_ns)
        self.connections.sort()
        add_up(self, self._window)


def _length(topic: str | None) -> int:
    return 0 if topic is None else len(topic) if topic.isascii() else len(topic.encode("utf-8", "surrogateescape"))


_ANSWERS: Final[dict[int, tuple[int, int]]] = {
    PacketType.CONNACK: (0, at.CONNECT_CONNACK),
    PacketType.PUBACK: (1, at.PUBLISH_PUBACK),
    PacketType.PUBREC: (2, at.PUBLISH_PUBREC),
    PacketType.PUBREL: (0, at.PUBREL_PUBCOMP),
    PacketType.PUBCOMP: (2, at.PUBLISH_PUBCOMP),
    PacketType.SUBACK: (0, at.SUBSCRIBE_SUBACK),
    PacketType.UNSUBACK: (0, at.UNSUBSCRIBE_UNSUBACK),
    PacketType.PINGRESP: (0, at.PINGREQ_PINGRESP),
}
"""QoS of the exchange that a packet type answers, and the handshake that it completes (PUBREL: begins)."""


def summarise(row: ConnectionRow, connection: Connection, now: int) -> ConnectionOutcomes:
    """Copy the final state of a connection into its row; returns it as counts."""
    row.client, row.server, row.capture = connection.client, connection.server, connection.capture
    row.server_name = connection.server_name
    row.frame, row.opened_ns, row.ended_ns = connection.frame, connection.opened_ns, max(now, connection.opened_ns)
    row.transport, row.client_identifier = connection.transport, connection.client_identifier
    row.outcome = _outcome(row, connection)
    row.version = "" if row.outcome == "unread" else connection.version.text
    row.version_known = connection.version_known
    row.keep_alive = connection.keep_alive
    row.closed_how, row.closed_by = connection.closed_how, connection.closed_by
    if connection.also_closed is not None:
        row.also_closed, row.also_closed_ns = connection.also_closed.how, connection.also_closed.timestamp_ns
    row.one_sided = connection.one_sided
    row.discarded_segments, row.discarded_bytes = connection.discarded_segments, connection.discarded_bytes
    row.disconnect_by = connection.disconnect_by
    if connection.version >= ProtocolVersion.V5:
        row.disconnect_reason = connection.disconnect_reason
    row.ending = _ending(row, connection)
    _silence(row, connection)
    client, server = connection.client_side, connection.server_side
    row.in_flight_peak = client.in_flight_peak, server.in_flight_peak
    row.receive_maximum = _receive_maximum(connection, server), _receive_maximum(connection, client)
    _unanswered(row, connection)
    _tcp(row, connection)
    return _outcomes(row, connection)


def _outcome(row: ConnectionRow, connection: Connection) -> str:
    if connection.connect_packet is None:
        seen = connection.client_side.packets or connection.server_side.packets
        return "joined" if seen else "unread"
    if connection.connack_packet is None:
        return "unanswered"
    return "refused" if row.connack_reason_code or connection.phase is REFUSED else "accepted"


def _ending(row: ConnectionRow, connection: Connection) -> str:
    if row.outcome == "refused":
        return "refused"
    if connection.disconnect_by is not None:
        return "broken" if (connection.disconnect_reason or 0) >= 0x80 else "disconnected"
    if connection.closed_how not in ("fin", "reset"):
        return "open"
    # Lost or unread bytes may contain a DISCONNECT.
    return "unknown" if connection.gaps or row.outcome == "unread" else "broken"


def _receive_maximum(connection: Connection, side: ConnectionSide) -> int | None:
    known = side.limits_known and connection.version >= ProtocolVersion.V5
    return side.receive_maximum if known else None


def _silence(row: ConnectionRow, connection: Connection) -> None:
    """Silence counts from CONNECT to DISCONNECT, or to the end of the transport."""
    last = connection.client_side.last_timestamp_ns
    if connection.connect_packet is None:
        row.longest_silence_ns = 0
    elif last is not None and connection.disconnect_by is None:
        row.longest_silence_ns = max(row.longest_silence_ns, row.ended_ns - last)


def _unanswered(row: ConnectionRow, connection: Connection) -> None:
    """Count requests without an answer at the end, unless the answer may be among lost bytes."""
    unanswered = row.traffic.unanswered
    sides = connection.client_side, connection.server_side

    def add(handshake: int, from_server: int) -> None:
        if not sides[1 - from_server].gapped:
            key = 2 * handshake + from_server
            unanswered[key] = unanswered.get(key, 0) + 1

    for from_server, side in enumerate(sides):
        for exchange in side.exchanges.values():
            if exchange.kind == "subscribe":
                add(at.SUBSCRIBE_SUBACK, from_server)
            elif exchange.kind == "unsubscribe":
                add(at.UNSUBSCRIBE_UNSUBACK, from_server)
            elif exchange.qos == 1:
                add(at.PUBLISH_PUBACK, from_server)
            elif exchange.qos == 2:
                add(at.PUBLISH_PUBCOMP, from_server)
                if exchange.phase is SENT:
                    add(at.PUBLISH_PUBREC, from_server)
        if side.ping_packet is not None:
            add(at.PINGREQ_PINGRESP, from_server)
    for key in row.releases:
        add(at.PUBREL_PUBCOMP, key & 1)
    if row.outcome == "unanswered":
        add(at.CONNECT_CONNACK, 0)


def _tcp(row: ConnectionRow, connection: Connection) -> None:
    details = connection.details.get("tcp")
    if not isinstance(details, dict):
        return
    counts = row.traffic.counts
    for from_server, direction in enumerate(("client_to_server", "server_to_client")):
        for number, name in enumerate(at.TCP_COUNTERS):
            counts[at.TCP + from_server * len(at.TCP_COUNTERS) + number] = details[direction].get(name, 0)


def _outcomes(row: ConnectionRow, connection: Connection) -> ConnectionOutcomes:
    outcomes = ConnectionOutcomes(1)
    outcomes.outcomes[row.outcome] = 1
    outcomes.versions[connection.version.text if connection.version_known else "unknown"] = 1
    outcomes.transports[row.transport] = 1
    if row.outcome == "refused" and row.connack_reason_code is not None:
        outcomes.refusals[int(connection.version), row.connack_reason_code] = 1
    outcomes.closed[row.closed_how or "unknown", row.closed_by or "unknown"] = 1
    outcomes.endings[row.ending] = 1
    if row.disconnect_by is not None:
        outcomes.disconnects[row.disconnect_by, row.disconnect_reason] = 1
    else:
        outcomes.silent[row.ending, row.closed_how or "unknown", row.closed_by or "unknown"] = 1
    return outcomes


def add_up(statistics: Statistics, window: RateWindow) -> None:
    """Compute durations, totals, and the topics of each client."""
    rows = [*statistics.captures.values(), statistics.other_capture]
    _durations(statistics, rows)
    totals = statistics.totals
    for row in rows:
        totals.traffic.merge(row.traffic)
        totals.outcomes.merge(row.outcomes)
        totals.frames += row.frames
        totals.frame_bytes += row.frame_bytes
        totals.captured_bytes += row.captured_bytes
        totals.dropped += row.dropped
        totals.discarded_segments += row.discarded_segments
        totals.discarded_bytes += row.discarded_bytes
        totals.error_count += row.error_count
        totals.duration_ns += row.duration_ns
        totals.clock_steps += row.clock_steps
        if row.first_ns is not None and row.last_ns is not None:
            totals.first_ns = row.first_ns if totals.first_ns is None else min(totals.first_ns, row.first_ns)
            totals.last_ns = row.last_ns if totals.last_ns is None else max(totals.last_ns, row.last_ns)
    if statistics.taps is not None and totals.first_ns is not None and totals.last_ns is not None:
        totals.duration_ns = totals.last_ns - totals.first_ns
    totals.traffic.window = window
    statistics.clients = {key: row for key, row in statistics.clients.items() if row.connections}
    _topics_of_clients(statistics)


def _durations(statistics: Statistics, rows: list[CaptureRow]) -> None:
    """Duration from the first to the last frame; without frames, from the first to the last connection."""
    unframed = {row.capture: row for row in rows if not row.frames}
    # Captures beyond the limit have frames, unless no capture has.
    some = statistics.other_captures or not all(row.frames for row in statistics.captures.values())
    for connection in statistics.connections if some else ():
        row = unframed.get(connection.capture)
        if row is not None:
            first_ns, last_ns = connection.opened_ns, connection.ended_ns
            row.first_ns = first_ns if row.first_ns is None else min(row.first_ns, first_ns)
            row.last_ns = last_ns if row.last_ns is None else max(row.last_ns, last_ns)
    for row in rows:
        if row.first_ns is not None and row.last_ns is not None:
            row.duration_ns = row.last_ns - row.first_ns
            if row.clock_steps and row.frames:
                row.duration_ns = row.final_ns - row.opening_ns - row.stepped_ns


def _topics_of_clients(statistics: Statistics) -> None:
    clients = {row.number: row for row in statistics.clients.values()}
    complete = not any(statistics.other_topic.messages)
    for topic in sorted(statistics.topics.values(), key=lambda row: -sum(row.messages)):
        complete = complete and all(topic.complete)
        for from_server, numbers in enumerate(topic.clients):
            for number in numbers:
                client = clients.get(number)
                if client is None:
                    continue
                if from_server:
                    client.topics_received += 1
                else:
                    client.topics_published += 1
                if topic.topic is not None and len(client.named[from_server]) < NAMED_TOPICS:
                    client.named[from_server].append(topic)
    for client in clients.values():
        client.topics_complete = complete
