"""Segments with a wrong checksum: which were damaged on the way, and which only look so.

A receiver discards a damaged segment (RFC 9293 section 3.1), and its sender sends the bytes again.  Tools that write or
edit captures leave wrong checksums too, and all of these segments were received.  So a wrong checksum proves damage
only if it is the exception in its direction and the receiver behaves accordingly.  Until that is clear, a segment waits
beside its flow (`Flow.damaged`), and neither begins, continues, ends nor resets anything:

- A valid copy of its bytes comes: it was damaged.
- The other side acknowledges it, and no valid copy was captured: it is used, as are all further ones of its direction
  if that has no right checksum.
- `UNPROVEN` different ones come, and neither direction has shown a right checksum: a tool has made the capture.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Final

from mqttscope.net.checksum import RIGHT, UNJUDGED, WRONG
from mqttscope.net.flow import Flow, FlowEvent, FlowReport
from mqttscope.net.reassembly import NEVER, START_WINDOW, UNSEEN, HalfStream
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, advance, distance, plain_key
from mqttscope.net.tap_views import halves

MAX_DAMAGED_SEGMENTS: Final = 64
"""Maximum number of segments of a flow that wait."""
MAX_DAMAGED_BYTES: Final = 256 * 1024
DAMAGED_WAIT_NS: Final = 120_000_000_000
"""Maximum time for which a segment waits for its valid copy: the longest retransmission time-out of Linux."""
UNPROVEN: Final = 3
"""Minimum number of different segments without any right checksum that are used although nothing acknowledges them."""


def due_ns(flow: Flow) -> int:
    """Capture time at which the segments that wait are decided."""
    return flow.damaged[0].timestamp_ns + DAMAGED_WAIT_NS if flow.damaged else NEVER


def unproven(flow: Flow) -> list[Segment]:
    """Those for which neither their direction nor the other one, whose acknowledgments decide, has a right checksum."""
    loose = [(segment, *halves(flow, segment)) for segment in flow.damaged]
    return [segment for segment, half, peer in loose if half.checksums == UNJUDGED and peer.checksums != RIGHT]


def different(segments: list[Segment]) -> int:
    """How many segments are no copies of others: several taps show the same damage."""
    return len({(plain_key(seg.key), seg.sequence, seg.options, seg.flags, seg.payload) for seg in segments})


def is_too_much(segments: list[Segment]) -> bool:
    return len(segments) > MAX_DAMAGED_SEGMENTS or sum(len(segment.payload) for segment in segments) > MAX_DAMAGED_BYTES


def replaced(flow: Flow) -> list[Segment]:
    """Those whose valid copies have come."""
    return [segment for segment in flow.damaged if _is_replaced(flow, segment)]


def _is_replaced(flow: Flow, segment: Segment) -> bool:
    half = halves(flow, segment)[0]
    if half.state is UNSEEN:
        return False
    if segment.flags & (SYN | RST) or not (segment.payload or segment.flags & FIN):
        return half.checksums == RIGHT
    start = half.locate(segment.sequence)
    end = start + len(segment.payload)
    if segment.flags & FIN and half.fin_offset != end >= half.offset:
        return False
    return half.buffer.covers(max(start, half.offset), end)


def accepted(flow: Flow, answer: Segment) -> list[Segment]:
    """What is used because a segment acknowledges it, before that one."""
    return to_be_used(flow, [segment for segment in flow.damaged if _acknowledges(answer, segment)])


def _acknowledges(answer: Segment, segment: Segment) -> bool:
    if plain_key(answer.key) == plain_key(segment.key) or answer.flags & (ACK | RST) != ACK:
        return False
    length = len(segment.payload) + bool(segment.flags & SYN) + bool(segment.flags & FIN)
    return bool(length) and 0 <= distance(segment.sequence + length, answer.acknowledgment) <= START_WINDOW


def take(flow: Flow, segments: list[Segment]) -> list[Segment]:
    numbers = {id(segment) for segment in segments}
    flow.damaged = [segment for segment in flow.damaged if id(segment) not in numbers]
    return segments


def drop(flow: Flow, segments: list[Segment], events: list[FlowEvent]) -> None:
    """Count and report segments that were damaged."""
    for segment in take(flow, segments):
        half = halves(flow, segment)[0]
        half.damaged_segments += 1
        if segment.payload:
            _report(flow, half, segment, events).discarded(len(segment.payload), "damaged")


def used(flow: Flow, segment: Segment, events: list[FlowEvent]) -> Segment:
    """A segment as it is used.  If checksums are right otherwise, its bytes are in doubt, and its clock is ignored."""
    half = halves(flow, segment)[0]
    if half.checksums != RIGHT:
        half.checksums = WRONG
        return replace(segment, checksum=UNJUDGED)
    half.overlaps += 1
    _report(flow, half, segment, events).overlap(len(segment.payload), half.locate(segment.sequence))
    return replace(segment, flags=segment.flags & (FIN | ACK), options=b"", checksum=UNJUDGED)


def to_be_used(flow: Flow, segments: list[Segment]) -> list[Segment]:
    """These segments, with all that wait of a direction which has shown no right checksum."""
    whole = [id(half) for half, _ in (halves(flow, segment) for segment in segments) if half.checksums != RIGHT]
    numbers = {id(segment) for segment in segments}
    return [segment for segment in flow.damaged if id(segment) in numbers or id(halves(flow, segment)[0]) in whole]


def last_to_be_used(flow: Flow) -> list[Segment]:
    """What is used of the segments that wait when nothing more comes."""
    loose = unproven(flow)
    # A single one, or two without anything in common, may be of another connection: damage to a port leads here.
    last = loose if any(_belong_together(*pair) for pair in combinations(loose, 2)) else []
    for segment in flow.damaged:
        half = halves(flow, segment)[0]
        if segment.payload and half.checksums == RIGHT and half.overlaps and not half.damaged_segments:
            last.append(segment)  # others were accepted, and none was damaged: a tool has changed them
    return to_be_used(flow, last + unanswered(flow))


def unanswered(flow: Flow, now: int = NEVER) -> list[Segment]:
    """What is used in the place of gaps that are due, if nobody was captured who could acknowledge it."""
    return [
        segment
        for segment in flow.damaged
        for half, peer in (halves(flow, segment),)
        if segment.payload and half.checksums == RIGHT and not peer.segments and half.deadline_ns <= now
    ]


def _belong_together(first: Segment, second: Segment) -> bool:
    """Whether a segment acknowledges one of the other side, or brings the data after that of its own side."""
    follows = first.payload and second.payload and advance(first.sequence, len(first.payload)) == second.sequence
    return _acknowledges(second, first) or (plain_key(first.key) == plain_key(second.key) and bool(follows))


def _report(flow: Flow, half: HalfStream, segment: Segment, events: list[FlowEvent]) -> FlowReport:
    place = segment.frame, segment.timestamp_ns, segment.capture
    return FlowReport(flow, half is flow.initiator, place, events)
