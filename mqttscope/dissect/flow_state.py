"""What is known above TCP of one flow: first what it speaks, then its MQTT streams and connection.

A flow begins undecided and keeps what arrives until the bytes, the ports or a limit decide (`FlowPhase`).  Its first
bytes say what it speaks, whatever its port.  Nothing is kept of a flow that does not speak MQTT.
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
from mqttscope.net.http_upgrade import looks_like_upgrade
from mqttscope.net.proxy_protocol import header_length
from mqttscope.net.segment import ports
from mqttscope.net.tls_hello import CLIENT_HELLO, TlsObserver, looks_like_tls, looks_like_tls_records
from mqttscope.net.websocket import WebSocket, may_start_frame
from mqttscope.session.connection import Connection, OtherEnd
from mqttscope.session.inflight import Side

MAX_UNDECIDED_BYTES: Final = 16_384
"""Bytes of one flow that are kept while it is not clear what it speaks."""
PIECE_COST: Final = 16
"""What each piece of them counts beside its bytes, so that tiny pieces are bounded too."""
GAP_COST: Final = 256
"""What a gap counts."""
LOOKS: Final = 64
"""So many pieces are looked at one by one; then a look waits until the bytes have grown by a quarter."""

MAX_DISCARDED: Final = 64
"""Maximum number of discarded segments kept per flow while it is undecided; further ones are added to a similar one."""

HANDSHAKE: Final = "TCP handshake"
VERSIONS: Final = (ProtocolVersion.V5, ProtocolVersion.V3_1_1)
MIN_RUN: Final = 2
"""Packets in a row that one direction must show when nothing but plausibility speaks for MQTT."""
_OF_CLIENT: Final = (PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ)
_OF_SERVER: Final = (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)


class FlowPhase(StrEnum):
    """The phases of a flow above TCP, and what leads from which phase to which.

    A flow is what TCP carries between two endpoints.  Nothing in TCP says what its bytes mean, and captures may begin
    in the middle, so the dissector finds out, by evidence in this order: the first bytes of either side (CONNECT, an
    HTTP upgrade, a TLS hello), the port that the user named or IANA assigned, and packets that are plausible in a row.

    * ``undecided``: what arrives is kept, up to a limit, until the evidence is enough.
    * ``mqtt``: the bytes are MQTT packets, and where each begins is known.  Nearly all traffic is read in this phase.
    * ``searching``: the bytes are MQTT, but in one direction at least it is not known where the next packet begins: the
      capture began in the middle, or bytes are missing.  That stream looks for a place where packets fit.
    * ``ws``: the bytes are a WebSocket, first its HTTP exchange and then its frames, with MQTT inside of the frames.
      Each direction has phases of its own there (`net.http_upgrade.WebSocketPhase`).
    * ``tls``: the bytes are TLS.  They are listed, not read, unless somebody decrypts them.
    * ``ignored``: no MQTT.  Nothing is kept of the flow any more.

    What carries MQTT is not a phase that ends when MQTT begins, since a flow speaks the same from its first byte to its
    last.  A WebSocket stays ``ws``, and its messages go to streams of packets that search where they have to without a
    change of the phase.  TLS stays ``tls``, and what was decrypted of it is a second `FlowState` inside of the first
    one, which begins ``undecided`` like any other: it is plain MQTT, or a WebSocket again.  Where it is ``ignored``,
    the outer one still lists its TLS.

    The table has no way for what cannot happen: a trigger that does not fit the phase is a fault of the program.
    """

    UNDECIDED = "undecided"
    MQTT = "mqtt"
    SEARCHING = "searching"
    WEBSOCKET = "ws"
    TLS = "tls"
    IGNORED = "ignored"


class FlowTrigger(StrEnum):
    """What says more of it."""

    SPEAKS_MQTT = "speaks MQTT"
    """By a CONNECT, packets in a row, or the port; or the connection continues after a reset that nobody heeds."""
    SPEAKS_WEBSOCKET = "speaks WebSocket"
    """By an HTTP upgrade, or the port."""
    SPEAKS_TLS = "speaks TLS"
    """By a hello, or the port; or somebody has decrypted some of it."""
    FRAMING_LOST = "framing lost"
    """A direction does not know any more where the next packet begins."""
    FRAMING_FOUND = "framing found"
    """All directions know."""
    NO_MQTT = "no MQTT"
    """Nothing speaks for MQTT: not the bytes, not the names in an upgrade or hello, not the port."""


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
"""The next phase for each phase and what may happen in it."""


def starts_with_connect(head: bytes) -> bool | None:
    """Whether a stream begins with a CONNECT, however broken its flags are; ``None`` while too little is known."""
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

    Both directions must begin with a packet, and together they must hold more than chance gives.
    """
    one, other = count_packets(first, VERSIONS), count_packets(second, VERSIONS)
    return bool(one and other) and max(one, other) >= MIN_RUN


def begins_with_packet(head: bytes) -> bool:
    return count_packets(head, VERSIONS) > 0


def may_start_packet(head: bytes) -> bool:
    """Whether a packet of any version may begin here, by its fixed header; also while nothing is there."""
    return not head or any(plausible_header(head, 0, len(head), version) for version in VERSIONS)


def client_speaks(data: bytes) -> bool | None:
    """Whether packets that only one side may send show who this is: True client, False server, None unknown."""
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
class Arrival:
    """Bytes that a stream holds while it looks for packets, and the frame that brought them."""

    length: int
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class Held:
    """What one stream gave while the other held earlier bytes and looked for packets; it also says where it lies."""

    from_client: bool
    item: StreamItem
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class Counting:
    """Numbers of packets, of a run or of one connection."""

    packets: int = 0
    """How many were counted; the next one gets this number."""


@dataclass(slots=True)
class Over:
    """What is remembered of a dialogue that has ended, for segments that come late."""

    connection: Connection
    """As it was, without what it takes much memory to remember."""
    client_is_initiator: bool
    roles_known: bool
    roles_evidence: str

    def part_sides(self) -> None:
        """Give each side of the connection a state of its own, where nothing is remembered of both."""
        connection = self.connection
        if connection.client_side is connection.server_side:
            connection.client_side, connection.server_side = Side(), Side()


_NO_SIDE: Final = Side()
"""For both sides of all connections of which nothing is remembered; `Over.part_sides` before it is changed."""
_new: Final = Connection.__new__
_FIELDS: Final = tuple(one.name for one in fields(Connection))


@dataclass(slots=True)
class FlowState:
    """One flow seen from above."""

    flow: Flow
    phase: FlowPhase = UNDECIDED
    """What it speaks; `move` changes it."""
    client_is_initiator: bool = True
    roles_known: bool = True
    roles_evidence: str = HANDSHAKE
    joined: bool = False
    """The beginning of the flow was not captured, so framing has to be found."""
    connection: Connection | None = None
    client_stream: PacketStream = field(default_factory=PacketStream)
    server_stream: PacketStream = field(default_factory=PacketStream)
    web: WebSocket | None = None
    tls: TlsObserver | None = None
    inner: FlowState | None = None
    """What is said inside TLS, once some of it was decrypted."""
    inside: bool = False
    """This is the inner dialogue of another."""
    client_arrivals: list[Arrival] = field(default_factory=list)
    """Where the bytes came from that the client's stream searches; empty while it is framed."""
    server_arrivals: list[Arrival] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    """What one stream gave and the other may have something to put before."""
    waiting: list[StreamData | StreamGap] = field(default_factory=list)
    """What arrived while undecided."""
    waiting_bytes: int = 0
    """Their size, with `PIECE_COST` and `GAP_COST`."""
    preface: int = 0
    """Length of the PROXY protocol header that the initiator's bytes begin with."""
    proxied: StreamData | None = None
    """That header, until there is a connection to report it of."""
    replaying: bool = False
    """What waited is gone through: the streams have come further already than what is read."""
    next_look: int = 0
    """Size at which the next look is due."""
    closed_by: str | None = None
    """``client`` or ``server``: who ended the transport first."""
    closed_how: str | None = None
    closed_place: tuple[int, int, str] = (0, 0, "")
    """Frame, time and capture of that FIN or RST."""
    also_closed: OtherEnd | None = None
    """How the other side ended."""
    ends_reported: list[str] = field(default_factory=list)
    """Sides whose streams were reported to be over: the FIN of another may wait after a hole."""
    ending_reported: bool = False
    discarded: list[SegmentDiscarded] = field(default_factory=list)
    """Segments discarded while the flow was undecided; see `note_discarded`."""
    discarded_more: dict[int, int] = field(default_factory=dict)
    """Number of segments that were added to one in ``discarded``, by its index."""
    counting: Counting = field(default_factory=Counting)
    """What its packets are numbered with."""
    names: tuple[str | None, str | None] = (None, None)
    """What DNS called the responder and the initiator before the first segment."""

    @property
    def speaks_mqtt(self) -> bool:
        """Whether the bytes of the flow are MQTT as they are."""
        return self.phase is MQTT or self.phase is SEARCHING

    @property
    def is_ignored(self) -> bool:
        """Whether nothing of the flow is read any further."""
        return self.phase is IGNORED

    def move(self, trigger: FlowTrigger) -> None:
        self.phase = TRANSITIONS[self.phase, trigger]

    def stream(self, from_client: bool) -> PacketStream:
        return self.client_stream if from_client else self.server_stream

    def arrivals(self, from_client: bool) -> list[Arrival]:
        """Where the bytes came from that the stream of one direction searches."""
        return self.client_arrivals if from_client else self.server_arrivals

    @property
    def holding(self) -> bool:
        """Whether a stream holds bytes of which it is not known yet what they are."""
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
        """Go into or out of the phase in which one of the streams looks for packets."""
        for stream, arrivals in (
            (self.client_stream, self.client_arrivals),
            (self.server_stream, self.server_arrivals),
        ):
            if not stream.searching:
                # What is left belongs to a packet that a later frame completes.
                arrivals.clear()
        searches = self.client_stream.searching or self.server_stream.searching
        if self.phase is MQTT and searches:
            self.move(FlowTrigger.FRAMING_LOST)
        elif self.phase is SEARCHING and not searches:
            self.move(FlowTrigger.FRAMING_FOUND)

    def end(self, by_client: bool, how: str, place: tuple[int, int, str], sent_by: str = "") -> None:
        """Note that a side has ended; the FIN of the other one may have come before, with bytes missing before it.

        ``sent_by`` is the side that sent the reset, where there is one and that is known.
        """
        who = "client" if by_client else "server"
        self.ends_reported.append(who)
        if not self.closed_how:
            waits = self.flow.responder if by_client is self.client_is_initiator else self.flow.initiator
            before = waits.fin_place
            # It may have ended by now, with this very segment, and is yet to be reported.
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
            # A reset ends both directions at once: that is no other end, nor is one by the side that sent FIN before.
            # If the sender of a reset was forgotten, it may be that side.
            self.also_closed = OtherEnd(how, *place)

    @property
    def ending_due(self) -> bool:
        """Whether all that the side said which ended first is known: nothing of it waits after a hole any more."""
        return self.closed_by in self.ends_reported and not self.held and not self.holding

    def remember(self) -> Over | None:
        """What late segments need to know of the connection."""
        found = self.connection
        if found is None:
            return None
        up, down = found.client_side, found.server_side
        slim = _new(Connection)
        for name in _FIELDS:  # what `replace` does takes ten times as long
            setattr(slim, name, getattr(found, name))
        slim.history = slim.alarm = slim.acknowledgments = None
        slim.details = {}
        slim.client_side = slim.server_side = _NO_SIDE
        if found.closed_how == "reset":
            slim.client_side, slim.server_side = _limits_of(up), _limits_of(down)
        return Over(slim, self.client_is_initiator, self.roles_known, self.roles_evidence)

    def restart_stream(self, from_client: bool) -> list[StreamItem]:
        """Begin a stream again, looking for packets: an unknown number of its bytes is lost.  Returns what it held."""
        old = self.stream(from_client)
        new = PacketStream(old.version, old.version_source, old.max_packet_bytes, budget=old.budget)
        new.lose_framing()
        if from_client:
            self.client_stream = new
        else:
            self.server_stream = new
        self.arrivals(from_client).clear()
        return old.close()

    def take(self, event: StreamData | StreamGap, options: Options) -> bool:
        """Keep what arrived and try to decide; returns whether the dialogue is decided now."""
        self.waiting.append(event)
        self.waiting_bytes += PIECE_COST + len(event.data) if isinstance(event, StreamData) else GAP_COST
        if len(self.waiting) <= LOOKS or self.waiting_bytes >= min(self.next_look, MAX_UNDECIDED_BYTES):
            self.next_look = self.waiting_bytes + self.waiting_bytes // 4
            self._decide(options)
        return self.phase is not UNDECIDED

    def without_preface(self) -> list[StreamData | StreamGap]:
        """What waited, for it is the dialogue's turn now; a PROXY protocol header is put aside into ``proxied``."""
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
        """Nothing more comes: decide with what there is."""
        if self.flow.disowned and not self.waiting and not (self.flow.syn_seen or self.flow.syn_ack_seen):
            # One side still held a connection of long ago, and the other one said that there is none.
            self.move(FlowTrigger.NO_MQTT)
            return
        self._decide(options, final=True)
        if self.phase is UNDECIDED:
            self.move(FlowTrigger.NO_MQTT)

    def _head(self, *, from_initiator: bool) -> tuple[bytes, bool]:
        """The first bytes of one direction up to a gap, and whether some before them are lost."""
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
            # Its port or its ALPN says that this TLS goes with MQTT.
            protocol = named.MQTT
        if protocol is None and not options.detect:
            self.move(FlowTrigger.NO_MQTT)
            return
        first, first_cut = self._head(from_initiator=True)
        if not first_cut:
            length = header_length(first)
            if length is None and not final and self.waiting_bytes < MAX_UNDECIDED_BYTES:
                return
            self.preface = length or 0
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
        """Decide by the first bytes of either direction, which also tell who is the client."""
        for head, from_initiator in ((first, True), (second, False)):
            if starts_with_connect(head):
                self._client_is(from_initiator, "CONNECT")
                self.move(FlowTrigger.SPEAKS_MQTT)
            elif looks_like_upgrade(head):
                self._client_is(from_initiator, "HTTP upgrade")
                self.move(FlowTrigger.SPEAKS_WEBSOCKET)
                self.web = WebSocket()
            elif looks_like_tls(head):
                self._client_is(from_initiator is (head[5] == CLIENT_HELLO), "TLS hello")
                self.move(FlowTrigger.SPEAKS_TLS)
                self.tls = TlsObserver()
            else:
                continue
            self.joined = False
            return True
        return False

    def _client_is(self, initiator: bool, evidence: str) -> None:
        """The bytes say who the client is; the handshake stays the evidence where it says the same."""
        if initiator is not self.client_is_initiator or not self.flow.initiator_known:
            self.client_is_initiator, self.roles_evidence = initiator, evidence

    def _by_port(self, protocol: str, initiator_serves: bool, first: bytes, second: bytes, *, middle: bool) -> None:
        """Believe the port where the bytes say nothing."""
        if not self.flow.initiator_known:
            self.client_is_initiator = not initiator_serves
            self.roles_known = False
            self.roles_evidence = "port"
            self._orient(first, second)
        # Joined in the middle of a port for something else, or plain MQTT after all.
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
        """Who is the client, from packets that only one side may send."""
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


def _limits_of(side: Side) -> Side:
    """What a side announced and its aliases: what a connection needs that continues after a reset."""
    return Side(
        side.receive_maximum, side.maximum_packet_size, side.topic_alias_maximum, side.limits_known, side.aliases,
        alias_bytes=side.alias_bytes,
    )  # fmt: skip


def _may_be_plain(protocol: str, first: bytes, second: bytes) -> bool:
    """Whether more bytes could show that plain MQTT is spoken on a port for TLS or WebSocket joined in the middle."""
    wrapped = {named.TLS: looks_like_tls_records, named.WEBSOCKET: may_start_frame}.get(protocol)
    if wrapped is None or looks_like_mqtt(first, second):
        return False
    return not any(head and wrapped(head) for head in (first, second)) and (
        may_start_packet(first) and may_start_packet(second)
    )


def _open_question(first: bytes) -> bool:
    """Whether more bytes of the initiator could still show what this is."""
    return (
        not first
        or starts_with_connect(first) is None
        or looks_like_upgrade(first) is None
        or looks_like_tls(first) is None
    )
