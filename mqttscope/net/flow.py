"""One TCP connection: its state, and the events of reassembly in capture order.

A `Flow` is plain data in the table of connections (`flows`).  Events report its changes; they name directions by the
TCP roles: the *initiator* sent the SYN.  Without a captured handshake the initiator is assumed, and
``Flow.initiator_known`` is false.  The layers above decide which side is the MQTT client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mqttscope.net.frame import FlowIdentity
from mqttscope.net.reassembly import NEVER, HalfStream
from mqttscope.net.segment import Segment

NOT_BEGUN: Final = -1
"""First frame of a flow until it has a segment with a right or accepted checksum."""


class FlowMatch(Enum):
    """The relation of a segment to the known flow between its endpoints."""

    SAME = "same"
    """It belongs to the flow, even if it is late."""
    NEW = "new"
    """It begins another connection."""
    AGAIN = "again"
    """It repeats the flow's numbers: sent again, captured twice, or of a connection with the same numbers."""
    APART = "apart"
    """It has numbers of its own inside a live connection: a device that came back, or a stranger.  If it is a SYN, the
    other side answers with SYN-ACK, or with an acknowledgment for the live connection (RFC 5961 section 4)."""
    RESUMED = "resumed"
    """The flow was reset, but the sender continues: the reset may have been ignored."""
    EARLY = "early"
    """A reset that follows segments not captured yet: frames of two queues are not in order."""
    BESIDE = "beside"
    """It belongs to the flow, and decides nothing about the undecided segments."""


@dataclass(slots=True)
class Flow:
    """One TCP connection.  Plain data, except for ``context``."""

    key: bytes
    """Direction key from the initiator to the responder."""
    initiator_known: bool
    """Whether a SYN or SYN-ACK identified the initiator; otherwise the side with the higher port is assumed."""
    opened_ns: int
    """Capture time of the first segment."""
    first_frame: int
    """`NOT_BEGUN` if the flow has only waiting segments (``damaged``)."""
    capture: str
    """The capture of the first segment."""
    last_timestamp_ns: int
    last_frame: int
    last_capture: str
    initiator: HalfStream = field(default_factory=HalfStream)
    """Bytes that the initiator sent."""
    responder: HalfStream = field(default_factory=HalfStream)
    """Bytes that the responder sent."""
    syn_seen: bool = False
    syn_ack_seen: bool = False
    closed: str = ""
    """How the flow ended (see ``FlowClosed.how``), empty while it is open."""
    closed_ns: int = 0
    disowned: bool = False
    """A side that had forgotten the connection reset it."""
    check_ns: int = 0
    """Capture time of the next check for idleness and for holes that are due; the next segment after it triggers it."""
    clear: bool = False
    """Both directions are in order, so that the next segment may take the fast path."""
    context: object | None = None
    """For the layer above."""
    undecided: list[Segment] = field(default_factory=list)
    """Segments that may belong to the flow or to the next connection; later segments decide."""
    doubt: FlowMatch = FlowMatch.SAME
    """Why there are undecided segments."""
    undecided_until_ns: int = NEVER
    """Capture time when they are decided without more evidence."""
    alarm_ns: int = NEVER
    """Capture time of the next `FlowAlarm`, which the layer above requested."""
    views: list[bytes] = field(default_factory=list)
    """Other direction keys of the flow: its segments were captured again with other tags or tunnels."""
    handshake_again: int = 0
    """Number of consecutive repeated segments with data or SYN, with a SYN or SYN-ACK among them."""
    doubled: bool = False
    """Whether a second view of the flow was seen."""
    damaged: list[Segment] = field(default_factory=list)
    """Segments with a wrong checksum that wait for a valid copy or an acknowledgment (`damage`)."""
    past: list[Flow] = field(default_factory=list)
    """Earlier connections between the endpoints that a second view may still show."""

    @property
    def identity(self) -> FlowIdentity:
        """An identity that is unique among the flows of the captures."""
        return self.key, self.first_frame, self.capture


Entry = tuple[Flow, HalfStream, HalfStream, bool]
"""A flow, the sending half, the other half, and whether the sender is the initiator."""


@dataclass(slots=True)
class FlowOpened:
    """First segment of a flow."""

    flow: Flow
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class StreamData:
    """The next bytes of one direction, in order, each byte once."""

    flow: Flow
    from_initiator: bool
    data: bytes
    offset: int
    """Stream offset of ``data``; 0 is the first byte after the SYN, or the first byte captured."""
    frame: int
    """The frame that made these bytes available (for bytes after a hole, the frame that filled the hole)."""
    timestamp_ns: int
    capture: str
    acknowledged: int = -1
    """Number of bytes of the other direction that the sender had received when it sent these bytes; -1 if the segment's
    own acknowledgment does not prove it (for data that came again, or waited after a hole)."""
    shown: int = -1
    """Number of bytes of the other direction that the capture had shown by then; -1 if unknown."""


@dataclass(slots=True)
class StreamGap:
    """Bytes of one direction that were not captured."""

    flow: Flow
    from_initiator: bool
    length: int
    """Number of missing bytes."""
    offset: int
    """Stream offset of the first missing byte."""
    reason: str
    """``not_captured``: the peer acknowledged the bytes, so the capture lost them; ``cut``: the snap length cut them
    off; ``unproven``: given up at a limit, an end or a time-out, without such proof."""
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class StreamOverlap:
    """Bytes in doubt: they came again with other content (the first copy counts), or with a wrong checksum."""

    flow: Flow
    from_initiator: bool
    length: int
    """Number of bytes that differ, or have a wrong checksum."""
    offset: int
    """Stream offset of the first of them."""
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class WindowClosed:
    """A side announced a receive window of 0: the other side may send nothing but probes for now."""

    flow: Flow
    from_initiator: bool
    """Whether the initiator announced it."""
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class StreamClosed:
    """One direction ended: all its bytes were delivered or reported as a gap."""

    flow: Flow
    from_initiator: bool
    how: str
    """``fin`` or ``reset``."""
    frame: int
    """The frame with the FIN or RST, even if the stream was complete only later."""
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class SegmentDiscarded:
    """A segment with data that belongs to no connection: a real stack would discard its bytes too."""

    flow: Flow
    from_initiator: bool
    length: int
    """Number of bytes that are not part of the stream."""
    reason: str
    """``after_fin``: after the FIN of its own side; ``after_close``, ``after_reset``: the connection had ended;
    ``late_copy``: likewise, but its bytes were delivered before; ``late``: its bytes fill a reported gap;
    ``before_start``: before the first byte delivered; ``out_of_window``: its numbers fit no known connection;
    ``in_reset``: text in a RST; ``damaged``: its checksum is wrong, and the receiver did not accept it."""
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class FlowClosed:
    """A flow ended; no events of it follow."""

    flow: Flow
    how: str
    """``fin`` (both directions ended), ``reset``, ``port_reused`` (a new connection on the same endpoints),
    ``idle`` or ``evicted`` (a limit of the flow table), ``capture_end``."""
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class FlowAlarm:
    """The capture time has come that the layer above asked for (`flow_expiry.FlowRegister.alarm`)."""

    flow: Flow
    due_ns: int
    """The requested time."""
    frame: int
    """The flow's last frame."""
    timestamp_ns: int
    """Capture time of the flow's last frame."""
    capture: str


FlowEvent = (
    FlowOpened
    | StreamData
    | StreamGap
    | StreamOverlap
    | WindowClosed
    | StreamClosed
    | SegmentDiscarded
    | FlowClosed
    | FlowAlarm
)


@dataclass(slots=True)
class FlowReport:
    """Collector for the events of one direction, with their frame (number, capture time, capture)."""

    flow: Flow
    from_initiator: bool
    place: tuple[int, int, str]
    events: list[FlowEvent]
    acknowledged: int = -1
    """``StreamData.acknowledged`` of the segment's own bytes."""

    def data(self, data: bytes, offset: int) -> None:
        peer = self.flow.responder if self.from_initiator else self.flow.initiator
        event = StreamData(self.flow, self.from_initiator, data, offset, *self.place, self.acknowledged, peer.offset)
        self.events.append(event)

    def gap(self, length: int, offset: int, reason: str) -> None:
        self.events.append(StreamGap(self.flow, self.from_initiator, length, offset, reason, *self.place))

    def overlap(self, length: int, offset: int) -> None:
        self.events.append(StreamOverlap(self.flow, self.from_initiator, length, offset, *self.place))

    def window_closed(self) -> None:
        self.events.append(WindowClosed(self.flow, self.from_initiator, *self.place))

    def closed(self, how: str, place: tuple[int, int, str] | None = None) -> None:
        """Add a ``StreamClosed`` at the report's frame, or at another one."""
        self.events.append(StreamClosed(self.flow, self.from_initiator, how, *(place or self.place)))

    def discarded(self, length: int, reason: str) -> None:
        self.events.append(SegmentDiscarded(self.flow, self.from_initiator, length, reason, *self.place))
