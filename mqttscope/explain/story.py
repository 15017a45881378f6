"""State of one connection that explains its end: last packets, announcements, refusals and violations."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, repeat

from mqttscope.budget import Budget
from mqttscope.events import ClockStep, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.explain import describe
from mqttscope.explain.echoes import Echoes
from mqttscope.explain.logins import Login
from mqttscope.explain.model import Broken, Evidence, Moment
from mqttscope.explain.oddities import ENDS, announced, is_whole, oddity, old_refusal, unused_identifier, unusual
from mqttscope.explain.segments import LEAST_REPEATS, FlowFacts, Half
from mqttscope.explain.unread_bytes import ForeignBytes, Misread, Stray
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.strings import has_controls
from mqttscope.mqtt import Direction, PacketType, ProtocolVersion, packets
from mqttscope.mqtt.codec import truncated
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.foreign import foreign_protocol
from mqttscope.net.segment import ACK, distance
from mqttscope.secrets.findings import HidingOptions, conceal
from mqttscope.session.capture_time import captured
from mqttscope.session.connection import C2S, Connection

MAX_PACKETS = 8
"""Last packets of each side that are remembered."""
MAX_REFUSALS = 8
"""Maximum number of last refusals that are remembered, and of filters of a SUBSCRIBE that are named in them."""
MAX_BROKEN = 16
"""Maximum number of last errors of the linter that are remembered, unless each is of another rule."""
CLOCK_SET_NS = 1_000_000_000
"""A clock that differs by less has not been set back: frames can be out of order."""
BORNE_NS = 1_000_000_000
"""If the client still sends this long after a message, the message did not end the connection."""
ALIKE = 50
"""Silences that differ by less than this fraction count as equal."""
MAX_WAITING = 64
"""Maximum number of unanswered messages and subscriptions with remembered topics."""
SPACE = "a space in the topic"
CONTROLS = "a control character in the topic"
WILL_OF_USER = "user name, password and will"
MAX_FILTERS = 64
"""Maximum number of Topic Filters of a client that are compared with other clients."""
MAX_FOREIGN_BYTES = 2_048
"""Maximum number of bytes of another protocol that are kept of a side."""
MAX_MISREAD_BYTES = 65_536
"""Maximum bytes of a malformed packet that are read again with other lengths."""
MAX_REREAD_BYTES = 16_777_216
"""Maximum bytes of such packets of all connections together; beyond it no others are kept to be read again."""
ODD_TEXT = {"ENC103": "a control character", "ENC104": "a code point that is not a character"}
"""Rules about texts that a receiver may close for, with the fault of the text."""
_ANSWERS = frozenset((PacketType.PUBACK, PacketType.PUBREC, PacketType.SUBACK))
_FEW = _ANSWERS | {PacketType.CONNECT, PacketType.CONNACK, PacketType.DISCONNECT}
"""Packets that `Story._few` takes."""
CLOSED_INSIDE = "ENC107"
"""The rule of the linter about a side that closes inside a packet."""


@dataclass(slots=True)
class ReasonPacket:
    """A CONNECT, CONNACK or DISCONNECT with its Reason Code."""

    timestamp_ns: int
    frame: int
    code: int
    text: str
    """Its Reason String; empty without one."""
    version: ProtocolVersion | None = None
    """Version of its layout, if it differs from the version of the connection."""
    server_reference: str = ""
    """As it may be shown; empty without one."""


@dataclass(slots=True)
class LastPublish:
    """The last message of a side, as far as its receiver may mind it."""

    topic: str
    """As on the wire: it is compared, and not shown."""
    size: int
    """Bytes of the packet, including bytes that never came."""
    qos: int
    retain: bool
    checksum: int
    """CRC-32 of the payload."""

    @property
    def levels(self) -> int:
        return self.topic.count("/") + 1

    @property
    def features(self) -> frozenset[str]:
        """Features that some servers do not take: ``QoS 1``, ``QoS 2``, ``RETAIN``, certain characters in the topic."""
        names = [f"QoS {self.qos}"] if self.qos else []
        names += [SPACE] * (" " in self.topic) + [CONTROLS] * has_controls(self.topic)
        return frozenset([*names, *["RETAIN"] * self.retain])


@dataclass(slots=True)
class Refusal:
    """A subscription or a message that was refused."""

    timestamp_ns: int
    frame: int
    what: str
    """Refused request: ``the subscription to a/#``."""
    code: int
    kind: PacketType
    in_flight: int = 0
    """Number of messages of its sender without a final answer then, if it was a message."""


@dataclass(slots=True)
class Story:
    """One connection, from its first packet to its end."""

    connection: Connection
    last: dict[str, deque[Moment]] = field(
        default_factory=lambda: {"client": deque(maxlen=MAX_PACKETS), "server": deque(maxlen=MAX_PACKETS)}
    )
    counts: dict[str, int] = field(default_factory=lambda: {"client": 0, "server": 0})
    connect: ReasonPacket | None = None
    connack: ReasonPacket | None = None
    login: Login = field(default_factory=Login)
    version: ProtocolVersion | None = None
    """That the CONNECT asked for."""
    announced_keep_alive: int | None = None
    """Keep Alive of the CONNECT, in seconds."""
    server_keep_alive: int | None = None
    """Server Keep Alive of the CONNACK."""
    unusual: list[tuple[str, str]] = field(default_factory=list)
    """Unusual features of the CONNECT, each with advice."""
    will_topic: str | None = None
    """As it is in the CONNECT: it is compared, and not shown."""
    is_will_retained: bool = False
    state: Moment | None = None
    """The last retained message of another content than the will that the client published to its will topic."""
    will_delay: int = 0
    will_checksum: int = 0
    """CRC-32 of the payload of the will."""
    wrote_will_ns: int = 0
    """When the client last published the content of its will itself."""
    disconnects: dict[str, ReasonPacket] = field(default_factory=dict)
    """The first DISCONNECT of each side."""
    ping: Moment | None = None
    """The PINGREQ that has no answer."""
    refusals: list[Refusal] = field(default_factory=list)
    declined: Refusal | None = None
    """The last message of the server that the client refused."""
    broken: list[Broken] = field(default_factory=list)
    largest: int = 0
    """Bytes of the client's largest packet before the last one."""
    latest: int = 0
    """Bytes of its last packet, including bytes that never came."""
    latest_kind: int | None = None
    latest_offset: int = -1
    """Place of its first byte in what the client sent."""
    asked: LastPublish | None = None
    """The client's last packet, if it is a PUBLISH."""
    got: LastPublish | None = None
    """The server's last packet, if it is a PUBLISH."""
    sent: int = 0
    """Bytes of the server's last packet, including bytes that never came."""
    server_largest: int = 0
    """Bytes of the server's largest packet before that."""
    borne: set[str] = field(default_factory=set)
    """Features that the server acknowledged on this connection, as in `LastPublish.features`."""
    cut: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Packet that a side did not finish: type, bytes received, and bytes by its length."""
    stray: Stray | None = None
    """First bytes of the server after a complete packet that are not a packet."""
    misread: dict[str, Misread] = field(default_factory=dict)
    foreign: dict[str, ForeignBytes] = field(default_factory=dict)
    """First bytes of sides that do not speak MQTT."""
    budget: Budget = field(default_factory=lambda: Budget(MAX_REREAD_BYTES))
    """Shared by all connections of a run."""
    header: Moment | None = None
    """The PROXY protocol header before the client's bytes."""
    odd: Moment | None = None
    """The server's last packet, if it has a form that some clients cannot read, which ``what`` names."""
    borne_odd: set[str] = field(default_factory=set)
    """Unusual forms of server packets that the client accepted: it still used the connection a second later."""
    requests: dict[int, str] = field(default_factory=dict)
    """Requests and messages of the client by packet identifier, until their answers."""
    borne_bytes: int = 0
    borne_levels: int = 0
    """Size of the largest message that the server has acknowledged, and the most levels of a topic."""
    unproven: dict[int, LastPublish] = field(default_factory=dict)
    """The client's messages without an acknowledgment, by packet identifier."""
    borne_topics: set[str] = field(default_factory=set)
    """Topics of messages that the server accepted: the client sent more a second later."""
    accepted: set[str] = field(default_factory=set)
    """Topics of messages that the server has acknowledged without an error on this connection."""
    lived_on: bool = False
    """Whether the server sent packets after a CONNACK that refused."""
    gaps: dict[str, str] = field(default_factory=dict)
    """Why bytes of a side are unknown: they are ``missing``, ``unread``, or of a packet that the end ``cut``."""
    facts: FlowFacts | None = None
    """Facts of TCP, once the connection is closed."""
    ended_ns: int = 0
    ended_frame: int = 0
    ended_capture: str = ""
    ended: bool = False
    ahead: frozenset[str] = frozenset()
    """Sides that sent nothing after the end, whenever their packets were complete in the capture."""
    last_ns: int = 0
    last_frame: int = 0
    clock_set: int = 0
    """Frame of the last step of the capture's clock; 0 without a step."""
    step: str = ""
    """Size of that step, if known."""
    step_ns: int = 1 << 63
    """Time of that step, if known."""
    own: bool = False
    """Whether the connection's own behaviour most probably explains its end."""
    unread: str = ""
    """As `causes.unread.unread` has it."""
    special: bool = False
    """Whether its last request may explain its end: a packet that is refused, or too large."""
    forgotten_ns: int = 0
    """Silence before the segment that a RST at the end answered; 0 without one."""
    trigger: str = ""
    """Packet right before the other side ended the connection, or empty."""
    finished: bool = False
    """The capture ended, and the connection had not."""
    other_ns: int = 0
    """When the client sent its last packet other than PUBLISH."""
    is_borne: bool = False
    """Whether the client continued after a silence that was longer than its Keep Alive."""
    pause_ns: int = 0
    """The longest time between two packets of the client."""
    counts_publish: bool = False
    """Whether it continued with PUBLISH alone for longer than one and a half times its Keep Alive."""
    back: Evidence | None = None
    """The CONNECT of the same client under another Client Identifier, before this connection ended."""
    back_story: Story | None = None
    """That connection."""
    back_who: str = ""
    """Its client in words: the same host, or most probably the same device."""
    back_as: str = ""
    """That Client Identifier, as it may be shown."""
    pending: frozenset[str] = frozenset()
    """Features of messages with QoS 0 that no answer to a later request has proven to be borne."""
    proofs: dict[int, frozenset[str]] = field(default_factory=dict)
    """Features that the answer to a request proves, by its packet identifier; 0 for PINGREQ."""
    subscribing: tuple[int, tuple[str, ...]] = 0, ()
    """Packet identifier and Topic Filters of the last SUBSCRIBE, as on the wire."""
    granted: set[str] = field(default_factory=set)
    """Topic Filters of the last granted SUBSCRIBE that were granted."""
    most_filters: int = 0
    """Maximum number of Topic Filters of a granted SUBSCRIBE."""
    filters: set[int] | None = field(default_factory=set)
    """Hashes of the Topic Filters that the client subscribed to; ``None`` if there are too many."""
    is_bridge: bool = False
    """Whether the broker does not return the client's own messages: it has the bridge bit, or uses No Local."""
    echoes: Echoes | None = None
    """The last messages in both directions; ``None`` before the first one."""
    origin: int | None = None
    """Number of the connection that this one continues from another port."""
    moved: Evidence | None = None
    """The connection that so continues this one."""

    def __post_init__(self) -> None:
        self.last_ns, self.last_frame = self.connection.opened_ns, self.connection.frame

    def end(self, timestamp_ns: int, frame: int, capture: str) -> None:
        """End the transport; later packets are not evidence for its cause."""
        self._clock(timestamp_ns, frame, capture)
        self.ended_ns, self.ended_frame, self.ended_capture, self.ended = timestamp_ns, frame, capture, True
        self.ahead = self._ahead()
        self._place_unread()
        self.disconnects = {by: packet for by, packet in self.disconnects.items() if self.is_before(packet, by)}
        self.refusals = [refusal for refusal in self.refusals if self.is_before(refusal, "server")]
        if self.ping is not None and not self.is_before(self.ping, "client"):
            self.ping = None

    def half(self, side: str) -> Half | None:
        """TCP facts about one direction; ``None`` if unknown."""
        if self.facts is None or self.facts.is_mixed:
            return None
        return self.facts.half(self.connection.client if side == "client" else self.connection.server)

    def _ahead(self) -> frozenset[str]:
        """Sides that sent nothing after the end: the closing side, and a side with all its bytes acknowledged by then.

        Packets after a gap are complete when the gap is given up, which may be after the end.
        """
        connection, by = self.connection, self.connection.closed_by
        closing, other = self.half("client"), self.half("server")
        if closing is None or other is None:
            return frozenset()
        if by is None or connection.one_sided or connection.closed_how not in ("fin", "reset"):
            return frozenset()
        if by == "server":
            closing, other = other, closing
        seen = closing.finished if connection.closed_how == "fin" else next(iter(closing.resets), None)
        if seen is None or seen.frame != self.ended_frame:
            return frozenset()
        sent = (other.end - bool(other.finished)) & 0xFFFFFFFF
        heard = seen.flags & ACK and other.begun and distance(sent, seen.acknowledgment) >= 0
        return frozenset(("client", "server")) if heard else frozenset((by,))

    def _place_unread(self) -> None:
        """Date the bytes that the closing side left unread when they came: nothing reads them before the end."""
        by = self.connection.closed_by or ""
        half, misread, moments = self.half(by), self.misread.get(by), self.last.get(by)
        if half is None or misread is None or not moments or self.connection.gaps:
            return
        sent = next((seen for seen in reversed(half.recent) if seen.length and seen.frame <= self.ended_frame), None)
        if not (misread.frame == moments[-1].frame == self.ended_frame) or sent is None:
            return
        frame, at = sent.frame, sent.timestamp_ns
        moments[-1] = replace(moments[-1], frame=frame, timestamp_ns=at, capture=sent.capture)
        self.misread[by] = replace(misread, frame=frame, timestamp_ns=at)
        self.broken = [
            replace(fault, frame=frame, timestamp_ns=at)
            if fault.by == by and fault.frame == self.ended_frame and fault.rule != CLOSED_INSIDE
            else fault
            for fault in self.broken
        ]

    def is_before(self, moment: Moment | ReasonPacket | Refusal | Broken, by: str) -> bool:
        """Whether something that a side sent came before the end."""
        if not self.ended:
            return True
        if by in self.ahead:
            return not self._is_cut(moment, by)
        return moment.frame <= self.ended_frame if self.clock_set else moment.timestamp_ns <= self.ended_ns

    def _is_cut(self, moment: Moment | ReasonPacket | Refusal | Broken, by: str) -> bool:
        """Whether something is of the FIN of a side after the end: the end cut a packet that was not wrong before."""
        half = self.half(by)
        finished = None if half is None else half.finished
        place = moment.frame, captured(moment.timestamp_ns)
        if finished is None or place == (self.ended_frame, captured(self.ended_ns)):
            return False
        return place == (finished.frame, captured(finished.timestamp_ns))

    def until_end(self, moment: Moment) -> int | None:
        """Time between a packet and the end; ``None`` if unknown, or if the clock was set back between them."""
        waited = moment.by in self.ahead and moment.timestamp_ns > self.ended_ns
        return None if waited or moment.frame < self.clock_set else max(0, self.ended_ns - moment.timestamp_ns)

    def packet(self, event: PacketEvent) -> None:
        """Take note of a packet, before it is applied to its connection."""
        packet = event.packet
        side = "client" if event.direction is C2S else "server"
        kind = packet.packet_type
        text = describe.packet(event)
        moment = Moment(event.timestamp_ns, event.frame, side, text, event.capture)
        if (
            side == "client"
            and self.asked is not None  # the client's last packet is that PUBLISH
            and moment.timestamp_ns - self.last[side][-1].timestamp_ns >= BORNE_NS
            and len(self.borne_topics) < MAX_WAITING
        ):
            self.borne_topics.add(self.asked.topic)
            self.borne |= self.asked.features
        if side == "client":
            self._silence(moment.timestamp_ns, kind)
        self._note(moment)
        if self.odd is not None and moment.timestamp_ns - self.odd.timestamp_ns >= BORNE_NS:
            self.borne_odd.add(self.odd.what)
        if side == "server":
            self.odd = self._oddity(packet, moment)
            self._sent(len(packet.raw) + packet.missing)
            if type(packet) is packets.Publish:
                self.got = _message(event, packet, self.sent)
                if not packet.dup and not packet.retain:
                    self.echoes = self.echoes or Echoes()
                    self.echoes.receive((self.got.topic, self.got.checksum), event.timestamp_ns)
            if self.connack is not None and self.connack.code and kind != PacketType.DISCONNECT:
                # A refusal may be sent twice.
                self.lived_on |= kind != PacketType.CONNACK or not getattr(packet, "reason_code", 0)
        if side == "client":
            self.asked = None
            self._size(len(packet.raw) + packet.missing, kind, event.stream_offset)
            if kind == PacketType.PINGREQ:
                self.ping = self.ping or moment
                self._ask(0)
            elif isinstance(packet, packets.Publish):
                self.asked = _message(event, packet, self.latest)
                if not packet.qos and (packet.retain or " " in self.asked.topic or not self.asked.topic.isprintable()):
                    self.pending |= self.asked.features
                if not packet.dup:
                    self.echoes = self.echoes or Echoes()
                    self.echoes.publish((self.asked.topic, self.asked.checksum), moment)
                if self.asked.checksum == self.will_checksum and event.topic == self.will_topic:
                    self.wrote_will_ns = event.timestamp_ns
                elif packet.retain and event.topic == self.will_topic:
                    self.state = moment
                if packet.qos and packet.packet_identifier is not None:
                    self._request(packet.packet_identifier, f"the message to {describe.topic_of(event)}")
                    self.unproven[packet.packet_identifier] = self.asked
            elif isinstance(packet, packets.Subscribe) and packet.packet_identifier is not None:
                hidden = event.connection.doubtful
                self.is_bridge |= any(row.no_local for row in packet.subscriptions or ())
                self._ask(packet.packet_identifier)
                self.subscribing = (
                    packet.packet_identifier,
                    tuple(row.topic_filter for row in packet.subscriptions or ()),
                )
                self._filter(row.topic_filter for row in packet.subscriptions or ())
                names = [describe.name(row.topic_filter) for row in (packet.subscriptions or ())[:MAX_REFUSALS]]
                self._request(packet.packet_identifier, "\n".join("(hidden)" if hidden else name for name in names))
            elif kind in (PacketType.PUBACK, PacketType.PUBREC) and (getattr(packet, "reason_code", None) or 0) >= 0x80:
                count = event.connection.server_side.in_flight
                code = getattr(packet, "reason_code", None) or 0
                self.declined = Refusal(
                    event.timestamp_ns, event.frame, "a message of the broker", code, kind, count
                )  # fmt: skip
        elif kind == PacketType.PINGRESP:
            self.ping = None
            self.borne |= self.proofs.pop(0, frozenset())
        if kind in _FEW:
            self._few(event, side, moment)

    def _filter(self, names: Iterable[str]) -> None:
        """Take note of subscriptions."""
        if self.filters is not None:
            self.filters.update(map(hash, names))
            if len(self.filters) > MAX_FILTERS:
                self.filters = None

    def _ask(self, identifier: int) -> None:
        """Note a request: its answer proves that the server has borne the messages before it."""
        if self.pending and len(self.proofs) < MAX_WAITING:
            self.proofs.setdefault(identifier, self.pending)

    def release(self) -> None:
        """Drop the bytes of packets; call it when the connection has been explained."""
        self.budget.take(-sum(len(misread.data) + len(misread.before) for misread in self.misread.values()))
        self.misread.clear()

    def damaged(self, event: MalformedEvent | UnparsedEvent) -> None:
        """Note a malformed packet, or bytes that are not a packet."""
        side = "client" if event.direction is C2S else "server"
        if isinstance(event, MalformedEvent) and side == "server" and self.connack is None:
            code = old_refusal(event.malformed.raw)
            if code and self.version == ProtocolVersion.V5:
                self.connack = ReasonPacket(event.timestamp_ns, event.frame, code, "", ProtocolVersion.V3_1_1)
                code_is = describe.reason(PacketType.CONNACK, code, ProtocolVersion.V3_1_1)
                self._note(Moment(event.timestamp_ns, event.frame, side, f"CONNACK {code_is}", event.capture))
                return
        if isinstance(event, MalformedEvent) and side not in self.misread and event.stream_offset >= 0:
            bad = event.malformed
            data, before = (bad.raw + bad.after)[:MAX_MISREAD_BYTES], bad.before
            if self.budget.used + len(data) + len(before) <= self.budget.limit:
                self.budget.take(len(data) + len(before))
                self.misread[side] = Misread(
                    (event.type or "packet").upper(), data, event.connection.version, event.frame,
                    event.timestamp_ns, event.stream_offset, before, self.last[side][-1] if before else None,
                )  # fmt: skip
        if side == "server" and self.stray is None and self.last[side] and event.stream_offset >= 0:
            self.stray = None if is_whole(event) else Stray.of(event, self.last[side][-1])
        self._note(Moment(event.timestamp_ns, event.frame, side, describe.damaged(event), event.capture))
        if isinstance(event, UnparsedEvent) and event.unparsed.reason == "proxy_header":
            self.header = self.last[side][-1]
            return
        if side == "server":
            self._sent(0)
        if isinstance(event, UnparsedEvent) and event.unparsed.reason == "not_mqtt":
            head, last = event.unparsed.raw[:MAX_FOREIGN_BYTES], self.last[side][-1]
            protocol = foreign_protocol(head, is_answer=side == "server")
            self.foreign.setdefault(side, ForeignBytes(protocol, head, last))
        if isinstance(event, UnparsedEvent):
            is_cut = event.unparsed.reason in ENDS
            self.gaps.setdefault(side, "cut" if is_cut else "unread")
            if is_cut and event.unparsed.packet_type is not None:
                self._stopped(side, event.unparsed.packet_type, event.unparsed.raw, event.unparsed.length)
                begun = truncated(event.unparsed.raw, event.connection.version).packet
                if side == "server" and isinstance(begun, packets.Publish):
                    self._sent(announced(event.unparsed.raw))
                    self.got = LastPublish(begun.topic_name or "", self.sent, begun.qos, bool(begun.retain), 0)
        elif event.malformed.packet_type is not None and event.malformed.missing:
            self._stopped(side, event.malformed.packet_type, event.malformed.raw, len(event.malformed.raw))
        if side == "client":
            self.asked, begun = None, None
            if isinstance(event, MalformedEvent):
                bad = event.malformed
                begun, size, kind = bad.packet, len(bad.raw) + bad.missing, bad.packet_type
            else:
                left = event.unparsed
                size, kind = max(left.length, announced(left.raw)), left.packet_type
                begun = None if kind is None else truncated(left.raw, event.connection.version).packet
            if kind is not None or isinstance(event, MalformedEvent):
                self._size(size, kind, event.stream_offset)
            if isinstance(begun, packets.Publish) and "client" in self.cut:
                self.asked = LastPublish(begun.topic_name or "", self.latest, begun.qos, bool(begun.retain), 0)

    def gap(self, direction: Direction) -> None:
        self.gaps["client" if direction is C2S else "server"] = "missing"

    def clock_step(self, step: ClockStep) -> None:
        """The clock of the capture was set."""
        self.clock_set, self.step, self.step_ns = step.frame, step.message, step.timestamp_ns

    def finding(self, finding: Finding) -> None:
        """Take note of what a rule reports about it."""
        if finding.rule in ODD_TEXT and finding.blamed == "server":
            self._odd_text(finding)
        if finding.severity is not Severity.ERROR:
            return
        shown = conceal(finding, HidingOptions())
        self.broken.append(
            Broken(
                shown.statements, shown.blamed, shown.rule, shown.slug, shown.message, str(shown.confidence),
                shown.frame, shown.timestamp_ns,
            )
        )  # fmt: skip
        if len(self.broken) > MAX_BROKEN:
            rules = [broken.rule for broken in self.broken]
            del self.broken[next((at for at, rule in enumerate(rules) if rule in rules[at + 1 :]), 0)]

    def moments(self) -> tuple[Moment, ...]:
        """The last packets of both sides in order."""
        return self.in_order((*self.last["client"], *self.last["server"]))

    def in_order(self, moments: Iterable[Moment]) -> tuple[Moment, ...]:
        """Moments by time, or in the order of the capture where its clock was set back."""
        if self.clock_set:
            return tuple(sorted(moments, key=lambda moment: moment.frame))
        return tuple(sorted(moments, key=lambda moment: (moment.timestamp_ns, moment.frame)))

    def last_of(self, side: str) -> Moment | None:
        """The last packet of a side before the end."""
        for moment in reversed(self.last[side]):
            if self.is_before(moment, side):
                return moment
        return None

    def ended_on(self, by: str | None) -> LastPublish | None:
        """The message that a side had received last, if it closed within a second, or inside the message."""
        sender = "client" if by == "server" else "server"
        message, last = self.asked if by == "server" else self.got, self.last_of(sender)
        if message is not None and sender in self.cut:
            return message
        if message is None or last is None or last is not self.last[sender][-1]:
            return None
        waited = self.until_end(last)
        return message if waited is not None and waited <= BORNE_NS else None

    @property
    def took(self) -> int:
        """Bytes of the largest packet that the client took: it sent more, got more, or stayed for a second."""
        if "server" in self.cut:
            return self.server_largest
        last, answer = self.last_of("server"), self.last_of("client")
        is_taken = last is not None and answer is not None and answer.timestamp_ns > last.timestamp_ns
        is_taken = is_taken or (self.ended and self.ended_on("client") is None)
        return max(self.server_largest, self.sent) if is_taken else self.server_largest

    @property
    def lost_ns(self) -> int | None:
        """Since when nothing that the client sent arrived, as the number that the server's FIN acknowledges proves."""
        client, server = self.half("client"), self.half("server")
        if client is None or server is None or server.finished is None or self.clock_set:
            return None
        if client.acknowledged != server.finished.acknowledgment:
            return None
        lost = client.missed
        if lost is not None and lost.repeats >= LEAST_REPEATS and lost.is_whole:
            return lost.since_ns
        return None if client.hole is None else client.hole.timestamp_ns

    @property
    def last_arrived(self) -> Moment | None:
        """The client's last packet before the end that reached the server."""
        lost_ns, last = self.lost_ns, self.last_of("client")
        if lost_ns is None or last is None or last.timestamp_ns < lost_ns:
            return last
        return next((moment for moment in reversed(self.last["client"]) if moment.timestamp_ns < lost_ns), None)

    @property
    def likenesses(self) -> dict[str, int]:
        """Hashes of the will topic and of all subscriptions, which devices have of their own, by their names.

        `WILL_OF_USER` is one of the will and the credentials, which shows a device at another address, too.
        """
        known: dict[str, int] = {}
        if self.will_topic is not None:
            known["will topic"] = hash(("will", self.will_topic))
            if self.login.has_user_name:
                known[WILL_OF_USER] = hash((self.login.credentials, self.will_topic, self.will_checksum))
        if self.filters:
            known["subscriptions"] = hash(frozenset(self.filters))
        return known

    @property
    def refusal(self) -> ReasonPacket | None:
        """The CONNACK that refused the client, unless the server served it after that."""
        return self.connack if self.connack is not None and self.connack.code and not self.lived_on else None

    @property
    def accepted_version(self) -> ProtocolVersion | None:
        """Version of the CONNECT that the server accepted; ``None`` if it accepted no CONNECT."""
        return self.version if self.connack is not None and not self.connack.code else None

    @property
    def idle_ns(self) -> int | None:
        """Time between the last byte of either side and the end; ``None`` where unknown."""
        facts = self.facts
        if facts is None or facts.is_mixed or not facts.data_ns or facts.data_ns > self.ended_ns:
            return None
        return None if self.is_silence_unclear else self.ended_ns - facts.data_ns

    @property
    def is_silence_unclear(self) -> bool:
        """Whether the clock was set between the last byte of either side and the end."""
        return bool(self.clock_set) and (self.facts is None or self.facts.data_ns <= self.step_ns)

    @property
    def silent_ns(self) -> int | None:
        """Time between the client's last packet that arrived, its DISCONNECT included, and the end, where known."""
        before = self.last_arrived
        return None if before is None else self.until_end(before)

    @property
    def quiet_ns(self) -> int | None:
        """Time between the client's last packet other than PUBLISH and the end; ``None`` where unknown."""
        return self.ended_ns - self.other_ns if self.other_ns and self.silent_ns is not None else None

    def evidence(self, moment: Moment, text: str = "") -> Evidence:
        return Evidence(text or moment.what, moment.frame, moment.timestamp_ns, moment.capture or None)

    def _note(self, moment: Moment) -> None:
        self.last[moment.by].append(moment)
        self.counts[moment.by] += 1
        self._clock(moment.timestamp_ns, moment.frame, moment.capture)
        self.last_ns, self.last_frame = moment.timestamp_ns, moment.frame

    def _clock(self, timestamp_ns: int, frame: int, capture: str) -> None:
        """A later frame has an earlier time, and no step of the clock was found there."""
        if (
            timestamp_ns < self.last_ns - CLOCK_SET_NS
            and frame > self.last_frame
            and capture == self.connection.capture
        ):
            self.clock_set, self.step_ns = frame, 1 << 63

    def _oddity(self, packet: ControlPacket, moment: Moment) -> Moment | None:
        """A packet of the server that its client may not expect."""
        what = oddity(packet) or unused_identifier(packet, self.requests)
        return Moment(moment.timestamp_ns, moment.frame, moment.by, what, moment.capture) if what else None

    def _odd_text(self, finding: Finding) -> None:
        """Note a character in the server's last packet that its client may close for (5.0 1.5.4, 3.1.1 1.5.3)."""
        last = self.last["server"][-1] if self.last["server"] else None
        if last is not None and last.frame == finding.frame and finding.packet_type == "publish":
            what = f"PUBLISH with {ODD_TEXT[finding.rule]} in its {finding.field}"
            self.odd = Moment(last.timestamp_ns, last.frame, last.by, what, last.capture)

    def _silence(self, now_ns: int, kind: int) -> None:
        """Take note of a silence that the server bore."""
        limit_ns = (self.connection.keep_alive or 0) * 1_000_000_000
        if self.last["client"]:
            self.pause_ns = max(self.pause_ns, now_ns - self.last["client"][-1].timestamp_ns)
        if limit_ns and self.last["client"]:
            silent_ns, quiet_ns = now_ns - self.last["client"][-1].timestamp_ns, now_ns - self.other_ns
            self.is_borne |= silent_ns > limit_ns + limit_ns // ALIKE
            self.counts_publish |= (quiet_ns - limit_ns // ALIKE) * 2 > limit_ns * 3
        if kind != PacketType.PUBLISH:
            self.other_ns = now_ns

    def _stopped(self, side: str, kind: int, raw: bytes, length: int) -> None:
        total = announced(raw)
        if total > length:
            self.cut[side] = kind, length, total

    def _sent(self, size: int) -> None:
        self.server_largest, self.sent, self.got = max(self.server_largest, self.sent), size, None

    def _size(self, size: int, kind: int | None, offset: int) -> None:
        self.largest = max(self.largest, self.latest)
        self.latest, self.latest_kind, self.latest_offset = size, kind, offset

    def _request(self, identifier: int, what: str) -> None:
        if len(self.requests) >= MAX_WAITING and identifier not in self.requests:
            oldest = next(iter(self.requests))
            del self.requests[oldest]
            self.unproven.pop(oldest, None)
        self.requests[identifier] = what

    def _few(self, event: PacketEvent, side: str, moment: Moment) -> None:
        """Packets that open, refuse and end."""
        packet = event.packet
        if packet.packet_type in _ANSWERS:
            if side == "server":
                self._answer(event, moment)
            return
        value = getattr(packet, "reason_code", None) or 0
        block = getattr(packet, "properties", None)
        text = "" if event.connection.doubtful else describe.reason_string(block)
        stated = ReasonPacket(event.timestamp_ns, event.frame, value, text)
        if block is not None and block.server_reference and not event.connection.doubtful:
            stated.server_reference = describe.name(block.server_reference)
        if isinstance(packet, packets.Connect):
            if self.connect is None:
                self.connect, self.announced_keep_alive = stated, packet.keep_alive
                self.login, self.version = Login.of(packet), packet.version
                self.unusual, self.is_bridge = list(unusual(packet)), packet.bridge
                if packet.will is not None:
                    self.will_topic, self.will_checksum = packet.will.will_topic, zlib.crc32(packet.will.will_payload)
                    self.is_will_retained = bool(packet.will.will_retain)
                    will_block = packet.will.properties
                    self.will_delay = (will_block.will_delay_interval or 0) if will_block is not None else 0
        elif isinstance(packet, packets.Connack):
            if self.connack is None:
                self.connack = stated
                self.server_keep_alive = None if block is None else block.server_keep_alive
        elif isinstance(packet, packets.Disconnect):
            self.disconnects.setdefault(side, stated)

    def _answer(self, event: PacketEvent, moment: Moment) -> None:
        """Note refusals in PUBACK, PUBREC and SUBACK."""
        packet = event.packet
        what = self.requests.pop(packet.packet_identifier, None)  # type: ignore[attr-defined]
        if isinstance(packet, packets.Suback):
            names = chain([] if what is None else what.split("\n"), repeat("a filter"))
            codes = packet.reason_codes or ()
            answers = [(f"the subscription to {name}", code) for code, name in zip(codes, names, strict=False)]
            self._grant(packet.packet_identifier, codes)
        else:
            code = packet.reason_code or 0  # type: ignore[attr-defined]
            asked_for = self.unproven.pop(packet.packet_identifier, None)  # type: ignore[attr-defined]
            if code < 0x80 and asked_for is not None:
                self.borne |= asked_for.features
                if len(self.accepted) < MAX_WAITING:
                    self.accepted.add(asked_for.topic)
                self.borne_bytes = max(self.borne_bytes, asked_for.size)
                self.borne_levels = max(self.borne_levels, asked_for.levels)
            answers = [(what or "a message", code)]
        for asked, code in answers:
            if code >= 0x80:
                count = event.connection.client_side.in_flight
                self.refusals.append(Refusal(moment.timestamp_ns, moment.frame, asked, code, packet.packet_type, count))
        del self.refusals[:-MAX_REFUSALS]

    def _grant(self, identifier: int | None, codes: Iterable[int]) -> None:
        """Take note of granted subscriptions."""
        self.borne |= self.proofs.pop(identifier or 0, frozenset())
        asked, filters = self.subscribing
        self.granted = {name for code, name in zip(codes, filters, strict=False) if code < 0x80 and asked == identifier}
        if self.granted:
            self.most_filters = max(self.most_filters, len(filters))


def _message(event: PacketEvent, publish: packets.Publish, size: int) -> LastPublish:
    return LastPublish(event.topic or "", size, publish.qos, bool(publish.retain), zlib.crc32(publish.payload))
