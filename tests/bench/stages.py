"""Where the time goes: each stage is measured with all before it, and is charged with what it adds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect, segments
from mqttscope.mqtt import Connect, PacketStream
from mqttscope.net.flow import FlowOpened, StreamData
from mqttscope.net.flows import FlowTable
from mqttscope.net.segment import Segment
from mqttscope.report.jsonl import JsonLines
from tests.bench import generate
from tests.bench.printing import Out, heading, row

ROUNDS = 5


class Nowhere:
    """A sink that keeps nothing."""

    def write(self, data: bytes) -> None:
        pass


def read(path: Path) -> None:
    """Blocks of the file to frames."""
    for _ in open_capture([path]):
        pass


def walk(path: Path) -> None:
    """Frames to segments."""
    for _ in segments(open_capture([path])):
        pass


def reassemble(path: Path) -> None:
    """Segments to streams."""
    for _ in _stream_data(path):
        pass


def decode(path: Path) -> None:
    """Streams to packets."""
    for event in _stream_data(path):
        streams = event.flow.context
        assert isinstance(streams, tuple)
        for item in streams[event.from_initiator].feed(event.data):
            if type(item) is Connect:
                for stream in streams:
                    stream.version, stream.version_source = item.version, "CONNECT"


def _stream_data(path: Path) -> Iterator[StreamData]:
    table = FlowTable()
    feed = table.feed
    for segment in segments(open_capture([path])):
        assert isinstance(segment, Segment)
        for event in feed(segment):
            if type(event) is StreamData:
                yield event
            elif type(event) is FlowOpened:
                event.flow.context = PacketStream(), PacketStream()


def follow(path: Path) -> None:
    """Packets to events, with the state of their connections."""
    for _ in dissect(open_capture([path])):
        pass


def write(path: Path) -> None:
    """Events to JSON Lines."""
    reporter = JsonLines(Nowhere())
    for event in dissect(open_capture([path])):
        reporter.feed(event)


STAGES: tuple[tuple[str, Callable[[Path], None]], ...] = (
    ("read the file", read),
    ("walk the headers", walk),
    ("reassemble the flows", reassemble),
    ("frame and decode the packets", decode),
    ("recognise, follow the state, make events", follow),
    ("write JSON", write),
)


def measure(out: Out, frames: Sequence[int] = (250_000,), rounds: int = ROUNDS) -> None:
    """Print microseconds of processor time per frame of each stage."""
    gc.set_threshold(200_000, 20, 50)  # as the command line has it
    for size in frames:
        path, _ = generate.capture(size)
        out(f"\n### Time by stage, {size:,} frames\n")
        taken: dict[str, list[float]] = {name: [] for name, _ in STAGES}
        for _ in range(rounds):
            for name, stage in STAGES:
                gc.collect()
                begun = time.process_time()
                stage(path)
                taken[name].append((time.process_time() - begun) / size * 1e6)
        heading(out, "stage", "µs per frame", "in all")
        before = 0.0
        for name, values in taken.items():
            now = median(values)
            row(out, name, f"{max(0.0, now - before):.2f}", f"{now:.2f}")
            before = now
