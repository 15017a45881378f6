"""Where the clock of captures was set: found before their flows are read apart, since all flows together show it.

A step shows in the times of neighbouring frames.  So the times alone are read first, up to the first place that may be
one, and only captures that have such a place are read as a whole (`dissect.clock_watch.changes_of`).  On this machine
all captures are looked at in their order, as in one process.  Executors look at each capture by itself: there a step
between two captures is not found.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast

import pyarrow as pa

from mqttscope.capture.locations import Location, open_location
from mqttscope.capture.read import BoundedFile, read_capture, read_rest
from mqttscope.dissect import segments
from mqttscope.dissect.clock_watch import STEP_NS, Clock, ClockChange, changes_of
from mqttscope.lake.state import dump, load
from mqttscope.net.frame import CaptureNotice, Frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE_BYTES = 1 << 30
"""Captures on this machine are read by the executors if they have more bytes than this together."""
_GIVEN_DDL = "place int, name string, target string, size bigint, behind bigint"
_FOUND_DDL = "place int, changes binary"
_FOUND = pa.schema([("place", pa.int32()), ("changes", pa.binary())])


class _Times:
    """Takes the frames of a reader (`FrameSink`) up to the first one whose time is far from the one before."""

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


def find_changes(
    spark: SparkSession,
    captures: Sequence[Location],
    settings: Mapping[str, str],
    *,
    shift_ns: int = 0,
    last_ns: int | None = None,
) -> Clock:
    """The changes of the clock of captures, by their places in the order of reading.

    ``shift_ns`` and ``last_ns``: of what was read before them (`ClockWatch.resume`).
    """
    if not (any(one.is_remote for one in captures) or sum(one.size for one in captures) > HERE_BYTES):
        return _changes(captures, settings, shift_ns, last_ns)
    # In JSON, since names of files need not be UTF-8.
    rows = [
        (place, json.dumps(one.name), json.dumps(one.target), one.size, one.behind)
        for place, one in enumerate(captures)
    ]
    given = spark.createDataFrame(rows, _GIVEN_DDL).repartition(len(rows))
    found = given.mapInArrow(partial(_look, settings=dict(settings)), _FOUND_DDL).collect()
    known = [ClockChange(-1, 0, shift_ns)] if shift_ns else []
    for row in sorted(found, key=lambda row: row["place"]):
        known += [replace(change, file=row["place"]) for change in load(bytes(row["changes"]))]
    return tuple(known)


def _look(batches: Iterable[pa.RecordBatch], settings: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    for one in batches:
        for row in one.to_pylist():
            name, target = json.loads(row["name"]), json.loads(row["target"])
            location = Location(name, target, row["size"], behind=row["behind"])
            found = dump(_changes([location], settings, 0, None))
            yield pa.RecordBatch.from_pylist([{"place": row["place"], "changes": found}], schema=_FOUND)


def _changes(captures: Sequence[Location], settings: Mapping[str, str], shift_ns: int, last_ns: int | None) -> Clock:
    times = _Times()
    if not any(type(item) is Frame for one in captures for item in _frames(one, settings, times)):
        return (ClockChange(-1, 0, shift_ns),) if shift_ns else ()
    places = {one.name: place for place, one in enumerate(captures)}
    frames = (item for one in captures for item in _frames(one, settings))
    return changes_of(segments(frames), places, shift_ns, last_ns)


def _frames(
    capture: Location, settings: Mapping[str, str], times: _Times | None = None
) -> Iterator[Frame | CaptureNotice]:
    """The frames of a capture that ``times`` does not take; none of one that cannot be opened, which others report."""
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


def _takes(times: _Times, frame: Frame) -> bool:
    size = len(frame.data)
    return times.take(frame.data, 0, size, frame.number, frame.timestamp_ns, frame.link_type, size, frame.capture)
