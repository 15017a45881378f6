"""Steps of the captures' clock, found before the flows are read separately, since only all flows together show them.

A step shows in the times of neighbouring frames.  So the times alone are read first, up to the first candidate.
Without one, as in most captures without pauses, nothing more is read.  Otherwise one task reads all
captures in order (`dissect.clock_watch.clock_of`): it reassembles the flows, and decodes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast

import pyarrow as pa

from mqttscope.capture.locations import Location, open_location
from mqttscope.capture.read import BoundedFile, read_capture, read_rest
from mqttscope.dissect import segments
from mqttscope.dissect.clock_watch import STEP_NS, CaptureClock, clock_of
from mqttscope.lake.state import dump, load
from mqttscope.net.frame import CaptureNotice, Frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE_BYTES = 1 << 30
"""Captures on this machine are read by the executors if they have more bytes than this together."""
_GIVEN_DDL = "place int, name string, target string, size bigint, begin bigint"
_FOUND_DDL = "place int, is_even boolean"
_FOUND = pa.schema([("place", pa.int32()), ("is_even", pa.bool_())])
_READ_DDL = "clock binary"


class _FrameTimes:
    """Takes the frames of a reader (`FrameSink`) up to the first one with a time far from the previous one."""

    def __init__(self) -> None:
        self.base = 0
        self._last_ns: int | None = None

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
        last_ns, self._last_ns = self._last_ns, timestamp_ns
        return last_ns is None or -STEP_NS < timestamp_ns - last_ns < STEP_NS


def find_clock(
    spark: SparkSession,
    captures: Sequence[Location],
    settings: Mapping[str, str],
    *,
    shift_ns: int = 0,
    last_ns: int | None = None,
) -> CaptureClock:
    """The clock of captures, in the order of reading.

    ``shift_ns`` and ``last_ns``: values of earlier captures (`ClockWatch.resume`).
    """
    if not (any(capture.is_remote for capture in captures) or sum(capture.size for capture in captures) > HERE_BYTES):
        return _clock(captures, settings, shift_ns, last_ns)
    # In JSON, since names of files need not be UTF-8.
    rows = [
        (place, json.dumps(capture.name), json.dumps(capture.target), capture.size, capture.behind)
        for place, capture in enumerate(captures)
    ]
    tasks = spark.createDataFrame(rows, _GIVEN_DDL).repartition(len(rows))
    looks = tasks.mapInArrow(partial(_look, settings=dict(settings)), _FOUND_DDL).collect()
    if not shift_ns and all(row["is_even"] for row in looks):
        return CaptureClock()
    whole = tasks.coalesce(1).mapInArrow(partial(_read, settings=dict(settings), before=(shift_ns, last_ns)), _READ_DDL)
    clock: CaptureClock = load(bytes(whole.collect()[0]["clock"]))
    return clock


def _locations(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Location]]:
    for batch in batches:
        for row in batch.to_pylist():
            name, target = json.loads(row["name"]), json.loads(row["target"])
            yield row["place"], Location(name, target, row["size"], behind=row["begin"])


def _look(batches: Iterable[pa.RecordBatch], settings: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    for place, capture in _locations(batches):
        yield pa.RecordBatch.from_pylist(
            [{"place": place, "is_even": _is_monotone([capture], settings)}], schema=_FOUND
        )


def _read(
    batches: Iterable[pa.RecordBatch], settings: Mapping[str, str], before: tuple[int, int | None]
) -> Iterator[pa.RecordBatch]:
    captures = [capture for _, capture in sorted(_locations(batches), key=lambda row: row[0])]
    yield pa.RecordBatch.from_pydict({"clock": [dump(_stepped(captures, settings, *before))]})


def _is_monotone(captures: Sequence[Location], settings: Mapping[str, str]) -> bool:
    """Whether the captures need no change of their times: all frames are near the previous one."""
    times = _FrameTimes()
    return not any(type(item) is Frame for capture in captures for item in _frames(capture, settings, times))


def _clock(
    captures: Sequence[Location], settings: Mapping[str, str], shift_ns: int, last_ns: int | None
) -> CaptureClock:
    if not shift_ns and _is_monotone(captures, settings):
        return CaptureClock()
    return _stepped(captures, settings, shift_ns, last_ns)


def _stepped(
    captures: Sequence[Location], settings: Mapping[str, str], shift_ns: int, last_ns: int | None
) -> CaptureClock:
    """The clock of captures that may have steps."""
    frames = (item for capture in captures for item in _frames(capture, settings))
    return clock_of(segments(frames), [capture.name for capture in captures], shift_ns, last_ns)


def _frames(
    capture: Location, settings: Mapping[str, str], times: _FrameTimes | None = None
) -> Iterator[Frame | CaptureNotice]:
    """The frames of a capture that ``times`` does not take; nothing if it cannot be opened, which others report."""
    if capture.fault is not None:
        return
    try:
        opened = open_location(capture.target, settings)
    except (OSError, ValueError):
        return
    with opened:
        file = cast(BinaryIO, BoundedFile(opened, capture.size))
        if capture.behind:
            # The frames of a part of a capture are made one by one.
            for item in read_rest(file, capture.name, capture.behind):
                if type(item) is not Frame or times is None or not _takes(times, item):
                    yield item
        else:
            yield from read_capture(file, capture.name, direct=times)


def _takes(times: _FrameTimes, frame: Frame) -> bool:
    size = len(frame.data)
    return times.take(frame.data, 0, size, frame.number, frame.timestamp_ns, frame.link_type, size, frame.capture)
