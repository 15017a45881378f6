"""Runs of ``explain``: the events of captures, with every segment shown to a `SegmentWatch` before its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mqttscope.capture import open_capture
from mqttscope.capture.mapped import map_capture
from mqttscope.dissect import FastPath
from mqttscope.dissect.kernel_path import KernelEvents, KernelFlow
from mqttscope.explain.usual_segments import UsualSegments
from mqttscope.kernel import native
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import Frame
from mqttscope.net.headers import locate, segment
from mqttscope.net.segment import DnsMessage, Fragment, Segment

if TYPE_CHECKING:
    from mqttscope.capture.pcap import FrameSink
    from mqttscope.cli.capture_run import CaptureRun
    from mqttscope.events import Event
    from mqttscope.explain.segments import SegmentWatch

_FAR_NS = 1 << 63


def watched_events(run: CaptureRun, watch: SegmentWatch, feed: Callable[[Event], object]) -> Iterator[Event]:
    """Pass the events of usual segments to ``feed``, and yield the others; ``watch`` sees each segment before."""
    usual = UsualSegments(watch)
    reading = run.reading
    path = FastPath(run.dissector, feed, order=reading.order, passing=True, located=usual.take)
    data = map_capture(run.captures) if native() is not None and reading.takes_fast_path else None
    if data is not None:
        path_of_kernel = FastPath(run.dissector, feed, order=reading.order, passing=True)
        reading.kernel = WatchedKernelEvents.attempt(path_of_kernel, run.captures[0], data)
        if reading.kernel is not None:
            reading.kernel.ahead = SegmentReader(run.captures[0], usual)
            return run.events(run.segments(fast_path=path_of_kernel))
    segments = run.dissector.clock.follow(run.segments(watch.frames, path))
    return run.events(watch.segments(segments))


class SegmentReader:
    """Reads the segments of a capture a second time, as far as the kernel has come."""

    base = 0

    def __init__(self, capture: str, usual: UsualSegments) -> None:
        self._usual = usual
        self._fragments = FragmentTable()
        self._number, self._until_ns = 0, _FAR_NS
        self._frames: Iterator[Any] = open_capture([capture], direct=self)
        self._read = 0

    def read(self, number: int, until_ns: int = _FAR_NS) -> None:
        """Show the segments up to a frame, or up to the first frame with a time, to the watch."""
        if number <= self._read:
            return
        self._number, self._until_ns = number, until_ns
        for frame in self._frames:
            if type(frame) is not Frame:
                continue
            self._take(frame)
            if frame.number >= number or frame.timestamp_ns >= until_ns:
                return

    def take(
        self, data: bytes, start: int, end: int, number: int, timestamp_ns: int, link_type: int, original_length: int,
        capture: str,
    ) -> bool:  # fmt: skip
        """As `FrameSink.take`; refuses the frame that reading pauses at."""
        if number >= self._number or timestamp_ns >= self._until_ns:
            return False
        header = locate(data, start, end, link_type)
        if not header[0]:
            return False
        self._usual.take(data, start, end, *header, number, timestamp_ns, capture)
        return True

    def _take(self, frame: Frame) -> None:
        data, watch = frame.data, self._usual.watch
        self._read = frame.number
        header = locate(data, 0, len(data), frame.link_type)
        if header[0]:
            self._usual.take(data, 0, len(data), *header, frame.number, frame.timestamp_ns, frame.capture)
            return
        watch.last = frame.number, frame.timestamp_ns, frame.capture
        piece: Any = segment(frame)
        whole = self._fragments.feed(piece) if isinstance(piece, Fragment) else piece
        if isinstance(whole, Segment):
            self._usual.pass_on(whole, data)
        elif isinstance(whole, DnsMessage):
            watch.lookups.feed(whole)


class WatchedKernelEvents(KernelEvents):
    """The events of the kernel, each after the segments up to it were read."""

    ahead: SegmentReader

    def frames(self, direct: FrameSink, seen: Callable[[int], object] | None) -> Iterator[Frame]:
        """As `KernelEvents.frames`."""
        yield from super().frames(_ReadingSink(direct, self.ahead), seen)
        self.ahead.read(_FAR_NS)

    def closing(self) -> Iterator[Event]:
        """The ends of all connections in order."""
        self.ahead.read(_FAR_NS)
        return super().closing()

    # The kernel calls these.

    def advance(self, timestamp_ns: int) -> int:
        """Run all time-outs up to a time; returns the time of the next one."""
        self.ahead.read(_FAR_NS, timestamp_ns)
        return super().advance(timestamp_ns)

    def opened(self, key: bytes, tag: int, frame: int, timestamp_ns: int, sequence: int) -> KernelFlow:
        """Begin a connection with its SYN."""
        self.ahead.read(frame)
        return super().opened(key, tag, frame, timestamp_ns, sequence)

    def data(self, state: KernelFlow, from_initiator: int, data: bytes, offset: int, frame: int, *rest: int) -> None:
        """Read bytes from before the CONNACK."""
        self.ahead.read(frame)
        super().data(state, from_initiator, data, offset, frame, *rest)

    def packet(self, state: KernelFlow, from_client: int, raw: bytes, frame: int, *rest: Any) -> object:
        """Read a packet that is not frequent."""
        self.ahead.read(frame)
        return super().packet(state, from_client, raw, frame, *rest)

    def ended(self, state: KernelFlow, *args: Any) -> None:
        """End one direction."""
        self.ahead.read(max(args[2], args[4]))
        super().ended(state, *args)

    def closed(self, state: KernelFlow, *args: Any) -> None:
        """End the connection."""
        self.ahead.read(max(args[2], args[4]))
        super().closed(state, *args)


class _ReadingSink:
    """A `FrameSink` that first reads the segments up to each frame."""

    def __init__(self, sink: FrameSink, ahead: SegmentReader) -> None:
        self._sink, self._ahead = sink, ahead

    @property
    def base(self) -> int:
        return self._sink.base

    @base.setter
    def base(self, base: int) -> None:
        self._sink.base = base

    def take(self, data: bytes, start: int, end: int, number: int, *rest: Any) -> bool:
        """As `FrameSink.take`."""
        self._ahead.read(number)
        return self._sink.take(data, start, end, number, *rest)
