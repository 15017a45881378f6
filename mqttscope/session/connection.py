"""State of one MQTT connection, updated by each packet.

`Connection.apply` takes packets in capture order.  Readers that need the state *before* a packet (rules, the resolved
topic) read it before the packet is applied.  Nothing is judged here: a packet that breaks the protocol changes the
state as far as it can, and the rules report what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from mqttscope.mqtt.constants import RESERVED, Direction, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import (
    BRIDGE_LEVELS,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.properties import EMPTY, TOPIC_ALIAS, Properties
from mqttscope.mqtt.stream import Unparsed
from mqttscope.net.host_names import is_host_name
from mqttscope.secrets.packets import (
    BROKEN,
    CLEAR,
    LOST,
    SUSPECT,
    doubted_in_damaged,
    doubted_in_unparsed,
    holds_connect,
    is_identified,
)
from mqttscope.session.history import History
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS, ConnectionSide, Exchange

C2S: Final = Direction.CLIENT_TO_SERVER
S2C: Final = Direction.SERVER_TO_CLIENT
KNOWN_LEVELS: Final = (*ProtocolVersion, *BRIDGE_LEVELS)
"""Protocol levels that prove the version."""
_PUBREL: Final = PacketType.PUBREL


class ConnectionPhase(StrEnum):
    """The phases of an MQTT connection, and the packets that lead from one phase to another.

    The last packet that changes the phase determines it:

    * ``opening``: the transport is open, and neither CONNECT nor CONNACK was seen.  If the capture began after the
      connection, the phase lasts until one of the packets below changes it.
    * ``connecting``: the client has sent CONNECT, and the server has not answered it.  AUTH does not change the phase.
    * ``connected``: the server has accepted the client with a CONNACK of reason code 0.
    * ``refused``: the server has answered with another reason code, and must close the transport.
    * ``disconnected``: a side has sent DISCONNECT.  The phase does not include which side
      (`Connection.disconnect_by`).

    Only three types of packets change the phase: CONNECT of the client, CONNACK of the server, and DISCONNECT of either
    side (of the server since 5.0).

    The state machine of a client or a server rejects unexpected packets.  A reader of captures cannot: the packet was
    sent, and both sides will act on it.  So the table has a transition from every phase for every trigger, and ignores
    which side sends.  `SPECIFIED` contains the transitions of the specification, from any start of the capture.  In the
    others, packets of both sides crossed, or a side broke the protocol, which rules report: there, the last packet
    decides.

    The end of the transport is not a phase (`Connection.closed_how`).  If the transport closes while the connection is
    ``connected``, it ended without DISCONNECT, which makes a server publish a Will Message.
    """

    OPENING = "opening"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    REFUSED = "refused"
    DISCONNECTED = "disconnected"


class ConnectionTrigger(StrEnum):
    """A packet that changes the phase."""

    CONNECT = "CONNECT"
    ACCEPTANCE = "CONNACK (accepted)"
    """CONNACK with reason code 0."""
    REFUSAL = "CONNACK (refused)"
    """CONNACK with any other reason code."""
    DISCONNECT = "DISCONNECT"


OPENING, CONNECTING, CONNECTED, REFUSED, DISCONNECTED = ConnectionPhase
CONNECT, ACCEPTANCE, REFUSAL, DISCONNECT = ConnectionTrigger
_LEADS_TO: Final = {CONNECT: CONNECTING, ACCEPTANCE: CONNECTED, REFUSAL: REFUSED, DISCONNECT: DISCONNECTED}
SPECIFIED: Final = {
    (OPENING, CONNECT): CONNECTING,
    (OPENING, ACCEPTANCE): CONNECTED,
    (OPENING, REFUSAL): REFUSED,
    (OPENING, DISCONNECT): DISCONNECTED,
    (CONNECTING, ACCEPTANCE): CONNECTED,
    (CONNECTING, REFUSAL): REFUSED,
    (CONNECTING, DISCONNECT): DISCONNECTED,
    (CONNECTED, DISCONNECT): DISCONNECTED,
}
"""Transitions of the specification, from any start of the capture."""
TRANSITIONS: Final = {(phase, trigger): after for phase in ConnectionPhase for trigger, after in _LEADS_TO.items()}
"""The next phase for every phase and trigger.

A second CONNECT is a protocol error (5.0 3.1.0-2).  A second CONNACK may arrive (5.0 3.2.0-2), or one that crosses a
DISCONNECT of the client.  Each side may send DISCONNECT before it has received the other side's packets.
"""


@dataclass(slots=True)
class OtherEnd:
    """End of the side that did not end first."""

    how: str
    """``fin`` or ``reset``."""
    frame: int
    timestamp_ns: int
    capture: str


class AcknowledgmentLookup(Protocol):
    """Answers of `dissect.acknowledgments` about the event of a packet."""

    is_done: bool
    """Whether reading has ended, so that answers are final."""

    def of(self, event: Any, /) -> bool | None:
        """Whether TCP acknowledged the packet; ``None`` if the captures do not show it."""

    def is_after_fin(self, event: Any, /) -> bool:
        """Whether the receiver had already sent FIN."""


@dataclass(slots=True)
class Connection:
    """One MQTT Network Connection, as captured."""

    number: int
    """Counted from 0 in order of appearance."""
    client: str
    """Endpoint of the client, ``10.0.0.4:51234``."""
    server: str
    capture: str
    frame: int
    """First frame."""
    opened_ns: int
    transport: str = "tcp"
    """``tcp``, ``websocket`` or ``tls``."""
    handshake_seen: bool = False
    """Whether the TCP handshake was captured."""
    roles_known: bool = True
    roles_evidence: str = ""
    """How the client side was determined."""
    version: ProtocolVersion = ProtocolVersion.V3_1_1
    version_known: bool = False
    """Whether a CONNECT (or the user) determined the version."""
    version_evidence: str = "none"
    client_identifier: str | None = None
    """Sent in CONNECT, or assigned in CONNACK; ``None`` if neither was seen."""
    user_name: str | None = None
    """From the CONNECT that the server accepted, otherwise from the last one."""
    session_identifier: str | None = None
    """The Client Identifier at the first CONNACK: it determines the session, whatever follows."""
    client_side: ConnectionSide = field(default_factory=ConnectionSide)
    server_side: ConnectionSide = field(default_factory=ConnectionSide)
    phase: ConnectionPhase = OPENING
    """Progress of the connection."""
    keep_alive: int | None = None
    """Seconds in force: Server Keep Alive if announced, otherwise Keep Alive of the CONNECT."""
    clean_start: bool | None = None
    session_present: bool | None = None
    session_expiry_interval: int | None = None
    """Seconds in force; with 0 the session ends with the connection."""
    maximum_qos: int = 2
    """Announced by the server."""
    retain_available: bool = True
    wildcard_subscription_available: bool = True
    subscription_identifier_available: bool = True
    shared_subscription_available: bool = True
    connect_packet: int | None = None
    """Number of the CONNECT."""
    connect_timestamp_ns: int | None = None
    connack_packet: int | None = None
    disconnect_by: str | None = None
    """``client`` or ``server``: the sender of a DISCONNECT."""
    disconnect_reason: int | None = None
    closed_how: str | None = None
    """How the transport ended: ``fin``, ``reset``, ``port_reused``, ``idle``, ``evicted``, ``capture_end``."""
    closed_by: str | None = None
    """``client`` or ``server``: the side that ended the transport first, if the capture shows it."""
    closed_frame: int = 0
    """Frame with the first FIN or RST; 0 before."""
    closed_ns: int = 0
    """Capture time of that frame."""
    closed_capture: str = ""
    also_closed: OtherEnd | None = None
    """End of the other side after that."""
    reset_after_fin: bool = False
    """Whether a side reset the connection after a FIN: the other side may have lost unread bytes."""
    end_acknowledged: bool = False
    """Whether the other side acknowledged the first FIN, which proves that it was still there."""
    server_unacknowledged: int = 0
    """Last bytes of the server that the client never acknowledged; known when the connection is closed."""
    client_unacknowledged: int = 0
    """Last bytes of the client that the server never acknowledged: nothing shows that it received them."""
    unseen_bytes: int = 0
    """Acknowledged bytes that the capture never showed and that were not reported as gaps, since a reset ended the
    connection before later bytes arrived; known when it is closed."""
    end_disowned: bool = False
    """Whether it was reset by a side that had lost its state, as a device does after a power loss."""
    discarded_segments: int = 0
    """Data segments that the connection rejected, up to its end."""
    discarded_bytes: int = 0
    copied_segments: int = 0
    """Segments captured again by a second tap, up to the end of the connection."""
    one_sided: str | None = None
    """Direction of all captured segments, ``client_to_server`` or ``server_to_client``, if there is only one; known
    when the connection is closed."""
    decrypted: bool = False
    """Whether the transport is TLS and its content was decrypted."""
    gaps: int = 0
    gap_bytes: int = 0
    resolved_name: str | None = None
    """Name of the server in DNS when the connection began, if the capture has both."""
    details: dict[str, object] = field(default_factory=dict)
    """Plain values of the transport: WebSocket path and subprotocol, TLS server name and versions."""
    history: History | None = None
    """Additional state for judging; ``None`` unless it was requested when the connection was opened."""
    alarm: Callable[[int], None] | None = field(default=None, repr=False, compare=False)
    """Asks the dissector to report a `ConnectionDue` at a capture time; ``None`` if nothing does."""
    acknowledgments: AcknowledgmentLookup | None = field(default=None, repr=False, compare=False)
    """Answers whether TCP acknowledged its packets; ``None`` if nothing reads ahead for that."""
    doubtful: bool = False
    """Whether even payloads of a side may be part of a secret (`secrets.packets.BROKEN`)."""
    revision: int = 0
    """Increases when something changes that identifies the connection in reports."""
    flow_key: bytes = b""
    """Direction key from the initiator to the responder (`net.segment.Segment.key`); empty without a flow."""
    initial_sequence: int = -1
    """Sequence number of the initiator's SYN, if it was known when the connection was recognised; else -1."""
    found_frame: int = 0
    """Frame that revealed the protocol of the connection."""
    found_ns: int = 0
    found_capture: str = ""

    @property
    def keeps_session(self) -> bool | None:
        """Whether its session outlives it, by the packets seen; ``None`` without its CONNECT."""
        if self.version is ProtocolVersion.V5:
            return None if self.session_expiry_interval is None else self.session_expiry_interval > 0
        return None if self.clean_start is None else not self.clean_start

    @property
    def websocket(self) -> dict[str, object] | None:
        """Details of the WebSocket around the packets, also inside TLS; ``None`` without a WebSocket."""
        if self.transport == "websocket":
            return self.details
        details = self.details.get("websocket")
        return details if isinstance(details, dict) else None

    @property
    def server_name(self) -> str | None:
        """Host name of the server: from the TLS hello, otherwise `resolved_name`; ``None`` if neither is known.

        With encrypted_client_hello the hello may name a front, so `resolved_name` is preferred.  Names that are not
        clean host names are only in ``details``.
        """
        hello = self.details.get("server_name")
        if self.resolved_name and self.details.get("encrypted_client_hello"):
            return self.resolved_name
        return hello if isinstance(hello, str) and is_host_name(hello) else self.resolved_name

    def side(self, direction: Direction) -> ConnectionSide:
        """The side that sends in this direction."""
        return self.client_side if direction is C2S else self.server_side

    def receiver(self, direction: Direction) -> ConnectionSide:
        """The side that receives in this direction."""
        return self.server_side if direction is C2S else self.client_side

    def resolve_topic(self, packet: Publish, direction: Direction) -> str | None:
        """Topic of a PUBLISH before it is applied: its own, or the current topic of its alias; ``None`` if unknown."""
        if packet.topic_name:
            return packet.topic_name
        block = packet.properties
        if block is not None:
            alias = block.first(TOPIC_ALIAS)
            if alias is not None:
                return self.side(direction).aliases.get(alias)
        return None

    def answered_by(self, packet: ControlPacket, direction: Direction) -> Exchange | None:
        """The exchange that this packet continues or ends, looked up before the packet is applied."""
        kind = packet.packet_type
        if kind in _ANSWERS:
            identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
            return self.receiver(direction).running(identifier, _ANSWERS[kind])
        if kind == _PUBREL:
            return self.side(direction).running(packet.packet_identifier, "publish")  # type: ignore[attr-defined]
        return None

    def assume_version(self, version: ProtocolVersion, evidence: str, *, known: bool = False) -> None:
        """Set the version from a source other than a CONNECT."""
        self.version, self.version_evidence, self.version_known = version, evidence, known
        self.revision += 1

    def identify(self, packet: ControlPacket, damaged: bytes = b"") -> None:
        """Update identity and version from a CONNECT or CONNACK, before the packet is shown.

        ``damaged``: the bytes of a packet with a broken layout.  Its password may be in the place of its Client
        Identifier.
        """
        if isinstance(packet, Connect):
            level = packet.known("protocol_level")
            if level in KNOWN_LEVELS:
                self.version, self.version_known, self.version_evidence = packet.version, True, "CONNECT"
            elif level is not None:
                # The layout is a guess, and the version of the server is still open.
                self.version, self.version_known = packet.version, False
                self.version_evidence = f"a CONNECT with unknown protocol level {level}"
            if not damaged or is_identified(damaged):
                self.client_identifier = packet.known("client_identifier")
            if not damaged and self.phase is not CONNECTED:
                self.user_name = packet.user_name
            self.revision += 1
        elif isinstance(packet, Connack) and packet.properties is not None:
            assigned = packet.properties.assigned_client_identifier
            if assigned is not None:
                self.client_identifier = assigned
                self.revision += 1

    def apply(self, packet: ControlPacket, direction: Direction, number: int, frame: int, timestamp_ns: int) -> None:
        """Update the state with one packet."""
        side = self.client_side if direction is C2S else self.server_side
        side.packets += 1
        side.bytes += len(packet.raw)
        side.last_timestamp_ns = timestamp_ns
        if side.doubt:
            self._believe(packet, side)
        if type(packet) is Publish:
            block = packet.properties
            if packet.qos or (block is not None and block.items):
                self._publish(packet, side, direction, number, frame, timestamp_ns)
            if packet.missing:
                side.bytes += packet.missing
            return
        if not isinstance(packet, Acknowledgement):
            self._other(packet, side, direction, number, frame, timestamp_ns)
            return
        kind = type(packet)
        if kind is Puback or kind is Pubcomp:
            # The usual end of an exchange: remove it from the table of the acknowledged side.
            identifier = packet.packet_identifier
            sender = self.server_side if side is self.client_side else self.client_side
            running = sender.exchanges.pop(identifier, None)
            if running is not None:
                if running.kind == "publish":
                    sender.in_flight -= 1
                else:
                    sender.exchanges[identifier] = running
            if kind is Pubcomp:
                side.receiving.pop(identifier, None)
        else:
            self._qos_2(packet, side, direction, number)

    def distrust(self, unreadable: Malformed | Unparsed, direction: Direction) -> None:
        """Handle bytes that are not a packet: the bytes after them may be the rest of a secret."""
        side = self.side(direction)
        if isinstance(unreadable, Malformed):
            hides = bool(doubted_in_damaged(unreadable.raw, self.version, side.doubt))
        else:
            hides = bool(doubted_in_unparsed(unreadable, self.version, side.doubt))
        kind = unreadable.packet_type
        if kind is None or kind in _SECRETIVE or (hides and kind in (RESERVED, PacketType.DISCONNECT)):
            side.doubt = LOST if kind in _SECRETIVE or holds_connect(unreadable.raw) else BROKEN
            self.doubtful = True
        elif hides:
            side.doubt = max(side.doubt, SUSPECT)

    def note_answer(self) -> None:
        """Trust the client again: the server answered its CONNECT, and it has sent nothing since."""
        self.client_side.doubt = CLEAR
        self._note_doubt()

    def _believe(self, packet: ControlPacket, side: ConnectionSide) -> None:
        """Lower the suspicion after a packet without a fault."""
        kind = packet.packet_type
        if kind in _SECRETIVE:
            return
        # A valid packet may be inside a secret, by chance or on purpose.
        side.doubt -= 1
        self._note_doubt()

    def _note_doubt(self) -> None:
        self.doubtful = max(self.client_side.doubt, self.server_side.doubt) >= BROKEN

    def expect_connect(self) -> None:
        """Distrust the client until its CONNECT: other bytes before it may be the rest of a damaged one."""
        self.client_side.doubt = BROKEN
        self.doubtful = True

    def _other(
        self,
        packet: ControlPacket,
        side: ConnectionSide,
        direction: Direction,
        number: int,
        frame: int,
        timestamp_ns: int,
    ) -> None:
        kind = packet.packet_type
        if kind == PacketType.PINGREQ:
            side.ping_packet, side.ping_timestamp_ns = number, timestamp_ns
        elif kind == PacketType.PINGRESP:
            self.receiver(direction).ping_packet = None
        elif isinstance(packet, Connect):
            first = side.stream_offset <= len(packet.raw)
            side.doubt = SUSPECT if first else max(side.doubt, SUSPECT)
            self._note_doubt()
            self._connect(packet, number, timestamp_ns)
        elif isinstance(packet, Connack):
            side.doubt = max(side.doubt, SUSPECT)
            self._connack(packet, number)
        elif isinstance(packet, Auth):
            side.doubt = max(side.doubt, SUSPECT)
        elif isinstance(packet, Subscribe):
            count = len(packet.known("subscriptions") or ())
            side.begin(Exchange(packet.packet_identifier, number, frame, timestamp_ns, "subscribe", filters=count))
        elif isinstance(packet, Unsubscribe):
            count = len(packet.known("topic_filters") or ())
            side.begin(Exchange(packet.packet_identifier, number, frame, timestamp_ns, "unsubscribe", filters=count))
        elif isinstance(packet, Suback):
            self.receiver(direction).finish(packet.packet_identifier, "subscribe")
        elif isinstance(packet, Unsuback):
            self.receiver(direction).finish(packet.packet_identifier, "unsubscribe")
        elif isinstance(packet, Disconnect):
            self._disconnect(packet, direction)

    def _publish(
        self, packet: Publish, side: ConnectionSide, direction: Direction, number: int, frame: int, timestamp_ns: int
    ) -> None:
        block = packet.properties
        if block is not None and block.items:
            alias = block.first(TOPIC_ALIAS)
            if alias is not None:
                if packet.topic_name:
                    # An alias out of range sets nothing at a receiver, but showing it is harmless.
                    side.set_alias(alias, packet.topic_name)
                else:
                    side.alias_hits += 1
        if not packet.qos or packet.packet_identifier is None:
            return
        identifier = packet.packet_identifier
        running = side.exchanges.get(identifier)
        if running is not None and running.kind == "publish" and packet.dup:
            running.retransmissions += 1
        else:
            topic = self.resolve_topic(packet, direction)
            side.begin(Exchange(identifier, number, frame, timestamp_ns, "publish", packet.qos, topic))
        if packet.qos == 2:
            self.receiver(direction).receiving.setdefault(identifier, number)

    def _qos_2(self, packet: Acknowledgement, side: ConnectionSide, direction: Direction, number: int) -> None:
        """Handle PUBREC and PUBREL (5.0 4.3.3)."""
        identifier: int = packet.packet_identifier
        if type(packet) is Pubrel:
            running = side.running(identifier, "publish")
            if running is not None:
                running.move(PacketType.PUBREL)
                running.released_by = number
            return
        sender = self.receiver(direction)
        if (packet.reason_code or 0) >= 0x80:
            sender.finish(identifier, "publish")
            side.receiving.pop(identifier, None)
        else:
            running = sender.running(identifier, "publish")
            if running is not None:
                running.move(PacketType.PUBREC)

    def _move(self, trigger: ConnectionTrigger) -> None:
        self.phase = TRANSITIONS[self.phase, trigger]

    def _connect(self, packet: Connect, number: int, timestamp_ns: int) -> None:
        self.connect_packet, self.connect_timestamp_ns = number, timestamp_ns
        self._move(CONNECT)
        self.clean_start, self.keep_alive = packet.clean_start, packet.keep_alive
        side = self.client_side
        side.limits_known = True
        block = packet.properties
        self._limits(side, block)
        self.session_expiry_interval = None if block is None else block.session_expiry_interval or 0

    def _connack(self, packet: Connack, number: int) -> None:
        self.connack_packet = number
        if self.session_identifier is None:
            self.session_identifier = self.client_identifier
        self.session_present = packet.session_present
        self._move(REFUSAL if packet.reason_code else ACCEPTANCE)
        side = self.server_side
        side.limits_known = True
        block = packet.properties
        self._limits(side, block)
        if block is not None:
            if block.server_keep_alive is not None:
                self.keep_alive = block.server_keep_alive
            if block.session_expiry_interval is not None:
                self.session_expiry_interval = block.session_expiry_interval
            if block.maximum_qos is not None:
                self.maximum_qos = block.maximum_qos
            for name in _AVAILABLE:
                value = getattr(block, name)
                if value is not None:
                    setattr(self, name, bool(value))

    def _limits(self, side: ConnectionSide, block: Properties | None) -> None:
        """Set the announced limits of a side; absent limits get their specified defaults."""
        announced = EMPTY if block is None else block
        receive_maximum = announced.receive_maximum
        side.receive_maximum = MAX_PACKET_IDENTIFIERS if receive_maximum is None else receive_maximum
        side.topic_alias_maximum = announced.topic_alias_maximum or 0
        side.maximum_packet_size = announced.maximum_packet_size

    def _disconnect(self, packet: Disconnect, direction: Direction) -> None:
        self._move(DISCONNECT)
        self.disconnect_by = "client" if direction is C2S else "server"
        self.disconnect_reason = packet.reason_code or 0
        block = packet.properties
        if block is not None and direction is C2S and block.session_expiry_interval is not None:
            self.session_expiry_interval = block.session_expiry_interval


_ANSWERS: Final = {
    PacketType.PUBACK: "publish",
    PacketType.PUBREC: "publish",
    PacketType.PUBCOMP: "publish",
    PacketType.SUBACK: "subscribe",
    PacketType.UNSUBACK: "unsubscribe",
}
_SECRETIVE: Final = (PacketType.CONNECT, PacketType.CONNACK, PacketType.AUTH)
"""Packets that may contain a secret, so that the bytes after them may too."""
_AVAILABLE: Final = (
    "retain_available",
    "wildcard_subscription_available",
    "subscription_identifier_available",
    "shared_subscription_available",
)


def host_of(endpoint: str) -> str:
    """The host of an endpoint's text, such as `Connection.client`; an IPv6 address keeps its brackets."""
    return endpoint.rpartition(":")[0]


def port_of(endpoint: str) -> str:
    return endpoint.rpartition(":")[2]
