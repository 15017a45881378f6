"""The fast path: from the buffer of a reader to the events of packets, without an object for each frame.

Nearly all frames of a capture are TCP segments that continue a connection with known packets.  `FastPath` reads them in
place, and passes their events to a callback.  The reader yields all other frames to `dissect_segments`;
both work on one `Dissector`, so that a capture may switch between them with each frame.
A test checks that every capture gives equal events with and without the fast path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqttscope.dissect.clock_watch import STEP_NS
from mqttscope.dissect.dissector import SAYS_NO_VERSION, Dissector
from mqttscope.dissect.flow_state import IGNORED, MQTT, ByteOrigin, FlowState
from mqttscope.dissect.transports import C2S, S2C
from mqttscope.events import Event, PacketEvent
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.stream import StreamItem
from mqttscope.net.checksum import WRONG
from mqttscope.net.flows import acknowledged_offset
from mqttscope.net.headers import judge, locate
from mqttscope.session.connection import Connection

OVERLAP_NS: Final = 10_000_000
"""Maximum disorder of frames at the boundary of two rotated captures."""
Located = Callable[[bytes, int, int, bytes, int, int, int, int, int, int, int, int, int, str], object]
"""Takes a frame (data, start, stop), the results of `locate`, number, time and capture."""
_new: Final = PacketEvent.__new__
_new_publish: Final = Publish.__new__


class CaptureOrder:
    """The end times of captures, and the captures that overlap in time with an earlier one."""

    def __init__(self) -> None:
        self.overlapping: list[str] = []
        """Captures that begin before the end of an earlier one."""
        self._ends: dict[str, int] = {}
        """Latest segment of each capture except the current one."""
        self._capture = ""
        self._end_ns = self._latest_ns = -1 << 63

    def see(self, capture: str, timestamp_ns: int) -> None:
        """Note the time of the next segment."""
        if capture != self._capture:
            self._latest_ns = max(self._latest_ns, self._end_ns)
            if timestamp_ns < self._latest_ns - OVERLAP_NS:
                self.overlapping.append(capture)
            self._ends[self._capture] = self._end_ns
            self._capture, self._end_ns = capture, self._ends.get(capture, timestamp_ns)
        if timestamp_ns > self._end_ns:
            self._end_ns = timestamp_ns

    def end_ns(self, capture: str) -> int | None:
        """Time of the latest segment of a capture."""
        return self._end_ns if capture == self._capture else self._ends.get(capture)


class FrameCounts:
    """Number and bytes of the frames of one capture on the fast path, and their first and last time."""

    def __init__(self, timestamp_ns: int) -> None:
        self.frames = 0
        self.frame_bytes = 0
        """Length on the wire."""
        self.captured_bytes = 0
        self.first_ns = timestamp_ns
        self.last_ns = timestamp_ns


class FastPath:
    """Takes frames of known connections (`FrameSink`) for a dissector; `dissect_segments` handles all other frames."""

    def __init__(
        self,
        dissector: Dissector,
        feed: Callable[[Event], object],
        *,
        order: CaptureOrder | None = None,
        counting: bool = False,
        placing: bool = False,
        passing: bool = False,
        reusing: bool = False,
        located: Located | None = None,
    ) -> None:
        """``feed`` takes each event before it changes the state of its connection.

        ``order`` receives the times of segments; with ``counting``, frames are counted in ``counts``; with
        ``placing``, `place_of` locates the bytes of an event.  ``passing``: ``feed`` keeps no event, so that
        one object serves for all packets.  ``reusing``: ``feed`` neither keeps packets nor compares them by identity.
        ``located`` takes each segment before its events.
        """
        self.base = 0
        """As `FrameSink.base`."""
        self.counts: dict[str, FrameCounts] = {}
        """Counts of the frames taken, by capture."""
        self.closed = False
        """Whether the path is closed: the reader wants to see all further frames."""
        self.dissector = dissector
        self._flows = dissector.flows
        self._clock = dissector.clock
        self.feed = feed
        self.order = order
        self.counting = counting
        self.placing = placing
        self._passing = passing
        self._located = located
        self._event: PacketEvent | None = None
        """The event of the last packet, if it may be reused."""
        self._publish: Publish | None = _new_publish(Publish) if reusing else None
        """A PUBLISH object that may be reused for a PUBLISH in a segment of its own."""
        self._data, self._start, self._end, self._frame, self._capture = b"", 0, 0, 0, ""
        """The latest frame."""

    def place_of(self, raw: bytes, frame: int, capture: str) -> int:
        """Offset in the uncompressed capture of bytes in a frame; -1 if the frame does not contain all of them.

        Works for the latest frame only.  If equal bytes occur at several offsets, any of them is right.
        """
        if frame != self._frame or capture != self._capture:
            return -1
        at = self._data.find(raw, self._start, self._end)
        return at if at < 0 else self.base + at

    def take(
        self,
        data: bytes,
        start: int,
        end: int,
        number: int,
        timestamp_ns: int,
        link_type: int,
        original_length: int,
        capture: str,
    ) -> bool:
        """As `FrameSink.take`."""
        if self.placing:
            self._data, self._start, self._end, self._frame, self._capture = data, start, end, number, capture
        clock = self._clock
        if self.closed or not -STEP_NS < timestamp_ns - clock.last_ns < STEP_NS:
            return False
        clock.last_ns = timestamp_ns
        key, sequence, acknowledgment, flags, window, options_at, payload_at, payload_end = locate(
            data, start, end, link_type
        )
        if not key:
            return False
        entry = self._flows.entry(key)
        if entry is None:
            return False
        if payload_at == payload_end:
            # Damage is harmless in a segment without data that acknowledges nothing new.
            if (
                acknowledgment != entry[2].sequence
                and self._flows.verify_checksums
                and judge(data, key, options_at, payload_end) == WRONG
            ):
                return False
            if not self._flows.continues(
                entry, sequence, acknowledgment, flags, window, b"", b"", number, timestamp_ns, capture
            ):
                return False
            if self._located is not None:
                self._located(
                    data, start, end, key, sequence, acknowledgment, flags, window, options_at, payload_at, payload_end,
                    number, timestamp_ns, capture,
                )  # fmt: skip
            if self.order is not None:
                self.order.see(capture, timestamp_ns)
            if self.counting:
                self._count(original_length, end - start, timestamp_ns, capture)
            return True
        dialogue = entry[0].context
        if type(dialogue) is not FlowState:
            return False
        connection = dialogue.connection
        if dialogue.phase is MQTT:
            if connection is None or not connection.version_known:
                return False
            if self._flows.verify_checksums and judge(data, key, options_at, payload_end) == WRONG:
                return False
        elif dialogue.phase is not IGNORED:
            return False
        payload = data[payload_at:payload_end]
        if not self._flows.continues(
            entry,
            sequence,
            acknowledgment,
            flags,
            window,
            payload,
            data[options_at:payload_at],
            number,
            timestamp_ns,
            capture,
        ):
            return False
        if self._located is not None:
            self._located(
                data, start, end, key, sequence, acknowledgment, flags, window, options_at, payload_at, payload_end,
                number, timestamp_ns, capture,
            )  # fmt: skip
        if self.order is not None:
            self.order.see(capture, timestamp_ns)
        if self.counting:
            self._count(original_length, end - start, timestamp_ns, capture)
        if connection is None:
            return True
        from_client = entry[3] is dialogue.client_is_initiator
        stream = dialogue.client_stream if from_client else dialogue.server_stream
        history = connection.history
        if history is not None:
            history.segment(
                from_client,
                entry[1].offset,
                acknowledged_offset(entry, acknowledgment),
                entry[2].offset,
                timestamp_ns,
                stream.held,
            )
        item = stream.whole(payload, self._publish)
        if item is not None and (type(item) is Publish or type(item) in SAYS_NO_VERSION):
            self._packet(dialogue, connection, item, from_client, number, timestamp_ns, capture)
            return True
        if item is None and not from_client and not connection.server_side.stream_offset:
            place = ByteOrigin(len(payload), number, timestamp_ns, capture)
            for event in self.dissector.packet_events.feed(dialogue, from_client, payload, place):
                self.feed(event)
            return True
        items: list[StreamItem] = stream.feed(payload) if item is None else [item]
        for index, stream_item in enumerate(items):
            if isinstance(stream_item, ControlPacket) and (
                type(stream_item) is Publish or type(stream_item) in SAYS_NO_VERSION
            ):
                self._packet(dialogue, connection, stream_item, from_client, number, timestamp_ns, capture)
                continue
            # With the rest of the segment: a new version only applies to the next segment.
            place = ByteOrigin(len(payload), number, timestamp_ns, capture)
            for event in self.dissector.packet_events.items(dialogue, from_client, items[index:], place):
                self.feed(event)
            break
        return True

    def _packet(
        self,
        dialogue: FlowState,
        connection: Connection,
        packet: ControlPacket,
        from_client: bool,
        frame: int,
        timestamp_ns: int,
        capture: str,
    ) -> None:
        """Pass the event of a packet on, then apply the packet to its connection."""
        if from_client:
            direction, side = C2S, connection.client_side
        else:
            direction, side = S2C, connection.server_side
        topic: str | None = None
        if type(packet) is Publish:
            topic = packet.topic_name or connection.resolve_topic(packet, direction)
        counting = dialogue.counting
        number = counting.packets
        counting.packets = number + 1
        offset = side.stream_offset
        # Only packets after a gap lack bytes, and gaps do not come this way.
        side.stream_offset = offset + len(packet.raw)
        event = self._event
        if event is None:
            # Without __init__, for speed: there is one event for each packet.
            event = _new(PacketEvent)
            if self._passing:
                self._event = event
        event.connection = connection
        event.direction = direction
        event.number = number
        event.frame = frame
        event.timestamp_ns = timestamp_ns
        event.capture = capture
        event.packet = packet
        event.topic = topic
        event.stream_offset = offset
        self.feed(event)
        connection.apply(packet, direction, number, frame, timestamp_ns)

    def _count(self, original_length: int, captured_length: int, timestamp_ns: int, capture: str) -> None:
        counts = self.counts.get(capture)
        if counts is None:
            counts = self.counts[capture] = FrameCounts(timestamp_ns)
        counts.frames += 1
        counts.frame_bytes += original_length
        counts.captured_bytes += captured_length
        if timestamp_ns > counts.last_ns:
            counts.last_ns = timestamp_ns
        elif timestamp_ns < counts.first_ns:
            counts.first_ns = timestamp_ns
