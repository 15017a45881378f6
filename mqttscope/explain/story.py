"""What is kept of one connection to explain its end: its last packets, announcements, refusals and violations."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, repeat

from mqttscope.events import ClockStep, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.explain import describe
from mqttscope.explain.model import Broken, Evidence, Moment
from mqttscope.explain.segments import LEAST_REPEATS, FlowFacts, Half
from mqttscope.lint.finding import Finding, Severity
from mqttscope.mqtt import Direction, PacketType, ProtocolVersion, packets
from mqttscope.mqtt.codec import packet_end, truncated
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.repair import Intruder, Repair, intruder, repairs
from mqttscope.net.segment import ACK, distance
from mqttscope.secrets.findings import Hiding, conceal
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
ENDS = frozenset(("reset", "port_reused", "idle", "evicted", "capture_end"))
"""Reasons of bytes that were not read (`mqtt.stream.Unparsed`), if the end of the connection cut their packet."""
BORNE_NS = 1_000_000_000
"""A client that sends more so long after a message was not closed because of that."""
ALIKE = 50
"""Silences that differ by less than this part are the same."""
MAX_WAITING = 64
"""Maximum number of messages and subscriptions without an answer whose topics are remembered."""
MAX_STRAY = 4
"""Maximum number of bytes after a packet that are shown."""
MAX_MISREAD_BYTES = 65_536
"""Bytes of a malformed packet that are read again with other lengths."""
ODD_TEXT = {"ENC103": "a control character", "ENC104": "a code point that is no character"}
"""Rules about texts for which a receiver may close, and what they find."""
NO_PACKET = frozenset(
    (
        MalformedReason.TRUNCATED, MalformedReason.PACKET_TYPE_RESERVED, MalformedReason.FIXED_HEADER_FLAGS,
        MalformedReason.REMAINING_LENGTH_TOO_LONG, MalformedReason.REMAINING_LENGTH_WRONG,
    )
)  # fmt: skip
"""Faults of a fixed header that may be no header at all."""
CLOSED_INSIDE = "ENC107"
"""The rule of the linter about a side that closes inside a packet."""
_ACKNOWLEDGEMENTS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
_PLAIN_ACKNOWLEDGEMENT = 4
"""Bytes of one without a Reason Code, the only form before 5.0."""
_LAST_OLD_CODE = 5
"""Of the return codes of a CONNACK before 5.0."""
_USUAL_KEEP_ALIVES = frozenset((5, 10, 15, 20, 30, 45, 60, 90, 100, 120, 180, 240))
"""In seconds; with their bytes swapped they are values that nobody chooses."""


@dataclass(slots=True)
class Said:
    """A packet that matters for the end."""

    timestamp_ns: int
    frame: int
    code: int
    text: str
    """Its Reason String; empty without one."""
    version: ProtocolVersion | None = None
    """Where it is laid out as in another version than that of the connection."""


@dataclass(slots=True)
class LastPublish:
    """The last message of a side, as far as its receiver may mind it."""

    topic: str
    """As on the wire: it is compared, and not shown."""
    size: int
    """Bytes of the packet, those that never came among them."""
    qos: int
    retain: bool
    checksum: int
    """Of the payload."""

    @property
    def levels(self) -> int:
        return self.topic.count("/") + 1

    @property
    def features(self) -> frozenset[str]:
        """What not every server supports: ``QoS 1``, ``QoS 2``, ``RETAIN``."""
        return frozenset(([f"QoS {self.qos}"] if self.qos else []) + (["RETAIN"] if self.retain else []))


@dataclass(slots=True)
class Misread:
    """The first packet of a side with which its framing may have been lost."""

    kind: str
    data: bytes
    """From its first byte on, as far as it was at hand."""
    version: ProtocolVersion
    frame: int
    timestamp_ns: int
    offset: int
    """Of its first byte in what the side sent."""
    before: bytes = b""
    """The packet before it."""
    before_moment: Moment | None = None

    def repair(self, sent: int) -> Repair | None:
        """The length with which it fits; ``sent``: all bytes of MQTT that the side sent."""
        found = repairs(self.data, self.version)
        return next((one for one in found if one.is_proven or self.offset + one.end == sent), None)

    def intruder(self) -> tuple[Intruder | None, Moment]:
        """The packet that begins inside this one or the one before it, and that one."""
        own = Moment(self.timestamp_ns, self.frame, "", self.kind)
        size = packet_end(self.data, 0, len(self.data))[1]
        inside = intruder(self.data[:size], self.data[size:], self.version) if size > 0 else None
        if inside is None and self.before_moment is not None:
            return intruder(self.before, self.data, self.version), self.before_moment
        return inside, own


@dataclass(slots=True)
class Stray:
    """Bytes after a whole packet that are none, or the beginning of one."""

    before: Moment
    """The packet."""
    data: bytes
    offset: int
    """Of their first byte in what the side sent."""
    is_beginning: bool
    """Whether a packet may begin so."""


@dataclass(slots=True)
class Refusal:
    """A subscription or a message that was refused."""

    timestamp_ns: int
    frame: int
    what: str
    """What was refused: ``the subscription to a/#``."""
    code: int
    kind: PacketType
    in_flight: int = 0
    """How many messages of its sender had no final answer then, where it was a message."""


@dataclass(slots=True)
class Story:
    """One connection, from its first packet to its end."""

    connection: Connection
    last: dict[str, deque[Moment]] = field(
        default_factory=lambda: {"client": deque(maxlen=MAX_PACKETS), "server": deque(maxlen=MAX_PACKETS)}
    )
    counts: dict[str, int] = field(default_factory=lambda: {"client": 0, "server": 0})
    connect: Said | None = None
    connack: Said | None = None
    user_name: bool = False
    credentials: int = 0
    """Hash of user name and password: they are compared, and not kept."""
    version: ProtocolVersion | None = None
    """That the CONNECT asked for."""
    announced_keep_alive: int | None = None
    """Of the CONNECT, in seconds."""
    server_keep_alive: int | None = None
    """Of the CONNACK."""
    unusual: list[tuple[str, str]] = field(default_factory=list)
    """What a broker may mind about the CONNECT, each with advice."""
    will_topic: str | None = None
    """As it is in the CONNECT: it is compared, and not shown."""
    will_delay: int = 0
    disconnects: dict[str, Said] = field(default_factory=dict)
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
    """Bytes of its last packet, those that never came among them."""
    latest_kind: int | None = None
    latest_offset: int = -1
    """Place of its first byte in what the client sent."""
    asked: LastPublish | None = None
    """What the client's last packet asks for, where it is a PUBLISH."""
    got: LastPublish | None = None
    """The server's last packet, where it is a PUBLISH."""
    sent: int = 0
    """Bytes of the server's last packet, those that never came among them."""
    taken: int = 0
    """Bytes of its largest packet before that."""
    borne: set[str] = field(default_factory=set)
    """What the server has acknowledged on this connection, as in `LastPublish.features`."""
    cut: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """The packet in which a side stopped: its type, the bytes that came, and those that its length says."""
    stray: Stray | None = None
    """What the server first sent that is no whole packet, after one that was."""
    misread: dict[str, Misread] = field(default_factory=dict)
    whole: dict[str, bytes] = field(default_factory=dict)
    """The last packet of each side that was read, empty if it is too large to keep; while the connection is open."""
    header: Moment | None = None
    """The PROXY protocol header before the client's bytes."""
    odd: Moment | None = None
    """The server's last packet, where it has a form that some clients cannot read, which ``what`` names."""
    borne_odd: set[str] = field(default_factory=set)
    """What was unusual about packets of the server a second after which the connection was in use."""
    requests: dict[int, str] = field(default_factory=dict)
    """What the client asked for or sent with a packet identifier, until it is answered."""
    borne_bytes: int = 0
    borne_levels: int = 0
    """Size of the largest message that the server has acknowledged, and the most levels of a topic."""
    unproven: dict[int, LastPublish] = field(default_factory=dict)
    """The client's messages without an acknowledgment, by packet identifier."""
    borne_topics: set[str] = field(default_factory=set)
    """Topics of messages after which the client sent more a second later: the server did not close because of them."""
    accepted: set[str] = field(default_factory=set)
    """Topics of messages that the server has acknowledged without an error on this connection."""
    lived_on: bool = False
    """Whether the server sent packets after a CONNACK that refused."""
    gaps: dict[str, str] = field(default_factory=dict)
    """Why bytes of a side are unknown: they are ``missing``, ``unread``, or of a packet that the end ``cut``."""
    facts: FlowFacts | None = None
    """Of TCP, once it is closed."""
    ended_ns: int = 0
    ended_frame: int = 0
    ended_capture: str = ""
    ended: bool = False
    ahead: frozenset[str] = frozenset()
    """Sides that sent nothing after the end, whenever their packets were complete in the capture."""
    last_ns: int = 0
    last_frame: int = 0
    clock_set: int = 0
    """Frame at which the clock of the capture had last been set; 0 where it was not."""
    step: str = ""
    """By how much it was set there, where that is known."""
    step_ns: int = 1 << 63
    """When that was, where it is known."""
    own: bool = False
    """What the connection did by itself explains its end, most probably."""
    special: bool = False
    """What it asked for last may explain its end: a packet that is refused, or too large."""
    trigger: str = ""
    """The packet right after which the other side ended the connection; empty without one."""
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
    origin: int | None = None
    """Number of the connection whose segments this one continues from another port."""
    moved: Evidence | None = None
    """The connection that so continues this one."""

    def __post_init__(self) -> None:
        self.last_ns, self.last_frame = self.connection.opened_ns, self.connection.frame

    def end(self, timestamp_ns: int, frame: int, capture: str) -> None:
        """The transport has ended; what came after that says nothing about its cause."""
        self._clock(timestamp_ns, frame, capture)
        self.ended_ns, self.ended_frame, self.ended_capture, self.ended = timestamp_ns, frame, capture, True
        self.ahead = self._ahead()
        self._place_unread()
        self.whole.clear()
        self.disconnects = {by: one for by, one in self.disconnects.items() if self.is_before(one, by)}
        self.refusals = [one for one in self.refusals if self.is_before(one, "server")]
        if self.ping is not None and not self.is_before(self.ping, "client"):
            self.ping = None

    def half(self, side: str) -> Half | None:
        """What TCP shows of what a side sent; ``None`` where that is unknown."""
        if self.facts is None or self.facts.is_mixed:
            return None
        return self.facts.half(self.connection.client if side == "client" else self.connection.server)

    def _ahead(self) -> frozenset[str]:
        """Sides that sent nothing after the end: the side that closed, and one whose stream it had acknowledged.

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

    def is_before(self, one: Moment | Said | Refusal | Broken, by: str) -> bool:
        """Whether something that a side sent came before the end."""
        if not self.ended:
            return True
        if by in self.ahead:
            return not self._is_cut(one, by)
        return one.frame <= self.ended_frame if self.clock_set else one.timestamp_ns <= self.ended_ns

    def _is_cut(self, one: Moment | Said | Refusal | Broken, by: str) -> bool:
        """Whether something is of the FIN of a side after the end: the end cut a packet that was not wrong before."""
        half = self.half(by)
        finished = None if half is None else half.finished
        place = one.frame, captured(one.timestamp_ns)
        if finished is None or place == (self.ended_frame, captured(self.ended_ns)):
            return False
        return place == (finished.frame, captured(finished.timestamp_ns))

    def until_end(self, one: Moment) -> int | None:
        """Time between something and the end; ``None`` where the clock was set back between them, or nobody knows."""
        waited = one.by in self.ahead and one.timestamp_ns > self.ended_ns
        return None if waited or one.frame < self.clock_set else max(0, self.ended_ns - one.timestamp_ns)

    def packet(self, event: PacketEvent) -> None:
        """Take note of a packet, before it is applied to its connection."""
        found = event.packet
        side = "client" if event.direction is C2S else "server"
        kind = found.packet_type
        text = describe.packet(event)
        moment = Moment(event.timestamp_ns, event.frame, side, text, event.capture)
        if (
            side == "client"
            and self.asked is not None  # the client's last packet is that PUBLISH
            and moment.timestamp_ns - self.last[side][-1].timestamp_ns >= BORNE_NS
            and len(self.borne_topics) < MAX_WAITING
        ):
            self.borne_topics.add(self.asked.topic)
        if side == "client":
            self._silence(moment.timestamp_ns, kind)
        self._note(moment)
        self.whole[side] = found.raw if len(found.raw) <= MAX_MISREAD_BYTES else b""
        if self.odd is not None and moment.timestamp_ns - self.odd.timestamp_ns >= BORNE_NS:
            self.borne_odd.add(self.odd.what)
        if side == "server":
            self.odd = self._oddity(found, moment)
            self._sent(len(found.raw) + found.missing)
            if type(found) is packets.Publish:
                self.got = _message(event, found, self.sent)
            if self.connack is not None and self.connack.code and kind != PacketType.DISCONNECT:
                # A refusal may be sent twice.
                self.lived_on |= kind != PacketType.CONNACK or not getattr(found, "reason_code", 0)
        if side == "client":
            self.asked = None
            self._size(len(found.raw) + found.missing, kind, event.stream_offset)
            if kind == PacketType.PINGREQ:
                self.ping = self.ping or moment
            elif isinstance(found, packets.Publish):
                self.asked = _message(event, found, self.latest)
                if found.qos and found.packet_identifier is not None:
                    self._request(found.packet_identifier, f"the message to {describe.topic_of(event)}")
                    self.unproven[found.packet_identifier] = self.asked
            elif isinstance(found, packets.Subscribe) and found.packet_identifier is not None:
                hidden = event.connection.doubtful
                names = [describe.name(row.topic_filter) for row in (found.subscriptions or ())[:MAX_REFUSALS]]
                self._request(found.packet_identifier, "\n".join("(hidden)" if hidden else one for one in names))
            elif kind in (PacketType.PUBACK, PacketType.PUBREC) and (getattr(found, "reason_code", None) or 0) >= 0x80:
                count = event.connection.server_side.in_flight
                code = getattr(found, "reason_code", None) or 0
                self.declined = Refusal(
                    event.timestamp_ns, event.frame, "a message of the broker", code, kind, count
                )  # fmt: skip
        elif kind == PacketType.PINGRESP:
            self.ping = None
        self._few(event, side, moment)

    def damaged(self, event: MalformedEvent | UnparsedEvent) -> None:
        """Take note of bytes that are no good packet."""
        side = "client" if event.direction is C2S else "server"
        if isinstance(event, MalformedEvent) and side == "server" and self.connack is None:
            code = old_refusal(event.malformed.raw)
            if code and self.version == ProtocolVersion.V5:
                self.connack = Said(event.timestamp_ns, event.frame, code, "", ProtocolVersion.V3_1_1)
                code_is = describe.reason(PacketType.CONNACK, code, ProtocolVersion.V3_1_1)
                self._note(Moment(event.timestamp_ns, event.frame, side, f"CONNACK {code_is}", event.capture))
                return
        if isinstance(event, MalformedEvent) and side not in self.misread and event.stream_offset >= 0:
            bad = event.malformed
            self.misread[side] = Misread(
                (event.type or "packet").upper(), (bad.raw + bad.after)[:MAX_MISREAD_BYTES], event.connection.version,
                event.frame, event.timestamp_ns, event.stream_offset, self.whole.get(side, b""),
                self.last[side][-1] if side in self.whole else None,
            )  # fmt: skip
        if side == "server" and self.stray is None and self.last[side] and event.stream_offset >= 0:
            self.stray = None if _is_whole(event) else _stray(event, self.last[side][-1])
        self._note(Moment(event.timestamp_ns, event.frame, side, describe.damaged(event), event.capture))
        if isinstance(event, UnparsedEvent) and event.unparsed.reason == "proxy_header":
            self.header = self.last[side][-1]
            return
        if side == "server":
            self._sent(0)
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
        shown = conceal(finding, Hiding())
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
            return tuple(sorted(moments, key=lambda one: one.frame))
        return tuple(sorted(moments, key=lambda one: (one.timestamp_ns, one.frame)))

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
        """Bytes of the largest packet after which the client sent more, or had others, or was there for a second."""
        if "server" in self.cut:
            return self.taken
        last, answer = self.last_of("server"), self.last_of("client")
        is_taken = last is not None and answer is not None and answer.timestamp_ns > last.timestamp_ns
        is_taken = is_taken or (self.ended and self.ended_on("client") is None)
        return max(self.taken, self.sent) if is_taken else self.taken

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
        """The client's last packet before the end, without those that did not reach the server."""
        lost_ns, last = self.lost_ns, self.last_of("client")
        if lost_ns is None or last is None or last.timestamp_ns < lost_ns:
            return last
        return next((one for one in reversed(self.last["client"]) if one.timestamp_ns < lost_ns), None)

    @property
    def refusal(self) -> Said | None:
        """The CONNACK that refused the client, unless the server served it after that."""
        return self.connack if self.connack is not None and self.connack.code and not self.lived_on else None

    @property
    def accepted_version(self) -> ProtocolVersion | None:
        """Version of the CONNECT that the server accepted, whatever a later one says; ``None`` without such."""
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

    def _oddity(self, found: ControlPacket, moment: Moment) -> Moment | None:
        """A packet of the server that its client may not expect."""
        what = _oddity(found)
        identifier = getattr(found, "packet_identifier", None)
        answers = found.packet_type in (PacketType.PUBREC, PacketType.PUBACK)
        if not what and answers and identifier not in self.requests:
            what = f"{found.packet_type.name} for identifier {identifier}, which the client had not used on this"
            what += " connection"
        return Moment(moment.timestamp_ns, moment.frame, moment.by, what, moment.capture) if what else None

    def _odd_text(self, finding: Finding) -> None:
        """A character in the server's last packet for which its client may close (5.0 1.5.4, 3.1.1 1.5.3)."""
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
        self.taken, self.sent, self.got = max(self.taken, self.sent), size, None

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
        found = event.packet
        value = getattr(found, "reason_code", None) or 0
        block = getattr(found, "properties", None)
        text = "" if event.connection.doubtful else describe.reason_string(block)
        said = Said(event.timestamp_ns, event.frame, value, text)
        if isinstance(found, packets.Connect):
            if self.connect is None:
                self.connect, self.announced_keep_alive = said, found.keep_alive
                self.user_name, self.version = found.user_name is not None, found.version
                self.credentials = hash((found.user_name, found.password))
                self.unusual = list(_unusual(found))
                if found.will is not None:
                    self.will_topic = found.will.will_topic
                    will_block = found.will.properties
                    self.will_delay = (will_block.will_delay_interval or 0) if will_block is not None else 0
        elif isinstance(found, packets.Connack):
            if self.connack is None:
                self.connack = said
                self.server_keep_alive = None if block is None else block.server_keep_alive
        elif isinstance(found, packets.Disconnect):
            self.disconnects.setdefault(side, said)
        elif side == "server" and found.packet_type in (PacketType.PUBACK, PacketType.PUBREC, PacketType.SUBACK):
            self._answer(event, moment)

    def _answer(self, event: PacketEvent, moment: Moment) -> None:
        """PUBACK, PUBREC and SUBACK: what they refuse."""
        found = event.packet
        what = self.requests.pop(found.packet_identifier, None)  # type: ignore[attr-defined]
        if isinstance(found, packets.Suback):
            names = chain([] if what is None else what.split("\n"), repeat("a filter"))
            codes = found.reason_codes or ()
            answers = [(f"the subscription to {name}", code) for code, name in zip(codes, names, strict=False)]
        else:
            code = found.reason_code or 0  # type: ignore[attr-defined]
            asked_for = self.unproven.pop(found.packet_identifier, None)  # type: ignore[attr-defined]
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
                self.refusals.append(Refusal(moment.timestamp_ns, moment.frame, asked, code, found.packet_type, count))
        del self.refusals[:-MAX_REFUSALS]


def _is_whole(event: MalformedEvent | UnparsedEvent) -> bool:
    """Whether the bytes are a packet of the length that it announces, malformed inside."""
    return (
        isinstance(event, MalformedEvent)
        and bool(event.malformed.packet_type)
        and not event.malformed.missing
        and event.malformed.reason not in NO_PACKET
    )


def _stray(event: MalformedEvent | UnparsedEvent, before: Moment) -> Stray:
    if isinstance(event, UnparsedEvent):
        return Stray(before, event.unparsed.raw[:MAX_STRAY], event.stream_offset, True)
    bad = event.malformed
    is_beginning = bad.reason is MalformedReason.TRUNCATED and bool(bad.packet_type)
    return Stray(before, (bad.raw + bad.after)[:MAX_STRAY], event.stream_offset, is_beginning)


def _message(event: PacketEvent, found: packets.Publish, size: int) -> LastPublish:
    return LastPublish(event.topic or "", size, found.qos, bool(found.retain), zlib.crc32(found.payload))


def _oddity(found: ControlPacket) -> str:
    """What is unusual about the form of a packet; empty where nothing is."""
    kind = found.packet_type.name
    if len(found.raw) > 2 and found.raw[1] >= 0x80 and _length_bytes(found.raw) > _length_bytes_needed(found.raw):
        return f"{kind} with a Remaining Length in {_length_bytes(found.raw)} bytes, which needs fewer"
    if isinstance(found, packets.Publish) and found.dup:
        return f"{kind} with DUP"
    if found.packet_type in _ACKNOWLEDGEMENTS and len(found.raw) > _PLAIN_ACKNOWLEDGEMENT:
        return f"{kind} of {len(found.raw)} bytes, with a Reason Code"
    return ""


def _length_bytes(raw: bytes) -> int:
    return next((at for at in range(1, 5) if at < len(raw) and raw[at] < 0x80), 4)


def _length_bytes_needed(raw: bytes) -> int:
    length = announced(raw) - 1 - _length_bytes(raw)
    return 1 if length < 1 << 7 else 2 if length < 1 << 14 else 3 if length < 1 << 21 else 4


def _unusual(connect: packets.Connect) -> Iterator[tuple[str, str]]:
    """What brokers are known to mind about a CONNECT, each with advice."""
    if connect.bridge:
        yield (
            "its protocol level has the bridge bit (0x80), which most brokers but mosquitto do not know",
            "Switch the bridge bit off (mosquitto: try_private false).",
        )
    if connect.will is not None and connect.will.will_retain:
        yield (
            "its will is retained, which brokers without retained messages refuse",
            "Try a will without RETAIN, or none (mosquitto bridges: notifications false).",
        )
    swapped = (connect.keep_alive or 0) >> 8
    if connect.keep_alive == swapped << 8 and swapped in _USUAL_KEEP_ALIVES:
        yield (
            f"its Keep Alive of {connect.keep_alive:,} s would be {swapped} s with its two bytes swapped",
            "Write two-byte numbers with the high byte first.",
        )


def old_refusal(raw: bytes) -> int:
    """The return code of a refusing CONNACK that is laid out as before 5.0; 0 for all other bytes (3.1.1 3.2)."""
    return raw[3] if len(raw) == 4 and raw[:3] == b"\x20\x02\x00" and raw[3] <= _LAST_OLD_CODE else 0


def announced(raw: bytes) -> int:
    """Bytes that a packet should have by its fixed header; 0 where that is missing."""
    length = shift = 0
    for at, byte in enumerate(raw[1:5], 2):
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return at + length
    return 0
