"""State of TCP at the end of a flow: unanswered data of each side, and differences between a RST and its sender.

`SegmentWatch` looks at segments on their way to the dissector, which stores none of these facts: other commands do
not pay for them.  The facts of a flow are bounded, and so is the number of flows.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import overload

from mqttscope.dissect.acknowledgments import selective
from mqttscope.explain.lookups import LookupWatch
from mqttscope.explain.tls_flights import FlightReader, Flights
from mqttscope.net.checksum import RIGHT, UNJUDGED, WRONG
from mqttscope.net.frame import CaptureNotice, Decrypted, Frame, SegmentItem
from mqttscope.net.segment import (
    ACK,
    FIN,
    HALF,
    MASK,
    RST,
    SYN,
    DnsMessage,
    Segment,
    distance,
    endpoints,
    flow_key,
    is_ipv4_key,
    plain_key,
)
from mqttscope.net.tcp_clock import NO_STAMP, time_stamp

MAX_FLOWS = 20_000
"""Maximum number of remembered flows; the flow that was silent for longest is forgotten first."""
MAX_GENERATIONS = 4
"""Connections, one after the other, of the same endpoints."""
MAX_UNDECIDED = 64
"""Maximum number of irregular segments of a flow, kept until the dissector assigns them to a connection."""
MAX_FAST_OPEN = 1_460
"""Maximum number of bytes that a SYN carries."""
SMALL_BYTES = 536
"""Minimum bytes of a segment that may be a full one: senders do not hold these back."""
LARGE_WINDOW = 4 * SMALL_BYTES
"""Minimum receive window of a SYN, in bytes, after that a window below `SMALL_BYTES` shows a full buffer."""
DELAYED_NS = 30_000_000
"""Minimum time of a delayed acknowledgment: 40 ms in Linux, 200 ms in Windows."""
LATEST_NS = 250_000_000
"""Maximum time of a delayed acknowledgment."""
PROMPT_NS = 2_000_000
"""Maximum time from an acknowledgment to a segment that was held back until it came."""
MAX_SEEN = 8
"""Maximum number of last segments, resets and damaged segments of a direction that are remembered."""
MAX_TTLS = 8
"""Values of TTL of one direction that are kept."""
MAX_FRAMES = 4_096
"""Frames that are remembered until their segments come: tshark may have to answer for these first, and the clock of
the capture is looked at ahead."""
MAX_KNOCKS = 256
"""Maximum number of refused connections to one server that are remembered, and of such servers."""
LEAST_REPEATS = 2
"""Minimum number of repeated segments without an answer that shows a lost path."""
LATELY_NS = 180_000_000_000
"""An end is explained 120 s after it, with what happened from 60 s before it on."""
_SEGMENT_SIZE, _WINDOW_SCALE, _SELECTIVE = 2, 3, 4
"""Kinds of options of a SYN (RFC 9293 section 3.2, RFC 7323 section 2, RFC 2018 section 2)."""
STAMPS = b"\x01\x01\x08\x0a"
"""Options of a segment that has time stamps and nothing else, without their values."""
Place = tuple[int, str]
"""A frame and its capture."""
IpFacts = tuple[int | None, int | None]
"""TTL and identification in an IP header."""
SeenRow = tuple[int, int, str, int, int, int, int, int, int | None, int | None, bytes]
"""The first ten attributes of a `Seen`, and the options of TCP."""


@dataclass(slots=True, frozen=True)
class HandshakeOptions:
    """Options of a SYN."""

    maximum_segment: int = 0
    """Maximum number of bytes of a segment that its sender accepts (MSS); 0 without the option."""
    window_scale: int = 0
    is_selective: bool = True
    """Whether it permits selective acknowledgments; true also if its SYN was not captured."""


@dataclass(slots=True)
class Closure:
    """Interval with a receive window of 0, or too small for a segment: the program of that side did not read."""

    begin: Seen
    end_ns: int


@dataclass(slots=True)
class Seen:
    """One segment, with what its IP header shows of its sender."""

    frame: int
    timestamp_ns: int
    capture: str
    flags: int
    sequence: int
    acknowledgment: int
    length: int
    window: int
    ttl: int | None
    """TTL or Hop Limit; ``None`` where the frame was not at hand."""
    identification: int | None
    """Identification of IPv4."""
    stamp: int = NO_STAMP
    """Value of the sender's TCP clock (TSval)."""
    lacks: bool = False
    """Whether it shows that bytes before others have not arrived: by its selective acknowledgments (RFC 2018), or as a
    duplicate acknowledgment (RFC 5681) that only a later segment can have caused."""
    handshake: HandshakeOptions | None = None
    """Options that only a SYN has."""


@overload
def seen_of(row: Seen | SeenRow) -> Seen: ...
@overload
def seen_of(row: Seen | SeenRow | None) -> Seen | None: ...
def seen_of(row: Seen | SeenRow | None) -> Seen | None:
    """The object of a row; objects pass unchanged."""
    return Seen(*row[:10], time_stamp(row[10])) if type(row) is tuple else row  # type: ignore[return-value]


@dataclass(slots=True)
class Unanswered:
    """Data that a side sent repeatedly without an acknowledgment."""

    repeats: int
    since_ns: int
    since_frame: int
    last: Seen
    duplicate: Seen | None = None
    """The last segment of the other one that acknowledged nothing new meanwhile: it was there, and had not got it."""
    is_whole: bool = True
    """Whether nothing that was sent since then was acknowledged."""


@dataclass(slots=True)
class Half:
    """One direction of a flow."""

    segments: int = 0
    data: int = 0
    """Segments with data."""
    begun: bool = False
    end: int = 0
    """Sequence number after the last byte sent."""
    acknowledged: int = 0
    """The highest number that the other side acknowledged of it."""
    is_acknowledged: bool = False
    """Whether it ever did."""
    unanswered_ns: int | None = None
    """Since when something of it waits for an acknowledgement."""
    unanswered_frame: int = 0
    repeats: int = 0
    """Segments that came again since then."""
    last_repeat: Seen | None = None
    duplicate: Seen | None = None
    """As in `Unanswered`."""
    advanced_ns: int = 0
    """When the other side last acknowledged something new."""
    longest: int = 0
    """Bytes of the largest segment since everything was acknowledged."""
    carried: int = 0
    """Bytes of the largest segment that arrived completely."""
    hole: Seen | None = None
    """The first segment after bytes that neither the capture nor the other side has."""
    probes: int = 0
    """TCP keep-alive probes since the other side's last segment."""
    first_probe: Seen | None = None
    last_probe: Seen | None = None
    finished: Seen | None = None
    """The first FIN."""
    missed: Unanswered | None = None
    """Data that the other side had not received when it sent its FIN, or either side sent RST."""
    resets: list[Seen] = field(default_factory=list)
    damaged: list[Seen] = field(default_factory=list)
    """The last segments with a wrong checksum; nothing else of them is believed."""
    is_verified: bool = False
    """Whether a checksum was right, so that a wrong one is an exception."""
    rows: list[Seen | SeenRow] = field(default_factory=list)
    """As `recent`; segments of `UsualSegments` become objects when they are asked for."""
    small_ns: int = 0
    """When the only segment without an acknowledgment was sent, if that is small; else 0."""
    waited_ns: int = 0
    """Time until the last acknowledgment without data, if everything is acknowledged and it was late; else 0."""
    held: int = 0
    """Small segments that came right after an acknowledgment that was late, as if the sender had held them back."""
    first_held: Seen | None = None
    longest_held_ns: int = 0
    handshake: HandshakeOptions = HandshakeOptions()
    least_window: int = 1
    """Minimum value of its receive window that lets the other side send a segment."""
    shut: Seen | None = None
    """The segment that closed its receive window, while that is closed."""
    closures: list[Closure] = field(default_factory=list)
    """The last intervals with a closed receive window."""
    ttls: dict[int, int] = field(default_factory=dict)
    """How often each TTL was seen, resets aside."""

    def note(self, seen: Seen | SeenRow) -> None:
        """Add a segment to the last ones; a list of few needs less room than a deque."""
        rows = self.rows
        rows.append(seen)
        if len(rows) > MAX_SEEN:
            del rows[0]

    @property
    def recent(self) -> list[Seen]:
        """The last segments, resets aside."""
        rows = self.rows
        for at, row in enumerate(rows):
            rows[at] = seen_of(row)
        return rows  # type: ignore[return-value]

    @property
    def last(self) -> Seen | None:
        """The last segment, resets aside."""
        return self.recent[-1] if self.rows else None

    @property
    def outstanding(self) -> int:
        """Bytes that were not acknowledged; SYN and FIN count one each."""
        return max(0, distance(self.acknowledged, self.end)) if self.is_acknowledged else 0

    @property
    def unanswered(self) -> Unanswered | None:
        """Data that was sent again and waits for an acknowledgement."""
        if self.last_repeat is None or self.unanswered_ns is None:
            return None
        return Unanswered(
            self.repeats, self.unanswered_ns, self.unanswered_frame, self.last_repeat, self.duplicate,
            self.advanced_ns <= self.unanswered_ns,
        )  # fmt: skip

    @property
    def outstanding_bytes(self) -> int:
        """Unacknowledged bytes without the FIN."""
        return max(0, self.outstanding - bool(self.finished))

    def closed_ns(self, from_ns: int, until_ns: int) -> int:
        """Duration of a closed receive window within a time."""
        closures = [(closure.begin.timestamp_ns, closure.end_ns) for closure in self.closures]
        if self.shut is not None:
            closures.append((self.shut.timestamp_ns, until_ns))
        return sum(max(0, min(end_ns, until_ns) - max(begin_ns, from_ns)) for begin_ns, end_ns in closures)

    def first_closure(self, from_ns: int, until_ns: int) -> Seen | None:
        """The segment that closed the receive window first within a time."""
        begins = [closure.begin for closure in self.closures if closure.end_ns > from_ns]
        begins += [] if self.shut is None else [self.shut]
        return next((seen for seen in begins if seen.timestamp_ns <= until_ns), None)

    @property
    def usual_ttl(self) -> int | None:
        """The TTL of nearly all segments; ``None`` if the values vary."""
        if not self.ttls:
            return None
        value, count = max(self.ttls.items(), key=lambda row: row[1])
        return value if count * 10 >= sum(self.ttls.values()) * 8 else None


@dataclass(slots=True)
class FlowFacts:
    """Both directions of one connection."""

    key: bytes
    """Direction key of the first segment."""
    first_ns: int
    first_frame: int
    capture: str
    """The capture of the first segment."""
    halves: tuple[Half, Half] = field(default_factory=lambda: (Half(), Half()))
    """The direction of the sender of the first segment, and the other direction."""
    syn: Seen | None = None
    """The SYN of the sender of the first segment."""
    hello_time: int = 0
    """The first four bytes of the random number in a ClientHello of TLS: seconds since 1970 in many stacks up to TLS
    1.2; 0 without a ClientHello."""
    flights: Flights | None = None
    """The clear part of a TLS handshake."""
    client_key: bytes = b""
    """Direction key of the ClientHello."""
    has_data: bool = False
    """Whether a segment had data: the handshake is over."""
    undecided: list[tuple[bytes, Seen | SeenRow]] = field(default_factory=list)
    """The last segments with the keys of their directions, from the first one that may begin another connection."""
    settled: Seen | SeenRow | None = None
    """The last one of them that was taken for a segment of the connection."""
    is_mixed: bool = False
    """Whether segments of two connections are among the facts, which prove nothing then."""
    data_ns: int = 0
    """When the last byte came that was new."""
    pause_ns: int = 0
    """The longest time between two such bytes."""
    source: str = ""
    """The endpoint that sent the first segment; empty before it is asked for."""

    def half(self, endpoint: str) -> Half:
        """The direction that an endpoint sends in."""
        self.source = self.source or endpoints(self.key)[0]
        return self.halves[self.source != endpoint]

    def direction(self, key: bytes) -> tuple[Half, Half]:
        """The half that sends with a direction key, and the other one."""
        return self.halves if key == self.key else self.halves[::-1]

    def undecided_from(self, frame: int, capture: str) -> int:
        """Index of the first undecided segment from a frame on."""
        for at, (_, row) in enumerate(self.undecided):
            seen = seen_of(row)
            if seen.capture == capture and seen.frame >= frame:
                return at
        return len(self.undecided)


@dataclass(slots=True)
class Knock:
    """A connection attempt that came to nothing."""

    client: str
    frame: int
    timestamp_ns: int
    capture: str
    refused: bool
    """Whether the server answered with RST; otherwise there was no answer."""


class SegmentWatch:
    """Feed it frames and segments; ask it for the facts of a flow."""

    def __init__(self) -> None:
        self.flows: OrderedDict[bytes, list[FlowFacts]] = OrderedDict()
        self.knocks: OrderedDict[str, deque[Knock]] = OrderedDict()
        """Refused attempts by the endpoint of the server."""
        self.now_ns = -(1 << 63)
        """The latest time of a segment."""
        self.dropped: Counter[str] = Counter()
        """Number of discarded rows by table."""
        self.last: tuple[int, int, str] | None = None
        """Number, time and capture of the last frame of all."""
        self.lookups = LookupWatch()
        self._frames: deque[Frame] = deque(maxlen=MAX_FRAMES)
        self._sees_frames = False

    def frames(self, frames: Iterator[Frame | CaptureNotice]) -> Iterator[Frame | CaptureNotice]:
        """Pass frames on; the latest ones are remembered until their segments come."""
        for frame in frames:
            if type(frame) is Frame:
                self.frame(frame)
            yield frame

    def frame(self, frame: Frame) -> None:
        """Remember a frame until its segment comes."""
        self._sees_frames = True
        self._frames.append(frame)
        self.last = frame.number, frame.timestamp_ns, frame.capture

    def segments(self, items: Iterable[SegmentItem | Decrypted]) -> Iterator[SegmentItem | Decrypted]:
        """Pass segments on, each after it was looked at."""
        for item in items:
            if type(item) is Segment:
                self.feed(item)
            elif type(item) is DnsMessage:
                self.lookups.feed(item)
            yield item

    def facts(
        self, key: bytes, opened_ns: int, first: Place | None = None, until: Place | None = None
    ) -> FlowFacts | None:
        """The facts of the flow that a connection with this direction key had, opened at this time.

        ``first``: the place of its first segment; ``until``: the first place of the next connection, if known.
        """
        known = self.flows.get(flow_key(plain_key(key))) if key else None
        if not known:
            return None
        facts = next((flow for flow in known if (flow.first_frame, flow.capture) == first), None)
        if facts is None:
            facts = next((flow for flow in reversed(known) if flow.first_ns <= opened_ns), None)
        if facts is None and len(known) == 1:
            facts = known[0]
        if facts is not None:
            self.settle(facts, until)
        return facts

    def last_of(self, key: bytes, first: Place, endpoint: str) -> Seen | None:
        """The last segment of an endpoint on a connection that is open, resets aside; ``first``: as in `facts`."""
        facts = self.open_facts(key, first)
        return None if facts is None else facts.half(endpoint).last

    def open_facts(self, key: bytes, first: Place) -> FlowFacts | None:
        """The facts of an open connection, which may still have undecided segments; ``first`` as in `facts`."""
        known = self.flows.get(flow_key(plain_key(key))) if key else None
        facts = next((flow for flow in known or () if (flow.first_frame, flow.capture) == first), None)
        return None if facts is None or facts.is_mixed else facts

    def begin(self, key: bytes, opened_ns: int, frame: int, capture: str) -> None:
        """Begin new facts at the first frame of a connection that the dissector has found, unless a SYN did that.

        If that frame continues the connection before, both have the same facts.
        """
        known = self.flows.get(flow_key(plain_key(key))) if key else None
        if not known or any((flow.first_frame, flow.capture) == (frame, capture) for flow in known):
            return
        older = [at for at, flow in enumerate(known) if flow.capture != capture or flow.first_frame < frame]
        if not older:
            return
        before = known[older[-1]]
        at = before.undecided_from(frame, capture)
        own, before.undecided = before.undecided[at:], before.undecided[:at]
        settled = seen_of(before.settled)
        is_mixed = settled is not None and settled.capture == capture and settled.frame >= frame
        if not own and not is_mixed:
            return
        before.is_mixed = before.is_mixed or is_mixed
        facts = FlowFacts(plain_key(key), opened_ns, frame, capture, is_mixed=is_mixed)
        for key_of, row in own:
            self._add(facts, key_of, seen_of(row))
        known.insert(older[-1] + 1, facts)
        del known[:-MAX_GENERATIONS]

    def settle(self, facts: FlowFacts, until: Place | None = None) -> None:
        """Assign the undecided segments to the connection; ``until`` as in `facts`."""
        stop = len(facts.undecided) if until is None else facts.undecided_from(*until)
        decided, facts.undecided = facts.undecided[:stop], facts.undecided[stop:]
        for key, row in decided:
            if type(row) is tuple:
                move_on(self, facts, key, *facts.direction(key), row)
            else:
                self.take(facts, key, seen_of(row))
        if decided:
            facts.settled = decided[-1][1]

    def next_syn(self, facts: FlowFacts, client: str) -> Seen | None:
        """The SYN of the client's next connection from the same port."""
        known = self.flows.get(flow_key(facts.key), ())
        after = [flow for flow in known if flow.first_ns > facts.first_ns and endpoints(flow.key)[0] == client]
        return next((flow.syn for flow in after if flow.syn is not None), None)

    def forget(self, facts: FlowFacts) -> None:
        """Let the facts of a flow go: its end is explained."""
        together = flow_key(facts.key)
        known = self.flows.get(together)
        if known is None:
            return
        self.flows[together] = known = [flow for flow in known if flow is not facts]
        if not known:
            del self.flows[together]

    def feed(self, segment: Segment, ip: IpFacts | None = None) -> None:
        """Look at one segment; ``ip``: the facts of its frame, unless `frames` has seen that."""
        if segment.timestamp_ns > self.now_ns:
            self.now_ns = segment.timestamp_ns
        if not self._sees_frames or ip is not None:
            self.last = segment.frame, segment.timestamp_ns, segment.capture
        key = plain_key(segment.key)
        together = flow_key(key)
        known = self.flows.get(together)
        begins = segment.flags & (SYN | ACK) == SYN
        if begins:
            self.lookups.connect(key[: 4 if is_ipv4_key(key) else 16], segment.timestamp_ns)
        if known is not None and segment.checksum != UNJUDGED:
            sender = known[-1].halves[key != known[-1].key]
            if segment.checksum == WRONG and sender.is_verified:
                _keep(sender.damaged, self._seen(segment, key, ip))
                return
        if known is None:
            if len(self.flows) >= MAX_FLOWS:
                self.flows.popitem(last=False)
                self.dropped["flows"] += 1
            known = self.flows[together] = [_facts_from(segment, key)]
        else:
            self.flows.move_to_end(together)
            syn = known[-1].syn
            if begins and (syn is None or syn.sequence != segment.sequence or known[-1].has_data):
                known.append(_facts_from(segment, key))
                del known[:-MAX_GENERATIONS]
        facts = known[-1]
        seen = self._seen(segment, key, ip)
        if begins and facts.syn is None:
            facts.syn = seen
        own, _ = facts.direction(key)
        if not facts.has_data and segment.payload[:2] == b"\x16\x03" and segment.payload[5:6] == b"\1":
            facts.hello_time = int.from_bytes(segment.payload[11:15])
            facts.flights = Flights(FlightReader(), FlightReader())
            facts.client_key = key
        if facts.flights is not None and segment.payload and not facts.flights.is_done:
            reader = facts.flights.client if key == facts.client_key else facts.flights.server
            reader.feed(segment.payload, segment.sequence)
        own.is_verified = own.is_verified or segment.checksum == RIGHT
        self._add(facts, key, seen)

    def _add(self, facts: FlowFacts, key: bytes, seen: Seen) -> None:
        """A segment, which waits if it may begin another connection, or is after one that may."""
        facts.has_data = facts.has_data or bool(seen.length and not seen.flags & (RST | SYN))
        if not facts.undecided and _continues(*facts.direction(key), seen):
            self.take(facts, key, seen)
            return
        facts.undecided.append((key, seen))
        if len(facts.undecided) > MAX_UNDECIDED:
            self.settle(facts)

    def take(self, facts: FlowFacts, key: bytes, seen: Seen) -> None:
        """Update the facts of a connection with one of its segments."""
        own, other = facts.direction(key)
        if not seen.flags & RST:
            is_new = seen.length and (not own.begun or distance(own.end, seen.sequence) >= 0)
            if is_new and own.finished is None and other.finished is None:
                facts.pause_ns = max(facts.pause_ns, seen.timestamp_ns - (facts.data_ns or seen.timestamp_ns))
                facts.data_ns = seen.timestamp_ns
            _move_on(own, other, seen)
            return
        if not own.resets and not other.resets:
            own.missed, other.missed = own.missed or own.unanswered, other.missed or other.unanswered
        _keep(own.resets, seen)
        if not own.begun and other.segments and other.end == (other.recent[0].sequence + 1) & 0xFFFFFFFF:
            self._knock(facts, key == facts.key, seen)

    def unanswered(self, server: str, start_ns: int, end_ns: int) -> list[Knock]:
        """Attempts to connect to a server in a time that were refused."""
        return [knock for knock in self.knocks.get(server, ()) if start_ns <= knock.timestamp_ns <= end_ns]

    def _knock(self, facts: FlowFacts, from_first: bool, seen: Seen) -> None:
        """A SYN was answered with RST."""
        source, destination = endpoints(facts.key)
        server, client = (source, destination) if from_first else (destination, source)
        known = self.knocks.get(server)
        if known is None:
            if len(self.knocks) >= MAX_KNOCKS:
                self._drop(self.knocks.popitem(last=False)[1], seen)
            known = self.knocks[server] = deque()
        known.append(Knock(client, seen.frame, seen.timestamp_ns, seen.capture, refused=True))
        if len(known) > MAX_KNOCKS:
            self._drop([known.popleft()], seen)

    def _drop(self, knocks: Iterable[Knock], latest: Seen) -> None:
        """Count what makes room if explanations may still look for it."""
        lately = sum(knock.timestamp_ns > latest.timestamp_ns - LATELY_NS for knock in knocks)
        if lately:
            self.dropped["refused connections"] += lately

    def _seen(self, segment: Segment, key: bytes, ip: IpFacts | None) -> Seen:
        ttl, identification = ip or (None, None)
        frames = self._frames
        while frames and (frames[0].capture != segment.capture or frames[0].number < segment.frame):
            frames.popleft()
        if ip is None and frames and frames[0].number == segment.frame:
            ttl, identification = ip_facts(frames[0].data, key)
        return Seen(
            segment.frame, segment.timestamp_ns, segment.capture, segment.flags, segment.sequence,
            segment.acknowledgment, len(segment.payload) + segment.missing, segment.window, ttl, identification,
            time_stamp(segment.options), _lacks(segment), _handshake(segment) if segment.flags & SYN else None,
        )  # fmt: skip


def _lacks(segment: Segment) -> bool:
    """Whether the sender of a segment without data has later bytes, but lacks earlier ones."""
    options = segment.options
    if segment.payload or not options or (len(options) == len(STAMPS) + 8 and options.startswith(STAMPS)):
        return False
    return any(distance(segment.acknowledgment, start) > 0 for start, _ in selective(options))


def _handshake(segment: Segment) -> HandshakeOptions:
    """The options of a SYN that later segments do not have."""
    options, known, at = segment.options, {_SEGMENT_SIZE: 0, _WINDOW_SCALE: 0}, 0
    is_selective = False
    while at + 1 < len(options) and options[at]:
        length = 1 if options[at] == 1 else max(1, options[at + 1])
        is_selective = is_selective or options[at] == _SELECTIVE
        if options[at] in known:
            known[options[at]] = int.from_bytes(options[at + 2 : at + length])
        at += length
    return HandshakeOptions(known[_SEGMENT_SIZE], known[_WINDOW_SCALE], is_selective)


def _keep(seen: list[Seen], latest: Seen) -> None:
    """The last ones; a list of few needs less room than a deque."""
    seen.append(latest)
    if len(seen) > MAX_SEEN:
        del seen[0]


def _facts_from(segment: Segment, key: bytes) -> FlowFacts:
    return FlowFacts(key, segment.timestamp_ns, segment.frame, segment.capture)


def _continues(own: Half, other: Half, seen: Seen) -> bool:
    """Whether a segment has the next numbers of an open connection, or is a reset: it does not begin another one."""
    if seen.flags & RST:
        return True
    if own.resets or other.resets:
        return False
    if own.begun and seen.sequence != own.end:
        return bool(seen.flags & SYN) and not other.begun
    if own.finished is not None and (seen.length or seen.flags & SYN):
        return False
    if not seen.flags & ACK or not other.begun:
        return True
    is_old = other.is_acknowledged and distance(other.acknowledged, seen.acknowledgment) < 0
    return not is_old and distance(seen.acknowledgment, other.end) >= 0


def _move_on(own: Half, other: Half, seen: Seen) -> None:
    """Update both directions with a segment that is not a reset."""
    flags = seen.flags
    size = seen.length + bool(flags & SYN) + bool(flags & FIN)
    end = (seen.sequence + size) & 0xFFFFFFFF
    own.segments += 1
    own.data += bool(seen.length)
    other.probes, other.first_probe = 0, None
    own.note(seen)
    if seen.ttl is not None and (seen.ttl in own.ttls or len(own.ttls) < MAX_TTLS):
        own.ttls[seen.ttl] = own.ttls.get(seen.ttl, 0) + 1
    if flags & SYN and own.begun and not 0 <= distance(seen.sequence, own.end) <= MAX_FAST_OPEN + 1:
        # Earlier segments belong to another connection: a host answers a SYN for an open one with its own numbers.
        own.begun = own.is_acknowledged = other.is_acknowledged = False
    if not own.begun:
        own.begun, own.end = True, seen.sequence
    elif _is_probe(own, seen):
        own.probes += 1
        own.first_probe, own.last_probe = own.first_probe or seen, seen
    elif seen.length and own.is_acknowledged and distance(own.acknowledged, seen.sequence) <= 0:
        own.hole = None
    elif seen.length and own.is_acknowledged and own.acknowledged == own.end:
        own.hole = seen
    if seen.handshake is not None:
        own.handshake = seen.handshake
        if seen.window >= LARGE_WINDOW:
            own.least_window = max(1, SMALL_BYTES >> seen.handshake.window_scale)
    if seen.length:
        other.waited_ns = 0  # its next segment may be an answer to these bytes
        own.longest = max(own.longest, seen.length)
    if seen.window < own.least_window:
        own.shut = own.shut or seen
    elif own.shut is not None:
        _reopen(own, seen)
    new = distance(own.end, end)
    if new > 0:
        own.end = end
        if own.unanswered_ns is None:
            is_small = 0 < seen.length < SMALL_BYTES
            if own.waited_ns and is_small and seen.timestamp_ns - own.advanced_ns <= PROMPT_NS:
                own.held, own.first_held = own.held + 1, own.first_held or seen
                own.longest_held_ns = max(own.longest_held_ns, own.waited_ns)
            own.waited_ns, own.small_ns = 0, seen.timestamp_ns if is_small else 0
            own.unanswered_ns, own.unanswered_frame = seen.timestamp_ns, seen.frame
        else:
            own.small_ns = 0
    elif size and not (seen.length <= 1 and not flags & (SYN | FIN) and distance(end, own.acknowledged) >= 0):
        own.repeats += 1
        own.last_repeat = seen
    is_first_fin = flags & FIN and own.finished is None
    if is_first_fin:
        own.finished = seen
    if flags & ACK:
        gained = distance(other.acknowledged, seen.acknowledgment) if other.is_acknowledged else 1
        if gained > 0:
            _acknowledge(other, seen.acknowledgment, seen.timestamp_ns, is_empty=not size)
        elif not gained and not size and seen.window and other.unanswered_ns is not None:
            _note_duplicate(own, other, seen)
    if is_first_fin:
        other.missed = other.unanswered


def move_on(watch: SegmentWatch, facts: FlowFacts, key: bytes, own: Half, other: Half, row: SeenRow) -> None:
    """Update the facts of a connection with a segment that has no flags but ACK and PSH, as `SegmentWatch.take` does.

    A usual segment has the next sequence number, or no data and an earlier number, and is not a duplicate
    acknowledgment.
    """
    timestamp_ns, sequence, acknowledgment, length, ttl = row[1], row[4], row[5], row[6], row[8]
    gained = ((acknowledgment - other.acknowledged + HALF) & MASK) - HALF if other.is_acknowledged else 1
    if (
        not own.begun
        or (sequence != own.end and (length or not 1 < ((own.end - sequence) & MASK) < HALF))
        or own.shut is not None
        or row[7] < own.least_window
        or not (gained or length or other.unanswered_ns is None)
    ):
        watch.take(facts, key, seen_of(row))
        return
    own.segments += 1
    own.note(row)
    if ttl is not None and (ttl in own.ttls or len(own.ttls) < MAX_TTLS):
        own.ttls[ttl] = own.ttls.get(ttl, 0) + 1
    if other.probes:
        other.probes, other.first_probe = 0, None
    if length:
        if own.finished is None and other.finished is None:
            if facts.data_ns and timestamp_ns - facts.data_ns > facts.pause_ns:
                facts.pause_ns = timestamp_ns - facts.data_ns
            facts.data_ns = timestamp_ns
        own.data += 1
        if own.hole is not None and own.is_acknowledged and ((own.acknowledged - sequence) & MASK) < HALF:
            own.hole = None
        other.waited_ns = 0  # its next segment may be an answer to these bytes
        if length > own.longest:
            own.longest = length
        own.end = (sequence + length) & MASK
        if own.unanswered_ns is None:
            is_small = length < SMALL_BYTES
            if own.waited_ns and is_small and timestamp_ns - own.advanced_ns <= PROMPT_NS:
                own.held, own.first_held = own.held + 1, own.first_held or own.last
                own.longest_held_ns = max(own.longest_held_ns, own.waited_ns)
            own.waited_ns, own.small_ns = 0, timestamp_ns if is_small else 0
            own.unanswered_ns, own.unanswered_frame = timestamp_ns, row[0]
        else:
            own.small_ns = 0
    if gained > 0:
        _acknowledge(other, acknowledgment, timestamp_ns, is_empty=not length)


def _acknowledge(other: Half, acknowledgment: int, timestamp_ns: int, *, is_empty: bool) -> None:
    """Take an acknowledgment of new bytes; ``is_empty``: of a segment without data, SYN and FIN."""
    other.acknowledged, other.is_acknowledged = acknowledgment, True
    other.repeats, other.last_repeat, other.duplicate, other.hole = 0, None, None, None
    other.advanced_ns = timestamp_ns
    if ((acknowledgment - other.end) & MASK) < HALF:
        other.unanswered_ns = None
        waited_ns = timestamp_ns - other.small_ns if other.small_ns and is_empty else 0
        other.waited_ns = waited_ns if DELAYED_NS <= waited_ns <= LATEST_NS else 0
        other.carried, other.longest = max(other.carried, other.longest), 0


def _reopen(own: Half, seen: Seen) -> None:
    """End the interval of a closed receive window; a window too small for a segment leaves it closed."""
    if own.shut is None or seen.window << own.handshake.window_scale < SMALL_BYTES:
        return
    own.closures.append(Closure(own.shut, seen.timestamp_ns))
    own.shut = None
    if len(own.closures) > MAX_SEEN:
        del own.closures[0]


def _note_duplicate(own: Half, other: Half, seen: Seen) -> None:
    """Note an acknowledgment of nothing new, while bytes of the other side wait for one.

    By RFC 5681 a receiver sends it, with an unchanged window, at once when a segment arrives that is not the next one.
    That segment is a later one if the other side has sent such, and no byte a second time.  Keep-alive probes and their
    answers look alike: a probe has an earlier number, and a side with unacknowledged bytes does not probe.  If both
    sides permit selective acknowledgments, these alone are a proof.
    """
    later = [
        before for before in other.recent
        if before.length and distance(other.acknowledged, before.sequence) > 0
    ]  # fmt: skip
    starts = [before.sequence for before in other.recent if before.length]
    known = own.recent[-2] if len(own.recent) > 1 else None
    is_alike = known is not None and (known.window, known.acknowledgment) == (seen.window, seen.acknowledgment)
    is_selective = own.handshake.is_selective and other.handshake.is_selective
    if later and is_alike and not is_selective and seen.sequence == own.end and len(starts) == len(set(starts)):
        seen.lacks = True
    if (other.repeats or seen.lacks) and (seen.lacks or other.duplicate is None or not other.duplicate.lacks):
        other.duplicate = seen


def _is_probe(own: Half, seen: Seen) -> bool:
    """Whether a segment is a TCP keep-alive probe: the last byte again, or nothing from there, although it arrived."""
    is_last = seen.length <= 1 and not seen.flags & (SYN | FIN) and distance(seen.sequence, own.end) == 1
    return is_last and own.is_acknowledged and own.acknowledged == own.end and not own.finished


def ip_facts(data: bytes, key: bytes) -> IpFacts:
    """TTL and identification of the innermost IP header of a frame, found by the addresses of its segment.

    The identification is only for IPv4.  Both are ``None`` if the header is not found.
    """
    if is_ipv4_key(key):
        at = data.rfind(key[:8], 0, len(data))
        while at >= 12:
            if data[at - 12] >> 4 == 4 and data[at - 3] == 6:
                return data[at - 4], int.from_bytes(data[at - 8 : at - 6], "big")
            at = data.rfind(key[:8], 0, at + 7)
        return None, None
    at = data.rfind(key[:32])
    while at >= 8:
        if data[at - 8] >> 4 == 6:
            return data[at - 1], None
        at = data.rfind(key[:32], 0, at + 31)
    return None, None
