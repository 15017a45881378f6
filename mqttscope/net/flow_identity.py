"""Which connection a segment belongs to: the one that is known, the next one between the same endpoints, or none.

Small devices choose the same port and the same initial sequence number after each reboot, so numbers alone do not say
which connection a segment belongs to.  `judge` asks what the stacks of both sides would do with it.  What only
the segments that follow can decide is `DOUBTFUL`: the flow table keeps such segments and asks `weigh` each time
another one comes.

A segment may be captured more than once: by two taps, on a mirror port, under other tags.  Such a second *view* of a
connection shows what the first one showed, with the same numbers and the same bytes, at another time when the clocks
differ.  So what repeats what is known, soon enough, is a copy; what brings anything new is not.

The Timestamps option of TCP (RFC 7323 section 3) says more, where it is used.  A stack that was started again has
another clock, even where it chooses the same port and the same initial sequence number.  A segment that was captured
twice has the same time stamp; one that is sent again has a later one.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Final

from mqttscope.net.flow import Flow, FlowReport, Verdict
from mqttscope.net.reassembly import LOST_WINDOW, START_WINDOW, UNSEEN, HalfStream, compare
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, advance, plain_key, reverse_key

TAP_NS: Final = 1_000_000
"""A segment that comes again this soon was captured twice: nobody sends anything again so early."""
VIEW_NS: Final = 10_000_000_000
"""Clocks of two taps differ by no more than this, wherever they are set by a time server now and then."""
MAX_PAST: Final = 4
"""Connections between the same endpoints that are remembered after their end, since a second view may still show
them."""
COPY_NS: Final = 200_000_000
"""A second tap whose clock is right shows a segment again within this time.  Less than any stack waits before it sends
a SYN again (RFC 6298: a second), and than most wait before they send anything again."""
PERSISTENCE_NS: Final = 120_000_000_000
"""No stack sends a segment again after so long a silence (the largest time-out of RFC 6298 section 2.4 and later)."""
LATE_NS: Final = 3_000_000_000
"""So long after the end of a flow a segment that brings nothing new is taken for a retransmission."""
BEGIN_WINDOW: Final = 1 << 16
"""How far the numbers of what looks like the beginning of a connection may be from those of the one before."""
NO_STAMP: Final = -1
"""For a segment without a time stamp."""

_VIEW_WINDOW: Final = 1 << 16
_SLACK: Final = 10_000
"""Ticks that a clock may be off: segments that are late, and clocks of captures that are set."""
_TICKS_PER_SECOND: Final = 1_125_000
"""The fastest clock, with an eighth for its error: RFC 7323 asks for one tick a millisecond at most, and Linux can be
told to have one each microsecond."""
_FAST_OPEN_BYTES: Final = 1_460
"""A SYN carries no more data than fits into one segment."""
_FEW: Final = 3
"""Segments that may wander together; more of them are sent."""
_PROTOCOL_NAMES: Final = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")
_CONNACK: Final = 0x20
_HTTP_METHOD: Final = b"GET /"
_HTTP_ANSWER: Final = b"HTTP/1.1 101"
_HANDSHAKE_RECORD: Final = b"\x16\x03"
_HELLOS: Final = (1, 2)
_END: Final = 0
_PADDING: Final = 1
_TIME_STAMPS: Final = 8
_USUAL: Final = b"\x01\x01\x08\x0a"

DOUBTFUL: Final = frozenset((Verdict.COPY, Verdict.RESUMED, Verdict.KNOCK, Verdict.STRAY, Verdict.EARLY))


def _begins_connection(payload: bytes) -> bool:
    """Whether data is what connections begin with: CONNECT, CONNACK, an HTTP upgrade or its answer, a TLS hello."""
    if not payload:
        return False
    first = payload[0]
    if first == 0x10:
        return any(2 <= payload.find(name, 2, 13) <= 5 for name in _PROTOCOL_NAMES)
    if first == _CONNACK:
        return len(payload) >= 4 and payload[1] >= 2 and payload[2] <= 1
    if first == 0x16:
        return payload[:2] == _HANDSHAKE_RECORD and len(payload) > 5 and payload[5] in _HELLOS
    return payload.startswith((_HTTP_METHOD, _HTTP_ANSWER))


def asks_for_one(flow: Flow, segments: list[Segment]) -> bool:
    """Whether segments with the numbers of a flow hold what its initiator begins a connection with, or are many."""
    own = plain_key(flow.key)
    return len(segments) > _FEW or any(
        one.flags & SYN or (plain_key(one.key) == own and _begins_connection(one.payload)) for one in segments
    )


def judge(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """What a segment that is not simply the next one has to do with the flow known between its endpoints.

    ``half`` is the direction of the segment, ``peer`` the other one.
    """
    if segment.flags & RST:
        return Verdict.EARLY if _is_early(flow, half, peer, segment) else Verdict.SAME
    if segment.flags & SYN:
        return _judge_syn(flow, half, peer, segment)
    if segment.payload or segment.missing:
        return _judge_closed(flow, half, peer, segment) if flow.closed else _judge_data(flow, half, peer, segment)
    return Verdict.SAME


def _judge_syn(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """A SYN or SYN-ACK."""
    answer = bool(segment.flags & ACK)
    same = half.initial_sequence == segment.sequence
    untouched = half.offset == 0 and not half.buffer
    lives = half.state is not UNSEEN and peer.state is not UNSEEN and bool(half.offset or peer.offset)
    may_be_copy = _may_be_copy(flow, segment) and not (same and _is_of_none(flow, half, segment))
    soon = Verdict.COPY if may_be_copy else Verdict.NEW
    if not same and not answer and flow.past and echoes(flow, segment) is not None:
        return Verdict.COPY
    if same and answer and _answers_another(peer, segment):
        return Verdict.NEW if echoes(flow, segment) is None else Verdict.COPY
    if flow.closed:
        if not same:
            return Verdict.NEW
        # A refused connection is tried again with the same number.
        refused = flow.closed == "reset" and untouched and peer.offset == 0
        return Verdict.NEW if refused and not answer else soon
    if half.state is UNSEEN:
        # An answer to another SYN than the one that data was captured of.
        foreign = answer and peer.offset > 0 and not _within(peer, segment.acknowledgment)
        return Verdict.NEW if foreign else Verdict.SAME
    if same:
        if lives and soon is Verdict.NEW:
            soon = Verdict.KNOCK  # it may be a late copy all the same
        if answer:
            # It is sent again until the other side's data comes; a side that has taken or sent data is beyond that.
            return Verdict.SAME if untouched and not half.fin_offset >= 0 and peer.acknowledged <= 0 else soon
        # A client that has acknowledged anything, or has sent data in answer to it, does not send its SYN again.
        # Data in a SYN (TCP Fast Open) is sent again with it until the server answers.
        established = peer.state is not UNSEEN and (not segment.payload or peer.offset > 0)
        return soon if established and not (untouched and peer.offset == 0) else Verdict.SAME
    start = half.locate(advance(segment.sequence, 1))
    other = Verdict.KNOCK if lives and not answer else Verdict.NEW
    if half.initial_sequence < 0:
        if untouched:
            return Verdict.NEW if not answer and peer.offset > 0 and start != 0 else Verdict.SAME
        if not -START_WINDOW <= start <= 0:
            return other
        if not half.offset or not (peer.offset or half.acknowledged):
            return Verdict.SAME  # nobody has answered yet: the first segments come in another order
        return soon
    if answer:
        if untouched:
            return Verdict.SAME
        return soon if segment.acknowledgment == advance(peer.initial_sequence, 1) else Verdict.NEW
    return other


def _is_of_none(flow: Flow, half: HalfStream, segment: Segment) -> bool:
    """Whether a SYN or SYN-ACK has a time stamp that neither the flow's own has, nor that of one before it."""
    from_initiator = plain_key(segment.key) == plain_key(flow.key)
    before = (one.initiator if from_initiator else one.responder for one in flow.past if one.key == flow.key)
    return is_other_syn(half, segment) and not any(is_same_syn(one, segment) for one in before)


def _answers_another(peer: HalfStream, segment: Segment) -> bool:
    """Whether a SYN-ACK answers another SYN than the one that was captured, whatever its own number."""
    if peer.initial_sequence < 0:
        return False
    # It acknowledges the SYN, and what the SYN carried (TCP Fast Open).
    taken = (segment.acknowledgment - peer.initial_sequence - 1) & 0xFFFFFFFF
    return taken > min(_FAST_OPEN_BYTES, max(peer.offset, peer.sent))


def _judge_data(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """Data of a side that has not ended."""
    if half.state is UNSEEN:
        return Verdict.SAME
    if _begins_connection(segment.payload) and (half.offset or peer.offset):
        if any(_strange(half, peer, segment, BEGIN_WINDOW)) or is_other_stack(half, segment):
            return Verdict.NEW
        start = half.locate(segment.sequence)
        if 0 < start < half.offset and _differs(half, segment):
            return Verdict.NEW
        known = half.beginning or (half.history[0] if half.history else b"")
        if start < 0 and half.offset and (half.initial_sequence >= 0 or _begins_connection(known)):
            return Verdict.NEW  # nothing comes before the SYN, nor before what begins a connection
        if 0 <= start < half.offset:
            # What begins the stream comes again.  Data that is sent again carries the latest acknowledgment; what
            # carries an older one is a copy, or comes from a stack that has forgotten the connection.  So does what
            # the other side has acknowledged, unless that was lost on its way.
            if segment.timestamp_ns - flow.last_timestamp_ns > PERSISTENCE_NS:
                return Verdict.NEW
            if _acknowledges_less(peer, segment) or half.acknowledged > start:
                copied = _may_be_copy(flow, segment) and not _is_newer(half, segment)
                return Verdict.COPY if copied else Verdict.NEW
        if start > half.offset > 0 and segment.payload[0] != _CONNACK:
            # Nobody says this twice on one connection; what is missing before it is the end of the other one.
            return Verdict.NEW
    if (half.ended or flow.handshake_again) and _differs(half, segment):
        # What is sent again after a FIN is what was sent before it, and a second view shows what the first one did.
        return Verdict.NEW
    if is_stray(half, peer, segment):
        return Verdict.STRAY
    return Verdict.SAME


def _judge_closed(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """Data after the end of a flow."""
    begins = _begins_connection(segment.payload)
    if half.state is UNSEEN:
        return Verdict.NEW if begins else Verdict.SAME
    if any(_strange(half, peer, segment, BEGIN_WINDOW if begins else START_WINDOW)):
        return Verdict.NEW
    if begins and is_other_stack(half, segment):
        return Verdict.NEW
    start = half.locate(segment.sequence)
    if begins and start == 0 and half.offset:
        if _may_be_copy(flow, segment) and not _differs(half, segment) and not _is_newer(half, segment):
            return Verdict.COPY
        forgotten = _acknowledges_less(peer, segment) or half.acknowledged > 0
        return Verdict.NEW if forgotten or _differs(half, segment) else Verdict.SAME
    if begins and (start >= half.offset or _differs(half, segment)):
        return Verdict.NEW
    if flow.closed == "reset" and half.fin_offset < 0 and start == half.offset:
        return Verdict.RESUMED
    return Verdict.SAME


def weigh(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """What the next segment says of those that are kept because of ``flow.doubt``, which is the answer if nothing."""
    if flow.doubt is Verdict.COPY:
        return _weigh_copy(flow, half, peer, segment)
    if flow.doubt is Verdict.RESUMED:
        return _weigh_resumed(flow, half, peer, segment)
    if flow.doubt is Verdict.EARLY:
        return _weigh_early(flow, half, peer, segment)
    if flow.doubt is Verdict.KNOCK:
        return _weigh_knock(flow, half, peer, segment)
    return _weigh_stray(flow, half, peer, segment)


def _weigh_copy(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """Whether segments with the flow's own numbers are those of another connection."""
    if segment.flags & RST:
        return Verdict.SAME
    first = flow.kept[0]
    if segment.flags & SYN:
        begins = half.initial_sequence >= 0 or half.state is UNSEEN
        start = half.locate(advance(segment.sequence, 1))
        same = half.initial_sequence == segment.sequence if begins else -START_WINDOW <= start <= 0
        if same or (is_syn(segment) and is_syn(first) and first.sequence == segment.sequence):
            return Verdict.COPY
        answers = segment.flags & ACK and any(
            is_syn(one) and segment.acknowledgment == advance(one.sequence, 1) for one in flow.kept
        )
        return Verdict.NEW if answers else Verdict.OTHER
    if half.state is UNSEEN:
        return Verdict.NEW
    strange = _strange(half, peer, segment)
    if all(strange):
        return Verdict.OTHER
    if any(strange) or _differs(half, segment):
        return Verdict.NEW
    if flow.closed and begins_again(flow, half, peer, segment):
        return Verdict.NEW
    end = half.locate(segment.sequence) + len(segment.payload) + segment.missing
    if end > max(half.offset, half.fin_offset + 1):
        # The flow continues, or has more than was captured.  Whoever acknowledges less than the flow did is another.
        less = _acknowledges_less(peer, segment) and peer.locate(segment.acknowledgment) <= _repeated(
            flow, peer, segment
        )
        return Verdict.NEW if flow.closed or less else Verdict.SAME
    if segment.flags & FIN and flow.closed and end != half.fin_offset:
        return Verdict.NEW
    return Verdict.COPY


def begins_again(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether a handshake and what connections begin with have come after the end of a flow, with its numbers.

    That is a connection, whatever its numbers are: a small stack chooses the same after each reboot, and its device
    says the same.  Only where something says that there is another tap it may be the flow once more.
    """
    if flow.doubled or segment.key not in (flow.key, reverse_key(flow.key)):
        return False
    if _may_be_copy(flow, flow.kept[0], COPY_NS):
        return False
    # The device's clock may begin with the same number each time; that of the other side continues.
    answers = (one for one in flow.kept if one.flags & SYN and one.flags & ACK)
    if any(is_same_syn(half if one.key == segment.key else peer, one) for one in answers):
        return False
    if half.locate(segment.sequence) or not _begins_connection(segment.payload):
        return False
    asked = any(is_syn(one) for one in flow.kept)
    answered = any(one.flags & SYN and one.flags & ACK for one in flow.kept)
    return (asked or not flow.syn_seen) and (answered or not flow.syn_ack_seen) and (asked or answered)


def last_beginning(kept: list[Segment]) -> int:
    """Where in segments that are kept, one after the other, the last of several beginnings is; 0 for a single one."""
    found = 0
    for at, one in enumerate(kept):
        if at and (is_syn(one) or _begins_connection(one.payload)):
            key = plain_key(one.key)
            same = [other for other in kept[found:at] if plain_key(other.key) == key]
            ahead = (other.sequence + len(other.payload) - one.sequence & 0xFFFFFFFF for other in same)
            later = is_syn(one) and one.timestamp_ns - kept[at - 1].timestamp_ns > COPY_NS
            if later or any(1 < distance <= START_WINDOW for distance in ahead):
                found = at
    return found


def _repeated(flow: Flow, half: HalfStream, segment: Segment) -> int:
    """Up to where the segments that are kept repeat the direction opposite to that of a segment."""
    key = plain_key(segment.key)
    ends = (
        half.locate(advance(one.sequence, len(one.payload) + one.missing + bool(one.flags & SYN)))
        for one in flow.kept
        if plain_key(one.key) != key
    )
    return max(ends, default=-START_WINDOW)


def _weigh_knock(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """Whether a SYN inside of a living connection was answered, or the connection continues."""
    first = flow.kept[0]
    begin = advance(first.sequence, 1)
    if first.key == segment.key:
        if segment.flags & RST:
            # The answer of a stack that has forgotten the connection to where the other side says that it stands.
            forgotten = half.locate(segment.sequence) == half.acknowledged
            return Verdict.NEW if forgotten else judge(flow, half, peer, segment)
        if segment.flags & SYN:
            return Verdict.KNOCK if segment.sequence == first.sequence else judge(flow, half, peer, segment)
        if half.initial_sequence == first.sequence and half.locate(segment.sequence) == half.offset:
            return Verdict.CONTINUES
        ahead = (segment.sequence - begin) & 0xFFFFFFFF
        if segment.sequence == begin or (ahead < BEGIN_WINDOW and not _within(half, segment.sequence, BEGIN_WINDOW)):
            return Verdict.NEW
        return Verdict.CONTINUES
    if segment.flags & (SYN | RST) and segment.flags & ACK:
        taken = (segment.acknowledgment - begin) & 0xFFFFFFFF
        return Verdict.NEW if taken <= len(first.payload) else Verdict.SAME
    answers = segment.flags & ACK and 0 < (segment.acknowledgment - begin) & 0xFFFFFFFF < BEGIN_WINDOW
    if answers and not _within(peer, segment.acknowledgment, BEGIN_WINDOW):
        return Verdict.NEW
    # It may be the answer to the SYN of a stranger, and the connection continues with it.
    return judge(flow, half, peer, segment)


def _is_early(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether data is missing that was sent before a reset, so that it may still come."""
    if flow.closed or half.state is UNSEEN or not plausible_reset(half, peer, segment):
        return False
    beyond = half.locate(segment.sequence) - half.offset
    if beyond > (half.offset == half.fin_offset) or half.buffer:  # a FIN counts one
        return True
    acknowledges = segment.flags & ACK and peer.state is not UNSEEN and not peer.ended
    return bool(acknowledges and (peer.buffer or peer.locate(segment.acknowledgment) > peer.offset))


def _weigh_early(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """Whether there is still something to wait for after a reset."""
    if segment.flags & RST:
        return Verdict.OTHER
    verdict = judge(flow, half, peer, segment)
    return verdict if verdict is Verdict.SAME else Verdict.OTHER


def _weigh_resumed(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """Whether both sides of a flow continue after its reset."""
    if segment.flags & (SYN | RST):
        return judge(flow, half, peer, segment)
    first = flow.kept[0]
    if first.key == segment.key:
        if not (segment.payload or segment.missing):
            return Verdict.RESUMED
        expected = advance(flow.kept[-1].sequence, len(flow.kept[-1].payload) + flow.kept[-1].missing)
        return Verdict.RESUMED if segment.sequence == expected else judge(flow, half, peer, segment)
    # The other side has taken what was sent after the reset, so that it cannot have ended anything.
    taken = segment.flags & ACK and peer.offset < peer.locate(segment.acknowledgment) <= peer.offset + START_WINDOW
    return Verdict.CONTINUES if taken else judge(flow, half, peer, segment)


def _weigh_stray(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """Whether segments with strange numbers are those of another connection."""
    first = flow.kept[0]
    there, back = (segment.sequence, segment.acknowledgment)
    if first.key != segment.key:
        there, back = back, there
    near = _near(first.sequence, there) and _near(first.acknowledgment, back)
    if not near or segment.flags & (SYN | RST):
        return judge(flow, half, peer, segment)
    return Verdict.NEW


def _near(one: int, other: int) -> bool:
    return (other - one + START_WINDOW) & 0xFFFFFFFF <= 2 * START_WINDOW


def _strange(half: HalfStream, peer: HalfStream, segment: Segment, window: int = START_WINDOW) -> tuple[bool, bool]:
    """Whether the sequence number and the acknowledgment of data are far from anything that the flow had."""
    acknowledges = bool(segment.flags & ACK) and peer.state is not UNSEEN
    return (
        not _within(half, segment.sequence, window),
        acknowledges and not _within(peer, segment.acknowledgment, window),
    )


def is_stray(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether both numbers of a segment are far from the flow's, and not because the capture lost a part of both."""
    if half.state is UNSEEN or not all(_strange(half, peer, segment)):
        return False
    ahead = half.locate(segment.sequence) - half.offset, peer.locate(segment.acknowledgment) - peer.offset
    return not all(0 < distance <= LOST_WINDOW for distance in ahead)


def _within(half: HalfStream, sequence: int, window: int = START_WINDOW) -> bool:
    """Whether a sequence number is one that a side has used, or is about to use."""
    return -window <= half.locate(sequence) <= max(half.offset, half.sent, half.acknowledged) + window


def _may_be_copy(flow: Flow, segment: Segment, limit_ns: int = VIEW_NS) -> bool:
    """Whether a segment may be the copy of one of a flow: it is little later than the first, or of another capture.

    Captures that overlap are read one after the other, so that time goes back where the second one begins.  Inside of
    one capture it goes back where the clock was set, which says nothing.
    """
    now = segment.timestamp_ns
    if now < flow.furthest_ns or (now < flow.last_timestamp_ns and segment.capture != flow.last_capture):
        return True
    return -COPY_NS <= now - flow.opened_ns <= limit_ns


def _acknowledges_less(peer: HalfStream, segment: Segment) -> bool:
    """Whether a segment acknowledges less of the other side's stream than its sender did before."""
    return (
        bool(segment.flags & ACK)
        and peer.state is not UNSEEN
        and peer.locate(segment.acknowledgment) < peer.acknowledged
    )


def _differs(half: HalfStream, segment: Segment) -> bool:
    """Whether the bytes of a segment that were delivered before are others now, as far as they are remembered."""
    start = half.locate(segment.sequence)
    return start >= 0 and differs(half, start, segment.payload)


def take_syn(
    flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment, report: FlowReport, answer: FlowReport
) -> bool:
    """Apply the SYN of a segment to an open flow; ``False`` when the whole segment is to be ignored.

    ``half`` is the direction of the segment, with ``report``; ``peer`` is the other one, with ``answer``.
    """
    sequence = segment.sequence
    seen = flow.syn_ack_seen if segment.flags & ACK else flow.syn_seen
    if half.initial_sequence != sequence and half.initial_sequence >= 0 and (half.offset or half.buffer):
        # A second SYN-ACK for the same SYN that says something else: the first one stands.
        half.ignored_syns += 1
        return False
    if half.initial_sequence != sequence:
        half.synchronize(sequence, report)
        half.syn_stamp = time_stamp(segment.options)
    elif seen:
        half.ignored_syns += 1
    if segment.flags & ACK:
        flow.syn_ack_seen = True
        if peer.state is UNSEEN:
            peer.synchronize(advance(segment.acknowledgment, -1), answer)
    else:
        flow.syn_seen = True
    return True


def is_challenge(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether an acknowledgment answers a SYN that its sender does not expect (RFC 5961 section 4).

    A server that still holds an earlier connection tells a client that begins again where that one stood.
    """
    if segment.flags & (SYN | FIN | RST) or segment.payload or half.state is not UNSEEN:
        return False
    begun = flow.syn_seen and not flow.syn_ack_seen and peer.offset == 0 and not peer.buffer
    return begun and segment.acknowledgment != advance(peer.initial_sequence, 1)


def disowns(half: HalfStream, segment: Segment) -> bool:
    """Whether a reset by the side of ``half`` is that of a stack which does not know the connection.

    Who ends a connection that it knows acknowledges with its reset.  One that has no ACK answers a segment of the
    other side, and has the number which that one acknowledged (RFC 9293 section 3.5.2).
    """
    return not segment.flags & ACK and half.fin_offset < 0 and half.locate(segment.sequence) == half.acknowledged


def plausible_reset(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether a reset by the side of ``half`` is one that ends the flow (RFC 9293 section 3.5.2)."""
    if half.state is not UNSEEN:
        if peer.state is UNSEEN and half.initial_sequence >= 0 and half.offset == 0 and not half.buffer:
            # Nothing but a SYN was captured; what resets with another number is the end of an earlier connection.
            return half.locate(segment.sequence) in (-1, 0)
        return half.plausible_reset(segment.sequence)
    # Nothing is known of the side that resets: it has to acknowledge what the other one sent, its SYN at least.
    if not segment.flags & ACK or peer.state is UNSEEN:
        return False
    return 0 <= peer.locate(segment.acknowledgment) <= max(peer.offset, peer.sent)


def past(flow: Flow, now: int) -> list[Flow]:
    """The flows of which a view may still show something: one that ends now, and those before it."""
    before = [one for one in flow.past if now - one.last_timestamp_ns <= VIEW_NS]
    flow.past = []
    if now - flow.last_timestamp_ns <= VIEW_NS:
        before.append(flow)
    return before[-MAX_PAST:]


def differs(half: HalfStream, start: int, payload: bytes) -> bool:
    """Whether bytes at a stream offset are others than those delivered there, as far as these are remembered."""
    if start < 0:
        payload, start = payload[-start:], 0
    known = payload[: max(0, half.offset - start)]
    if not known:
        return False
    first = half.beginning[start : start + len(known)]
    return first != known[: len(first)] or compare(half.history, half.offset, start, known)[1] > 0


def echoes(flow: Flow, segment: Segment) -> Flow | None:
    """The last connection before a flow of which a segment repeats what it had, if it repeats any."""
    for one in reversed(flow.past):
        if -VIEW_NS <= segment.timestamp_ns - one.last_timestamp_ns <= VIEW_NS and repeats(one, segment):
            return one
    return None


def belongs(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether the numbers of a segment are near enough to where a flow stands to be its own."""
    if segment.flags & SYN:
        if half.state is UNSEEN:
            return bool(segment.flags & ACK) and segment.acknowledgment == advance(peer.initial_sequence, 1)
        return half.initial_sequence == segment.sequence
    if half.state is UNSEEN:
        # Nobody acknowledges what was not sent.
        return bool(segment.flags & ACK) and 0 <= peer.locate(segment.acknowledgment) <= max(peer.offset, peer.sent)
    if not -_VIEW_WINDOW <= half.locate(segment.sequence) - half.offset <= _VIEW_WINDOW:
        return False
    if not segment.flags & ACK:
        return True
    if peer.state is UNSEEN:
        return half.locate(segment.sequence) <= half.offset
    return -_VIEW_WINDOW <= peer.locate(segment.acknowledgment) - peer.offset <= _VIEW_WINDOW


def is_syn(segment: Segment) -> bool:
    """Whether a segment is a SYN without ACK: it says nothing of the other side's numbers."""
    return segment.flags & (SYN | ACK) == SYN


def repeat_one(flow: Flow, segments: list[Segment]) -> bool:
    """Whether segments all repeat one connection before a flow."""
    now = segments[0].timestamp_ns
    return any(
        now - one.last_timestamp_ns <= VIEW_NS and all(repeats(one, other) for other in segments) for one in flow.past
    )


def repeats(one: Flow, segment: Segment) -> bool:
    """Whether a segment has the numbers and the bytes of one of a connection that is over."""
    half, peer = one.initiator, one.responder
    if plain_key(segment.key) != plain_key(one.key):
        half, peer = peer, half
    if half.state is UNSEEN:
        return False
    flags = segment.flags
    if flags & SYN:
        if half.initial_sequence != segment.sequence:
            return False
        return not flags & ACK or peer.state is UNSEEN or peer.initial_sequence == advance(segment.acknowledgment, -1)
    if flags & ACK and peer.state is not UNSEEN:
        most = max(peer.offset, peer.fin_offset + 1, peer.acknowledged)
        if not 0 <= peer.locate(segment.acknowledgment) <= most:
            return False
    start = half.locate(segment.sequence)
    end = start + len(segment.payload) + segment.missing
    if start < 0 or end > max(half.offset, half.fin_offset, half.acknowledged) + 1:
        return False
    return not differs(half, start, segment.payload)


def is_copy(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether a segment was captured a second time, by another tap or with other tags."""
    again = flow.doubled or segment.key in flow.views
    payload = segment.payload
    limit = VIEW_NS if again else TAP_NS
    if segment.timestamp_ns - flow.last_timestamp_ns > limit or half.state is UNSEEN or segment.flags & RST:
        return False
    if segment.flags & SYN:
        begins = not (half.offset or peer.offset)  # later it is no tap that shows it at once
        return half.initial_sequence == segment.sequence and not payload and (again or begins)
    start = half.locate(segment.sequence)
    end = start + len(payload)
    if segment.flags & FIN and end != half.fin_offset:
        return False
    if not payload:
        # An empty segment says the same again; whether it was captured twice is only known by its view.
        behind = start < half.offset or segment.key in flow.views
        return again and behind and start <= half.offset and peer.locate(segment.acknowledgment) <= peer.acknowledged
    if start < 0 or segment.missing:
        return False
    if end > half.offset:
        return half.buffer.holds(start, payload)
    return not half.lacks(start, end) and not differs(half, start, payload)


def is_view(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether a segment fits a flow so well that it can only be one of its own, captured in another place."""
    if segment.flags & RST:
        return False
    if segment.flags & SYN:
        if segment.flags & ACK and half.state is UNSEEN:
            return segment.acknowledgment == advance(peer.initial_sequence, 1)
        return half.initial_sequence == segment.sequence
    if half.state is UNSEEN:
        # The other direction has other tags: what it acknowledges has just been sent.
        return 0 <= peer.locate(segment.acknowledgment) <= peer.offset and peer.offset > 0
    start = half.locate(segment.sequence)
    fits = -_VIEW_WINDOW <= start - half.offset <= 0
    acknowledges = peer.state is UNSEEN or abs(peer.locate(segment.acknowledgment) - peer.offset) <= _VIEW_WINDOW
    return fits and acknowledges and not compare(half.history, half.offset, start, segment.payload)[1]


def in_order(segments: list[Segment]) -> bool:
    """Whether the data of each side comes in its order, as a connection and a view of it show it."""
    reached: dict[bytes, int] = {}
    for one in segments:
        if one.payload:
            key = plain_key(one.key)
            before = reached.get(key, one.sequence)
            if (one.sequence - before) & 0xFFFFFFFF > 0x7FFFFFFF:
                return False
            reached[key] = one.sequence
    return True


def is_whole(flow: Flow, segments: list[Segment]) -> bool:
    """Whether segments that repeat a flow repeat all of it, as a second view of it does in the end."""
    ends = {True: 0, False: 0}
    for one in segments:
        from_initiator = plain_key(one.key) == plain_key(flow.key)
        half = flow.initiator if from_initiator else flow.responder
        if half.state is not UNSEEN and not one.flags & SYN:
            end = half.locate(one.sequence) + len(one.payload) + one.missing
            ends[from_initiator] = max(ends[from_initiator], end)
    return ends[True] >= flow.initiator.offset and ends[False] >= flow.responder.offset


def time_stamp(options: bytes) -> int:
    """The sender's time stamp (TSval) in the options of a TCP header, `NO_STAMP` without one."""
    if options[:4] == _USUAL and len(options) >= 12:
        return int(unpack_from("!I", options, 4)[0])
    at = 0
    while at < len(options) and options[at] != _END:
        if options[at] == _PADDING:
            at += 1
            continue
        length = options[at + 1] if at + 1 < len(options) else 0
        if length < 2 or at + length > len(options):
            break
        if options[at] == _TIME_STAMPS and length == 10:
            return int(unpack_from("!I", options, at + 2)[0])
        at += length
    return NO_STAMP


def _ticks_between(before: int, now: int) -> int:
    """How far a clock has continued; below 0 where it has gone back."""
    return (now - before + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def is_other_stack(half: HalfStream, segment: Segment) -> bool:
    """Whether the time stamp of data cannot be of the stack that sent the rest of this direction."""
    if not half.options_ns or segment.missing:
        return False
    before, now = time_stamp(half.options), time_stamp(segment.options)
    if before == NO_STAMP or now == NO_STAMP:
        return before != now  # a connection has it in all of its segments, or in none
    ticks = _ticks_between(before, now)
    if ticks < 0 and half.syn_stamp != NO_STAMP and _ticks_between(half.syn_stamp, now) >= 0:
        return False  # it is from between the SYN and the last segment
    passed = max(0, segment.timestamp_ns - half.options_ns) * _TICKS_PER_SECOND // 1_000_000_000
    return not -_SLACK <= ticks <= passed + _SLACK


def _is_newer(half: HalfStream, segment: Segment) -> bool:
    """Whether data has a later time stamp than all that was captured of its direction: then it is no copy of that."""
    before, now = time_stamp(half.options), time_stamp(segment.options)
    return NO_STAMP not in (before, now) and _ticks_between(before, now) > 0


def is_other_syn(half: HalfStream, segment: Segment) -> bool:
    """Whether a SYN, or SYN-ACK, with the number of the one that was captured is another one by its time stamp."""
    now = time_stamp(segment.options)
    return now != half.syn_stamp and NO_STAMP not in (now, half.syn_stamp)


def is_same_syn(half: HalfStream, segment: Segment) -> bool:
    """Whether a SYN, or SYN-ACK, is the one that was captured, by its time stamp; 0 is what a clock begins with."""
    return half.syn_stamp > 0 and time_stamp(segment.options) == half.syn_stamp
