"""From segments to events: routes the streams of each flow through its dialogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from mqttscope.dissect.counters import tcp_counters
from mqttscope.dissect.dialogue import NOTHING, UNDECIDED, Dialogue
from mqttscope.dissect.options import MQTT, TLS, WEBSOCKET, Options
from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt.constants import Direction, MalformedReason
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.stream import PacketStream, StreamItem, Unparsed
from mqttscope.net.events import FlowClosed, FlowEvent, FlowOpened, StreamClosed, StreamData, StreamGap, StreamOverlap
from mqttscope.net.flows import FlowTable
from mqttscope.net.http_upgrade import Problem, Upgrade
from mqttscope.net.frame import CaptureNotice
from mqttscope.net.segment import Segment, endpoints, ports
from mqttscope.net.websocket import Lost, MessageData, MessageGap
from mqttscope.session.connection import Connection

Place = StreamData | StreamGap | StreamClosed | FlowClosed
"""What an event takes frame, time and capture from."""

C2S = Direction.CLIENT_TO_SERVER
S2C = Direction.SERVER_TO_CLIENT


class Dissector:
    """All flows of one run.  Feed it segments, then close it."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.flows = FlowTable()
        self.connections = 0
        """Connections reported so far; the next one gets this number."""
        self.packets = 0
        """Packets reported so far, malformed ones included."""
        self.overlaps = 0
        """Places where bytes came again with other content."""
        self.other_flows = 0
        """Flows that do not speak MQTT."""
        self.other_tls: Counter[str] = Counter()
        """TLS flows among them by server, at most `MAX_OTHER_SERVERS` servers: nothing says that they hold MQTT."""

    def feed(self, segment: Segment) -> Iterator[Event]:
        """Events of one more segment."""
        for event in self.flows.feed(segment):
            yield from self.handle(event)

    def close(self) -> Iterator[Event]:
        """Events of the end of the capture."""
        for event in self.flows.close():
            yield from self.handle(event)

    def handle(self, event: FlowEvent) -> Iterator[Event]:
        """Events that one thing which happened to a flow brings."""
        if type(event) is StreamData:
            dialogue = event.flow.context
            if type(dialogue) is Dialogue:
                if dialogue.phase == MQTT:
                    yield from self._data(dialogue, event)
                elif dialogue.phase != NOTHING:
                    yield from self._other_data(dialogue, event)
            return
        if isinstance(event, FlowOpened):
            event.flow.context = Dialogue(event.flow)
            return
        dialogue = event.flow.context
        if not isinstance(dialogue, Dialogue):
            return
        if isinstance(event, StreamGap):
            yield from self._gap(dialogue, event)
        elif isinstance(event, StreamClosed):
            yield from self._end_of_stream(dialogue, event)
        elif isinstance(event, StreamOverlap):
            self.overlaps += 1
        elif isinstance(event, FlowClosed):
            yield from self._end_of_flow(dialogue, event)

    def _data(self, dialogue: Dialogue, event: StreamData) -> Iterator[Event]:
        from_client = event.from_initiator is dialogue.client_is_initiator
        stream = dialogue.client_stream if from_client else dialogue.server_stream
        return self.items(dialogue, from_client, stream.feed(event.data), event)

    def items(self, dialogue: Dialogue, from_client: bool, items: list[StreamItem], at: Place) -> Iterator[Event]:
        """Events of what one direction's stream gave; each is applied when its reader comes back for the next."""
        if not items:
            return
        connection = dialogue.connection
        assert connection is not None
        direction = C2S if from_client else S2C
        if not connection.version_known:
            self._learn_version(dialogue, connection, from_client)
        frame, timestamp_ns, capture = at.frame, at.timestamp_ns, at.capture
        for item in items:
            if isinstance(item, ControlPacket):
                number = self.packets
                self.packets = number + 1
                kind = item.packet_type
                topic = None
                if kind == 3:
                    topic = connection.resolve_topic(item, direction)  # type: ignore[arg-type]
                elif kind <= 2:
                    connection.identify(item)
                    self._share_version(dialogue, connection)
                yield PacketEvent(connection, direction, number, frame, timestamp_ns, capture, item, topic)
                connection.apply(item, direction, number, frame, timestamp_ns)
            elif isinstance(item, Malformed):
                yield from self._malformed(dialogue, connection, direction, item, at)
            else:
                connection.side(direction).gapped = True
                if not item.raw and item.reason == "gap":
                    continue  # lost bytes alone: the gap itself was reported
                yield UnparsedEvent(connection, direction, frame, timestamp_ns, capture, item)

    def _malformed(
        self,
        dialogue: Dialogue,
        connection: Connection,
        direction: Direction,
        item: Malformed,
        at: Place,
    ) -> Iterator[Event]:
        number = self.packets
        self.packets = number + 1
        topic = None
        made = item.packet
        if made is not None and item.complete:
            connection.identify(made)
            self._share_version(dialogue, connection)
            if isinstance(made, Publish):
                topic = connection.resolve_topic(made, direction)
        yield MalformedEvent(connection, direction, number, at.frame, at.timestamp_ns, at.capture, item, topic)
        if made is not None and item.complete:
            # The fault was in a value, so the peer may well have taken the packet: its answer will name it.
            connection.apply(made, direction, number, at.frame, at.timestamp_ns)

    def _learn_version(self, dialogue: Dialogue, connection: Connection, from_client: bool) -> None:
        """Take over what the streams found out about the version of a connection without CONNECT."""
        stream = dialogue.client_stream if from_client else dialogue.server_stream
        if stream.version_source and stream.version_source != connection.version_evidence:
            if stream.version_source != "CONNECT":
                connection.assume_version(stream.version, stream.version_source)
            for other in (dialogue.client_stream, dialogue.server_stream):
                other.version, other.version_source = stream.version, stream.version_source

    def _share_version(self, dialogue: Dialogue, connection: Connection) -> None:
        if connection.version_known:
            for stream in (dialogue.client_stream, dialogue.server_stream):
                stream.version, stream.version_source = connection.version, "CONNECT"

    def _other_data(self, dialogue: Dialogue, event: StreamData) -> Iterator[Event]:
        if dialogue.phase == UNDECIDED:
            if dialogue.take(event, self.options):
                yield from self._begin(dialogue)
        elif dialogue.phase == WEBSOCKET:
            yield from self._websocket(dialogue, event)
        elif dialogue.phase == TLS:
            yield from self._tls(dialogue, event)

    def _begin(self, dialogue: Dialogue) -> Iterator[Event]:
        """The dialogue was decided: report the connection and go through what had to wait."""
        waiting, dialogue.waiting, dialogue.waiting_bytes = dialogue.waiting, [], 0
        if dialogue.phase == NOTHING:
            self._ignore(dialogue)
            return
        if dialogue.phase == MQTT:
            yield self._open(dialogue, "tcp")
        for event in waiting:
            if dialogue.phase == NOTHING:
                return
            if isinstance(event, StreamGap):
                yield from self._gap(dialogue, event)
            elif dialogue.phase == MQTT:
                yield from self._data(dialogue, event)
            else:
                yield from self._other_data(dialogue, event)

    def _ignore(self, dialogue: Dialogue) -> None:
        if dialogue.tls is not None:
            server = endpoints(dialogue.flow.key)[dialogue.client_is_initiator]
            if server in self.other_tls or len(self.other_tls) < MAX_OTHER_SERVERS:
                self.other_tls[server] += 1
        dialogue.phase = NOTHING
        dialogue.flow.context = None
        self.other_flows += 1

    def _open(self, dialogue: Dialogue, transport: str) -> ConnectionOpened:
        """Make the connection of a dialogue and its report."""
        flow = dialogue.flow
        initiator, responder = endpoints(flow.key)
        client, server = (initiator, responder) if dialogue.client_is_initiator else (responder, initiator)
        connection = Connection(
            self.connections,
            client,
            server,
            flow.capture,
            flow.first_frame,
            flow.opened_ns,
            transport,
            flow.syn_seen or flow.syn_ack_seen,
            dialogue.roles_known,
            dialogue.roles_evidence,
        )
        self.connections += 1
        dialogue.connection = connection
        limit, version = self.options.max_packet_bytes, self.options.version
        for stream in (dialogue.client_stream, dialogue.server_stream):
            stream.max_packet_bytes = limit
            stream.version_source = ""
            if version is not None:
                stream.version, stream.version_source = version, "given"
            if dialogue.joined:
                stream.lose_framing()
        if version is not None:
            connection.assume_version(version, "given", known=True)
        dialogue.announced = True
        return ConnectionOpened(connection, flow.first_frame, flow.opened_ns, flow.capture)

    def _websocket(self, dialogue: Dialogue, event: StreamData) -> Iterator[Event]:
        assert dialogue.web is not None
        from_client = event.from_initiator is dialogue.client_is_initiator
        yield from self._unwrapped(dialogue, dialogue.web.feed(from_client, event.data), event)

    def _unwrapped(self, dialogue: Dialogue, found: Iterable[object], at: Place) -> Iterator[Event]:
        """Events of what a WebSocket gave."""
        for one in found:
            if isinstance(one, Upgrade):
                if not one.accepted or not _speaks_mqtt(one):
                    self._ignore(dialogue)
                    return
                opened = self._open(dialogue, "websocket")
                opened.connection.details.update(
                    path=one.request_path, host=one.host, subprotocol=one.subprotocol, extensions=one.extensions
                )
                yield opened
                continue
            if dialogue.connection is None:
                if not isinstance(one, MessageData):
                    continue
                yield self._open(dialogue, "websocket")
            connection = dialogue.connection
            assert connection is not None
            if isinstance(one, Problem):
                problems = connection.details.setdefault("problems", [])
                if isinstance(problems, list) and len(problems) < _MAX_PROBLEMS:
                    problems.append({"from_client": one.from_client, "reason": one.reason, "detail": one.detail})
            elif isinstance(one, MessageData):
                stream = dialogue.client_stream if one.from_client else dialogue.server_stream
                yield from self.items(dialogue, one.from_client, stream.feed(one.data), at)
            elif isinstance(one, MessageGap):
                stream = dialogue.client_stream if one.from_client else dialogue.server_stream
                yield from self.items(dialogue, one.from_client, stream.gap(one.length), at)
            elif isinstance(one, Lost):
                # WebSocket framing is lost, so where MQTT goes on in these bytes cannot be known.
                connection.side(C2S if one.from_client else S2C).gapped = True
                lost: StreamItem = Unparsed("websocket", one.length)
                yield from self.items(dialogue, one.from_client, [lost], at)

    def _tls(self, dialogue: Dialogue, event: StreamData) -> Iterator[Event]:
        """TLS is listed, not read: the connection is reported once the hello says whether it concerns us."""
        assert dialogue.tls is not None
        from_client = event.from_initiator is dialogue.client_is_initiator
        dialogue.tls.feed(from_client, event.data)
        if dialogue.connection is not None:
            return
        if self._tls_concerns(dialogue):
            opened = self._open(dialogue, "tls")
            self._tls_details(dialogue)
            yield opened
        elif dialogue.tls.client_hello or not from_client:
            self._ignore(dialogue)

    def _tls_concerns(self, dialogue: Dialogue) -> bool:
        """Whether TLS goes with MQTT: by ALPN, or by the port once the hello was read or cannot come any more."""
        assert dialogue.tls is not None
        if any("mqtt" in name.lower() for name in dialogue.tls.alpn_offered):
            return True
        protocol, _ = self.options.protocol_of(*ports(dialogue.flow.key))
        return protocol is not None and (dialogue.tls.client_hello or dialogue.joined)

    def _tls_details(self, dialogue: Dialogue) -> None:
        if dialogue.tls is not None and dialogue.connection is not None:
            dialogue.connection.details = dict(dialogue.tls.summary())

    def _gap(self, dialogue: Dialogue, event: StreamGap) -> Iterator[Event]:
        if dialogue.phase == UNDECIDED:
            if dialogue.take(event, self.options):
                yield from self._begin(dialogue)
            return
        from_client = event.from_initiator is dialogue.client_is_initiator
        connection = dialogue.connection
        if connection is not None:
            connection.gaps += 1
            connection.gap_bytes += event.length
            direction = C2S if from_client else S2C
            connection.side(direction).gapped = True
            yield GapEvent(
                connection, direction, event.frame, event.timestamp_ns, event.capture, event.length, event.reason
            )
        if dialogue.phase == MQTT:
            stream = dialogue.client_stream if from_client else dialogue.server_stream
            yield from self.items(dialogue, from_client, stream.gap(event.length), event)
        elif dialogue.web is not None:
            yield from self._unwrapped(dialogue, dialogue.web.gap(from_client, event.length), event)
        elif dialogue.tls is not None:
            dialogue.tls.gap(from_client, event.length)

    def _end_of_stream(self, dialogue: Dialogue, event: StreamClosed) -> Iterator[Event]:
        if dialogue.phase == UNDECIDED:
            if not event.from_initiator or event.how == "reset":
                return
            dialogue.give_up(self.options)
            yield from self._begin(dialogue)
        connection = dialogue.connection
        from_client = event.from_initiator is dialogue.client_is_initiator
        if connection is None:
            return
        if connection.closed_by is None:
            connection.closed_by = "client" if from_client else "server"
            connection.closed_how = event.how
        if dialogue.web is not None:
            yield from self._unwrapped(dialogue, dialogue.web.close(from_client), event)
        stream = dialogue.client_stream if from_client else dialogue.server_stream
        yield from self._last_items(dialogue, from_client, stream, event.how, event)

    def _last_items(
        self, dialogue: Dialogue, from_client: bool, stream: PacketStream, how: str, at: StreamClosed | FlowClosed
    ) -> Iterator[Event]:
        """What a stream still held.  Only a sender that closes in good order inside a packet is to blame for it."""
        items = stream.close()
        if how != "fin":
            items = [_cut_off(one, how) for one in items]
        return self.items(dialogue, from_client, items, at)

    def _end_of_flow(self, dialogue: Dialogue, event: FlowClosed) -> Iterator[Event]:
        if dialogue.phase == UNDECIDED:
            dialogue.give_up(self.options)
            yield from self._begin(dialogue)
        connection = dialogue.connection
        event.flow.context = None
        if connection is None or dialogue.phase == NOTHING:
            return
        for from_client in (True, False):
            stream = dialogue.client_stream if from_client else dialogue.server_stream
            yield from self._last_items(dialogue, from_client, stream, event.how, event)
        if dialogue.tls is not None:
            self._tls_details(dialogue)
        if connection.closed_how is None or event.how not in ("fin", "reset"):
            connection.closed_how = connection.closed_how or event.how
        connection.details["tcp"] = tcp_counters(event.flow, client_is_initiator=dialogue.client_is_initiator)
        yield ConnectionClosed(connection, event.frame, event.timestamp_ns, event.capture)


MAX_OTHER_SERVERS = 100
"""Servers of TLS flows that are remembered by name."""
_MAX_PROBLEMS = 100
"""WebSocket problems that are kept of one connection."""


def _speaks_mqtt(upgrade: Upgrade) -> bool:
    names = [upgrade.subprotocol] if upgrade.subprotocol else list(upgrade.subprotocols_offered)
    return any(name.lower().startswith("mqtt") for name in names) or "mqtt" in upgrade.request_path.lower()


def _cut_off(item: StreamItem, how: str) -> StreamItem:
    if isinstance(item, Malformed) and item.reason is MalformedReason.TRUNCATED:
        return Unparsed(how, len(item.raw), item.raw, 0, item.packet_type)
    return item


def dissect_segments(
    source: Iterable[Segment | CaptureNotice], options: Options | None = None, dissector: Dissector | None = None
) -> Iterator[Event]:
    """Events of TCP segments in capture order; capture notices among them pass through.

    Whole packets that arrive in order on a connection already known are most of all traffic: they are handled right
    here, everything else by the dissector's methods.
    """
    running = dissector or Dissector(options)
    feed, handle = running.flows.feed, running.handle
    for segment in source:
        if type(segment) is not Segment:
            yield segment  # type: ignore[misc]
            continue
        for event in feed(segment):
            dialogue = event.flow.context
            if type(event) is not StreamData or type(dialogue) is not Dialogue or dialogue.phase is not MQTT:
                yield from handle(event)
                continue
            from_client = event.from_initiator is dialogue.client_is_initiator
            items = (dialogue.client_stream if from_client else dialogue.server_stream).feed(event.data)
            if not items:
                continue
            connection = dialogue.connection
            assert connection is not None
            if not connection.version_known:
                yield from running.items(dialogue, from_client, items, event)
                continue
            direction = C2S if from_client else S2C
            frame, timestamp_ns, capture = event.frame, event.timestamp_ns, event.capture
            for item in items:
                kind = item.packet_type
                if kind == 3 and type(item) is Publish:
                    topic = item.topic_name or connection.resolve_topic(item, direction)
                elif kind is None or kind <= 2 or not isinstance(item, ControlPacket):
                    yield from running.items(dialogue, from_client, [item], event)
                    continue
                else:
                    topic = None
                number = running.packets
                running.packets = number + 1
                yield PacketEvent(connection, direction, number, frame, timestamp_ns, capture, item, topic)
                connection.apply(item, direction, number, frame, timestamp_ns)
    yield from running.close()
