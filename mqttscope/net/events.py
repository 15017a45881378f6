"""What reassembly says about a TCP connection, in the order of the capture.

Directions are named by the TCP roles: the *initiator* sent the SYN (or, when no handshake was captured, is the side
that ``Flow.initiator_known`` says was only assumed).  Which side speaks MQTT as client is for the layers above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqttscope.net.flow import Flow


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
    """Bytes came again with other content; those delivered first stand."""

    flow: Flow
    from_initiator: bool
    length: int
    """How many bytes differ."""
    offset: int
    """Position of the first byte that differs."""
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
    to no connection that is known; ``in_reset``: text beside a RST."""
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


FlowEvent = FlowOpened | StreamData | StreamGap | StreamOverlap | StreamClosed | SegmentDiscarded | FlowClosed


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
