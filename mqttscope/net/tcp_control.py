"""What SYN and RST segments do to a flow (RFC 9293 sections 3.5 and 3.10, RFC 5961)."""

from __future__ import annotations

from mqttscope.net.flow import Flow, FlowReport
from mqttscope.net.reassembly import UNSEEN, HalfStream
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, advance
from mqttscope.net.tcp_clock import time_stamp


def take_syn(
    flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment, report: FlowReport, answer: FlowReport
) -> bool:
    """Apply the SYN of a segment to an open flow; ``False`` when the whole segment is to be ignored.

    ``half`` is the direction of the segment, with ``report``; ``peer`` is the other one, with ``answer``.
    """
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
    """Whether an acknowledgment answers a SYN that its sender does not expect (RFC 5961 section 4).

    A server that still holds an earlier connection tells a client that begins again where that one is.
    """
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
