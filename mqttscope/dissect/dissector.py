"""From segments to events: routes the streams of each flow through its dialogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from mqttscope.dissect.counters import tcp_counters
from mqttscope.dissect.dialogue import NOTHING, UNDECIDED, Dialogue
from mqttscope.dissect.items import C2S, S2C, PacketEvents, Place
from mqttscope.dissect.options import MQTT, TLS, WEBSOCKET, Options
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, GapEvent
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.stream import StreamItem, Unparsed
from mqttscope.net.events import FlowClosed, FlowEvent, FlowOpened, StreamClosed, StreamData, StreamGap, StreamOverlap
from mqttscope.net.flows import Flow, FlowTable
from mqttscope.net.http_upgrade import HTTP, Problem, Upgrade
from mqttscope.net.plaintext import Plaintext
from mqttscope.net.segment import Segment, endpoints, ports
from mqttscope.net.websocket_frames import Lost, MessageData, MessageGap
from mqttscope.session.connection import Connection


class Dissector(PacketEvents):
    """All flows of one run.  Feed it segments, then close it."""

    def __init__(self, options: Options | None = None) -> None:
        super().__init__()
        self.options = options or Options()
        self.flows = FlowTable()
        self.connections = 0
        """Connections reported so far; the next one gets this number."""
        self.cut_bytes = 0
        """Bytes of payload that the snap length cut off, of any flow."""
        self.closed_bytes = 0
        """Bytes of payload of flows that are over."""
        self.named_otherwise: Counter[tuple[int, str, str]] = Counter()
        """Connections on ports that the user named for WebSocket or TLS, and what they speak instead."""
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

    @property
    def kept_bytes(self) -> int:
        """Bytes of payload that the capture has, of any flow."""
        running = sum(_delivered(flow) for flow in self.flows.flows.values() if not flow.closed)
        return self.closed_bytes + running

    def handle(self, event: FlowEvent) -> Iterator[Event]:
        """Events that one thing which happened to a flow brings."""
        if type(event) is StreamData:
            dialogue = event.flow.context
            if type(dialogue) is Dialogue:
                yield from self._data(dialogue, event)
            return
        if isinstance(event, FlowOpened):
            event.flow.context = Dialogue(event.flow)
            return
        if isinstance(event, StreamGap):
            if event.reason == "cut":
                self.cut_bytes += event.length
        elif isinstance(event, FlowClosed):
            self.closed_bytes += _delivered(event.flow)
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

    def plaintext(self, found: Plaintext) -> Iterator[Event]:
        """Events of what was decrypted of a flow: it is a dialogue inside the one that TLS has."""
        known = self.flows.direction(found.key)
        if known is None:
            return
        flow, half, from_initiator = known
        outer = flow.context
        if not isinstance(outer, Dialogue):
            if flow.closed:
                return
            # Nothing of its TLS said that it would carry MQTT.
            outer = flow.context = Dialogue(flow, TLS)
        if outer.inner is None:
            outer.inner = Dialogue(
                flow,
                client_is_initiator=outer.client_is_initiator,
                roles_known=outer.roles_known,
                roles_evidence=outer.roles_evidence,
                connection=outer.connection,
                tls=outer.tls,
                inside=True,
            )
        data = StreamData(flow, from_initiator, found.data, half.offset, found.frame, found.timestamp_ns, found.capture)
        yield from self._data(outer.inner, data)
        outer.connection = outer.inner.connection

    def _data(self, dialogue: Dialogue, event: StreamData) -> Iterator[Event]:
        if dialogue.connection is not None and dialogue.connection.history is not None and not dialogue.inside:
            _note_segment(dialogue, event)
        if dialogue.speaks_mqtt:
            from_client = event.from_initiator is dialogue.client_is_initiator
            yield from self.feed_stream(dialogue, from_client, event.data, event)
        elif dialogue.phase == UNDECIDED:
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
            yield from self._open(dialogue, "tcp")
        dialogue.replaying = dialogue.phase == MQTT
        for event in waiting:
            if dialogue.phase == NOTHING:
                return
            if isinstance(event, StreamGap):
                yield from self._gap(dialogue, event)
            else:
                yield from self._data(dialogue, event)
        dialogue.replaying = False

    def _ignore(self, dialogue: Dialogue) -> None:
        if dialogue.inside:
            dialogue.phase = NOTHING
            return
        if dialogue.tls is not None:
            server = endpoints(dialogue.flow.key)[dialogue.client_is_initiator]
            if server in self.other_tls or len(self.other_tls) < MAX_OTHER_SERVERS:
                self.other_tls[server] += 1
        dialogue.phase = NOTHING
        dialogue.flow.context = None
        self.other_flows += 1

    def _is_open(self, dialogue: Dialogue) -> bool:
        """Whether the packets of a dialogue have their connection."""
        connection = dialogue.connection
        return connection is not None and (not dialogue.inside or connection.decrypted)

    def _open(self, dialogue: Dialogue, transport: str) -> Iterator[ConnectionOpened]:
        """Make the connection of a dialogue and report it, unless the TLS around it has it already."""
        flow, connection = dialogue.flow, dialogue.connection
        if connection is None:
            connection = dialogue.connection = self._connect(dialogue, TLS if dialogue.inside else transport)
            yield ConnectionOpened(connection, flow.first_frame, flow.opened_ns, flow.capture)
        if dialogue.inside:
            connection.decrypted = True
            connection.revision += 1
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
        dialogue.settle()

    def _connect(self, dialogue: Dialogue, transport: str) -> Connection:
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
        if dialogue.tls is not None:
            connection.details.update(dialogue.tls.summary())
        found = _SPOKEN[transport]
        for port in ports(flow.key):
            named = self.options.ports.get(port, MQTT)
            if named not in (MQTT, found):
                self.named_otherwise[port, named, found] += 1
        return connection

    def _websocket(self, dialogue: Dialogue, event: StreamData) -> Iterator[Event]:
        assert dialogue.web is not None
        from_client = event.from_initiator is dialogue.client_is_initiator
        yield from self._unwrapped(dialogue, dialogue.web.feed(from_client, event.data), event)

    def _unwrapped(self, dialogue: Dialogue, found: Iterable[object], at: Place) -> Iterator[Event]:
        """Events of what a WebSocket gave."""
        for one in found:
            if isinstance(one, Upgrade):
                if self._is_open(dialogue) and dialogue.connection is not None:
                    # What the client said was too much to wait for an answer that the capture shows late.
                    dialogue.connection.details.update(_asked(one))
                    dialogue.connection.revision += 1
                    continue
                refused = not one.accepted and one.status is not None
                if refused and one.status != 101 and dialogue.web is not None and dialogue.web.client.phase == HTTP:
                    continue  # the client may ask again, with credentials for example
                if refused or not self._wanted(dialogue, one):
                    self._ignore(dialogue)
                    return
                for opened in self._open(dialogue, "websocket"):
                    opened.connection.details.update(_asked(one))
                    yield opened
                assert dialogue.connection is not None
                dialogue.connection.details.update(_asked(one))
                continue
            if not self._is_open(dialogue):
                if not isinstance(one, MessageData):
                    continue
                yield from self._open(dialogue, "websocket")
            connection = dialogue.connection
            assert connection is not None
            if isinstance(one, Problem):
                problems = connection.details.setdefault("problems", [])
                if isinstance(problems, list) and len(problems) < _MAX_PROBLEMS:
                    problems.append(
                        {"from_client": one.from_client, "reason": one.reason, "detail": one.detail, "frame": at.frame}
                    )
            elif isinstance(one, MessageData):
                yield from self.feed_stream(dialogue, one.from_client, one.data, at)
            elif isinstance(one, MessageGap):
                yield from self.gap_in_stream(dialogue, one.from_client, one.length, at)
            elif isinstance(one, Lost):
                yield from self._lost(dialogue, one.from_client, "websocket", one.length, at)

    def _lost(self, dialogue: Dialogue, from_client: bool, reason: str, length: int, at: Place) -> Iterator[Event]:
        """An unknown number of bytes is missing of what a transport carries, so that framing is lost in there too."""
        rest = [_cut_off(item, reason) for item in dialogue.restart_stream(from_client)]
        yield from self.items(dialogue, from_client, [*rest, Unparsed(reason, length)], at)

    def _lost_inside(self, inner: Dialogue, from_client: bool, event: StreamGap) -> Iterator[Event]:
        """Records of TLS are lost."""
        if inner.web is not None:
            yield from self._unwrapped(inner, inner.web.gap(from_client, event.length), event)
        elif inner.speaks_mqtt:
            yield from self._lost(inner, from_client, TLS, event.length, event)

    def _wanted(self, dialogue: Dialogue, upgrade: Upgrade) -> bool:
        """Whether a WebSocket goes with MQTT: by its names, or because the user says so of the port."""
        return _names_mqtt(upgrade) or WEBSOCKET in map(self.options.ports.get, ports(dialogue.flow.key))

    def _tls(self, dialogue: Dialogue, event: StreamData) -> Iterator[Event]:
        """TLS is listed, not read: the connection is reported once the hello says whether it concerns us."""
        if dialogue.tls is None:
            return
        from_client = event.from_initiator is dialogue.client_is_initiator
        dialogue.tls.feed(from_client, event.data)
        if dialogue.connection is not None:
            return
        if self._tls_concerns(dialogue):
            yield from self._open(dialogue, TLS)
        elif (dialogue.tls.client_hello or not from_client) and not self.options.decrypting:
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
            dialogue.connection.details.update(dialogue.tls.summary())

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
            if connection.history is not None:
                connection.history.party(direction).position = event.offset + event.length
            yield GapEvent(
                connection, direction, event.frame, event.timestamp_ns, event.capture, event.length, event.reason
            )
        if dialogue.speaks_mqtt:
            yield from self.gap_in_stream(dialogue, from_client, event.length, event)
        elif dialogue.web is not None:
            yield from self._unwrapped(dialogue, dialogue.web.gap(from_client, event.length), event)
        elif dialogue.tls is not None:
            dialogue.tls.gap(from_client, event.length)
            if dialogue.inner is not None:
                yield from self._lost_inside(dialogue.inner, from_client, event)

    def _end_of_stream(self, dialogue: Dialogue, event: StreamClosed) -> Iterator[Event]:
        if dialogue.phase == UNDECIDED:
            if not event.from_initiator or event.how == "reset":
                return
            dialogue.give_up(self.options)
            yield from self._begin(dialogue)
        from_client = event.from_initiator is dialogue.client_is_initiator
        if not dialogue.closed_how:
            dialogue.closed_by, dialogue.closed_how = "client" if from_client else "server", event.how
        self._note_close(dialogue)
        if dialogue.inner is not None and dialogue.inner.phase not in (UNDECIDED, NOTHING):
            yield from self._last_items(dialogue.inner, from_client, event)
        yield from self._last_items(dialogue, from_client, event)

    def _last_items(self, dialogue: Dialogue, from_client: bool, at: StreamClosed | FlowClosed) -> Iterator[Event]:
        """What a stream still held.  Only a sender that closes in good order inside a packet is to blame for it."""
        if dialogue.web is not None and not dialogue.stream(from_client).closed:
            yield from self._unwrapped(dialogue, dialogue.web.close(from_client), at)
        items = dialogue.stream(from_client).close()
        if at.how != "fin":
            items = [_cut_off(one, at.how) for one in items]
        if items and dialogue.connection is not None:
            yield from self.late_items(dialogue, from_client, items, at)

    def _end_of_flow(self, dialogue: Dialogue, event: FlowClosed) -> Iterator[Event]:
        if dialogue.phase == UNDECIDED:
            dialogue.give_up(self.options)
            yield from self._begin(dialogue)
        if dialogue.inner is not None:
            yield from self._end_inside(dialogue.inner, event)
            dialogue.connection = dialogue.inner.connection
        if dialogue.phase != NOTHING:
            for from_client in (True, False):
                yield from self._last_items(dialogue, from_client, event)
        event.flow.context = None
        connection = dialogue.connection
        if connection is None:
            if dialogue.phase != NOTHING:
                self._ignore(dialogue)
            return
        if dialogue.tls is not None:
            self._tls_details(dialogue)
        dialogue.closed_how = dialogue.closed_how or event.how
        self._note_close(dialogue)
        connection.details["tcp"] = tcp_counters(event.flow, client_is_initiator=dialogue.client_is_initiator)
        yield ConnectionClosed(connection, event.frame, event.timestamp_ns, event.capture)

    def _end_inside(self, inner: Dialogue, event: FlowClosed) -> Iterator[Event]:
        if inner.phase == UNDECIDED:
            inner.give_up(self.options)
            yield from self._begin(inner)
        if inner.phase != NOTHING:
            for from_client in (True, False):
                yield from self._last_items(inner, from_client, event)

    def _note_close(self, dialogue: Dialogue) -> None:
        if dialogue.connection is not None:
            dialogue.connection.closed_by, dialogue.connection.closed_how = dialogue.closed_by, dialogue.closed_how


MAX_OTHER_SERVERS = 100
"""Servers of TLS flows that are remembered by name."""
_MAX_PROBLEMS = 100
"""WebSocket problems that are kept of one connection."""


def _note_segment(dialogue: Dialogue, event: StreamData) -> None:
    """Tell the history of the connection how far its sides have come."""
    connection = dialogue.connection
    history = None if connection is None else connection.history
    if history is None:
        return
    from_client = event.from_initiator is dialogue.client_is_initiator
    spoken = dialogue.inner or dialogue
    stream, answers = spoken.stream(from_client), spoken.stream(not from_client)
    peer = event.flow.responder if event.from_initiator else event.flow.initiator
    shown = history.party(S2C if from_client else C2S).position if dialogue.replaying else peer.offset
    history.segment(
        from_client,
        event.offset + len(event.data),
        event.acknowledged,
        shown,
        event.timestamp_ns,
        stream.held,
        answers.held if answers.searching else 0,
    )


_SPOKEN = {"tcp": MQTT, "websocket": WEBSOCKET, TLS: TLS}


def _delivered(flow: Flow) -> int:
    return flow.initiator.delivered_bytes + flow.responder.delivered_bytes


def _asked(upgrade: Upgrade) -> dict[str, object]:
    """What an upgrade says of the connection."""
    return {
        "path": upgrade.request_path,
        "host": upgrade.host,
        "subprotocol": upgrade.subprotocol,
        "extensions": upgrade.extensions,
    }


def _names_mqtt(upgrade: Upgrade) -> bool:
    names = [upgrade.subprotocol] if upgrade.subprotocol else list(upgrade.subprotocols_offered)
    return any(name.lower().startswith("mqtt") for name in names) or "mqtt" in upgrade.request_path.lower()


def _cut_off(item: StreamItem, how: str) -> StreamItem:
    if isinstance(item, Malformed) and item.reason is MalformedReason.TRUNCATED:
        return Unparsed(how, len(item.raw), item.raw, 0, item.packet_type)
    return item
