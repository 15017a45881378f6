"""One TCP connection: what is known of it, and what reassembly says about it, in the order of the capture.

A `Flow` is plain data, which the table of connections (`flows`) keeps and moves on.  What happens to it are events.
Their directions are named by the TCP roles: the *initiator* sent the SYN (or, when no handshake was captured, is the
side that ``Flow.initiator_known`` says was only assumed).  Which side speaks MQTT as client is for the layers above.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mqttscope.net.frame import FlowIdentity
from mqttscope.net.reassembly import NEVER, HalfStream
from mqttscope.net.segment import Segment

NOT_BEGUN: Final = -1
"""First frame of a flow of which nothing but segments with a wrong checksum was captured so far."""


class Verdict(Enum):
    """What a segment has to do with the flow that is known between its endpoints."""

    SAME = "same"
    """It belongs to the flow, or is a late segment of it."""
    NEW = "new"
    """Another connection has begun."""
    AGAIN = "again"
    """It has the flow's own numbers once more: sent again, captured twice, or a connection with the same numbers."""
    APART = "apart"
    """It has numbers of its own inside of a connection that lives: a device that came back, or a stranger.  If it is a
    SYN, the other side answers with SYN-ACK, or with where the connection is (RFC 5961 section 4) and continues."""
    RESUMED = "resumed"
    """The flow was reset, and the side that sends this continues: the reset may have been ignored."""
    EARLY = "early"
    """A reset that says itself that something before it has not come yet: frames of two queues are not in order."""
    BESIDE = "beside"
    """It belongs to the flow, and does not decide about the segments that are kept."""


@dataclass(slots=True)
class Flow:
    """One TCP connection.  Plain data, except for ``context``."""

    key: bytes
    """Direction key from the initiator to the responder."""
    initiator_known: bool
    """Whether a SYN or SYN-ACK said who the initiator is; else it is assumed to be the side with the higher port."""
    opened_ns: int
    """Capture time of the first segment."""
    first_frame: int
    """`NOT_BEGUN` if it only waits (``damaged``)."""
    capture: str
    """The capture of the first segment."""
    last_timestamp_ns: int
    last_frame: int
    last_capture: str
    initiator: HalfStream = field(default_factory=HalfStream)
    """What the initiator sent."""
    responder: HalfStream = field(default_factory=HalfStream)
    """What the responder sent."""
    syn_seen: bool = False
    syn_ack_seen: bool = False
    closed: str = ""
    """How the flow ended (see ``FlowClosed.how``), empty while it is open."""
    closed_ns: int = 0
    disowned: bool = False
    """A side that no longer knew the connection reset it."""
    check_ns: int = 0
    """Capture time from which on the next segment has to look whether the flow went idle or a hole is due."""
    clear: bool = False
    """Both directions are in order, so that the next segment may take the fast path."""
    context: object | None = None
    """For the layer above."""
    kept: list[Segment] = field(default_factory=list)
    """Segments of which only later ones say whether they belong to the flow or to the next connection."""
    doubt: Verdict = Verdict.SAME
    """Why they are kept."""
    kept_until_ns: int = NEVER
    """Capture time at which that is decided without more evidence."""
    alarm_ns: int = NEVER
    """Capture time at which the layer above is to be woken, whatever comes (`FlowAlarm`)."""
    views: list[bytes] = field(default_factory=list)
    """Direction keys with other tags or tunnels under which the same segments were captured again."""
    handshake_again: int = 0
    """Segments with data or SYN that came again, one after the other, with a SYN or SYN-ACK among them."""
    doubled: bool = False
    """A second view was seen of it."""
    damaged: list[Segment] = field(default_factory=list)
    """Segments with a wrong checksum that wait for a valid copy or an acknowledgment (`damage`)."""
    past: list[Flow] = field(default_factory=list)
    """The connections before it, of which a second view may still show something."""

    @property
    def identity(self) -> FlowIdentity:
        """What no other flow of the same captures has."""
        return self.key, self.first_frame, self.capture


Entry = tuple[Flow, HalfStream, HalfStream, bool]
"""A flow, the half that sends, the other half, whether the sender is the initiator."""


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
    """Position of ``data`` in its stream; 0 is the first byte after the SYN, or the first one captured."""
    frame: int
    """The frame whose arrival made these bytes available (the one that filled a hole, when there was one)."""
    timestamp_ns: int
    capture: str
    acknowledged: int = -1
    """Stream position of the other direction up to which the sender of these bytes had received it when it sent them;
    -1 where the segment's own acknowledgment does not prove it (data that came again or waited after a hole)."""
    shown: int = -1
    """Stream position of the other direction up to which the capture had shown it by then; -1 where nobody said."""


@dataclass(slots=True)
class StreamGap:
    """Bytes of one direction that the capture does not have."""

    flow: Flow
    from_initiator: bool
    length: int
    """How many bytes are missing."""
    offset: int
    """Position of the first missing byte in its stream."""
    reason: str
    """``not_captured``: the peer acknowledged the bytes, so the capture lost them; ``cut``: the snap length cut them
    off; ``unproven``: they were given up at a limit, an end or a time-out without such proof."""
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class StreamOverlap:
    """Bytes in doubt: they came again with other content (the first stand), or were accepted with a wrong checksum."""

    flow: Flow
    from_initiator: bool
    length: int
    """How many bytes differ, or have a wrong checksum."""
    offset: int
    """Position of the first of them."""
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class StreamClosed:
    """One direction ended: all its bytes up to here were delivered or reported as a gap."""

    flow: Flow
    from_initiator: bool
    how: str
    """``fin`` or ``reset``."""
    frame: int
    """The frame with the FIN or RST, also where the stream was complete only later."""
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class SegmentDiscarded:
    """A segment with data that no connection takes: a real stack would not have passed its bytes on either."""

    flow: Flow
    from_initiator: bool
    length: int
    """How many bytes are not in the stream."""
    reason: str
    """``after_fin``: after the FIN of its own side; ``after_close``, ``after_reset``: the connection was over;
    ``late_copy``: after that too, but its bytes were delivered before; ``late``: its bytes fill a gap that was given
    up and reported before; ``before_start``: before the first byte delivered; ``out_of_window``: its numbers belong
    to no connection that is known; ``in_reset``: text beside a RST; ``damaged``: its checksum is wrong, and
    the receiver did not accept it."""
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class FlowClosed:
    """Nothing more comes of a flow."""

    flow: Flow
    how: str
    """``fin`` (both directions ended), ``reset``, ``port_reused`` (a new connection on the same endpoints),
    ``idle`` or ``evicted`` (a limit of the flow table), ``capture_end``."""
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class FlowAlarm:
    """The time has come that the layer above asked to be woken at (`flow_expiry.FlowRegister.alarm`)."""

    flow: Flow
    due_ns: int
    """The time that was asked for."""
    frame: int
    """The flow's last one."""
    timestamp_ns: int
    """Its capture time."""
    capture: str


FlowEvent = (
    FlowOpened | StreamData | StreamGap | StreamOverlap | StreamClosed | SegmentDiscarded | FlowClosed | FlowAlarm
)


@dataclass(slots=True)
class FlowReport:
    """Where the events of one direction go, and the frame (number, capture time, capture) they are owed to."""

    flow: Flow
    from_initiator: bool
    place: tuple[int, int, str]
    events: list[FlowEvent]
    acknowledged: int = -1
    """What the ``StreamData`` of the segment's own bytes says; see there."""

    def data(self, data: bytes, offset: int) -> None:
        """Add a ``StreamData``."""
        peer = self.flow.responder if self.from_initiator else self.flow.initiator
        made = StreamData(self.flow, self.from_initiator, data, offset, *self.place, self.acknowledged, peer.offset)
        self.events.append(made)

    def gap(self, length: int, offset: int, reason: str) -> None:
        """Add a ``StreamGap``."""
        self.events.append(StreamGap(self.flow, self.from_initiator, length, offset, reason, *self.place))

    def overlap(self, length: int, offset: int) -> None:
        """Add a ``StreamOverlap``."""
        self.events.append(StreamOverlap(self.flow, self.from_initiator, length, offset, *self.place))

    def closed(self, how: str, place: tuple[int, int, str] | None = None) -> None:
        """Add a ``StreamClosed``, of the frame that is the place of the report unless another is given."""
        self.events.append(StreamClosed(self.flow, self.from_initiator, how, *(place or self.place)))

    def discarded(self, length: int, reason: str) -> None:
        """Add a ``SegmentDiscarded``."""
        self.events.append(SegmentDiscarded(self.flow, self.from_initiator, length, reason, *self.place))
