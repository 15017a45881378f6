"""The state of one flow above TCP: first its protocol, then its MQTT streams and connection.

A flow begins undecided and keeps its bytes until the bytes, the ports or a limit decide (`FlowPhase`).  Its first
bytes determine its protocol, whatever its port.  Nothing is kept of a flow that does not speak MQTT.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Final

from mqttscope.dissect import options as named
from mqttscope.dissect.options import Options
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.resync import count_packets, plausible_header
from mqttscope.mqtt.stream import PacketStream, StreamItem
from mqttscope.net.flow import Flow, SegmentDiscarded, StreamData, StreamGap
from mqttscope.net.http_upgrade import Problem, Upgrade, looks_like_upgrade
from mqttscope.net.proxy_protocol import MIN_SIGN, header_length
from mqttscope.net.segment import ports
from mqttscope.net.tls_hello import CLIENT_HELLO, TlsObserver, looks_like_tls, looks_like_tls_records
from mqttscope.net.websocket import WebSocket, may_start_frame
from mqttscope.session.connection import Connection, OtherEnd
from mqttscope.session.inflight import ConnectionSide

MAX_UNDECIDED_BYTES: Final = 16_384
"""Maximum bytes of one flow that are kept while its protocol is unknown."""
PIECE_COST: Final = 16
"""Bytes counted for each piece in addition to its length, so that tiny pieces are bounded too."""
GAP_COST: Final = 256
"""Bytes counted for a gap."""
LOOKS: Final = 64
"""Number of pieces that are each checked at once; after them, a check waits until the bytes have grown by 25 %."""

MAX_DISCARDED: Final = 64
"""Maximum number of discarded segments kept per flow while it is undecided; further ones are added to a similar one."""

HANDSHAKE: Final = "TCP handshake"
VERSIONS: Final = (ProtocolVersion.V5, ProtocolVersion.V3_1_1)
MIN_RUN: Final = 2
"""Minimum number of packets in a row in one direction if plausibility is the only evidence for MQTT."""
_OF_CLIENT: Final = (PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ)
_OF_SERVER: Final = (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)


class FlowPhase(StrEnum):
    """The phases of a flow above TCP, and the transitions between them.

    A flow is the bytes that TCP carries between two endpoints.  TCP does not identify their protocol, and captures may
    begin in the middle, so the dissector decides by evidence in this order: the first bytes of either side (CONNECT, an
    HTTP upgrade, a TLS hello), the port that the user named or IANA assigned, and packets that are plausible in a row.

    * ``undecided``: bytes are kept, up to a limit, until there is enough evidence.
    * ``mqtt``: the bytes are MQTT packets with known beginnings.  Nearly all traffic is read in this phase.
    * ``searching``: the bytes are MQTT, but in at least one direction the beginning of the next packet is unknown: the
      capture began in the middle, or bytes are missing.  That stream searches for a place where packets fit.
    * ``ws``: the bytes are a WebSocket, first its HTTP exchange and then its frames, with MQTT inside the frames.
      If neither the exchange nor the port names MQTT, the first message of the client must begin with a CONNECT.
      Each direction has phases of its own there (`net.http_upgrade.WebSocketPhase`).
    * ``tls``: the bytes are TLS.  They are listed, not read, unless they are decrypted.
    * ``ignored``: not MQTT.  Nothing more is kept of the flow.

    The transport is not a phase that ends when MQTT begins, since a flow keeps its protocol to its last byte.
    A WebSocket stays ``ws``, and its messages go to packet streams that may search without a change of the phase.
    TLS stays ``tls``, and its decrypted content is a second `FlowState` inside the first, which begins ``undecided``
    like any other: it is plain MQTT, or a WebSocket again.  If the content is ``ignored``, the outer state still lists
    its TLS.

    The table omits impossible transitions: a trigger that does not fit the phase is a fault of the program.
    """

    UNDECIDED = "undecided"
    MQTT = "mqtt"
    SEARCHING = "searching"
    WEBSOCKET = "ws"
    TLS = "tls"
    IGNORED = "ignored"


class FlowTrigger(StrEnum):
    """Evidence that changes the phase of a flow."""

    SPEAKS_MQTT = "speaks MQTT"
    """A CONNECT, packets in a row, or the port shows it, or the connection continues after a reset that both ignore."""
    SPEAKS_WEBSOCKET = "speaks WebSocket"
    """An HTTP upgrade, or the port, shows it."""
    SPEAKS_TLS = "speaks TLS"
    """A hello, the port, or decrypted bytes show it."""
    FRAMING_LOST = "framing lost"
    """The beginning of the next packet is unknown in one direction."""
    FRAMING_FOUND = "framing found"
    """The beginning of the next packet is known in all directions."""
    NO_MQTT = "no MQTT"
    """Evidence for MQTT is missing: in the bytes, in the names of an upgrade or hello, and in the port."""


UNDECIDED: Final = FlowPhase.UNDECIDED
MQTT: Final = FlowPhase.MQTT
SEARCHING: Final = FlowPhase.SEARCHING
WEBSOCKET: Final = FlowPhase.WEBSOCKET
TLS: Final = FlowPhase.TLS
IGNORED: Final = FlowPhase.IGNORED

TRANSITIONS: Final = {
    (UNDECIDED, FlowTrigger.SPEAKS_MQTT): MQTT,
    (UNDECIDED, FlowTrigger.SPEAKS_WEBSOCKET): WEBSOCKET,
    (UNDECIDED, FlowTrigger.SPEAKS_TLS): TLS,
    (UNDECIDED, FlowTrigger.NO_MQTT): IGNORED,
    (MQTT, FlowTrigger.FRAMING_LOST): SEARCHING,
    (SEARCHING, FlowTrigger.FRAMING_FOUND): MQTT,
    (WEBSOCKET, FlowTrigger.NO_MQTT): IGNORED,
    (TLS, FlowTrigger.NO_MQTT): IGNORED,
}
"""The next phase for each phase and trigger."""


def starts_with_connect(head: bytes) -> bool | None:
    """Whether a stream begins with a CONNECT, even with broken flags; ``None`` while more bytes are needed."""
    if not head:
        return None
    if head[0] >> 4 != PacketType.CONNECT:
        return False
    at = 1
    while at < len(head) and head[at] & 0x80 and at < 4:
        at += 1
    name = head[at + 1 : at + 9]
    for wanted in (b"\x00\x04MQTT", b"\x00\x06MQIsdp"):
        if name[: len(wanted)].lower() == wanted.lower():
            return True
        if len(name) < len(wanted) and wanted.startswith(name):
            return None
    return False


def looks_like_mqtt(first: bytes, second: bytes) -> bool:
    """Whether the beginnings of both directions of a flow joined in the middle look like MQTT packets.

    Both directions must begin with a packet, and together they must have more packets than chance would give.
    """
    first_count, second_count = count_packets(first, VERSIONS), count_packets(second, VERSIONS)
    return bool(first_count and second_count) and max(first_count, second_count) >= MIN_RUN


def begins_with_packet(head: bytes) -> bool:
    return count_packets(head, VERSIONS) > 0


def may_start_packet(head: bytes) -> bool:
    """Whether a packet of any version may begin here, by its fixed header; true without bytes."""
    return not head or any(plausible_header(head, 0, len(head), version) for version in VERSIONS)


def client_speaks(data: bytes) -> bool | None:
    """Whether the sender is the client, by packets that only one side may send; ``None`` if unknown."""
    position = 0
    while position < len(data):
        kind = data[position] >> 4
        if kind in _OF_CLIENT:
            return True
        if kind in _OF_SERVER:
            return False
        at, length, shift = position + 1, 0, 0
        while at < len(data) and shift < 28:
            length |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
        position = at + length
    return None


@dataclass(slots=True)
class ByteOrigin:
    """The frame of bytes that a stream holds while it searches for packets, and the number of these bytes."""

    length: int
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class HeldItem:
    """An item of one stream, held while the other stream searches for packets in earlier bytes, with its frame."""

    from_client: bool
    item: StreamItem
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class PacketCounter:
    """Counter for the numbers of packets, in a run or in one connection."""

    packets: int = 0
    """Number of packets counted; the number of the next packet."""


@dataclass(slots=True)
class EndedFlow:
    """The state of an ended flow that late segments need."""

    connection: Connection
    """The connection without its large fields."""
    client_is_initiator: bool
    roles_known: bool
    roles_evidence: str

    def part_sides(self) -> None:
        """Give each side of the connection a state of its own, if both share the empty one."""
        connection = self.connection
        if connection.client_side is connection.server_side:
            connection.client_side, connection.server_side = ConnectionSide(), ConnectionSide()


@dataclass(slots=True)
class UnnamedWebSocket:
    """A WebSocket without MQTT in its request and port: the first bytes of the client decide."""

    upgrade: Upgrade
    problems: list[tuple[Problem, int]] = field(default_factory=list)
    """Problems before that, each with its frame."""
    head: bytes = b""
    """First bytes of the client, at most as long as the header and the protocol name of a CONNECT."""


_NO_SIDE: Final = ConnectionSide()
"""Shared empty state of both sides; call `EndedFlow.part_sides` before changing it."""
_new: Final = Connection.__new__
_FIELDS: Final = tuple(attribute.name for attribute in fields(Connection))


@dataclass(slots=True)
class FlowState:
    """One flow above TCP."""

    flow: Flow
    phase: FlowPhase = UNDECIDED
    """The protocol of the flow; `move` changes it."""
    client_is_initiator: bool = True
    roles_known: bool = True
    roles_evidence: str = HANDSHAKE
    joined: bool = False
    """The beginning of the flow was not captured, so framing must be found."""
    connection: Connection | None = None
    client_stream: PacketStream = field(default_factory=PacketStream)
    server_stream: PacketStream = field(default_factory=PacketStream)
    web: WebSocket | None = None
    unnamed: UnnamedWebSocket | None = None
    """The WebSocket, until evidence decides whether it carries MQTT."""
    tls: TlsObserver | None = None
    inner: FlowState | None = None
    """The content of TLS, once some of it was decrypted."""
    inside: bool = False
    """Whether this is the inner state of another."""
    client_arrivals: list[ByteOrigin] = field(default_factory=list)
    """Frames of the bytes that the client's stream searches; empty while it is framed."""
    server_arrivals: list[ByteOrigin] = field(default_factory=list)
    held: list[HeldItem] = field(default_factory=list)
    """Items held because the other stream may have earlier ones."""
    waiting: list[StreamData | StreamGap] = field(default_factory=list)
    """Bytes and gaps that arrived while undecided."""
    waiting_bytes: int = 0
    """Size of ``waiting``, with `PIECE_COST` and `GAP_COST`."""
    preface: int = 0
    """Length of the PROXY protocol header before the initiator's bytes."""
    proxied: StreamData | None = None
    """The PROXY protocol header, until a connection can report it."""
    replaying: bool = False
    """Whether waiting events are being replayed: the streams are already further than the replayed bytes."""
    next_look: int = 0
    """Size of the waiting bytes at the next check."""
    closed_by: str | None = None
    """``client`` or ``server``: the side that ended the transport first."""
    closed_how: str | None = None
    closed_place: tuple[int, int, str] = (0, 0, "")
    """Frame, time and capture of the first FIN or RST."""
    also_closed: OtherEnd | None = None
    """The end of the other side."""
    ends_reported: list[str] = field(default_factory=list)
    """Sides with a reported end of the stream: the FIN of the other side may wait after a hole."""
    ending_reported: bool = False
    discarded: list[SegmentDiscarded] = field(default_factory=list)
    """Segments discarded while the flow was undecided; see `note_discarded`."""
    discarded_more: dict[int, int] = field(default_factory=dict)
    """Number of segments that were added to one in ``discarded``, by its index."""
    counting: PacketCounter = field(default_factory=PacketCounter)
    """The counter that numbers its packets."""
    names: tuple[str | None, str | None] = (None, None)
    """DNS names of the responder and the initiator before the first segment."""

    @property
    def speaks_mqtt(self) -> bool:
        """Whether the bytes of the flow are plain MQTT."""
        return self.phase is MQTT or self.phase is SEARCHING

    @property
    def is_ignored(self) -> bool:
        """Whether the flow is no longer read."""
        return self.phase is IGNORED

    def move(self, trigger: FlowTrigger) -> None:
        self.phase = TRANSITIONS[self.phase, trigger]

    def stream(self, from_client: bool) -> PacketStream:
        return self.client_stream if from_client else self.server_stream

    def arrivals(self, from_client: bool) -> list[ByteOrigin]:
        """Frames of the bytes that the stream of one direction searches."""
        return self.client_arrivals if from_client else self.server_arrivals

    @property
    def holding(self) -> bool:
        """Whether a stream holds bytes that are not identified yet."""
        return bool(
            (self.client_stream.searching and self.client_arrivals)
            or (self.server_stream.searching and self.server_arrivals)
        )

    def note_discarded(self, event: SegmentDiscarded) -> None:
        """Keep a discarded segment; beyond `MAX_DISCARDED`, add it to one of the same direction and reason."""
        if len(self.discarded) >= MAX_DISCARDED:
            for index, known in enumerate(self.discarded):
                if (known.from_initiator, known.reason) == (event.from_initiator, event.reason):
                    self.discarded[index] = replace(known, length=known.length + event.length)
                    self.discarded_more[index] = self.discarded_more.get(index, 0) + 1
                    return
        self.discarded.append(event)

    def settle(self) -> None:
        """Enter or leave the phase ``searching``, as the streams do."""
        for stream, arrivals in (
            (self.client_stream, self.client_arrivals),
            (self.server_stream, self.server_arrivals),
        ):
            if not stream.searching:
                # The rest belongs to a packet that a later frame completes.
                arrivals.clear()
        searches = self.client_stream.searching or self.server_stream.searching
        if self.phase is MQTT and searches:
            self.move(FlowTrigger.FRAMING_LOST)
        elif self.phase is SEARCHING and not searches:
            self.move(FlowTrigger.FRAMING_FOUND)

    def end(self, by_client: bool, how: str, place: tuple[int, int, str], sent_by: str = "") -> None:
        """Note the end of a side; the FIN of the other side may have come before, and wait after missing bytes.

        ``sent_by`` is the side that sent the reset, if there is one and its sender is known.
        """
        who = "client" if by_client else "server"
        self.ends_reported.append(who)
        if not self.closed_how:
            waits = self.flow.responder if by_client is self.client_is_initiator else self.flow.initiator
            before = waits.fin_place
            # The other side may have ended with this very segment, and not be reported yet.
            if waits.fin_offset >= 0 and (before[1], before[0]) < (place[1], place[0]):
                self.closed_by, self.closed_how, self.closed_place = "server" if by_client else "client", "fin", before
                self.also_closed = OtherEnd(how, *place)
            else:
                self.closed_by, self.closed_how, self.closed_place = who, how, place
        elif (
            self.closed_by not in (who, sent_by)
            and (sent_by or how != "reset")
            and self.also_closed is None
            and place != self.closed_place
        ):
            # A reset ends both directions at once: it is not another end, nor is a reset by the side that sent FIN.
            # If the sender of a reset was forgotten, it may be that side.
            self.also_closed = OtherEnd(how, *place)

    @property
    def ending_due(self) -> bool:
        """Whether the side that ended first is complete: nothing of it waits after a hole."""
        return self.closed_by in self.ends_reported and not self.held and not self.holding

    def remember(self) -> EndedFlow | None:
        """The state that late segments need of the connection."""
        connection = self.connection
        if connection is None:
            return None
        up, down = connection.client_side, connection.server_side
        slim = _new(Connection)
        for name in _FIELDS:  # `replace` takes ten times as long
            setattr(slim, name, getattr(connection, name))
        slim.history = slim.alarm = slim.acknowledgments = None
        slim.details = {}
        slim.client_side = slim.server_side = _NO_SIDE
        if connection.closed_how == "reset":
            slim.client_side, slim.server_side = _limits_of(up), _limits_of(down)
        return EndedFlow(slim, self.client_is_initiator, self.roles_known, self.roles_evidence)

    def restart_stream(self, from_client: bool) -> list[StreamItem]:
        """Restart a stream in search of packets, after an unknown loss of bytes.  Returns the items that it held."""
        old = self.stream(from_client)
        new = PacketStream(old.version, old.version_source, old.max_packet_bytes, budget=old.budget)
        new.lose_framing()
        if from_client:
            self.client_stream = new
        else:
            self.server_stream = new
        self.arrivals(from_client).clear()
        return old.close()

    def hold(self, event: StreamData | StreamGap, options: Options) -> bool:
        """Keep bytes or a gap and try to decide; returns whether the flow is decided now."""
        self.waiting.append(event)
        self.waiting_bytes += PIECE_COST + len(event.data) if isinstance(event, StreamData) else GAP_COST
        if len(self.waiting) <= LOOKS or self.waiting_bytes >= min(self.next_look, MAX_UNDECIDED_BYTES):
            self.next_look = self.waiting_bytes + self.waiting_bytes // 4
            self._decide(options)
        return self.phase is not UNDECIDED

    def without_preface(self) -> list[StreamData | StreamGap]:
        """The waiting bytes and gaps, removed from the state; a PROXY protocol header goes to ``proxied``."""
        waiting, self.waiting, self.waiting_bytes = self.waiting, [], 0
        left, parts, rest = self.preface, list[bytes](), list[StreamData | StreamGap]()
        for event in waiting:
            if left and isinstance(event, StreamData) and event.from_initiator:
                parts.append(event.data[:left])
                if len(event.data) >= left:
                    self.proxied = replace(event, data=b"".join(parts))
                event = replace(event, data=event.data[left:], offset=event.offset + len(parts[-1]))
                left -= len(parts[-1])
                if not event.data:
                    continue
            rest.append(event)
        return rest

    def give_up(self, options: Options) -> None:
        """Decide with the bytes at hand, since no more follow."""
        if self.flow.disowned and not self.waiting and not (self.flow.syn_seen or self.flow.syn_ack_seen):
            # One side still held an old connection, and the other side had forgotten it.
            self.move(FlowTrigger.NO_MQTT)
            return
        self._decide(options, final=True)
        if self.phase is UNDECIDED:
            self.move(FlowTrigger.NO_MQTT)

    def _head(self, *, from_initiator: bool) -> tuple[bytes, bool]:
        """The first bytes of one direction up to a gap, and whether bytes before them are lost."""
        parts: list[bytes] = []
        cut = False
        for event in self.waiting:
            if event.from_initiator == from_initiator:
                if isinstance(event, StreamData):
                    parts.append(event.data)
                elif parts:
                    break
                else:
                    cut = True
        return b"".join(parts), cut

    def _decide(self, options: Options, *, final: bool = False) -> None:
        source, destination = ports(self.flow.key)
        protocol, server_port = options.protocol_of(source, destination)
        if self.inside and self.connection is not None and protocol != named.WEBSOCKET:
            # Its port or its ALPN marks this TLS as MQTT.
            protocol = named.MQTT
        if protocol is None and not options.detect:
            self.move(FlowTrigger.NO_MQTT)
            return
        first, first_cut = self._head(from_initiator=True)
        if not first_cut:
            length = header_length(first)
            if length is None and not final and self.waiting_bytes < MAX_UNDECIDED_BYTES:
                return
            is_cut = length is None and len(first) >= MIN_SIGN
            self.preface = len(first) if is_cut else length or 0
            first = first[self.preface :]
        second, second_cut = self._head(from_initiator=False)
        self.joined = not (self.flow.syn_seen or self.flow.syn_ack_seen)
        if self._by_content(first, second):
            return
        middle = self.joined or first_cut or second_cut
        final = final or self.waiting_bytes >= MAX_UNDECIDED_BYTES
        undecided = not final and _open_question(first)
        if protocol is not None:
            if middle:
                undecided = not (first or second) or _may_be_plain(protocol, first, second)
            if final or not undecided:
                self._by_port(protocol, server_port == source, first, second, middle=middle)
        elif middle:
            if looks_like_mqtt(first, second):
                self._orient(first, second)
                self.move(FlowTrigger.SPEAKS_MQTT)
            elif final or not (may_start_packet(first) and may_start_packet(second)):
                self.move(FlowTrigger.NO_MQTT)
        elif not undecided:
            self.move(FlowTrigger.NO_MQTT)

    def _by_content(self, first: bytes, second: bytes) -> bool:
        """Decide by the first bytes of either direction, which also identify the client."""
        for head, from_initiator in ((first, True), (second, False)):
            if starts_with_connect(head):
                self._set_client(from_initiator, "CONNECT")
                self.move(FlowTrigger.SPEAKS_MQTT)
            elif looks_like_upgrade(head):
                self._set_client(from_initiator, "HTTP upgrade")
                self.move(FlowTrigger.SPEAKS_WEBSOCKET)
                self.web = WebSocket()
            elif looks_like_tls(head):
                self._set_client(from_initiator is (head[5] == CLIENT_HELLO), "TLS hello")
                self.move(FlowTrigger.SPEAKS_TLS)
                self.tls = TlsObserver()
            else:
                continue
            self.joined = False
            return True
        return False

    def _set_client(self, initiator: bool, evidence: str) -> None:
        """Set the client by the bytes; if they agree with the handshake, that stays the evidence."""
        if initiator is not self.client_is_initiator or not self.flow.initiator_known:
            self.client_is_initiator, self.roles_evidence = initiator, evidence

    def _by_port(self, protocol: str, initiator_serves: bool, first: bytes, second: bytes, *, middle: bool) -> None:
        """Decide by the port, without evidence in the bytes."""
        if not self.flow.initiator_known:
            self.client_is_initiator = not initiator_serves
            self.roles_known = False
            self.roles_evidence = "port"
            self._orient(first, second)
        # Joined in the middle on a port for another protocol, or plain MQTT nevertheless.
        plain = looks_like_mqtt(first, second)
        if protocol == named.TLS and not plain:
            self.move(FlowTrigger.SPEAKS_TLS)
            self.tls = TlsObserver()
        elif protocol == named.WEBSOCKET and not (middle and plain):
            self.move(FlowTrigger.SPEAKS_WEBSOCKET)
            self.web = WebSocket.joined() if middle else WebSocket()
        else:
            self.move(FlowTrigger.SPEAKS_MQTT)

    def _orient(self, first: bytes, second: bytes) -> None:
        """Identify the client by packets that only one side may send."""
        if self.flow.initiator_known:
            return
        self.roles_known = False
        for head, side in ((first, True), (second, False)):
            speaks = client_speaks(head) if begins_with_packet(head) else None
            if speaks is not None:
                self.client_is_initiator = speaks is side
                self.roles_evidence = "packet types"
                return
        if self.roles_evidence == HANDSHAKE:
            self.roles_evidence = "higher port"


def _limits_of(side: ConnectionSide) -> ConnectionSide:
    """The announced limits and aliases of a side, which a connection needs that continues after a reset."""
    return ConnectionSide(
        side.receive_maximum, side.maximum_packet_size, side.topic_alias_maximum, side.limits_known, side.aliases,
        alias_bytes=side.alias_bytes,
    )  # fmt: skip


def _may_be_plain(protocol: str, first: bytes, second: bytes) -> bool:
    """Whether more bytes could reveal plain MQTT on a TLS or WebSocket port, in a flow joined in the middle."""
    wrapped = {named.TLS: looks_like_tls_records, named.WEBSOCKET: may_start_frame}.get(protocol)
    if wrapped is None or looks_like_mqtt(first, second):
        return False
    return not any(head and wrapped(head) for head in (first, second)) and (
        may_start_packet(first) and may_start_packet(second)
    )


def _open_question(first: bytes) -> bool:
    """Whether more bytes of the initiator could still identify the protocol."""
    return (
        not first
        or starts_with_connect(first) is None
        or looks_like_upgrade(first) is None
        or looks_like_tls(first) is None
    )
