"""Second views of a connection: another tap, a mirror port or other tags show its segments again.

A view shows the segments of the first one: equal numbers and bytes, in order, later or earlier by the difference of
two clocks, which `VIEW_NS` bounds.  So a segment with anything new is not a copy.  A view may still show a connection
after the next one has begun: the last connections between two endpoints are remembered (`viewable_flows`).

A segment was *captured twice* only with equal time stamps (RFC 7323): a repeated segment has a later one.
Without time stamps the distance in time decides, `TAP_NS`.  Segments do not carry the identification of IPv4: reading
it would slow down the hot path for each frame.  `--deduplicate` compares whole frames, with the identification.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqttscope.net.flow import Flow
from mqttscope.net.reassembly import UNSEEN, HalfStream, compare
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, advance, plain_key
from mqttscope.net.tcp_clock import is_later

TAP_NS: Final = 1_000_000
"""Without time stamps, a segment that repeats within this time was captured twice."""
COPY_NS: Final = 200_000_000
"""Maximum delay of a second tap with a right clock: shorter than the retransmission time-outs of most stacks."""
VIEW_NS: Final = 10_000_000_000
"""Maximum difference of the clocks of two taps."""
MAX_PAST: Final = 4
"""Maximum number of ended connections between two endpoints remembered for their views."""
_VIEW_WINDOW: Final = 1 << 16
_VIEW_SEGMENTS: Final = 4
"""Minimum number of different segments in a row that show a second view."""


def halves(flow: Flow, segment: Segment) -> tuple[HalfStream, HalfStream]:
    """The direction of a segment in a flow, and the other one."""
    from_initiator = plain_key(segment.key) == plain_key(flow.key)
    return (flow.initiator, flow.responder) if from_initiator else (flow.responder, flow.initiator)


def differs(half: HalfStream, start: int, payload: bytes) -> bool:
    """Whether bytes at a stream offset differ from those delivered there, as far as these are remembered."""
    if start < 0:
        payload, start = payload[-start:], 0
    known = payload[: max(0, half.offset - start)]
    if not known:
        return False
    first = half.beginning[start : start + len(known)]
    return first != known[: len(first)] or compare(half.history, half.offset, start, known)[1] > 0


def acknowledges_less(peer: HalfStream, segment: Segment) -> bool:
    """Whether a segment acknowledges less than its sender acknowledged before."""
    acknowledges = segment.flags & ACK and peer.state is not UNSEEN
    return bool(acknowledges and peer.locate(segment.acknowledgment) < peer.acknowledged)


def is_copy(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether a segment was captured a second time, by another tap or with other tags."""
    again = flow.doubled or segment.key in flow.views
    payload, passed_ns = segment.payload, segment.timestamp_ns - flow.last_timestamp_ns
    if passed_ns > (VIEW_NS if again else TAP_NS) or half.state is UNSEEN or segment.flags & RST:
        return False
    if is_later(half, segment):
        return False
    if segment.flags & SYN:
        begins = not (half.offset or peer.offset)  # later a single tap shows a SYN again: a frame that took a detour
        return half.initial_sequence == segment.sequence and not payload and (again or begins)
    start = half.locate(segment.sequence)
    end = start + len(payload)
    if segment.flags & FIN and end != half.fin_offset:
        return False
    if not payload:
        # An empty segment looks like the one before; only its view shows that it was captured twice.
        behind = start < half.offset or segment.key in flow.views
        return again and behind and start <= half.offset and peer.locate(segment.acknowledgment) <= peer.acknowledged
    if start < 0 or segment.missing:
        return False
    if end > half.offset:
        return half.buffer.holds(start, payload)
    return not half.lacks(start, end) and not differs(half, start, payload)


def is_view(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether a segment with other tags can only belong to this flow, by its numbers and bytes."""
    if segment.flags & RST or not belongs(half, peer, segment):
        return False
    if half.state is UNSEEN or segment.flags & SYN:
        # The other direction has other tags: the acknowledged bytes have just been sent.
        return bool(segment.flags & SYN) or peer.offset > 0
    start = half.locate(segment.sequence)
    return start <= half.offset and not compare(half.history, half.offset, start, segment.payload)[1]


def is_replay(flow: Flow, segments: Sequence[Segment]) -> bool:
    """Whether repeated segments were captured twice: retransmissions acknowledge newer bytes."""
    different = {(segment.key, segment.sequence, segment.acknowledgment): segment for segment in segments}
    older = sum(acknowledges_less(halves(flow, segment)[1], segment) for segment in different.values())
    return len(different) >= _VIEW_SEGMENTS and older >= _VIEW_SEGMENTS // 2


def in_order(segments: Sequence[Segment]) -> bool:
    """Whether the data of each side is in order, as in a connection or a view of it."""
    reached: dict[bytes, int] = {}
    for segment in segments:
        if segment.payload:
            key = plain_key(segment.key)
            if (segment.sequence - reached.get(key, segment.sequence)) & 0xFFFFFFFF > 0x7FFFFFFF:
                return False
            reached[key] = segment.sequence
    return True


def viewable_flows(flow: Flow, now: int) -> list[Flow]:
    """Connections that a view may still show: a flow that ends now, and the connections before it."""
    before = [ended for ended in flow.past if now - ended.last_timestamp_ns <= VIEW_NS]
    flow.past = []
    if now - flow.last_timestamp_ns <= VIEW_NS:
        before.append(flow)
    return before[-MAX_PAST:]


def repeated_flow(flow: Flow, segment: Segment) -> Flow | None:
    """The latest earlier connection that a segment repeats."""
    for ended in reversed(flow.past):
        if abs(segment.timestamp_ns - ended.last_timestamp_ns) <= VIEW_NS and repeats(ended, segment):
            return ended
    return None


def repeat_past(flow: Flow, segments: Sequence[Segment]) -> bool:
    """Whether all segments repeat one connection before a flow."""
    now = segments[0].timestamp_ns
    return any(
        now - ended.last_timestamp_ns <= VIEW_NS and all(repeats(ended, segment) for segment in segments)
        for ended in flow.past
    )


def repeats(ended: Flow, segment: Segment) -> bool:
    """Whether a segment has numbers and bytes of an ended connection."""
    half, peer = halves(ended, segment)
    if half.state is UNSEEN or is_later(half, segment):
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


def belongs(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether the numbers of a segment are close enough to the position of a flow to belong to it."""
    if segment.flags & SYN:
        if half.state is UNSEEN:
            return bool(segment.flags & ACK) and segment.acknowledgment == advance(peer.initial_sequence, 1)
        return half.initial_sequence == segment.sequence
    if half.state is UNSEEN:
        # No stack acknowledges bytes that were not sent.
        return bool(segment.flags & ACK) and 0 <= peer.locate(segment.acknowledgment) <= max(peer.offset, peer.sent)
    if abs(half.locate(segment.sequence) - half.offset) > _VIEW_WINDOW:
        return False
    if not segment.flags & ACK:
        return True
    if peer.state is UNSEEN:
        return half.locate(segment.sequence) <= half.offset
    return abs(peer.locate(segment.acknowledgment) - peer.offset) <= _VIEW_WINDOW
