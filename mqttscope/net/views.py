"""Segments that were captured more than once: by two taps, on a mirror port, under other tags.

A second *view* of a connection shows what the first one showed, with the same numbers and the same bytes, at another
time when the clocks differ.  So what repeats what is known, soon enough, is a copy; what brings anything new is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqttscope.net.reassembly import UNSEEN, compare
from mqttscope.net.segment import ACK, FIN, RST, SYN, advance, plain_key

if TYPE_CHECKING:
    from mqttscope.net.flow import Flow
    from mqttscope.net.reassembly import HalfStream
    from mqttscope.net.segment import Segment

TAP_NS = 1_000_000
"""A segment that comes again this soon was captured twice: nobody sends anything again so early."""
VIEW_NS = 10_000_000_000
"""Clocks of two taps differ by no more than this, wherever they are set by a time server now and then."""
MAX_PAST = 4
"""Connections between the same endpoints that are remembered after their end, since a second view may still show
them."""

_VIEW_WINDOW = 1 << 16


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
