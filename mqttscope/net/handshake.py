"""How a TCP connection begins and is cut off: SYN, SYN-ACK and reset, judged by what is known of the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqttscope.net.reassembly import START_WINDOW, UNSEEN
from mqttscope.net.segment import ACK
from mqttscope.net.sequence import advance

if TYPE_CHECKING:
    from mqttscope.net.events import Report
    from mqttscope.net.flows import Flow
    from mqttscope.net.reassembly import HalfStream
    from mqttscope.net.segment import Segment

SYN_COPY_NS = 3_000_000_000
"""A SYN like the first one that comes this soon is a copy of it, even when the flow has ended meanwhile."""


def take_syn(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment, report: Report, answer: Report) -> bool:
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
    elif seen:
        half.ignored_syns += 1
    if segment.flags & ACK:
        flow.syn_ack_seen = True
        if peer.state == UNSEEN:
            peer.synchronize(advance(segment.acknowledgment, -1), answer)
    else:
        flow.syn_seen = True
    return True


def is_new_connection(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether a SYN or SYN-ACK belongs to another connection than the one known under its endpoints."""
    answer = bool(segment.flags & ACK)
    same = half.initial_sequence == segment.sequence
    untouched = half.offset == 0 and not half.buffer
    if flow.closed:
        if not same or answer:
            return not same
        # Refused connections are tried again with the same number; else it takes time to get the same number again.
        refused = flow.closed == "reset" and untouched and peer.offset == 0
        return refused or segment.timestamp_ns - flow.opened_ns > SYN_COPY_NS
    if same or half.state == UNSEEN:
        return False
    start = half.locate(advance(segment.sequence, 1))
    if half.initial_sequence < 0:
        if untouched:
            return not answer and peer.offset > 0 and start != 0
        return not -START_WINDOW <= start <= 0
    if answer:
        return not untouched and segment.acknowledgment != advance(peer.initial_sequence, 1)
    return True


def plausible_reset(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether a reset by the side of ``half`` is one that ends the flow (RFC 9293 section 3.5.2)."""
    if half.state != UNSEEN:
        return half.plausible_reset(segment.sequence)
    # Nothing is known of the side that resets: it has to acknowledge what the other one sent, its SYN at least.
    if not segment.flags & ACK or peer.state == UNSEEN:
        return False
    return 0 <= peer.locate(segment.acknowledgment) <= max(peer.offset, peer.sent)
