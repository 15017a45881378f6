"""The kernel path: native code (`mqttscope.kernel`) reads the ordinary connections of a capture file.

The native code reads the file twice.  The first pass decides which connections are ordinary from their SYN to their
end; the second one reads these, and yields the frames of all others to the dissector.  So no state passes from one to
the other.  Of ordinary connections, `KernelHost` handles what is not frequent, with the dissector's own code: the
beginning up to CONNACK, packets other than publishes, acknowledgements and pings, and the ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from mmap import mmap
from typing import TYPE_CHECKING, Any, Final

from mqttscope.dissect.clock_watch import FAR
from mqttscope.dissect.dissector import Dissector
from mqttscope.dissect.fast_path import FastPath, FrameCounts
from mqttscope.dissect.flow_state import MQTT, ByteOrigin, FlowState
from mqttscope.dissect.options import Options
from mqttscope.dissect.transports import C2S, S2C
from mqttscope.errors import MqttscopeError
from mqttscope.events import Event, PacketEvent
from mqttscope.kernel import VARIABLE, native
from mqttscope.mqtt.constants import PacketType, ProtocolVersion, allowed_reason_codes
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.properties import EMPTY, Properties, reader
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.net.flow import Flow, FlowClosed, FlowOpened, StreamClosed, StreamData
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.reassembly import ENDED, OPEN, HalfStream
from mqttscope.net.segment import Fragment, Segment, direction_key, plain_key
from mqttscope.session.connection import Connection
from mqttscope.session.inflight import ConnectionSide

if TYPE_CHECKING:
    from mqttscope.capture.pcap import FrameSink
    from mqttscope.kernel._native import Kernel

_read_block: Final = reader(PacketType.PUBLISH)
_LAST_NS: Final = (1 << 63) - 1
_Progress = tuple[int, int, int, int]
"""Packets and bytes that the kernel read since the last call, stream position, and time of the latest packet."""
_Side = tuple[dict[str, int], _Progress, list[int], int, int]
"""Numbers of a direction, its progress, its latest packets, and frame and time of its FIN."""


class KernelDoubtError(MqttscopeError, RuntimeError):
    """The second pass met something that the first one had not: the capture has changed meanwhile."""


@contextmanager
def _doubts() -> Iterator[None]:
    """A context for calls of the kernel."""
    try:
        yield
    except RuntimeError as error:
        if type(error) is not RuntimeError or not str(error).startswith("the kernel "):
            raise
        message = f"the capture has changed while it was read ({error}); {VARIABLE}=0 reads it without the kernel"
        raise KernelDoubtError(message) from error


class KernelFlow:
    """An ordinary connection."""

    __slots__ = ("connection", "flow", "introduction")

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.connection: Connection | None = None
        self.introduction: object = None
        """The parts of lines that name the connection."""

    @property
    def dialogue(self) -> FlowState:
        """Its state above TCP."""
        dialogue = self.flow.context
        if not isinstance(dialogue, FlowState):
            raise KernelDoubtError("a connection is over")
        return dialogue


def reason_codes() -> dict[tuple[int, int], bytes]:
    """The allowed reason codes by version and packet type."""
    return {
        (int(version), int(kind)): bytes(sorted(allowed_reason_codes(kind, version)))
        for version in ProtocolVersion
        for kind in PacketType
    }


class KernelHost:
    """Handles what the kernel leaves of ordinary connections; subclasses make the output."""

    kernel: Kernel

    def __init__(self, dissector: Dissector, feed: Callable[[Event], object], capture: str, data: Any) -> None:
        """``feed`` takes each event before it changes the state of its connection; ``data``: the mapped capture."""
        self.capture = capture
        self.seen_bytes: Callable[[int], object] | None = None
        self._dissector = dissector
        self._feed = feed
        self._position = 0
        self._data = data
        self._size = len(data)

    @staticmethod
    def fits(options: Options) -> bool:
        """Whether the kernel recognises connections as the dissector with these options does."""
        return options == Options()

    def run(self, direct: FrameSink) -> Iterator[Frame]:
        """Read the surveyed capture; yields the frames of connections that are not ordinary.

        ``direct`` is offered each of these frames first.
        """
        flows, clock = self._dissector.flows, self._dissector.clock
        try:
            while True:
                last_ns = clock.last_ns
                known = last_ns != FAR
                with _doubts():
                    item = self.kernel.next(min(flows.next_sweep_ns, _LAST_NS), known, last_ns if known else 0)
                if item is None:
                    self.seen(self._size)
                    return
                data, number, timestamp_ns, link_type, original_length, interface, known, last_ns = item
                if known:
                    clock.last_ns = last_ns
                if timestamp_ns >= flows.next_sweep_ns:
                    self.follow_due(timestamp_ns)
                stop = len(data)
                if direct.take(data, 0, stop, number, timestamp_ns, link_type, original_length, self.capture):
                    continue
                yield Frame(number, timestamp_ns, link_type, data, original_length, self.capture, interface)
        finally:
            self.kernel.flush()

    def follow_due(self, timestamp_ns: int) -> None:
        """Take over the state of connections that have a time-out up to a time."""

    def end_all(self) -> Iterator[Event]:
        """The ends of all connections in order; yields the events of the dissector's connections."""
        left = self.kernel.open()[::-1]
        try:
            for place, flow_events in self._dissector.flows.closing():
                while left and (0, *left[-1][:2]) < place:
                    with _doubts():
                        self.kernel.end(left.pop()[2])
                for flow_event in flow_events:
                    yield from self._dissector.handle(flow_event)
            with _doubts():
                while left:
                    self.kernel.end(left.pop()[2])
        finally:
            self.kernel.flush()
            self.close()

    def is_ordinary(self) -> bool:
        """Whether the kernel can read the capture; if not, its file is closed."""
        if self.kernel.survey() is None:
            return True
        self.close()
        return False

    def close(self) -> None:
        """Close the mapped file, which would keep a file descriptor until this object is collected."""
        self.kernel.close()
        if isinstance(self._data, mmap):
            self._data.close()

    # The kernel calls these.

    def seen(self, position: int) -> None:
        """Report the progress of reading."""
        if self.seen_bytes is not None:
            self.seen_bytes(position - self._position)
            self._position = position

    def unusual(
        self, data: bytes, number: int, link_type: int, timestamp_ns: int, original_length: int
    ) -> bytes | bool | None:
        """The endpoints of an unusual TCP segment, ``None`` for other frames, and ``True`` for fragments."""
        piece = segment(Frame(number, timestamp_ns, link_type, data, original_length, self.capture))
        return plain_key(piece.key) if type(piece) is Segment else True if isinstance(piece, Fragment) else None

    def advance(self, timestamp_ns: int) -> int:
        """Run all time-outs up to a time; returns the time of the next one."""
        self.follow_due(timestamp_ns)
        for event in self._dissector.advance(timestamp_ns):
            self._feed(event)
        return min(self._dissector.flows.next_sweep_ns, _LAST_NS)

    def opened(self, key: bytes, tag: int, frame: int, timestamp_ns: int, sequence: int) -> KernelFlow:
        """Begin a connection with its SYN."""
        if tag:
            key = direction_key(key[:-4], key[-4:], tag.to_bytes(2, "big"))
        place = (frame, timestamp_ns, self.capture)
        flow = Flow(key, True, timestamp_ns, frame, self.capture, timestamp_ns, frame, self.capture, syn_seen=True)
        flow.initiator.state, flow.initiator.initial_sequence = OPEN, sequence
        self._dissector.flows.opened_flows += 1
        self._events(FlowOpened(flow, *place))
        return KernelFlow(flow)

    def data(
        self, state: KernelFlow, from_initiator: int, data: bytes, offset: int, frame: int, timestamp_ns: int,
        acknowledged: int, shown: int,
    ) -> None:  # fmt: skip
        """Read bytes from before the CONNACK."""
        flow = state.flow
        flow.last_frame, flow.last_timestamp_ns = frame, timestamp_ns
        flow.syn_ack_seen = True
        place = (frame, timestamp_ns, self.capture)
        self._events(StreamData(flow, bool(from_initiator), data, offset, *place, acknowledged, shown))

    def reset(self, state: KernelFlow | None, frame: int, sender: bytes, disowned: int) -> None:
        """Note the sender of a reset."""
        self._dissector.note_reset(self.capture, frame, sender)
        if state is not None:
            state.flow.disowned = bool(disowned)

    def copied(self, state: KernelFlow) -> None:
        """Note a connection with a segment that was captured twice."""
        self._dissector.flows.note_copy(state.flow, self.capture)

    def packet(
        self, state: KernelFlow, from_client: int, raw: bytes, frame: int, timestamp_ns: int, progress: _Progress
    ) -> object:
        """Read a packet that is not frequent."""
        dialogue, connection = state.dialogue, state.connection
        assert connection is not None
        _follow(connection.client_side if from_client else connection.server_side, progress)
        place = ByteOrigin(len(raw), frame, timestamp_ns, self.capture)
        for event in self._dissector.packet_events.feed(dialogue, bool(from_client), raw, place):
            self._feed(event)
        self.check(state)
        return None

    def check(self, state: KernelFlow) -> Connection:
        """The connection, if the kernel may read its packets."""
        dialogue = state.dialogue
        connection = dialogue.connection
        streams = dialogue.client_stream, dialogue.server_stream
        if (
            connection is None
            or dialogue.phase is not MQTT
            or not connection.version_known
            or connection.doubtful
            or not dialogue.client_is_initiator
            or dialogue.held
            or any(stream.busy for stream in streams)
        ):
            raise KernelDoubtError("a connection is not ordinary")
        state.connection = connection
        return connection

    def ended(
        self, state: KernelFlow, from_initiator: int, how: str, frame: int, timestamp_ns: int, last_frame: int,
        last_ns: int, is_ready: int, initiator: _Side, responder: _Side, latest_ns: int,
    ) -> None:  # fmt: skip
        """End one direction."""
        self._follow_flow(state, last_frame, last_ns, initiator, responder)
        self._events(StreamClosed(state.flow, bool(from_initiator), how, frame, timestamp_ns, self.capture))

    def closed(
        self, state: KernelFlow, from_initiator: int, how: str, frame: int, timestamp_ns: int, last_frame: int,
        last_ns: int, is_ready: int, initiator: _Side, responder: _Side, latest_ns: int,
    ) -> None:  # fmt: skip
        """End the connection."""
        self._follow_flow(state, last_frame, last_ns, initiator, responder)
        if self._dissector.flows.copies.get(self.capture) is state.flow:
            state.flow.closed = how  # so that it is remembered
        self._events(FlowClosed(state.flow, how, frame, timestamp_ns, self.capture))

    def _events(self, flow_event: Any) -> None:
        for event in self._dissector.handle(flow_event):
            self._feed(event)

    def _follow_flow(
        self, state: KernelFlow, last_frame: int, last_ns: int, initiator: _Side, responder: _Side
    ) -> None:
        flow, connection = state.flow, state.connection
        flow.last_frame, flow.last_timestamp_ns = last_frame, last_ns
        for half, (numbers, _, _, fin_frame, fin_ns) in ((flow.initiator, initiator), (flow.responder, responder)):
            _follow_half(half, numbers)
            half.fin_place = (fin_frame, fin_ns, self.capture)
        if connection is not None:
            _follow(connection.client_side, initiator[1])
            _follow(connection.server_side, responder[1])


class KernelEvents(KernelHost):
    """The events of one capture file, for the callback of a fast path; `attempt` makes it."""

    def __init__(self, path: FastPath, capture: str, data: Any) -> None:
        super().__init__(path.dissector, path.feed, capture, data)
        module = native()
        assert module is not None
        self._path = path
        self._open: dict[bytes, KernelFlow] = {}
        texts = (b"",) * 256
        self.kernel = module.Kernel(
            data=data, host=self, sink=None, counting=path.dissector.packet_events.counting, opening=b"",
            outcomes=texts, reasons=(texts, texts, texts), allowed=reason_codes(), payload_limit=0,
            shows_secrets=False, has_stems=False,
        )  # fmt: skip
        types = tuple(PACKETS.get(kind) for kind in range(16))
        flows = path.dissector.flows
        self.kernel.make_events(path.feed, types, PacketEvent, (C2S, S2C), EMPTY, capture, flows)

    @classmethod
    def attempt(cls, path: FastPath, capture: str, data: Any) -> KernelEvents | None:
        """The kernel for a mapped capture, surveyed; ``None`` if it cannot read it."""
        if path.placing or not cls.fits(path.dissector.options):
            return None
        try:
            events = cls(path, capture, data)
        except ValueError:
            return None
        return events if events.is_ordinary() else None

    def frames(self, direct: FrameSink, seen: Callable[[int], object] | None) -> Iterator[Frame]:
        """Feed the events of ordinary connections; yields the frames of all others.

        ``direct`` is offered each of these first; ``seen`` is called with the number of bytes of each read.
        """
        self.seen_bytes = seen
        self._dissector.close_beside = self.closing
        yield from self.run(direct)
        count_frames(self._path, self.capture, self.kernel.counts())

    def closing(self) -> Iterator[Event]:
        """The ends of all connections in order."""
        for state in self._open.values():
            self._dissector.flows.release(state.flow)
        return self.end_all()

    def follow_due(self, timestamp_ns: int) -> None:
        """Take over the state of connections that have a time-out up to a time."""
        for key in self._dissector.flows.due_keys(timestamp_ns):
            state = self._open.get(key)
            if state is None:
                continue
            flow = state.flow
            flow.last_frame, flow.last_timestamp_ns, *sides = self.kernel.standing(plain_key(key))
            for half, side in zip((flow.initiator, flow.responder), sides, strict=True):
                (
                    half.offset, half.acknowledged, half.sent, half.fin_offset, half.data_segments,
                    half.empty_segments, ended, waiting,
                ) = side  # fmt: skip
                half.state = ENDED if ended else OPEN
                half.buffer.starts = [0] * waiting

    # The kernel calls these.

    def opened(self, key: bytes, tag: int, frame: int, timestamp_ns: int, sequence: int) -> KernelFlow:
        """Begin a connection with its SYN."""
        state = super().opened(key, tag, frame, timestamp_ns, sequence)
        self._dissector.flows.hold(state.flow)
        self._open[state.flow.key] = state
        return state

    def ready(self, state: KernelFlow) -> tuple[Connection, int, int]:
        """Leave the frequent packets of a connection to the kernel."""
        connection = self.check(state)
        return connection, connection.client_side.stream_offset, connection.server_side.stream_offset

    def closed(self, state: KernelFlow, *args: Any) -> None:
        """End the connection."""
        if self._path.order is not None:
            self._path.order.see(self.capture, args[-1])
        self._open.pop(state.flow.key, None)
        state.flow.closed = args[1]
        super().closed(state, *args)
        self._dissector.flows.release(state.flow)

    def topic_name(self, name: bytes) -> str:
        """A Topic Name."""
        return name.decode()

    def properties(self, raw: bytes) -> Properties:
        """The properties of a PUBLISH."""
        return read_properties(raw)


def count_frames(path: FastPath, capture: str, counts: dict[str, Any]) -> None:
    """Count the frames that the kernel read."""
    if not path.counting or not counts["frames"]:
        return
    known = path.counts.get(capture)
    if known is None:
        known = path.counts[capture] = FrameCounts(counts["first_ns"])
    known.frames += counts["frames"]
    known.frame_bytes += counts["wire_bytes"]
    known.captured_bytes += counts["captured_bytes"]
    known.first_ns = min(known.first_ns, counts["first_ns"])
    known.last_ns = max(known.last_ns, counts["last_ns"])


def read_properties(raw: bytes) -> Properties:
    """A property block of a PUBLISH without its length."""
    block, _ = _read_block(write_variable_byte_integer(len(raw)) + raw, 0, len(raw) + 4)
    return block


def _follow(side: ConnectionSide, progress: _Progress) -> None:
    """Add the packets that the kernel read."""
    packets, length, offset, last_ns = progress
    if packets:
        side.packets += packets
        side.bytes += length
        side.last_timestamp_ns = last_ns
    side.stream_offset = offset


def _follow_half(half: HalfStream, numbers: dict[str, int]) -> None:
    for name, number in numbers.items():
        setattr(half, name, number)
