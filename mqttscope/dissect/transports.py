"""What carries MQTT over TCP: nothing, WebSocket, TLS, and one inside the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mqttscope.dissect.dialogue import NOTHING, Dialogue, Over
from mqttscope.dissect.items import C2S, PacketEvents, Place
from mqttscope.dissect.options import MQTT, TLS, WEBSOCKET, Options
from mqttscope.events import ConnectionOpened, Event, UnparsedEvent
from mqttscope.mqtt.codec import first_byte_fault
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.stream import PacketStream, StreamItem, Unparsed
from mqttscope.net.events import StreamData, StreamGap
from mqttscope.net.flows import FlowTable
from mqttscope.net.http_upgrade import HTTP, Problem, Upgrade
from mqttscope.net.plaintext import Plaintext
from mqttscope.net.proxy_protocol import told_endpoints
from mqttscope.net.segment import endpoints, ports
from mqttscope.net.websocket_frames import Lost, MessageData, MessageGap
from mqttscope.session.connection import Connection

MAX_OTHER_SERVERS = 100
"""Servers of TLS flows that are remembered by name."""
_MAX_PROBLEMS = 100
"""WebSocket problems that are kept of one connection."""
_RESUMED = (
    "version", "version_known", "version_evidence", "client_identifier", "session_identifier", "phase", "keep_alive",
    "session_expiry_interval", "maximum_qos", "retain_available", "wildcard_subscription_available",
    "subscription_identifier_available", "shared_subscription_available", "client_side", "server_side",
)  # fmt: skip
"""Fields of a connection that hold on behind a reset which both sides ignored."""
_SPOKEN = {"tcp": MQTT, "websocket": WEBSOCKET, TLS: TLS}


class Transports(PacketEvents):
    """The middle of the dissector: from the bytes of a flow to those of its dialogue, through what wraps them."""

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
        self.discarded_segments = 0
        """Segments with data that no connection took, of MQTT connections and of such that were over."""
        self.discarded_bytes = 0
        self.closed_copies = 0
        """Segments of MQTT connections that were captured twice, up to the ends of these."""
        self.one_sided = 0
        """Closed MQTT connections of which the capture has one direction alone."""
        self.other_flows = 0
        """Flows that do not speak MQTT."""
        self.other_tls: Counter[str] = Counter()
        """TLS flows among them by server, at most `MAX_OTHER_SERVERS` servers: nothing says that they hold MQTT."""

    @property
    def copied_segments(self) -> int:
        """Segments of closed MQTT connections that were captured twice, also after the end."""
        return self.closed_copies + self.flows.late_copies

    @copied_segments.setter
    def copied_segments(self, count: int) -> None:
        self.closed_copies = count - self.flows.late_copies

    def data(self, dialogue: Dialogue, event: StreamData) -> Iterator[Event]:
        """Events of the next bytes of a dialogue."""
        raise NotImplementedError

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
            if not self.options.count_by_connection:
                outer.counting = self.counting
        if outer.inner is None:
            outer.inner = Dialogue(
                flow,
                client_is_initiator=outer.client_is_initiator,
                roles_known=outer.roles_known,
                roles_evidence=outer.roles_evidence,
                connection=outer.connection,
                tls=outer.tls,
                inside=True,
                counting=outer.counting,
            )
        data = StreamData(flow, from_initiator, found.data, half.offset, found.frame, found.timestamp_ns, found.capture)
        yield from self.data(outer.inner, data)
        outer.connection = outer.inner.connection

    def _is_open(self, dialogue: Dialogue) -> bool:
        """Whether the packets of a dialogue have their connection."""
        connection = dialogue.connection
        return connection is not None and (not dialogue.inside or connection.decrypted)

    def _open(self, dialogue: Dialogue, transport: str) -> Iterator[ConnectionOpened | UnparsedEvent]:
        """Make the connection of a dialogue and report it, unless the TLS around it has it already."""
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

    def resume(self, dialogue: Dialogue, before: Over) -> Iterator[Event]:
        """Go on with a connection that was reset, and whose peers ignored that: as a connection of its own.

        What packets mean is known from the one before where MQTT stands in TCP itself; else it has to be found again.
        """
        dialogue.client_is_initiator = before.client_is_initiator
        dialogue.roles_known, dialogue.roles_evidence = before.roles_known, before.roles_evidence
        known = before.connection
        if known.transport != "tcp":
            return
        dialogue.phase = MQTT
        yield from self._open(dialogue, "tcp")
        connection = dialogue.connection
        assert connection is not None
        connection.details["resumes"] = known.number
        for name in _RESUMED:
            setattr(connection, name, getattr(known, name))
        connection.client_side.doubt, connection.doubtful = known.client_side.doubt, known.doubtful
        connection.revision += 1
        for stream in (dialogue.client_stream, dialogue.server_stream):
            stream.version, stream.version_source = known.version, "CONNECT" if known.version_known else ""

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
            flow_key=flow.key,
            initial_sequence=flow.initiator.initial_sequence,
            found_frame=flow.last_frame,
            found_ns=flow.last_timestamp_ns,
            found_capture=flow.last_capture,
        )
        if connection.handshake_seen:
            connection.expect_connect()
        self.connections += 1
        if dialogue.tls is not None:
            connection.details.update(dialogue.tls.summary())
        told = None if dialogue.proxied is None else told_endpoints(dialogue.proxied.data)
        if told is not None:
            connection.details["proxy"] = {"client": told[0], "server": told[1]}
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
                    _web_details(dialogue.connection).update(_asked(one))
                    dialogue.connection.revision += 1
                    continue
                refused = not one.accepted and one.status is not None
                if refused and one.status != 101 and dialogue.web is not None and dialogue.web.client.phase == HTTP:
                    continue  # the client may ask again, with credentials for example
                if refused or not self._wanted(dialogue, one):
                    self._ignore(dialogue)
                    return
                for opened in self._open(dialogue, "websocket"):
                    _web_details(opened.connection).update(_asked(one))
                    yield opened
                assert dialogue.connection is not None
                _web_details(dialogue.connection).update(_asked(one))
                continue
            if not self._is_open(dialogue):
                if not isinstance(one, MessageData):
                    continue
                yield from self._open(dialogue, "websocket")
            connection = dialogue.connection
            assert connection is not None
            if isinstance(one, Problem):
                problems = _web_details(connection).setdefault("problems", [])
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
        stream = dialogue.stream(from_client)
        rest = [cut_off(item, reason, stream) for item in dialogue.restart_stream(from_client)]
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


def _asked(upgrade: Upgrade) -> dict[str, object]:
    """What an upgrade says of the connection."""
    return {
        "path": upgrade.request_path,
        "host": upgrade.host,
        "subprotocol": upgrade.subprotocol,
        "extensions": upgrade.extensions,
    }


def _web_details(connection: Connection) -> dict[str, object]:
    """Where what is known of a WebSocket goes."""
    if connection.websocket is None:
        connection.details["websocket"] = {}
    found = connection.websocket
    assert found is not None
    return found


def _names_mqtt(upgrade: Upgrade) -> bool:
    names = [upgrade.subprotocol] if upgrade.subprotocol else list(upgrade.subprotocols_offered)
    return any(name.lower().startswith("mqtt") for name in names) or "mqtt" in upgrade.request_path.lower()


def cut_off(item: StreamItem, how: str, stream: PacketStream) -> StreamItem:
    """The last item of a stream that did not end in good order: nobody is to blame for what is missing of it.

    Its first byte may be one that no packet begins with, whatever is missing.
    """
    if isinstance(item, Malformed) and item.reason is MalformedReason.TRUNCATED:
        fault = first_byte_fault(item.raw[0], stream.version) if stream.version_source else None
        if fault is not None:
            return replace(item, reason=fault.reason, offset=0, field=fault.field, detail=fault.detail, faults=(fault,))
        return Unparsed(how, len(item.raw), item.raw, 0, item.packet_type)
    return item
