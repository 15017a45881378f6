"""Decides whether a segment belongs to the known connection, to the next one between its endpoints, or to neither.

Small devices choose the same port and initial sequence number after each reboot, so numbers alone do not
decide.  Four hypotheses are possible for a segment between known endpoints:

*The same connection* sent it: as the next data, or again because an acknowledgment was lost.  A sender repeats until an
acknowledgment reaches *it* (RFC 9293 section 3.8.1), so the captured segments of the other side prove nothing.
*A copy*: another tap shows a segment again (`tap_views`).  *A new connection* began: its SYN has a number of its
own, or its clock (`tcp_clock`) or bytes differ.  *A stray*: no captured connection has its numbers.

`judge` checks the evidence for each hypothesis, the strongest first: numbers of a handshake, the clock, other
numbers, then bytes.  If nothing decides, the flow table keeps the segment and the following ones, and `weigh`
searches these for the proof.  docs/connections.md has the list.

Bytes are weak evidence.  Payloads may look like the beginning of a connection: an access log has lines with "GET /",
sensor samples look like a CONNACK.  So a beginning only counts at the beginning of a stream, and only if the known
stream began with the same kind.  Other bytes at a known offset may be a damaged frame; they prove a new connection
together with such a beginning, and if the next segments continue them.  An acknowledgment number that goes back proves
nothing on an open connection: all known stacks send the current RCV.NXT, but programs that write captures may not.

The effects of SYN and RST on a flow are here too (RFC 9293 sections 3.5 and 3.10, RFC 5961).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqttscope.net.flow import Flow, FlowMatch, FlowReport
from mqttscope.net.reassembly import LOST_WINDOW, START_WINDOW, UNSEEN, HalfStream
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, advance, plain_key, reverse_key
from mqttscope.net.tap_views import (
    COPY_NS,
    VIEW_NS,
    acknowledges_less,
    differs,
    halves,
    is_replay,
    repeat_past,
    repeated_flow,
)
from mqttscope.net.tcp_clock import NO_STAMP, SLACK_NS, ClockReading, read_clock, time_stamp

LATE_NS: Final = 3_000_000_000
"""Minimum time after the end of a flow for segments without new bytes to be reported as late copies."""
BEGIN_WINDOW: Final = 1 << 16
"""Maximum distance of the numbers of a beginning from the numbers of the connection before."""
_FAST_OPEN_BYTES: Final = 1_460
"""Maximum data of a SYN: one segment."""
_FEW: Final = 3
"""Maximum number of copies that arrive together although they were not sent together."""
_PROTOCOL_NAMES: Final = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")


def judge(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> FlowMatch:
    """The relation of a segment that is not in order to the known flow between its endpoints.

    ``half`` is the direction of the segment, ``peer`` the other one.
    """
    if segment.flags & RST:
        return FlowMatch.EARLY if is_early(flow, half, peer, segment) else FlowMatch.SAME
    if segment.flags & SYN:
        return _judge_syn(flow, half, peer, segment)
    if segment.payload or segment.missing:
        return _judge_data(flow, half, peer, segment)
    return FlowMatch.SAME


def _judge_syn(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> FlowMatch:
    """`judge` for a SYN or SYN-ACK."""
    answer = bool(segment.flags & ACK)
    known = half.initial_sequence >= 0
    same = half.initial_sequence == segment.sequence
    if (not same if not answer else same and _answers_another(peer, segment)) and repeated_flow(flow, segment):
        return FlowMatch.AGAIN
    if (same and answer and _answers_another(peer, segment)) or (flow.closed and not same):
        return FlowMatch.NEW
    if half.state is UNSEEN:
        # It answers another SYN than the SYN of the captured data.
        foreign = answer and peer.offset > 0 and not _within(peer, segment.acknowledgment)
        return FlowMatch.NEW if foreign else FlowMatch.SAME
    untouched = half.offset == 0 and not half.buffer
    lives = peer.state is not UNSEEN and bool(half.offset or peer.offset)
    apart = FlowMatch.NEW if flow.closed or not lives else FlowMatch.AGAIN if answer and same else FlowMatch.APART
    other_clock = half.first_stamp != NO_STAMP and time_stamp(segment.options) not in (half.first_stamp, NO_STAMP)
    again = apart if not _may_be_copy(flow, segment) or (same and other_clock) else FlowMatch.AGAIN
    if flow.closed:
        # A refused connection is tried again with the same number.
        return FlowMatch.NEW if not answer and flow.closed == "reset" and untouched and not peer.offset else again
    if same and answer:
        # A SYN-ACK is repeated until data of the other side arrives, but not after its sender received or sent data.
        return FlowMatch.SAME if untouched and half.fin_offset < 0 and peer.acknowledged <= 0 else again
    if same:
        # A client does not repeat its SYN after it has acknowledged anything, or has sent data in answer.
        # Data in a SYN (TCP Fast Open) is sent again with it until the server answers.
        established = peer.state is not UNSEEN and (not segment.payload or peer.offset > 0)
        return again if established and not (untouched and not peer.offset) else FlowMatch.SAME
    start = half.locate(advance(segment.sequence, 1))
    if not known:
        if untouched:
            return FlowMatch.NEW if not answer and peer.offset > 0 and start else FlowMatch.SAME
        if not -START_WINDOW <= start <= 0:
            return apart if not answer else FlowMatch.NEW
        # Before any answer, the first segments may be out of order.
        return again if half.offset and (peer.offset or half.acknowledged) else FlowMatch.SAME
    if not answer or untouched:
        return FlowMatch.SAME if answer else apart
    return again if segment.acknowledgment == advance(peer.initial_sequence, 1) else FlowMatch.NEW


def _judge_data(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> FlowMatch:
    beginning = begins(half, segment)
    if half.state is UNSEEN:
        return FlowMatch.NEW if flow.closed and beginning else FlowMatch.SAME
    start = half.locate(segment.sequence)
    if start == half.offset and not flow.closed and not (beginning and start):
        return FlowMatch.SAME
    clock = read_clock(half, segment)
    if clock is ClockReading.OTHER and (half.offset or peer.offset):
        return FlowMatch.NEW
    if (beginning and (half.offset or peer.offset)) or flow.closed:
        if any(_far_numbers(half, peer, segment, BEGIN_WINDOW if beginning else START_WINDOW)):
            return FlowMatch.NEW
        if beginning:
            return _judge_beginning(flow, half, peer, segment, clock)
        resumes = flow.closed == "reset" and half.fin_offset < 0 and start == half.offset
        return FlowMatch.RESUMED if resumes else FlowMatch.SAME
    if flow.handshake_again and clock is ClockReading.NONE and differs(half, start, segment.payload):
        # The supposed copy of a handshake was not a copy.
        return FlowMatch.NEW
    return FlowMatch.APART if is_stray(half, peer, segment) else FlowMatch.SAME


def _judge_beginning(
    flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment, clock: ClockReading
) -> FlowMatch:
    """`judge` for the beginning of a stream, with numbers near the flow's numbers."""
    start = half.locate(segment.sequence)
    if start >= half.offset:
        # In order, it is a fault of its sender; after a hole, the answer decides.
        return FlowMatch.NEW if flow.closed else FlowMatch.AGAIN if start > half.offset > 0 else FlowMatch.SAME
    if start < 0:
        known = half.initial_sequence >= 0 or known_kind(half)
        return FlowMatch.NEW if known or flow.closed else FlowMatch.SAME
    if start:
        return FlowMatch.AGAIN if differs(half, start, segment.payload) else FlowMatch.SAME
    less = flow.closed and acknowledges_less(peer, segment)
    if clock is ClockReading.LATER:
        return FlowMatch.NEW if less else FlowMatch.SAME
    return FlowMatch.NEW if less and not _may_be_copy(flow, segment) else FlowMatch.AGAIN


def weigh(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> FlowMatch:
    """Compare the next segment with the undecided segments, which wait because of ``flow.doubt``.

    Returns ``flow.doubt``: it is one of them.  ``NEW``: they are another connection, or the flow has resumed.
    ``SAME``: they are the flow's, or strays; the segment is judged next.  ``BESIDE``: it is the flow's, no decision.
    """
    if flow.doubt is not FlowMatch.EARLY:
        ways = {
            FlowMatch.AGAIN: _weigh_again,
            FlowMatch.APART: _weigh_apart,
            FlowMatch.RESUMED: _weigh_resumed,
        }
        return ways[flow.doubt](flow, half, peer, segment)
    waits = not segment.flags & RST and judge(flow, half, peer, segment) is FlowMatch.SAME
    return FlowMatch.BESIDE if waits else FlowMatch.SAME


def _weigh_again(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> FlowMatch:
    """`weigh` for segments with the flow's numbers: they may belong to another connection."""
    if segment.flags & RST:
        return FlowMatch.SAME
    first = flow.undecided[0]
    if segment.flags & SYN:
        start = half.locate(advance(segment.sequence, 1))
        known = half.initial_sequence >= 0 or half.state is UNSEEN
        same = half.initial_sequence == segment.sequence if known else -START_WINDOW <= start <= 0
        repeated = is_syn(segment) and is_syn(first) and first.sequence == segment.sequence
        return FlowMatch.AGAIN if same or repeated else FlowMatch.SAME
    strange = _far_numbers(half, peer, segment)
    if all(strange):
        return FlowMatch.SAME
    clock = read_clock(half, segment)
    replayed = not _may_be_copy(flow, first) and is_replay(flow, [*flow.undecided, segment])
    if clock is ClockReading.OTHER or replayed or (flow.closed and begins_again(flow, half, segment)):
        return FlowMatch.NEW
    of_peer = halves(flow, first)[0] is peer
    if of_peer and read_clock(peer, first) is ClockReading.AHEAD:
        # A step of the capture's clock is visible on both sides, a reboot on one.
        if clock is ClockReading.AHEAD:
            return FlowMatch.SAME
        if clock is ClockReading.LATER and half.options_ns <= peer.options_ns + SLACK_NS:
            return FlowMatch.NEW
    start = half.locate(segment.sequence)
    end = start + len(segment.payload) + segment.missing + bool(segment.flags & FIN)
    answered = start > half.offset and of_peer and begins(half, segment)
    new = any(strange) or answered or _continues_undecided(flow, half, segment)
    if not new and end > max(half.offset, half.fin_offset + 1):
        if not flow.closed:
            return FlowMatch.SAME
        new = True
    return FlowMatch.NEW if new and not repeat_past(flow, [*flow.undecided, segment]) else FlowMatch.AGAIN


def begins_again(flow: Flow, half: HalfStream, segment: Segment) -> bool:
    """Whether a handshake and a beginning arrived after the end of a flow, with its numbers.

    A small stack chooses the same numbers after each reboot.  Only with another tap it may be the flow again.
    """
    if flow.doubled or segment.key not in (flow.key, reverse_key(flow.key)):
        return False
    if _may_be_copy(flow, flow.undecided[0], COPY_NS) or half.locate(segment.sequence) or not begins(half, segment):
        return False
    # The device's clock may begin with the same number each time; the clock of the other side continues.
    syns = [earlier for earlier in flow.undecided if earlier.flags & SYN]
    return bool(syns) and not any(syn.flags & ACK and is_same_syn(halves(flow, syn)[0], syn) for syn in syns)


def begins_in_silence(flow: Flow) -> bool:
    """Whether undecided segments that look like a repetition, and were not continued, are another connection."""
    segments = flow.undecided
    alone = flow.initiator.segments and flow.responder.segments and len({plain_key(seg.key) for seg in segments}) == 1
    copied = _may_be_copy(flow, segments[0], COPY_NS) or segments[0].capture != flow.last_capture
    return not (alone or copied or is_whole(flow, segments)) and asks_for_connection(flow, segments)


def is_whole(flow: Flow, segments: Sequence[Segment]) -> bool:
    """Whether segments repeat all of a flow, as a complete second view does."""
    for half in (flow.initiator, flow.responder):
        shown = [segment for segment in segments if not segment.flags & SYN and halves(flow, segment)[0] is half]
        ends = (half.locate(segment.sequence) + len(segment.payload) + segment.missing for segment in shown)
        if max([0, *ends]) < half.offset:
            return False
    return True


def _weigh_apart(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> FlowMatch:
    """`weigh` for segments with numbers of their own: they may be answered or continued."""
    first = flow.undecided[0]
    same_side = halves(flow, first)[0] is half
    if not is_syn(first):
        numbers = segment.sequence, segment.acknowledgment
        there, back = numbers if same_side else reversed(numbers)
        if not segment.flags & (SYN | RST) and _near(first.sequence, there) and _near(first.acknowledgment, back):
            return FlowMatch.NEW
    elif same_side:
        begin = advance(first.sequence, 1)
        if segment.flags & RST:
            # The RST of a stack that has forgotten the connection, in answer to an acknowledgment of the other side.
            if half.locate(segment.sequence) == half.acknowledged:
                return FlowMatch.NEW
        elif segment.flags & SYN:
            if segment.sequence == first.sequence:
                return FlowMatch.APART
        else:
            near = (segment.sequence - begin) & 0xFFFFFFFF < BEGIN_WINDOW
            own = near and not _within(half, segment.sequence, BEGIN_WINDOW)
            return FlowMatch.NEW if own or segment.sequence == begin else FlowMatch.SAME
    elif segment.flags & ACK and segment.flags & (SYN | RST):
        acknowledged = (segment.acknowledgment - first.sequence - 1) & 0xFFFFFFFF
        return FlowMatch.NEW if acknowledged <= len(first.payload) else FlowMatch.BESIDE
    # It may answer the SYN of a stranger, and continue the connection.
    verdict = judge(flow, half, peer, segment)
    if verdict in (FlowMatch.NEW, FlowMatch.APART):
        return verdict
    return FlowMatch.BESIDE if verdict is FlowMatch.SAME else FlowMatch.SAME


def _weigh_resumed(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> FlowMatch:
    """`weigh` for segments after a reset: both sides of the flow may continue."""
    if segment.flags & (SYN | RST):
        return FlowMatch.SAME
    if halves(flow, flow.undecided[0])[0] is half:
        last = flow.undecided[-1]
        follows = segment.sequence == advance(last.sequence, len(last.payload) + last.missing)
        return FlowMatch.RESUMED if follows else FlowMatch.SAME
    # If the other side acknowledges bytes sent after the reset, the reset was ignored.
    is_acknowledged = (
        segment.flags & ACK and peer.offset < peer.locate(segment.acknowledgment) <= peer.offset + START_WINDOW
    )
    return FlowMatch.NEW if is_acknowledged else FlowMatch.SAME


def _answers_another(peer: HalfStream, segment: Segment) -> bool:
    """Whether a SYN-ACK answers another SYN than the captured one, regardless of its own number."""
    if peer.initial_sequence < 0:
        return False
    # It acknowledges the SYN and its data (TCP Fast Open).
    acknowledged = (segment.acknowledgment - peer.initial_sequence - 1) & 0xFFFFFFFF
    return acknowledged > min(_FAST_OPEN_BYTES, max(peer.offset, peer.sent))


def _may_be_copy(flow: Flow, segment: Segment, limit_ns: int = VIEW_NS) -> bool:
    """Whether a segment may be a copy of the flow's beginning: shortly after it, or in another capture.

    Overlapping captures are read one after the other, so that time goes back when the second one begins.  Inside
    one capture it goes back when the clock was set, which proves nothing.
    """
    now = segment.timestamp_ns
    if now < flow.last_timestamp_ns and segment.capture != flow.last_capture:
        return True
    return -COPY_NS <= now - flow.opened_ns <= limit_ns


def _continues_undecided(flow: Flow, half: HalfStream, segment: Segment) -> bool:
    """Whether data follows the undecided segments, and differs from the flow's data at that offset."""
    data = [
        earlier
        for earlier in flow.undecided
        if (earlier.payload or earlier.missing) and halves(flow, earlier)[0] is half
    ]
    ends = (half.locate(advance(earlier.sequence, len(earlier.payload) + earlier.missing)) for earlier in data)
    start, end = half.locate(segment.sequence), max([0, *ends])
    if start == end > half.offset:
        return bool(segment.payload)
    return start <= end and differs(half, start, segment.payload)


def _far_numbers(half: HalfStream, peer: HalfStream, segment: Segment, window: int = START_WINDOW) -> tuple[bool, bool]:
    """Whether the sequence and acknowledgment numbers of data are far from all numbers of the flow."""
    acknowledges = bool(segment.flags & ACK) and peer.state is not UNSEEN
    return (
        not _within(half, segment.sequence, window),
        acknowledges and not _within(peer, segment.acknowledgment, window),
    )


def is_stray(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether both numbers of a segment are far from the flow's numbers, and not due to losses of the capture."""
    if half.state is UNSEEN:
        # A segment that acknowledges other numbers than the SYN's is a late one of the connection before.
        acknowledges = segment.flags & ACK and peer.initial_sequence >= 0
        return bool(acknowledges) and not 0 <= peer.locate(segment.acknowledgment) <= LOST_WINDOW
    if not all(_far_numbers(half, peer, segment)):
        return False
    ahead = half.locate(segment.sequence) - half.offset, peer.locate(segment.acknowledgment) - peer.offset
    return not all(0 < distance <= LOST_WINDOW for distance in ahead)


def _within(half: HalfStream, sequence: int, window: int = START_WINDOW) -> bool:
    """Whether a side has used a sequence number, or may use it soon."""
    return -window <= half.locate(sequence) <= max(half.offset, half.sent, half.acknowledged) + window


def _near(number: int, other: int) -> bool:
    return (other - number + START_WINDOW) & 0xFFFFFFFF <= 2 * START_WINDOW


def is_same_syn(half: HalfStream, segment: Segment) -> bool:
    """Whether a SYN or SYN-ACK has the time stamp of the captured one; 0 does not count, since clocks begin with it."""
    return half.initial_sequence >= 0 and 0 < half.first_stamp == time_stamp(segment.options)


def take_syn(
    flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment, report: FlowReport, answer: FlowReport
) -> bool:
    """Apply the SYN of a segment to an open flow; ``False`` if the whole segment is ignored."""
    sequence = segment.sequence
    if half.initial_sequence != sequence and half.initial_sequence >= 0 and (half.offset or half.buffer):
        # A different second SYN-ACK for the same SYN: the first one counts.
        return False
    if half.initial_sequence != sequence:
        half.synchronize(sequence, report)
        half.first_stamp, half.first_stamp_ns = time_stamp(segment.options), segment.timestamp_ns
    if segment.flags & ACK:
        flow.syn_ack_seen = True
        if peer.state is UNSEEN:
            peer.synchronize(advance(segment.acknowledgment, -1), answer)
    else:
        flow.syn_seen = True
    return True


def is_challenge(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether an acknowledgment is a server's answer to a SYN inside an earlier connection (RFC 5961 section 4)."""
    if segment.flags & (SYN | FIN | RST) or segment.payload or half.state is not UNSEEN:
        return False
    begun = flow.syn_seen and not flow.syn_ack_seen and peer.offset == 0 and not peer.buffer
    return begun and segment.acknowledgment != advance(peer.initial_sequence, 1)


def disowns(half: HalfStream, segment: Segment) -> bool:
    """Whether a reset by the side of ``half`` comes from a stack without any memory of the connection.

    A stack that ends a known connection sets ACK in its reset.  A reset without ACK answers a segment of
    the other side, and has the number that this segment acknowledged (RFC 9293 section 3.5.2).
    """
    return not segment.flags & ACK and half.fin_offset < 0 and half.locate(segment.sequence) == half.acknowledged


def plausible_reset(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether a reset by the side of ``half`` ends the flow (RFC 9293 section 3.5.2)."""
    if half.state is not UNSEEN:
        if peer.state is UNSEEN and half.initial_sequence >= 0 and half.offset == 0 and not half.buffer:
            # Nothing but a SYN was captured; a reset with another number ends an earlier connection.
            return half.locate(segment.sequence) in (-1, 0)
        return half.plausible_reset(segment.sequence)
    # The resetting side is unknown: it must acknowledge bytes of the other side, at least the SYN.
    if not segment.flags & ACK or peer.state is UNSEEN:
        return False
    return 0 <= peer.locate(segment.acknowledgment) <= max(peer.offset, peer.sent)


def is_early(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether data sent before a reset is missing, so that it may still arrive."""
    if flow.closed or half.state is UNSEEN or not plausible_reset(half, peer, segment):
        return False
    beyond = half.locate(segment.sequence) - half.offset
    if beyond > (half.offset == half.fin_offset) or half.buffer:  # a FIN counts one
        return True
    acknowledges = segment.flags & ACK and peer.state is not UNSEEN and not peer.ended
    return bool(acknowledges and (peer.buffer or peer.locate(segment.acknowledgment) > peer.offset))


def is_syn(segment: Segment) -> bool:
    """Whether a segment is a SYN without ACK, so that it has no number of the other side."""
    return segment.flags & (SYN | ACK) == SYN


def beginning_kind(payload: bytes) -> str:
    """Kind of beginning: CONNECT, CONNACK, an HTTP upgrade or its answer, a TLS hello; empty for other data."""
    first = payload[:1]
    if first == b"\x10" and any(2 <= payload.find(name, 2, 13) <= 5 for name in _PROTOCOL_NAMES):
        return "CONNECT"
    if first == b"\x20" and len(payload) >= 4 and payload[1] >= 2 and payload[2] <= 1:
        return "CONNACK"
    if payload[:2] == b"\x16\x03" and payload[5:6] in (b"\x01", b"\x02"):
        return "TLS"
    return "HTTP" if payload.startswith((b"GET /", b"HTTP/1.1 101")) else ""


def known_kind(half: HalfStream) -> str:
    return beginning_kind(half.beginning or b"".join(half.history[:1]))


def begins(half: HalfStream, segment: Segment) -> bool:
    """Whether data is a beginning, of the same kind as the beginning of the stream if that is known."""
    kind = beginning_kind(segment.payload)
    return bool(kind) and known_kind(half) in ("", kind)


def last_beginning(segments: Sequence[Segment]) -> int:
    """Index of the last of several beginnings among undecided segments; 0 for a single one."""
    last = 0
    for at, segment in enumerate(segments):
        if at and (is_syn(segment) or beginning_kind(segment.payload)):
            before = [other for other in segments[last:at] if plain_key(other.key) == plain_key(segment.key)]
            ahead = (other.sequence + len(other.payload) - segment.sequence & 0xFFFFFFFF for other in before)
            later = is_syn(segment) and segment.timestamp_ns - segments[at - 1].timestamp_ns > COPY_NS
            if later or any(1 < bytes_ahead <= START_WINDOW for bytes_ahead in ahead):
                last = at
    return last


def asks_for_connection(flow: Flow, segments: Sequence[Segment]) -> bool:
    """Whether segments with the numbers of a flow contain a beginning of its initiator, or are many."""
    return len(segments) > _FEW or any(
        segment.flags & SYN or (halves(flow, segment)[0] is flow.initiator and beginning_kind(segment.payload))
        for segment in segments
    )
