"""Which connection a segment belongs to: the known one, the next one between the same endpoints, or none.

Small devices choose the same port and the same initial sequence number after each reboot, so numbers alone do not
decide.  Four hypotheses are possible for a segment between known endpoints:

*The same connection* sent it: as the next data, or again since an acknowledgment was lost.  A sender repeats until an
acknowledgment reaches *it* (RFC 9293 section 3.8.1), so it does not matter what the capture has shown of the other
side, nor how long the sender was silent.  *A copy*: another tap shows a segment of the connection again
(`tap_views`).  *A new connection* began: its SYN has a number of its own, or its clock is another one (`tcp_clock`), or
its bytes are.  *A stray*: the numbers belong to nothing that was captured.

`judge` asks what proves or disproves each of them.  One proof is enough, and the strongest are asked for first:
numbers of a handshake, the clock, other numbers, then bytes.  If nothing decides, the flow table keeps the
segment, and those that follow, and `weigh` looks at each of these for the proof.  docs/connections.md has the list.

Bytes are weak evidence.  Messages hold what connections begin with: an access log has lines with "GET /", samples of
sensors look like a CONNACK.  So a beginning counts at the beginning of a stream only, and only if it is of the kind
with which the known stream began.  Other bytes at a known place may be a damaged frame; they prove a new
connection together with such a beginning, and if what follows continues them.

Warning: an acknowledgment number that goes back is no proof on an open connection.  All known stacks send RCV.NXT of
the moment with what they send again, but programs that make captures do not always.
"""

from __future__ import annotations

from typing import Final

from mqttscope.net.beginnings import asks_for_connection, begins, is_syn, known_kind
from mqttscope.net.flow import Flow, Verdict
from mqttscope.net.reassembly import LOST_WINDOW, START_WINDOW, UNSEEN, HalfStream
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, advance, plain_key, reverse_key
from mqttscope.net.tap_views import (
    COPY_NS,
    VIEW_NS,
    acknowledges_less,
    differs,
    echoes,
    halves,
    is_replay,
    is_whole,
    repeat_past,
)
from mqttscope.net.tcp_clock import NO_STAMP, SLACK_NS, Reading, read_clock, time_stamp
from mqttscope.net.tcp_control import is_early

LATE_NS: Final = 3_000_000_000
"""From this time after the end of a flow on, segments that bring nothing new are reported as late copies."""
BEGIN_WINDOW: Final = 1 << 16
"""Maximum distance of the numbers of a beginning from those of the connection before."""
_FAST_OPEN_BYTES: Final = 1_460
"""A SYN carries no more data than fits into one segment."""


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
    """A SYN or SYN-ACK."""
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
    again = apart if not _may_be_copy(flow, segment) or (same and _is_other_syn(flow, segment)) else Verdict.AGAIN
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
    """Data, of an open flow or after its end."""
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

    That is a connection, whatever its numbers are: a small stack chooses the same after each reboot, and its device
    sends the same.  Only if something says that there is another tap it may be the flow once more.
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


def _is_other_syn(flow: Flow, segment: Segment) -> bool:
    """Whether a SYN or SYN-ACK has another time stamp than the flow's own."""
    first = halves(flow, segment)[0].first_stamp
    return time_stamp(segment.options) not in (first, NO_STAMP) and first != NO_STAMP
