"""What TCP did at the end of a flow: which side sent what without an answer, and how a RST differs from its sender.

`SegmentWatch` looks at segments on their way to the dissector, which keeps none of this: runs without explanations
pay nothing for it.  The facts of a flow are bounded, and so is the number of flows.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mqttscope.net.checksum import RIGHT, UNJUDGED, WRONG
from mqttscope.net.frame import CaptureNotice, Decrypted, Frame, SegmentItem
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, distance, endpoints, flow_key, is_ipv4_key, plain_key
from mqttscope.net.tcp_clock import NO_STAMP, time_stamp

MAX_FLOWS = 20_000
"""Flows whose segments are remembered; the one that was silent for longest is forgotten first."""
MAX_GENERATIONS = 4
"""Connections, one after the other, of the same endpoints."""
MAX_UNDECIDED = 64
"""Segments of a flow that do not simply continue it, kept until the dissector has decided whose they are."""
MAX_FAST_OPEN = 1_460
"""Maximum number of bytes that a SYN carries."""
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
"""Segments that come again without an answer so often show that the path is lost."""
LATELY_NS = 180_000_000_000
"""An end is explained 120 s after it, with what happened from 60 s before it on."""

Place = tuple[int, str]
"""A frame and its capture."""


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
    """Of IPv4."""
    stamp: int = NO_STAMP
    """Value of the sender's TCP clock (TSval)."""


@dataclass(slots=True)
class Unanswered:
    """What a side sent again and again, and the other one had not acknowledged."""

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
    """Sequence number after what was sent so far."""
    acknowledged: int = 0
    """The highest number that the other side acknowledged of it."""
    is_acknowledged: bool = False
    """Whether it ever did."""
    last: Seen | None = None
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
    """Bytes of the largest segment of which all bytes had arrived."""
    hole: Seen | None = None
    """The first segment after bytes that neither the capture nor the other side has."""
    probes: int = 0
    """TCP keep-alive probes since the other side's last segment."""
    first_probe: Seen | None = None
    last_probe: Seen | None = None
    finished: Seen | None = None
    """The first FIN."""
    missed: Unanswered | None = None
    """What the other side had not received of it when that sent its FIN, or either sent RST."""
    resets: list[Seen] = field(default_factory=list)
    damaged: list[Seen] = field(default_factory=list)
    """The last segments with a wrong checksum; nothing else of them is believed."""
    is_verified: bool = False
    """Whether a checksum was right, so that a wrong one is an exception."""
    recent: list[Seen] = field(default_factory=list)
    """The last segments, resets aside."""
    ttls: dict[int, int] = field(default_factory=dict)
    """How often each TTL was seen, resets aside."""

    @property
    def outstanding(self) -> int:
        """Bytes that were not acknowledged; SYN and FIN count one each."""
        return max(0, distance(self.acknowledged, self.end)) if self.is_acknowledged else 0

    @property
    def unanswered(self) -> Unanswered | None:
        """What was sent again and waits for an acknowledgement."""
        if self.last_repeat is None or self.unanswered_ns is None:
            return None
        return Unanswered(
            self.repeats, self.unanswered_ns, self.unanswered_frame, self.last_repeat, self.duplicate,
            self.advanced_ns <= self.unanswered_ns,
        )  # fmt: skip

    @property
    def outstanding_bytes(self) -> int:
        """The same without the FIN."""
        return max(0, self.outstanding - bool(self.finished))

    @property
    def usual_ttl(self) -> int | None:
        """The TTL that nearly all segments have; ``None`` where there is none such."""
        if not self.ttls:
            return None
        value, count = max(self.ttls.items(), key=lambda one: one[1])
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
    """Of the sender of the first segment, and of the other side."""
    syn: Seen | None = None
    """The SYN of the sender of the first segment."""
    has_data: bool = False
    """Whether a segment had data: the handshake is over."""
    undecided: list[tuple[bytes, Seen]] = field(default_factory=list)
    """The last segments with the keys of their directions, from the first one that may begin another connection."""
    settled: Seen | None = None
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
        for at, (_, seen) in enumerate(self.undecided):
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
    """By a RST; else there was no answer."""


class SegmentWatch:
    """Feed it frames and segments; ask it for the facts of a flow."""

    def __init__(self) -> None:
        self.flows: OrderedDict[bytes, list[FlowFacts]] = OrderedDict()
        self.knocks: OrderedDict[str, deque[Knock]] = OrderedDict()
        """By the endpoint of the server."""
        self.now_ns = -(1 << 63)
        """The latest time of a segment."""
        self.dropped: Counter[str] = Counter()
        """What had to make room, by its name."""
        self.last: tuple[int, int, str] | None = None
        """Number, time and capture of the last frame of all."""
        self._frames: deque[Frame] = deque(maxlen=MAX_FRAMES)
        self._sees_frames = False

    def frames(self, frames: Iterator[Frame | CaptureNotice]) -> Iterator[Frame | CaptureNotice]:
        """Pass frames on; the latest ones are remembered until their segments come."""
        for frame in frames:
            if type(frame) is Frame:
                self._sees_frames = True
                self._frames.append(frame)
                self.last = frame.number, frame.timestamp_ns, frame.capture
            yield frame

    def segments(self, items: Iterable[SegmentItem | Decrypted]) -> Iterator[SegmentItem | Decrypted]:
        """Pass segments on, each after it was looked at."""
        for item in items:
            if type(item) is Segment:
                self.feed(item)
            yield item

    def facts(
        self, key: bytes, opened_ns: int, first: Place | None = None, until: Place | None = None
    ) -> FlowFacts | None:
        """The facts of the flow that a connection with this direction key had, opened at this time.

        ``first``: the place of its first segment; ``until``: that of the next connection, where it is known.
        """
        known = self.flows.get(flow_key(plain_key(key))) if key else None
        if not known:
            return None
        facts = next((one for one in known if (one.first_frame, one.capture) == first), None)
        if facts is None:
            facts = next((one for one in reversed(known) if one.first_ns <= opened_ns), None)
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
        """The facts of a connection that is open, of which segments may still be undecided; ``first`` as in `facts`."""
        known = self.flows.get(flow_key(plain_key(key))) if key else None
        facts = next((one for one in known or () if (one.first_frame, one.capture) == first), None)
        return None if facts is None or facts.is_mixed else facts

    def begin(self, key: bytes, opened_ns: int, frame: int, capture: str) -> None:
        """Begin new facts at the first frame of a connection that the dissector has found, unless a SYN did that.

        If that frame continues the connection before, both have the same facts.
        """
        known = self.flows.get(flow_key(plain_key(key))) if key else None
        if not known or any((one.first_frame, one.capture) == (frame, capture) for one in known):
            return
        older = [at for at, one in enumerate(known) if one.capture != capture or one.first_frame < frame]
        if not older:
            return
        before = known[older[-1]]
        at = before.undecided_from(frame, capture)
        own, before.undecided = before.undecided[at:], before.undecided[:at]
        settled = before.settled
        is_mixed = settled is not None and settled.capture == capture and settled.frame >= frame
        if not own and not is_mixed:
            return
        before.is_mixed = before.is_mixed or is_mixed
        facts = FlowFacts(plain_key(key), opened_ns, frame, capture, is_mixed=is_mixed)
        for each in own:
            self._add(facts, *each)
        known.insert(older[-1] + 1, facts)
        del known[:-MAX_GENERATIONS]

    def settle(self, facts: FlowFacts, until: Place | None = None) -> None:
        """Take the undecided segments for those of the connection; ``until`` as in `facts`."""
        stop = len(facts.undecided) if until is None else facts.undecided_from(*until)
        taken, facts.undecided = facts.undecided[:stop], facts.undecided[stop:]
        for key, seen in taken:
            self._take(facts, key, seen)
            facts.settled = seen

    def next_syn(self, facts: FlowFacts, client: str) -> Seen | None:
        """The SYN with which a client began the next connection from the same port."""
        known = self.flows.get(flow_key(facts.key), ())
        after = [one for one in known if one.first_ns > facts.first_ns and endpoints(one.key)[0] == client]
        return next((one.syn for one in after if one.syn is not None), None)

    def forget(self, facts: FlowFacts) -> None:
        """Let the facts of a flow go: its end is explained."""
        together = flow_key(facts.key)
        known = self.flows.get(together)
        if known is None:
            return
        self.flows[together] = known = [one for one in known if one is not facts]
        if not known:
            del self.flows[together]

    def feed(self, segment: Segment) -> None:
        """Look at one segment."""
        if segment.timestamp_ns > self.now_ns:
            self.now_ns = segment.timestamp_ns
        if not self._sees_frames:
            self.last = segment.frame, segment.timestamp_ns, segment.capture
        key = plain_key(segment.key)
        together = flow_key(key)
        known = self.flows.get(together)
        begins = segment.flags & (SYN | ACK) == SYN
        if known is not None and segment.checksum != UNJUDGED:
            sender = known[-1].halves[key != known[-1].key]
            if segment.checksum == WRONG and sender.is_verified:
                _keep(sender.damaged, self._seen(segment, key))
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
        seen = self._seen(segment, key)
        if begins and facts.syn is None:
            facts.syn = seen
        own, _ = facts.direction(key)
        own.is_verified = own.is_verified or segment.checksum == RIGHT
        self._add(facts, key, seen)

    def _add(self, facts: FlowFacts, key: bytes, seen: Seen) -> None:
        """A segment, which waits if it may begin another connection, or is after one that may."""
        facts.has_data = facts.has_data or bool(seen.length and not seen.flags & (RST | SYN))
        if not facts.undecided and _continues(*facts.direction(key), seen):
            self._take(facts, key, seen)
            return
        facts.undecided.append((key, seen))
        if len(facts.undecided) > MAX_UNDECIDED:
            self.settle(facts)

    def _take(self, facts: FlowFacts, key: bytes, seen: Seen) -> None:
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
        return [one for one in self.knocks.get(server, ()) if start_ns <= one.timestamp_ns <= end_ns]

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

    def _seen(self, segment: Segment, key: bytes) -> Seen:
        ttl = identification = None
        frames = self._frames
        while frames and (frames[0].capture != segment.capture or frames[0].number < segment.frame):
            frames.popleft()
        if frames and frames[0].number == segment.frame:
            ttl, identification = ip_facts(frames[0].data, key)
        return Seen(
            segment.frame, segment.timestamp_ns, segment.capture, segment.flags, segment.sequence,
            segment.acknowledgment, len(segment.payload) + segment.missing, segment.window, ttl, identification,
            time_stamp(segment.options),
        )  # fmt: skip


def _keep(seen: list[Seen], one: Seen) -> None:
    """The last ones; a list of few needs less room than a deque."""
    seen.append(one)
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
    """A segment that is no reset moves both directions on."""
    flags = seen.flags
    size = seen.length + bool(flags & SYN) + bool(flags & FIN)
    end = (seen.sequence + size) & 0xFFFFFFFF
    own.segments += 1
    own.data += bool(seen.length)
    other.probes, other.first_probe = 0, None
    own.last = seen
    _keep(own.recent, seen)
    if seen.ttl is not None and (seen.ttl in own.ttls or len(own.ttls) < MAX_TTLS):
        own.ttls[seen.ttl] = own.ttls.get(seen.ttl, 0) + 1
    if flags & SYN and own.begun and not 0 <= distance(seen.sequence, own.end) <= MAX_FAST_OPEN + 1:
        # What came before is of another connection: a SYN for an open one is answered with where that stands.
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
    own.longest = max(own.longest, seen.length)
    new = distance(own.end, end)
    if new > 0:
        own.end = end
        if own.unanswered_ns is None:
            own.unanswered_ns, own.unanswered_frame = seen.timestamp_ns, seen.frame
    elif size and not (seen.length <= 1 and not flags & (SYN | FIN) and distance(end, own.acknowledged) >= 0):
        own.repeats += 1
        own.last_repeat = seen
    is_first_fin = flags & FIN and own.finished is None
    if is_first_fin:
        own.finished = seen
    if flags & ACK:
        gained = distance(other.acknowledged, seen.acknowledgment) if other.is_acknowledged else 1
        if gained > 0:
            other.acknowledged, other.is_acknowledged = seen.acknowledgment, True
            other.repeats, other.last_repeat, other.duplicate, other.hole = 0, None, None, None
            other.advanced_ns = seen.timestamp_ns
            if distance(seen.acknowledgment, other.end) <= 0:
                other.unanswered_ns = None
                other.carried, other.longest = max(other.carried, other.longest), 0
        elif not gained and not size and other.repeats and seen.window:
            other.duplicate = seen
    if is_first_fin:
        other.missed = other.unanswered


def _is_probe(own: Half, seen: Seen) -> bool:
    """Whether a segment is a TCP keep-alive probe: the last byte again, or nothing from there, although it arrived."""
    is_last = seen.length <= 1 and not seen.flags & (SYN | FIN) and distance(seen.sequence, own.end) == 1
    return is_last and own.is_acknowledged and own.acknowledged == own.end and not own.finished


def ip_facts(data: bytes, key: bytes) -> tuple[int | None, int | None]:
    """TTL and identification of the innermost IP header of a frame, found by the addresses of its segment.

    Identification is that of IPv4.  Both are ``None`` where the header is not found.
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
