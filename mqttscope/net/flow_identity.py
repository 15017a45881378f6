"""Which connection a segment belongs to: the known one, the next one between the same endpoints, or none.

Small devices choose the same port and the same initial sequence number after each reboot, so numbers alone do not
decide.  Four hypotheses are possible for a segment between known endpoints:

*The same connection* sent it: as the next data, or again since an acknowledgment was lost.  A sender repeats until an
acknowledgment reaches *it* (RFC 9293 section 3.8.1), so it does not matter what the capture has shown of the other
side.  *A copy*: another tap shows a segment again (`tap_views`).  *A new connection* began: its SYN has a number of its
own, or its clock is another one (`tcp_clock`), or its bytes are.  *A stray*: nothing that was captured has its numbers.

`judge` asks what proves or disproves each of them, the strongest first: numbers of a handshake, the clock, other
numbers, then bytes.  If nothing decides, the flow table keeps the segment, and those that follow, and `weigh` looks at
each of these for the proof.  docs/connections.md has the list.

Bytes are weak evidence.  Messages hold what connections begin with: an access log has lines with "GET /", samples of
sensors look like a CONNACK.  So a beginning counts at the beginning of a stream only, if it is of the kind with which
the known stream began.  Other bytes at a known place may be a damaged frame; they prove a new connection together with
such a beginning, and if what follows continues them.  An acknowledgment number that goes back is no proof on an open
connection: programs that make captures do not always send RCV.NXT of the moment, as all known stacks do.

What a SYN or RST does to a flow is here too (RFC 9293 sections 3.5 and 3.10, RFC 5961).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqttscope.net.flow import Flow, FlowReport, Verdict
from mqttscope.net.reassembly import LOST_WINDOW, START_WINDOW, UNSEEN, HalfStream
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, advance, plain_key, reverse_key
from mqttscope.net.tap_views import COPY_NS, VIEW_NS, acknowledges_less, differs, echoes, halves, is_replay, repeat_past
from mqttscope.net.tcp_clock import NO_STAMP, SLACK_NS, Reading, read_clock, time_stamp

LATE_NS: Final = 3_000_000_000
"""From this time after the end of a flow on, segments that bring nothing new are reported as late copies."""
BEGIN_WINDOW: Final = 1 << 16
"""Maximum distance of the numbers of a beginning from those of the connection before."""
_FAST_OPEN_BYTES: Final = 1_460
"""A SYN carries no more data than fits into one segment."""
_FEW: Final = 3
"""Maximum number of copies that come together without being sent so."""
_PROTOCOL_NAMES: Final = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")


def judge(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """What a segment that is not simply the next one has to do with the flow known between its endpoints.

    ``half`` is the direction of the segment, ``peer`` the other one.
    """
    if segment.flags & RST:
        return Verdict.EARLY if is_early(flow, half, peer, segment) else Verdict.SAME
    if segment.flags & SYN:
        return _judge_syn(flow, half, peer, segment)
    if segment.payload or segment.missing:
        return _judge_data(flow, half, peer, segment)
    return Verdict.SAME


def _judge_syn(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    answer = bool(segment.flags & ACK)
    known = half.initial_sequence >= 0
    same = half.initial_sequence == segment.sequence
    if (not same if not answer else same and _answers_another(peer, segment)) and echoes(flow, segment):
        return Verdict.AGAIN
    if (same and answer and _answers_another(peer, segment)) or (flow.closed and not same):
        return Verdict.NEW
    if half.state is UNSEEN:
        # An answer to another SYN than the one that data was captured of.
        foreign = answer and peer.offset > 0 and not _within(peer, segment.acknowledgment)
        return Verdict.NEW if foreign else Verdict.SAME
    untouched = half.offset == 0 and not half.buffer
    lives = peer.state is not UNSEEN and bool(half.offset or peer.offset)
    apart = Verdict.NEW if flow.closed or not lives else Verdict.AGAIN if answer and same else Verdict.APART
    other_clock = half.first_stamp != NO_STAMP and time_stamp(segment.options) not in (half.first_stamp, NO_STAMP)
    again = apart if not _may_be_copy(flow, segment) or (same and other_clock) else Verdict.AGAIN
    if flow.closed:
        # A refused connection is tried again with the same number.
        return Verdict.NEW if not answer and flow.closed == "reset" and untouched and not peer.offset else again
    if same and answer:
        # It is sent again until the other side's data comes; a side that has taken or sent data is beyond that.
        return Verdict.SAME if untouched and half.fin_offset < 0 and peer.acknowledged <= 0 else again
    if same:
        # A client that has acknowledged anything, or has sent data in answer to it, does not send its SYN again.
        # Data in a SYN (TCP Fast Open) is sent again with it until the server answers.
        established = peer.state is not UNSEEN and (not segment.payload or peer.offset > 0)
        return again if established and not (untouched and not peer.offset) else Verdict.SAME
    start = half.locate(advance(segment.sequence, 1))
    if not known:
        if untouched:
            return Verdict.NEW if not answer and peer.offset > 0 and start else Verdict.SAME
        if not -START_WINDOW <= start <= 0:
            return apart if not answer else Verdict.NEW
        # If nobody has answered yet, the first segments come in another order.
        return again if half.offset and (peer.offset or half.acknowledged) else Verdict.SAME
    if not answer or untouched:
        return Verdict.SAME if answer else apart
    return again if segment.acknowledgment == advance(peer.initial_sequence, 1) else Verdict.NEW


def _judge_data(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    beginning = begins(half, segment)
    if half.state is UNSEEN:
        return Verdict.NEW if flow.closed and beginning else Verdict.SAME
    start = half.locate(segment.sequence)
    if start == half.offset and not flow.closed and not (beginning and start):
        return Verdict.SAME
    clock = read_clock(half, segment)
    if clock is Reading.OTHER and (half.offset or peer.offset):
        return Verdict.NEW
    if (beginning and (half.offset or peer.offset)) or flow.closed:
        if any(_strange(half, peer, segment, BEGIN_WINDOW if beginning else START_WINDOW)):
            return Verdict.NEW
        if beginning:
            return _judge_beginning(flow, half, peer, segment, clock)
        resumes = flow.closed == "reset" and half.fin_offset < 0 and start == half.offset
        return Verdict.RESUMED if resumes else Verdict.SAME
    if flow.handshake_again and clock is Reading.NONE and differs(half, start, segment.payload):
        # What was taken for the copy of a handshake was none.
        return Verdict.NEW
    return Verdict.APART if is_stray(half, peer, segment) else Verdict.SAME


def _judge_beginning(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment, clock: Reading) -> Verdict:
    """What a stream began with, with numbers near those of the flow."""
    start = half.locate(segment.sequence)
    if start >= half.offset:
        # In order it is a fault of its sender; after a hole the answer says what it is.
        return Verdict.NEW if flow.closed else Verdict.AGAIN if start > half.offset > 0 else Verdict.SAME
    if start < 0:
        known = half.initial_sequence >= 0 or known_kind(half)
        return Verdict.NEW if known or flow.closed else Verdict.SAME
    if start:
        return Verdict.AGAIN if differs(half, start, segment.payload) else Verdict.SAME
    less = flow.closed and acknowledges_less(peer, segment)
    if clock is Reading.LATER:
        return Verdict.NEW if less else Verdict.SAME
    return Verdict.NEW if less and not _may_be_copy(flow, segment) else Verdict.AGAIN


def weigh(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """What the next segment says of those that are kept because of ``flow.doubt``.

    ``flow.doubt``: nothing, it is one of them.  ``NEW``: they are another connection, or the flow has resumed.
    ``SAME``: they are the flow's, or strays, and the segment is judged next.  ``BESIDE``: nothing, it is the flow's.
    """
    if flow.doubt is not Verdict.EARLY:
        ways = {Verdict.AGAIN: _weigh_again, Verdict.APART: _weigh_apart, Verdict.RESUMED: _weigh_resumed}
        return ways[flow.doubt](flow, half, peer, segment)
    waits = not segment.flags & RST and judge(flow, half, peer, segment) is Verdict.SAME
    return Verdict.BESIDE if waits else Verdict.SAME


def _weigh_again(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """Whether segments with the flow's own numbers are those of another connection."""
    if segment.flags & RST:
        return Verdict.SAME
    first = flow.kept[0]
    if segment.flags & SYN:
        start = half.locate(advance(segment.sequence, 1))
        known = half.initial_sequence >= 0 or half.state is UNSEEN
        same = half.initial_sequence == segment.sequence if known else -START_WINDOW <= start <= 0
        repeated = is_syn(segment) and is_syn(first) and first.sequence == segment.sequence
        return Verdict.AGAIN if same or repeated else Verdict.SAME
    strange = _strange(half, peer, segment)
    if all(strange):
        return Verdict.SAME
    clock = read_clock(half, segment)
    replayed = not _may_be_copy(flow, first) and is_replay(flow, [*flow.kept, segment])
    if clock is Reading.OTHER or replayed or (flow.closed and begins_again(flow, half, segment)):
        return Verdict.NEW
    of_peer = halves(flow, first)[0] is peer
    if of_peer and read_clock(peer, first) is Reading.AHEAD:
        # A step of the capture's clock shows on both sides, a reboot on one.
        if clock is Reading.AHEAD:
            return Verdict.SAME
        if clock is Reading.LATER and half.options_ns <= peer.options_ns + SLACK_NS:
            return Verdict.NEW
    start = half.locate(segment.sequence)
    end = start + len(segment.payload) + segment.missing + bool(segment.flags & FIN)
    answered = start > half.offset and of_peer and begins(half, segment)
    new = any(strange) or answered or _continues_kept(flow, half, segment)
    if not new and end > max(half.offset, half.fin_offset + 1):
        if not flow.closed:
            return Verdict.SAME
        new = True
    return Verdict.NEW if new and not repeat_past(flow, [*flow.kept, segment]) else Verdict.AGAIN


def begins_again(flow: Flow, half: HalfStream, segment: Segment) -> bool:
    """Whether a handshake and what connections begin with have come after the end of a flow, with its numbers.

    A small stack chooses the same numbers after each reboot.  Only with another tap it may be the flow once more.
    """
    if flow.doubled or segment.key not in (flow.key, reverse_key(flow.key)):
        return False
    if _may_be_copy(flow, flow.kept[0], COPY_NS) or half.locate(segment.sequence) or not begins(half, segment):
        return False
    # The device's clock may begin with the same number each time; that of the other side continues.
    syns = [kept for kept in flow.kept if kept.flags & SYN]
    return bool(syns) and not any(syn.flags & ACK and is_same_syn(halves(flow, syn)[0], syn) for syn in syns)


def begins_in_silence(flow: Flow) -> bool:
    """Whether segments that are kept as a repetition, and that nothing followed, are another connection."""
    kept = flow.kept
    alone = flow.initiator.segments and flow.responder.segments and len({plain_key(seg.key) for seg in kept}) == 1
    copied = _may_be_copy(flow, kept[0], COPY_NS) or kept[0].capture != flow.last_capture
    return not (alone or copied or is_whole(flow, kept)) and asks_for_connection(flow, kept)


def is_whole(flow: Flow, segments: Sequence[Segment]) -> bool:
    """Whether segments that repeat a flow repeat all of it, as a second view of it does in the end."""
    for half in (flow.initiator, flow.responder):
        shown = [segment for segment in segments if not segment.flags & SYN and halves(flow, segment)[0] is half]
        ends = (half.locate(segment.sequence) + len(segment.payload) + segment.missing for segment in shown)
        if max([0, *ends]) < half.offset:
            return False
    return True


def _weigh_apart(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """Whether segments with numbers of their own were answered, or continued."""
    first = flow.kept[0]
    same_side = halves(flow, first)[0] is half
    if not is_syn(first):
        numbers = segment.sequence, segment.acknowledgment
        there, back = numbers if same_side else reversed(numbers)
        if not segment.flags & (SYN | RST) and _near(first.sequence, there) and _near(first.acknowledgment, back):
            return Verdict.NEW
    elif same_side:
        begin = advance(first.sequence, 1)
        if segment.flags & RST:
            # The answer of a stack that has forgotten the connection to where the other side says that it is.
            if half.locate(segment.sequence) == half.acknowledged:
                return Verdict.NEW
        elif segment.flags & SYN:
            if segment.sequence == first.sequence:
                return Verdict.APART
        else:
            near = (segment.sequence - begin) & 0xFFFFFFFF < BEGIN_WINDOW
            own = near and not _within(half, segment.sequence, BEGIN_WINDOW)
            return Verdict.NEW if own or segment.sequence == begin else Verdict.SAME
    elif segment.flags & ACK and segment.flags & (SYN | RST):
        taken = (segment.acknowledgment - first.sequence - 1) & 0xFFFFFFFF
        return Verdict.NEW if taken <= len(first.payload) else Verdict.BESIDE
    # It may be the answer to the SYN of a stranger, and the connection continues with it.
    verdict = judge(flow, half, peer, segment)
    if verdict in (Verdict.NEW, Verdict.APART):
        return verdict
    return Verdict.BESIDE if verdict is Verdict.SAME else Verdict.SAME


def _weigh_resumed(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> Verdict:
    """Whether both sides of a flow continue after its reset."""
    if segment.flags & (SYN | RST):
        return Verdict.SAME
    if halves(flow, flow.kept[0])[0] is half:
        last = flow.kept[-1]
        follows = segment.sequence == advance(last.sequence, len(last.payload) + last.missing)
        return Verdict.RESUMED if follows else Verdict.SAME
    # If the other side has taken what was sent after the reset, the reset has ended nothing.
    taken = segment.flags & ACK and peer.offset < peer.locate(segment.acknowledgment) <= peer.offset + START_WINDOW
    return Verdict.NEW if taken else Verdict.SAME


def _answers_another(peer: HalfStream, segment: Segment) -> bool:
    """Whether a SYN-ACK answers another SYN than the one that was captured, whatever its own number."""
    if peer.initial_sequence < 0:
        return False
    # It acknowledges the SYN, and what the SYN carried (TCP Fast Open).
    taken = (segment.acknowledgment - peer.initial_sequence - 1) & 0xFFFFFFFF
    return taken > min(_FAST_OPEN_BYTES, max(peer.offset, peer.sent))


def _may_be_copy(flow: Flow, segment: Segment, limit_ns: int = VIEW_NS) -> bool:
    """Whether a segment may be the copy of the flow's beginning: little later than that, or in another capture.

    Captures that overlap are read one after the other, so that time goes back when the second one begins.  Inside of
    one capture it goes back when the clock was set, which says nothing.
    """
    now = segment.timestamp_ns
    if now < flow.last_timestamp_ns and segment.capture != flow.last_capture:
        return True
    return -COPY_NS <= now - flow.opened_ns <= limit_ns


def _continues_kept(flow: Flow, half: HalfStream, segment: Segment) -> bool:
    """Whether data follows on the kept segments, and is not what the flow has there."""
    data = [kept for kept in flow.kept if (kept.payload or kept.missing) and halves(flow, kept)[0] is half]
    ends = (half.locate(advance(kept.sequence, len(kept.payload) + kept.missing)) for kept in data)
    start, end = half.locate(segment.sequence), max([0, *ends])
    if start == end > half.offset:
        return bool(segment.payload)
    return start <= end and differs(half, start, segment.payload)


def _strange(half: HalfStream, peer: HalfStream, segment: Segment, window: int = START_WINDOW) -> tuple[bool, bool]:
    """Whether the sequence number and the acknowledgment of data are far from anything that the flow had."""
    acknowledges = bool(segment.flags & ACK) and peer.state is not UNSEEN
    return (
        not _within(half, segment.sequence, window),
        acknowledges and not _within(peer, segment.acknowledgment, window),
    )


def is_stray(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether both numbers of a segment are far from the flow's, and not because the capture lost a part of both."""
    if half.state is UNSEEN:
        # What acknowledges other numbers than those of the SYN is late, of the connection before.
        acknowledges = segment.flags & ACK and peer.initial_sequence >= 0
        return bool(acknowledges) and not 0 <= peer.locate(segment.acknowledgment) <= LOST_WINDOW
    if not all(_strange(half, peer, segment)):
        return False
    ahead = half.locate(segment.sequence) - half.offset, peer.locate(segment.acknowledgment) - peer.offset
    return not all(0 < distance <= LOST_WINDOW for distance in ahead)


def _within(half: HalfStream, sequence: int, window: int = START_WINDOW) -> bool:
    """Whether a sequence number is one that a side has used, or is about to use."""
    return -window <= half.locate(sequence) <= max(half.offset, half.sent, half.acknowledged) + window


def _near(number: int, other: int) -> bool:
    return (other - number + START_WINDOW) & 0xFFFFFFFF <= 2 * START_WINDOW


def is_same_syn(half: HalfStream, segment: Segment) -> bool:
    """Whether a SYN, or SYN-ACK, is the captured one by its time stamp; 0 is what a clock begins with."""
    return half.initial_sequence >= 0 and 0 < half.first_stamp == time_stamp(segment.options)


def take_syn(
    flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment, report: FlowReport, answer: FlowReport
) -> bool:
    """Apply the SYN of a segment to an open flow; ``False`` when the whole segment is to be ignored."""
    sequence = segment.sequence
    if half.initial_sequence != sequence and half.initial_sequence >= 0 and (half.offset or half.buffer):
        # A second SYN-ACK for the same SYN that says something else: the first one stands.
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
    """Whether an acknowledgment answers a SYN with where an earlier connection of a server is (RFC 5961 section 4)."""
    if segment.flags & (SYN | FIN | RST) or segment.payload or half.state is not UNSEEN:
        return False
    begun = flow.syn_seen and not flow.syn_ack_seen and peer.offset == 0 and not peer.buffer
    return begun and segment.acknowledgment != advance(peer.initial_sequence, 1)


def disowns(half: HalfStream, segment: Segment) -> bool:
    """Whether a reset by the side of ``half`` is that of a stack which does not know the connection.

    A stack that ends a connection which it knows acknowledges with its reset.  A reset without ACK answers a segment of
    the other side, and has the number which that one acknowledged (RFC 9293 section 3.5.2).
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


def is_early(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether data is missing that was sent before a reset, so that it may still come."""
    if flow.closed or half.state is UNSEEN or not plausible_reset(half, peer, segment):
        return False
    beyond = half.locate(segment.sequence) - half.offset
    if beyond > (half.offset == half.fin_offset) or half.buffer:  # a FIN counts one
        return True
    acknowledges = segment.flags & ACK and peer.state is not UNSEEN and not peer.ended
    return bool(acknowledges and (peer.buffer or peer.locate(segment.acknowledgment) > peer.offset))


def is_syn(segment: Segment) -> bool:
    """Whether a segment is a SYN without ACK: it says nothing of the other side's numbers."""
    return segment.flags & (SYN | ACK) == SYN


def beginning_kind(payload: bytes) -> str:
    """What kind of beginning data is: CONNECT, CONNACK, an HTTP upgrade or its answer, a TLS hello; else empty."""
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
    """Whether data is a beginning of the kind with which the known stream began, if that is known."""
    kind = beginning_kind(segment.payload)
    return bool(kind) and known_kind(half) in ("", kind)


def last_beginning(kept: Sequence[Segment]) -> int:
    """Where in segments that are kept, one after the other, the last of several beginnings is; 0 for a single one."""
    last = 0
    for at, segment in enumerate(kept):
        if at and (is_syn(segment) or beginning_kind(segment.payload)):
            before = [other for other in kept[last:at] if plain_key(other.key) == plain_key(segment.key)]
            ahead = (other.sequence + len(other.payload) - segment.sequence & 0xFFFFFFFF for other in before)
            later = is_syn(segment) and segment.timestamp_ns - kept[at - 1].timestamp_ns > COPY_NS
            if later or any(1 < bytes_ahead <= START_WINDOW for bytes_ahead in ahead):
                last = at
    return last


def asks_for_connection(flow: Flow, segments: Sequence[Segment]) -> bool:
    """Whether segments with the numbers of a flow hold what its initiator begins a connection with, or are many."""
    return len(segments) > _FEW or any(
        segment.flags & SYN or (halves(flow, segment)[0] is flow.initiator and beginning_kind(segment.payload))
        for segment in segments
    )
