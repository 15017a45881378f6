"""What is known above TCP of one flow: first what it speaks, then its MQTT streams and connection.

A dialogue begins undecided and keeps what arrives until the bytes, the ports or a limit decide.  A flow that does not
speak MQTT is dropped from memory at once; `IGNORED` stands in its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.dissect.detect import client_speaks, looks_like_mqtt, starts_with_connect
from mqttscope.dissect.options import MQTT, TLS, WEBSOCKET, Options
from mqttscope.mqtt.stream import PacketStream
from mqttscope.net.events import StreamData, StreamGap
from mqttscope.net.flows import Flow
from mqttscope.net.http_upgrade import looks_like_upgrade
from mqttscope.net.segment import ports
from mqttscope.net.tls_hello import TlsObserver, looks_like_tls
from mqttscope.net.websocket import WebSocket
from mqttscope.session.connection import Connection

MAX_UNDECIDED_BYTES = 16_384
"""Bytes of one flow that are kept while it is not clear what it speaks."""

UNDECIDED = "undecided"
NOTHING = "ignored"


@dataclass(slots=True)
class Dialogue:
    """One flow seen from above."""

    flow: Flow
    phase: str = UNDECIDED
    """``undecided``, ``mqtt``, ``ws``, ``tls`` or ``ignored``."""
    client_is_initiator: bool = True
    roles_known: bool = True
    roles_evidence: str = "TCP handshake"
    joined: bool = False
    """The beginning of the flow was not captured, so framing has to be found."""
    connection: Connection | None = None
    client_stream: PacketStream = field(default_factory=PacketStream)
    server_stream: PacketStream = field(default_factory=PacketStream)
    web: WebSocket | None = None
    tls: TlsObserver | None = None
    announced: bool = False
    """Whether the connection was reported."""
    waiting: list[StreamData | StreamGap] = field(default_factory=list)
    """What arrived while undecided."""
    waiting_bytes: int = 0
    first_closer: str | None = None
    """Which side ended the transport first."""

    def take(self, event: StreamData | StreamGap, options: Options) -> bool:
        """Keep what arrived and try to decide; returns whether the dialogue is decided now."""
        self.waiting.append(event)
        if isinstance(event, StreamData):
            self.waiting_bytes += len(event.data)
        self._decide(options)
        return self.phase != UNDECIDED

    def give_up(self, options: Options) -> None:
        """Nothing more comes: decide with what there is."""
        self._decide(options, final=True)
        if self.phase == UNDECIDED:
            self.phase = NOTHING

    def _head(self, *, from_initiator: bool) -> bytes:
        parts = []
        for event in self.waiting:
            if event.from_initiator == from_initiator:
                if isinstance(event, StreamGap):
                    break
                parts.append(event.data)
        return b"".join(parts)

    def _decide(self, options: Options, *, final: bool = False) -> None:
        first, second = self._head(from_initiator=True), self._head(from_initiator=False)
        source, destination = ports(self.flow.key)
        protocol, server_port = options.protocol_of(source, destination)
        self.joined = not (self.flow.syn_seen or self.flow.syn_ack_seen)
        if self._by_content(first, second):
            return
        if protocol is None and not options.detect:
            self.phase = NOTHING
            return
        undecided = self._content_open(first, second) and not final and self.waiting_bytes < MAX_UNDECIDED_BYTES
        if protocol is not None:
            if undecided and not self.joined:
                return
            self._by_port(protocol, server_port == source, first, second)
            return
        if self.joined:
            if looks_like_mqtt(first, second):
                self._orient(first, second)
                self.phase = MQTT
                return
            if final or self.waiting_bytes >= MAX_UNDECIDED_BYTES:
                self.phase = NOTHING
            return
        if not undecided:
            self.phase = NOTHING

    def _by_content(self, first: bytes, second: bytes) -> bool:
        for head, from_initiator in ((first, True), (second, False)):
            if starts_with_connect(head):
                if from_initiator is not self.client_is_initiator or not self.flow.initiator_known:
                    self.client_is_initiator = from_initiator
                    self.roles_evidence = "CONNECT"
                self.joined = False
                self.phase = MQTT
                return True
            if looks_like_upgrade(head):
                self.client_is_initiator = from_initiator
                self.roles_evidence = "HTTP upgrade"
                self.phase = WEBSOCKET
                self.web = WebSocket()
                return True
            if looks_like_tls(head):
                self.phase = TLS
                self.tls = TlsObserver()
                return True
        return False

    def _content_open(self, first: bytes, second: bytes) -> bool:
        """Whether more bytes of the initiator could still show what this is."""
        return (
            starts_with_connect(first) is None
            or looks_like_upgrade(first) is None
            or looks_like_tls(first) is None
            or not first
        )

    def _by_port(self, protocol: str, initiator_serves: bool, first: bytes, second: bytes) -> None:
        if not self.flow.initiator_known:
            self.client_is_initiator = not initiator_serves
            self.roles_known = False
            self.roles_evidence = "well-known port"
            self._orient(first, second)
        if protocol == TLS:
            # Bytes that are no TLS record on a port for TLS: joined in the middle, or plain MQTT after all.
            self.phase = MQTT if looks_like_mqtt(first, second) else TLS
            self.tls = TlsObserver() if self.phase == TLS else None
        elif protocol == WEBSOCKET:
            self.phase = WEBSOCKET
            self.web = WebSocket.joined()
        else:
            self.phase = MQTT

    def _orient(self, first: bytes, second: bytes) -> None:
        """Who is the client, from packets that only one side may send."""
        if self.flow.initiator_known:
            return
        self.roles_known = False
        for head, side in ((first, True), (second, False)):
            speaks = client_speaks(head)
            if speaks is not None:
                self.client_is_initiator = speaks is side
                self.roles_evidence = "packet types"
                return
