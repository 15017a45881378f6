"""Unwraps what carries MQTT over TCP (nothing, WebSocket, TLS, one inside the other) and makes events of its packets.

`Transports` makes the connection of a flow that carries MQTT and removes what wraps it.  `PacketEvents` makes the
events of the packets inside: it adds their numbers, topics and frames, and finds the version of the connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, Protocol

from mqttscope.budget import Budget
from mqttscope.dissect.flow_state import (
    IGNORED,
    SEARCHING,
    ByteOrigin,
    EndedFlow,
    FlowState,
    FlowTrigger,
    HeldItem,
    PacketCounter,
    UnnamedWebSocket,
    starts_with_connect,
)
from mqttscope.dissect.options import MQTT, TLS, WEBSOCKET, Options
from mqttscope.events import ConnectionOpened, Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt.codec import decode, header_fault, with_header_fault
from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.foreign import MAX_SIGNATURE, foreign_protocol, is_text
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.stream import PacketStream, StreamItem, Unparsed
from mqttscope.net.flow import Flow, StreamData, StreamGap
from mqttscope.net.http_upgrade import HTTP, Problem, Upgrade
from mqttscope.net.proxy_protocol import parse_endpoints
from mqttscope.net.segment import endpoints, ports
from mqttscope.net.websocket import CLOSE, PING, PONG, ControlFrame, LostBytes, MessageData, MessageGap
from mqttscope.session.connection import Connection
from mqttscope.session.history import History

C2S: Final = Direction.CLIENT_TO_SERVER
S2C: Final = Direction.SERVER_TO_CLIENT
MAX_HELD_ITEMS: Final = 64
"""Maximum number of packets of one connection that are held because earlier ones may follow."""
_CONNECT: Final = PacketType.CONNECT
_CONNACK: Final = PacketType.CONNACK
_PUBLISH: Final = PacketType.PUBLISH


class Place(Protocol):
    """The source of frame, time and capture of an event."""

    frame: int
    timestamp_ns: int
    capture: str


class PacketEvents:
    """Makes events of the items of packet streams, for flows that speak MQTT."""

    def __init__(self) -> None:
        self.counting = PacketCounter()
        """Counter of all packets, malformed ones included, unless each connection counts its own."""

    def feed(self, dialogue: FlowState, from_client: bool, data: bytes, at: Place) -> Iterator[Event]:
        """Events of the next bytes of one direction."""
        stream = dialogue.stream(from_client)
        if _is_beginning(dialogue, stream, from_client):
            head = stream.beginning(data, MAX_SIGNATURE)
            if foreign_protocol(head, is_answer=not from_client):
                stream.refuse()
            elif not from_client and len(head) < MAX_SIGNATURE and is_text(head):
                stream.hold(data)
                return
        if stream.searching:
            dialogue.arrivals(from_client).append(ByteOrigin(len(data), at.frame, at.timestamp_ns, at.capture))
            yield from self.late_items(dialogue, from_client, stream.feed(data), at)
        else:
            yield from self.items(dialogue, from_client, stream.feed(data), at)
            if dialogue.held:
                yield from self.release(dialogue)

    def gap(self, dialogue: FlowState, from_client: bool, length: int, at: Place) -> Iterator[Event]:
        """Events of a gap in one direction."""
        stream = dialogue.stream(from_client)
        arrivals = dialogue.arrivals(from_client)
        if stream.searching or arrivals:
            arrivals.append(ByteOrigin(length, at.frame, at.timestamp_ns, at.capture))
            yield from self.late_items(dialogue, from_client, stream.gap(length), at)
        else:
            yield from self.items(dialogue, from_client, stream.gap(length), at)
            self._note_search(dialogue, from_client, at)
            if dialogue.held:
                yield from self.release(dialogue)

    def late_items(self, dialogue: FlowState, from_client: bool, items: list[StreamItem], at: Place) -> Iterator[Event]:
        """Events of a stream that looked for packets: each belongs to the frame that brought its last byte.

        The lengths of the items add up to the bytes that arrived, so that counting finds the frame.
        """
        arrivals = dialogue.arrivals(from_client)
        index = 0
        for item in items:
            left = _length(item)
            while index < len(arrivals) and left > arrivals[index].length:
                left -= arrivals[index].length
                index += 1
            place: Place = at
            if index < len(arrivals):
                arrivals[index].length -= left
                place = arrivals[index]
            history = None if dialogue.connection is None else dialogue.connection.history
            if history is not None and place.frame != at.frame:
                history.note_late(C2S if from_client else S2C)
            yield from self.items(dialogue, from_client, [item], place)
        del arrivals[:index]
        dialogue.settle()
        if dialogue.held:
            yield from self.release(dialogue)

    def release(self, dialogue: FlowState, *, final: bool = False) -> Iterator[Event]:
        """Events of held items, in the order of the frames, once no earlier item can follow."""
        if dialogue.holding and len(dialogue.held) <= MAX_HELD_ITEMS and not final:
            return
        held, dialogue.held = dialogue.held, []
        # Frame numbers restart in each capture.
        one_capture = all(held_item.capture == held[0].capture for held_item in held)
        held.sort(key=lambda held_item: held_item.frame if one_capture else held_item.timestamp_ns)
        for held_item in held:
            yield from self._events_of(dialogue, held_item.from_client, [held_item.item], held_item)

    def items(self, dialogue: FlowState, from_client: bool, items: list[StreamItem], at: Place) -> Iterator[Event]:
        """Events of the items of one direction's stream.

        While the other stream of a joined connection searches for packets in earlier bytes, the items are held:
        otherwise an answer could come before its request.
        """
        if dialogue.phase is SEARCHING and items and dialogue.joined and (dialogue.held or dialogue.holding):
            dialogue.held += [HeldItem(from_client, item, at.frame, at.timestamp_ns, at.capture) for item in items]
        elif items:
            yield from self._events_of(dialogue, from_client, items, at)

    def _events_of(self, dialogue: FlowState, from_client: bool, items: list[StreamItem], at: Place) -> Iterator[Event]:
        """The events; each packet is applied when its reader comes back for the next."""
        connection = dialogue.connection
        assert connection is not None
        direction = C2S if from_client else S2C
        if not connection.version_known:
            self._learn_version(dialogue, connection, from_client)
        frame, timestamp_ns, capture = at.frame, at.timestamp_ns, at.capture
        side, counting = connection.side(direction), dialogue.counting
        for item in items:
            offset = side.stream_offset
            side.stream_offset = offset + _length(item)
            if isinstance(item, ControlPacket):
                number = counting.packets
                counting.packets = number + 1
                kind = item.packet_type
                topic = None
                if kind is _PUBLISH:
                    topic = connection.resolve_topic(item, direction)  # type: ignore[arg-type]
                elif kind is _CONNECT or kind is _CONNACK:
                    connection.identify(item)
                    self._share_version(dialogue, connection)
                yield PacketEvent(connection, direction, number, frame, timestamp_ns, capture, item, topic, offset)
                connection.apply(item, direction, number, frame, timestamp_ns)
                if kind is _CONNACK and connection.client_side.doubt and not dialogue.client_stream.busy:
                    connection.note_answer()
                continue
            if isinstance(item, Malformed):
                yield from self._malformed(dialogue, connection, direction, item, at, offset)
            else:
                connection.side(direction).gapped = True
                if item.packet_type == PacketType.CONNECT:
                    self._identify_by_head(dialogue, connection, item)
                # Lost bytes alone are not news: the gap itself was reported.
                if item.raw or item.reason != "gap":
                    yield UnparsedEvent(connection, direction, frame, timestamp_ns, capture, item, offset)
                if item.raw:
                    connection.distrust(item, direction)
            self._note_search(dialogue, from_client, at)

    def _malformed(
        self,
        dialogue: FlowState,
        connection: Connection,
        direction: Direction,
        item: Malformed,
        at: Place,
        offset: int,
    ) -> Iterator[Event]:
        number = dialogue.counting.packets
        dialogue.counting.packets = number + 1
        topic = None
        packet, side = item.packet, connection.side(direction)
        doubt = side.doubt
        if packet is not None and (item.complete or isinstance(packet, Connect)):
            # The version of a CONNECT is known even if the packet cannot be read to its end.
            connection.identify(packet, item.raw)
            self._share_version(dialogue, connection)
            if isinstance(packet, Publish):
                topic = connection.resolve_topic(packet, direction)
        yield MalformedEvent(connection, direction, number, at.frame, at.timestamp_ns, at.capture, item, topic, offset)
        if packet is not None and item.complete:
            # The fault was in a value, so the peer may have accepted the packet: its answer will name it.
            connection.apply(packet, direction, number, at.frame, at.timestamp_ns)
        side.doubt = doubt
        connection.distrust(item, direction)

    def _identify_by_head(self, dialogue: FlowState, connection: Connection, item: Unparsed) -> None:
        """Identify the version and the client by the captured beginning of a CONNECT."""
        malformed = decode(item.raw)
        if isinstance(malformed, Malformed) and malformed.packet is not None:
            connection.identify(malformed.packet, item.raw)
            self._share_version(dialogue, connection)

    def _note_search(self, dialogue: FlowState, from_client: bool, at: Place) -> None:
        """Remember the frame of the bytes that a stream begins to search."""
        stream, arrivals = dialogue.stream(from_client), dialogue.arrivals(from_client)
        if stream.searching and not arrivals:
            waiting = stream.held + stream.passed + stream.lost
            arrivals.append(ByteOrigin(waiting, at.frame, at.timestamp_ns, at.capture))
            dialogue.settle()

    def _learn_version(self, dialogue: FlowState, connection: Connection, from_client: bool) -> None:
        """Apply the version that the streams detected in a connection without CONNECT."""
        stream = dialogue.stream(from_client)
        source = stream.version_source
        if source and source not in ("CONNECT", connection.version_evidence):
            connection.assume_version(stream.version, source)
            for other in (dialogue.client_stream, dialogue.server_stream):
                other.version, other.version_source = stream.version, source

    def _share_version(self, dialogue: FlowState, connection: Connection) -> None:
        if connection.version_known:
            for stream in (dialogue.client_stream, dialogue.server_stream):
                stream.version, stream.version_source = connection.version, "CONNECT"


def _is_beginning(dialogue: FlowState, stream: PacketStream, from_client: bool) -> bool:
    """Whether the next bytes of a side may show another protocol.

    They are the first ones of a client, or a server's first answer to a CONNECT or to a client of another protocol.
    """
    connection = dialogue.connection
    if connection is None or stream.searching or stream.skip or stream.held >= MAX_SIGNATURE:
        return False
    if from_client:
        before = 0 if dialogue.proxied is None or connection.transport != "tcp" else len(dialogue.proxied.data)
        return connection.handshake_seen and connection.client_side.stream_offset == before
    is_asked = connection.connect_packet is not None or dialogue.client_stream.foreign
    return is_asked and not connection.server_side.stream_offset


def _length(item: StreamItem) -> int:
    """Number of bytes of its stream that an item covers."""
    if isinstance(item, ControlPacket):
        return len(item.raw) + item.missing
    return len(item.raw) if isinstance(item, Malformed) else item.length


MAX_OTHER_SERVERS: Final = 100
"""Maximum number of remembered servers of TLS flows."""
_MAX_PROBLEMS: Final = 100
"""Maximum number of WebSocket problems kept per connection; beyond it, the first of each reason and sender is kept."""
_RESUMED: Final = (
    "version", "version_known", "version_evidence", "client_identifier", "session_identifier", "phase", "keep_alive",
    "resolved_name", "user_name", "session_expiry_interval", "maximum_qos", "retain_available",
    "wildcard_subscription_available", "subscription_identifier_available", "shared_subscription_available",
    "client_side", "server_side",
)  # fmt: skip
"""Fields of a connection that stay valid after a reset which both sides ignored."""
_SPOKEN: Final = {"tcp": MQTT, "websocket": WEBSOCKET, TLS: TLS}


class Transports:
    """Makes the connections of flows that carry MQTT, and unwraps their bytes; ``packets`` makes the events."""

    def __init__(
        self,
        options: Options,
        packets: PacketEvents,
        alarm: Callable[[Flow], Callable[[int], None]],
        budget: Budget,
    ) -> None:
        """``alarm`` returns a function that schedules a `ConnectionDue` of a flow's connection at a capture time."""
        self._options = options
        self._budget = budget
        self._packets = packets
        self._alarm = alarm
        self.watcher: Callable[[FlowState, object], None] | None = None
        """Sees the events of WebSockets before the packets in them are read."""
        self.connections = 0
        """Number of connections reported; the number of the next connection."""
        self.named_otherwise: Counter[tuple[int, str, str]] = Counter()
        """Connections on ports that the user named for WebSocket or TLS, and their actual protocols."""
        self.other_flows = 0
        """Number of flows that do not speak MQTT."""
        self.other_tls: Counter[str] = Counter()
        """Number of TLS flows without a sign of MQTT by server, for at most `MAX_OTHER_SERVERS` servers."""

    def inside(self, outer: FlowState) -> FlowState:
        """The state of the decrypted content of a flow, which begins with its first decrypted bytes."""
        if outer.inner is None:
            outer.inner = FlowState(
                outer.flow,
                client_is_initiator=outer.client_is_initiator,
                roles_known=outer.roles_known,
                roles_evidence=outer.roles_evidence,
                connection=outer.connection,
                tls=outer.tls,
                inside=True,
                counting=outer.counting,
                names=outer.names,
            )
        return outer.inner

    def _is_open(self, dialogue: FlowState) -> bool:
        """Whether the packets of a dialogue have their connection."""
        connection = dialogue.connection
        return connection is not None and (not dialogue.inside or connection.decrypted)

    def open(self, dialogue: FlowState, transport: str) -> Iterator[ConnectionOpened | UnparsedEvent]:
        """Make and report the connection of a flow, unless the TLS around it already has one."""
        flow, connection = dialogue.flow, dialogue.connection
        if connection is None:
            connection = dialogue.connection = self._connect(dialogue, TLS if dialogue.inside else transport)
            yield ConnectionOpened(connection, flow.first_frame, flow.opened_ns, flow.capture)
            before = dialogue.proxied
            if before is not None:
                header = Unparsed("proxy_header", len(before.data), before.data)
                if transport == "tcp":
                    connection.client_side.stream_offset = header.length
                yield UnparsedEvent(connection, C2S, before.frame, before.timestamp_ns, before.capture, header, 0)
        if dialogue.inside:
            connection.decrypted = True
            connection.revision += 1
        limit, version = self._options.max_packet_bytes, self._options.version
        for stream in (dialogue.client_stream, dialogue.server_stream):
            stream.max_packet_bytes, stream.budget = min(limit, self._budget.limit), self._budget
            stream.version_source = ""
            if version is not None:
                stream.version, stream.version_source = version, "given"
            if dialogue.joined:
                stream.lose_framing()
        if version is not None:
            connection.assume_version(version, "given", known=True)
        dialogue.settle()

    def resume(self, dialogue: FlowState, before: EndedFlow) -> Iterator[Event]:
        """Continue a connection after a reset that both sides ignored, as a connection of its own.

        With MQTT directly over TCP, the state of the earlier connection applies; otherwise it must be found again.
        """
        dialogue.client_is_initiator = before.client_is_initiator
        dialogue.roles_known, dialogue.roles_evidence = before.roles_known, before.roles_evidence
        before.part_sides()
        known = before.connection
        if known.transport != "tcp":
            return
        dialogue.move(FlowTrigger.SPEAKS_MQTT)
        yield from self.open(dialogue, "tcp")
        connection = dialogue.connection
        assert connection is not None
        connection.details["resumes"] = known.number
        for name in _RESUMED:
            setattr(connection, name, getattr(known, name))
        connection.client_side.doubt, connection.doubtful = known.client_side.doubt, known.doubtful
        connection.revision += 1
        for stream in (dialogue.client_stream, dialogue.server_stream):
            stream.version, stream.version_source = known.version, "CONNECT" if known.version_known else ""

    def _connect(self, dialogue: FlowState, transport: str) -> Connection:
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
            flow_key=flow.key,
            initial_sequence=flow.initiator.initial_sequence,
            found_frame=flow.last_frame,
            found_ns=flow.last_timestamp_ns,
            found_capture=flow.last_capture,
            alarm=self._alarm(flow),
        )
        if connection.handshake_seen:
            connection.expect_connect()
            connection.resolved_name = dialogue.names[not dialogue.client_is_initiator]
        self.connections += 1
        if dialogue.tls is not None:
            connection.details.update(dialogue.tls.summary())
        addresses = None if dialogue.proxied is None else parse_endpoints(dialogue.proxied.data)
        if addresses is not None:
            connection.details["proxy"] = {"client": addresses[0], "server": addresses[1]}
        spoken = _SPOKEN[transport]
        for port in ports(flow.key):
            named = self._options.ports.get(port, MQTT)
            if named not in (MQTT, spoken):
                self.named_otherwise[port, named, spoken] += 1
        return connection

    def websocket(self, dialogue: FlowState, event: StreamData) -> Iterator[Event]:
        """Events of the next bytes of a WebSocket."""
        assert dialogue.web is not None
        from_client = event.from_initiator is dialogue.client_is_initiator
        yield from self.unwrapped(dialogue, dialogue.web.feed(from_client, event.data), event)

    def unwrapped(self, dialogue: FlowState, pieces: Iterable[object], at: Place) -> Iterator[Event]:
        """Events of the items of a WebSocket."""
        for piece in pieces:
            if self.watcher is not None:
                self.watcher(dialogue, piece)
            if isinstance(piece, Upgrade):
                if self._is_open(dialogue) and dialogue.connection is not None:
                    # The client sent too much to wait for the response, which the capture has later.
                    details = _web_details(dialogue.connection)
                    details.pop("status", None)
                    details.update(_upgrade_details(piece))
                    dialogue.connection.revision += 1
                    continue
                refused = not piece.accepted and piece.status is not None
                if refused and (piece.status == 101 or not _names_mqtt(piece)):
                    if piece.status != 101 and dialogue.web is not None and dialogue.web.client.phase is HTTP:
                        continue  # the client may ask again
                    self.ignore(dialogue)
                    return
                if not self._carries_mqtt(dialogue, piece):
                    dialogue.unnamed = UnnamedWebSocket(piece)
                    continue
                yield from self._open_websocket(dialogue, piece)
                continue
            if dialogue.unnamed is not None and not self._is_open(dialogue):
                if isinstance(piece, Problem) and not piece.fatal and len(dialogue.unnamed.problems) < _MAX_PROBLEMS:
                    dialogue.unnamed.problems.append((piece, at.frame))
                if isinstance(piece, ControlFrame) or (isinstance(piece, Problem) and not piece.fatal):
                    continue
                is_mqtt = isinstance(piece, MessageData) and _begins_mqtt(dialogue.unnamed, piece)
                if is_mqtt is None:
                    continue
                if not is_mqtt:
                    dialogue.unnamed = None
                    self.ignore(dialogue)
                    return
                unnamed, dialogue.unnamed = dialogue.unnamed, None
                yield from self._open_websocket(dialogue, unnamed.upgrade)
                for problem, frame in unnamed.problems:
                    _note_problem(dialogue, problem, frame)
                assert isinstance(piece, MessageData)
                piece = replace(piece, data=unnamed.head + piece.data)
            if not self._is_open(dialogue):
                if not isinstance(piece, MessageData):
                    continue
                yield from self.open(dialogue, "websocket")
            connection = dialogue.connection
            assert connection is not None
            if isinstance(piece, Problem):
                _note_problem(dialogue, piece, at.frame)
            elif isinstance(piece, MessageData):
                if connection.history is None:
                    yield from self._packets.feed(dialogue, piece.from_client, piece.data, at)
                else:
                    yield from self._framed(dialogue, connection, piece, at)
            elif isinstance(piece, ControlFrame):
                if connection.history is not None:
                    _note_control(connection.history, piece, at)
            elif isinstance(piece, MessageGap):
                yield from self._packets.gap(dialogue, piece.from_client, piece.length, at)
            elif isinstance(piece, LostBytes):
                yield from self._lost(dialogue, piece.from_client, "websocket", piece.length, at)

    def _open_websocket(self, dialogue: FlowState, upgrade: Upgrade) -> Iterator[Event]:
        """Open the connection of a WebSocket, and report it with the details of its HTTP exchange."""
        for event in self.open(dialogue, "websocket"):
            _web_details(event.connection).update(_upgrade_details(upgrade))
            yield event
        assert dialogue.connection is not None
        _web_details(dialogue.connection).update(_upgrade_details(upgrade))

    def _framed(self, dialogue: FlowState, connection: Connection, piece: MessageData, at: Place) -> Iterator[Event]:
        """Events of the payload of a frame; the alignment of packets and frames is noted for rules."""
        yield from self._packets.feed(dialogue, piece.from_client, piece.data, at)
        if piece.frame_end and connection.history is not None:
            direction = C2S if piece.from_client else S2C
            count = connection.side(direction).packets
            connection.history.party(direction).frame(count, within=bool(dialogue.stream(piece.from_client).held))

    def _lost(self, dialogue: FlowState, from_client: bool, reason: str, length: int, at: Place) -> Iterator[Event]:
        """Restart a stream after an unknown loss of bytes in its transport, which also loses the framing of packets."""
        stream = dialogue.stream(from_client)
        rest = [cut_off(item, reason, stream) for item in dialogue.restart_stream(from_client)]
        yield from self._packets.items(dialogue, from_client, [*rest, Unparsed(reason, length)], at)

    def lost_inside(self, inner: FlowState, from_client: bool, event: StreamGap) -> Iterator[Event]:
        """Apply a loss of TLS records to the decrypted content."""
        if inner.web is not None:
            yield from self.unwrapped(inner, inner.web.gap(from_client, event.length), event)
        elif inner.speaks_mqtt:
            yield from self._lost(inner, from_client, TLS, event.length, event)

    def _carries_mqtt(self, dialogue: FlowState, upgrade: Upgrade) -> bool:
        """Whether a WebSocket carries MQTT: by its names, or by a port that the user named."""
        return _names_mqtt(upgrade) or WEBSOCKET in map(self._options.ports.get, ports(dialogue.flow.key))

    def tls(self, dialogue: FlowState, event: StreamData) -> Iterator[Event]:
        """Feed TLS, which is listed, not read: the connection is reported once the hello shows that it may be MQTT."""
        if dialogue.tls is None:
            return
        from_client = event.from_initiator is dialogue.client_is_initiator
        dialogue.tls.feed(from_client, event.data)
        if dialogue.connection is not None:
            return
        # After the server's first bytes no hello can follow, unless two interfaces were captured.
        server_spoke = not from_client and bool(
            dialogue.tls.client.offset or dialogue.tls.server.offset > len(event.data)
        )
        knows_hello = dialogue.tls.client_hello or server_spoke
        if self._tls_concerns(dialogue, knows_hello or dialogue.joined):
            yield from self.open(dialogue, TLS)
        elif knows_hello and not self._options.decrypting:
            self.ignore(dialogue)

    def _tls_concerns(self, dialogue: FlowState, knows_hello: bool) -> bool:
        """Whether TLS carries MQTT: by ALPN, or by the port once the hello was read or can no longer come."""
        assert dialogue.tls is not None
        if any("mqtt" in name.lower() for name in dialogue.tls.alpn_offered):
            return True
        protocol, _ = self._options.protocol_of(*ports(dialogue.flow.key))
        return protocol is not None and knows_hello

    def note_tls(self, dialogue: FlowState) -> None:
        """Update the TLS details of the connection."""
        if dialogue.tls is not None and dialogue.connection is not None:
            dialogue.connection.details.update(dialogue.tls.summary())

    def ignore(self, dialogue: FlowState) -> None:
        """Drop a flow that does not carry MQTT."""
        if dialogue.phase is not IGNORED:
            dialogue.move(FlowTrigger.NO_MQTT)
        if dialogue.inside:
            return
        if dialogue.tls is not None:
            server = endpoints(dialogue.flow.key)[dialogue.client_is_initiator]
            if server in self.other_tls or len(self.other_tls) < MAX_OTHER_SERVERS:
                self.other_tls[server] += 1
        dialogue.flow.context = None
        self.other_flows += 1


def _begins_mqtt(unnamed: UnnamedWebSocket, message: MessageData) -> bool | None:
    """Whether a WebSocket carries MQTT by the next bytes in it; ``None`` while they are too few.

    In MQTT the client speaks first, and begins with a CONNECT.
    """
    if not message.from_client:
        return False if message.data else None
    is_connect = starts_with_connect(unnamed.head + message.data)
    if is_connect is None:
        unnamed.head += message.data
    return is_connect


def _note_problem(dialogue: FlowState, problem: Problem, frame: int) -> None:
    """Note a fault of a side in a WebSocket on its connection."""
    assert dialogue.connection is not None
    problems = _web_details(dialogue.connection).setdefault("problems", [])
    if isinstance(problems, list) and (len(problems) < _MAX_PROBLEMS or not _is_recorded(problem, problems)):
        problems.append(
            {"from_client": problem.from_client, "reason": problem.reason, "detail": problem.detail, "frame": frame}
        )


def _note_control(history: History, control: ControlFrame, at: Place) -> None:
    """Note the first Close frame of a side, and Ping frames without a Pong."""
    direction = C2S if control.from_client else S2C
    party = history.party(direction)
    if control.opcode == CLOSE and not party.closing_ns:
        party.closing_ns, party.closing_frame = at.timestamp_ns, at.frame
        party.closing_code, party.closing_reason = control.code, control.reason or ""
    elif control.opcode == PING:
        if not party.web_pings:
            party.web_ping_ns, party.web_ping_frame = at.timestamp_ns, at.frame
        party.web_pings += 1
    elif control.opcode == PONG:
        history.party(S2C if control.from_client else C2S).web_pings = 0


def _upgrade_details(upgrade: Upgrade) -> dict[str, object]:
    """Details of a connection from its upgrade; ``status`` if the server refused it, until another one is accepted."""
    details: dict[str, object] = {
        "path": upgrade.request_path,
        "host": upgrade.host,
        "subprotocol": upgrade.subprotocol,
        "extensions": upgrade.extensions,
    }
    if not upgrade.accepted and upgrade.status is not None:
        details["status"] = upgrade.status
    return details


def _is_recorded(problem: Problem, problems: list[dict[str, object]]) -> bool:
    """Whether a problem with the same reason and sender is recorded."""
    wanted = (problem.from_client, problem.reason)
    return any((known["from_client"], known["reason"]) == wanted for known in problems)


def _web_details(connection: Connection) -> dict[str, object]:
    """The WebSocket details of a connection, to add to."""
    if connection.websocket is None:
        connection.details["websocket"] = {}
    details = connection.websocket
    assert details is not None
    return details


def _names_mqtt(upgrade: Upgrade) -> bool:
    names = [upgrade.subprotocol] if upgrade.subprotocol else list(upgrade.subprotocols_offered)
    return any(name.lower().startswith("mqtt") for name in names) or "mqtt" in upgrade.request_path.lower()


def cut_off(item: StreamItem, how: str, stream: PacketStream) -> StreamItem:
    """The last item of a stream that did not end properly: nobody is to blame for its missing bytes.

    Its fixed header may be invalid nevertheless, which is a fault of the sender.
    """
    if isinstance(item, Malformed) and item.reason is MalformedReason.TRUNCATED:
        fault = header_fault(item.raw, stream.version) if stream.version_source else None
        if fault is not None:
            return with_header_fault(item, fault)
        return Unparsed(how, len(item.raw), item.raw, 0, item.packet_type)
    return item
