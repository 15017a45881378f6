"""Segments with a wrong checksum: damaged on the way, or captured with a wrong checksum only.

A receiver discards a damaged segment (RFC 9293 section 3.1), and its sender sends the bytes again.  But tools that
write or edit captures also leave wrong checksums, on segments that were received.  So a wrong checksum proves damage
only if it is an exception in its direction and the receiver behaves accordingly.  Until this is clear, a segment waits
in `Flow.damaged`, and does not begin, continue, end or reset anything:

- A valid copy of its bytes arrives: the segment was damaged.
- The other side acknowledges it, and no valid copy was captured: it is used.  If no segment of its direction had a
  right checksum, all further segments of the direction are used too.
- `UNPROVEN` different segments arrive, and neither direction has shown a right checksum: a tool made the capture.
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
"""Maximum number of waiting segments of a flow."""
MAX_DAMAGED_BYTES: Final = 256 * 1024
DAMAGED_WAIT_NS: Final = 120_000_000_000
"""Maximum waiting time for a valid copy of a segment: the longest retransmission time-out of Linux."""
UNPROVEN: Final = 3
"""Number of different segments that are used without an acknowledgment if no right checksum was seen."""


def due_ns(flow: Flow) -> int:
    """Capture time of the decision about the waiting segments."""
    return flow.damaged[0].timestamp_ns + DAMAGED_WAIT_NS if flow.damaged else NEVER


def unproven_segments(flow: Flow) -> list[Segment]:
    """Waiting segments if neither their direction nor the other one has shown a right checksum."""
    loose = [(segment, *halves(flow, segment)) for segment in flow.damaged]
    return [segment for segment, half, peer in loose if half.checksums == UNJUDGED and peer.checksums != RIGHT]


def count_different(segments: list[Segment]) -> int:
    """Number of different segments, without the copies of other taps."""
    return len({(plain_key(seg.key), seg.sequence, seg.options, seg.flags, seg.payload) for seg in segments})


def is_too_much(segments: list[Segment]) -> bool:
    return len(segments) > MAX_DAMAGED_SEGMENTS or sum(len(segment.payload) for segment in segments) > MAX_DAMAGED_BYTES


def replaced_segments(flow: Flow) -> list[Segment]:
    """Waiting segments with a valid copy that has arrived."""
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


def accepted_segments(flow: Flow, answer: Segment) -> list[Segment]:
    """The segments to use because ``answer`` acknowledges them; they come before it."""
    return segments_to_use(flow, [segment for segment in flow.damaged if _acknowledges(answer, segment)])


def _acknowledges(answer: Segment, segment: Segment) -> bool:
    if plain_key(answer.key) == plain_key(segment.key) or answer.flags & (ACK | RST) != ACK:
        return False
    length = len(segment.payload) + bool(segment.flags & SYN) + bool(segment.flags & FIN)
    return bool(length) and 0 <= distance(segment.sequence + length, answer.acknowledgment) <= START_WINDOW


def remove_waiting(flow: Flow, segments: list[Segment]) -> list[Segment]:
    numbers = {id(segment) for segment in segments}
    flow.damaged = [segment for segment in flow.damaged if id(segment) not in numbers]
    return segments


def drop(flow: Flow, segments: list[Segment], events: list[FlowEvent]) -> None:
    """Count and report segments that were damaged."""
    for segment in remove_waiting(flow, segments):
        half = halves(flow, segment)[0]
        half.damaged_segments += 1
        if segment.payload:
            _report(flow, half, segment, events).discarded(len(segment.payload), "damaged")


def usable_form(flow: Flow, segment: Segment, events: list[FlowEvent]) -> Segment:
    """The form of a segment to use: among right checksums, its bytes are in doubt and its time stamp is removed."""
    half = halves(flow, segment)[0]
    if half.checksums != RIGHT:
        half.checksums = WRONG
        return replace(segment, checksum=UNJUDGED)
    half.overlaps += 1
    _report(flow, half, segment, events).overlap(len(segment.payload), half.locate(segment.sequence))
    return replace(segment, flags=segment.flags & (FIN | ACK), options=b"", checksum=UNJUDGED)


def segments_to_use(flow: Flow, segments: list[Segment]) -> list[Segment]:
    """These segments, and all other waiting segments of their directions without a right checksum."""
    whole = [id(half) for half, _ in (halves(flow, segment) for segment in segments) if half.checksums != RIGHT]
    numbers = {id(segment) for segment in segments}
    return [segment for segment in flow.damaged if id(segment) in numbers or id(halves(flow, segment)[0]) in whole]


def final_segments_to_use(flow: Flow) -> list[Segment]:
    """The waiting segments to use if nothing more arrives."""
    loose = unproven_segments(flow)
    # A single one, or two unrelated ones, may belong to another connection: a damaged port number leads here.
    last = loose if any(_belong_together(*pair) for pair in combinations(loose, 2)) else []
    for segment in flow.damaged:
        half = halves(flow, segment)[0]
        if segment.payload and half.checksums == RIGHT and half.overlaps and not half.damaged_segments:
            last.append(segment)  # others were accepted, and nothing was damaged: a tool changed them
    return segments_to_use(flow, last + unanswered_segments(flow))


def unanswered_segments(flow: Flow, now: int = NEVER) -> list[Segment]:
    """The segments to use instead of gaps that are due, if the side that acknowledges them was never captured."""
    return [
        segment
        for segment in flow.damaged
        for half, peer in (halves(flow, segment),)
        if segment.payload and half.checksums == RIGHT and not peer.segments and half.deadline_ns <= now
    ]


def _belong_together(first: Segment, second: Segment) -> bool:
    """Whether the second segment acknowledges the first, or continues its data."""
    follows = first.payload and second.payload and advance(first.sequence, len(first.payload)) == second.sequence
    return _acknowledges(second, first) or (plain_key(first.key) == plain_key(second.key) and bool(follows))


def _report(flow: Flow, half: HalfStream, segment: Segment, events: list[FlowEvent]) -> FlowReport:
    place = segment.frame, segment.timestamp_ns, segment.capture
    return FlowReport(flow, half is flow.initiator, place, events)
