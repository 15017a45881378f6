"""Plans the reading: cuts captures into ranges, and packs ranges into tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from mqttscope.capture import ranges
from mqttscope.capture.locations import Location, open_location, why_replaced
from mqttscope.capture.read import BoundedFile, CaptureRange, read_on, read_rest
from mqttscope.net.frame import CaptureNotice, Frame
from mqttscope.spark.rows import ERROR, UNSPLIT, NoticeRow

SMALLEST_TASK = 8 << 20
"""Minimum size of tasks, whatever the length of ranges: starting one costs more than reading a few megabytes."""
TASKS = 16
"""Minimum number of tasks for all bytes: more than the cores of most machines."""
FILE_COST = 256 << 10
"""Cost of opening a file, in bytes, so that very many small files are not one task."""
MEASURES_DDL = (
    "file int, capture string, target string, size bigint, first bigint, head binary, "
    "begin bigint, end bigint, start bigint, stop bigint, frames bigint, fault string"
)
"""One row for each split of each capture, in SQL: the result of `measured`."""


def good_size(locations: Iterable[Location]) -> int:
    return max(SMALLEST_TASK, min(ranges.SPLIT_BYTES, sum(location.size for location in locations) // TASKS))


@dataclass(slots=True)
class Task:
    """A part of a capture that is read in one go."""

    file: int
    """Place of the capture in the order of reading, from 0."""
    location: Location
    part: ranges.Range | None = None
    """The range to read; ``None``: nothing."""
    head: bytes = b""
    split: ranges.Split | None = None
    """A split to measure instead."""
    grown: CaptureRange | None = None
    """A part of a growing capture to read instead."""
    notes: list[NoticeRow] = field(default_factory=list)
    """Notices that are known already."""

    @property
    def start(self) -> int | None:
        """Offset of the first byte to read; ``None``: nothing is read."""
        if self.grown is not None:
            return self.grown.begin.position
        return None if self.part is None else self.part.start

    @property
    def frames_before(self) -> int:
        if self.grown is not None:
            return self.grown.begin.frames
        return 0 if self.part is None else self.part.first - 1

    @property
    def reported_link_types(self) -> frozenset[int]:
        """Link types of earlier frames that were already reported as not supported."""
        return frozenset() if self.grown is None else frozenset(self.grown.begin.link_types)

    def items(self, file: BinaryIO) -> Iterator[Frame | CaptureNotice]:
        """Frames and notices of an open capture, up to its length when it was found."""
        if self.grown is not None:
            return read_on(file, self.location.name, self.grown)
        assert self.part is not None
        file = cast(BinaryIO, BoundedFile(file, self.location.size))
        if self.location.behind:
            return read_rest(file, self.location.name, self.location.behind)
        return ranges.read_range(file, self.location.name, self.part, self.head)

    @property
    def cost(self) -> int:
        """The amount of work, in bytes."""
        if self.split is not None:
            return FILE_COST + self.split.end - self.split.begin
        if self.grown is not None:
            return (
                FILE_COST + (self.grown.end.position if self.grown.end else self.grown.size) - self.grown.begin.position
            )
        if self.part is None:
            return 0
        return FILE_COST + (self.location.size if self.part.stop is None else self.part.stop) - self.part.start


@dataclass(slots=True)
class CapturePlan:
    """One capture and its ranges."""

    location: Location
    head: bytes = b""
    settled: ranges.RangeList = field(default_factory=lambda: ranges.RangeList((ranges.WHOLE,)))

    def tasks(self, file: int) -> list[Task]:
        """Its tasks; ``file``: its place in the order of reading."""
        location = self.location
        if location.fault is not None:
            return [Task(file, location, notes=[NoticeRow(ERROR, location.fault, 0)])]
        tasks = [Task(file, location, part, self.head if part.start else b"") for part in self.settled.ranges]
        if self.settled.fault is not None:
            message = f"is read in one piece from here on: {self.settled.fault}"
            tasks[0].notes.append(NoticeRow(UNSPLIT, message, offset=self.settled.offset))
        return tasks


def plan(locations: Sequence[Location], settings: Mapping[str, str], split_bytes: int) -> list[CapturePlan]:
    """Ranges by one walk over each long local capture.

    Remote captures stay whole: a walk would fetch all their bytes.  So does the rest of captures that were read before.
    """
    plans = []
    for location in locations:
        planned = CapturePlan(location)
        if location.fault is None and not location.is_remote and location.size > split_bytes and not location.behind:
            # If it is gone meanwhile, its reader reports that.
            with suppress(OSError), open_location(location.target, settings) as file:
                bounds = ranges.boundaries(ranges.read_head(file))
                if bounds is not None and why_replaced(file, location) is None:
                    planned.head = bounds.head
                    planned.settled = ranges.index_ranges(
                        file, bounds, ranges.split(bounds, location.size, split_bytes)
                    )
        plans.append(planned)
    return plans


def splits(locations: Sequence[Location], settings: Mapping[str, str], split_bytes: int) -> list[Task]:
    """The splits to measure for a plan."""
    tasks = []
    for file, location in enumerate(locations):
        parts = [ranges.Split(0, location.size)]
        if location.fault is None and location.size > split_bytes:
            with open_location(location.target, settings) as opened:
                parts = ranges.split(ranges.boundaries(ranges.read_head(opened)), location.size, split_bytes)
        tasks += [Task(file, location, split=part) for part in parts]
    return tasks


def measured(task: Task, settings: Mapping[str, str]) -> dict[str, Any]:
    """Measure a split: a row of `MEASURES_DDL`.  A capture that is not to be cut has no ``first``."""
    location, part = task.location, task.split
    assert part is not None
    row: dict[str, Any] = {
        "file": task.file, "capture": location.name, "target": location.target, "size": location.size,
        "begin": part.begin, "end": part.end, "fault": location.fault,
        "first": None, "head": None, "start": None, "stop": None, "frames": None,
    }  # fmt: skip
    if location.fault is None and (part.begin > 0 or part.end < location.size):
        with open_location(location.target, settings) as file:
            boundaries = ranges.boundaries(ranges.read_head(file))
            extent = ranges.Extent(0, 0, 0, "it has changed")
            if boundaries is not None:
                extent = ranges.measure(file, boundaries, part, location.size)
                row |= {"first": boundaries.first, "head": boundaries.head}
        row |= {"start": extent.start, "stop": extent.stop, "frames": extent.frames, "fault": extent.fault}
    return row


def settled(rows: Iterable[Mapping[str, Any]]) -> list[CapturePlan]:
    """The plan from the measures of all splits."""
    files: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        files.setdefault(row["file"], []).append(row)
    plans = []
    for _, measures in sorted(files.items()):
        measures.sort(key=lambda row: int(row["begin"]))
        first = measures[0]
        fault = first["fault"] if len(measures) == 1 else None
        planned = CapturePlan(Location(first["capture"], first["target"], first["size"], fault=fault))
        if len(measures) > 1:
            extents = [ranges.Extent(row["start"], row["stop"], row["frames"], row["fault"]) for row in measures]
            planned.head = bytes(first["head"] or b"")
            planned.settled = ranges.settle(first["first"] or 0, extents)
        plans.append(planned)
    return plans


def pack(tasks: Iterable[Task], task_bytes: int) -> list[list[Task]]:
    """Tasks in groups of about this many bytes, in their order."""
    packed: list[list[Task]] = []
    room = 0
    for task in tasks:
        if not packed or task.cost > room:
            packed.append([])
            room = task_bytes
        packed[-1].append(task)
        room -= task.cost
    return packed


def write_plan(planned: Sequence[CapturePlan]) -> str:
    """A plan as ASCII text: file names need not be UTF-8."""
    return json.dumps(
        [
            {
                "name": capture.location.name,
                "target": capture.location.target,
                "size": capture.location.size,
                "fault": capture.location.fault,
                "behind": capture.location.behind,
                "begins": capture.location.begins,
                "head": capture.head.hex(),
                "ranges": [[part.start, part.stop, part.first, part.frames] for part in capture.settled.ranges],
                "unsplit": [capture.settled.fault, capture.settled.offset],
            }
            for capture in planned
        ]
    )


def read_plan(text: str) -> list[CapturePlan]:
    """A plan from text."""
    return [
        CapturePlan(
            Location(
                row["name"], row["target"], row["size"], fault=row["fault"], behind=row["behind"], begins=row["begins"]
            ),
            bytes.fromhex(row["head"]),
            ranges.RangeList(tuple(ranges.Range(*part) for part in row["ranges"]), *row["unsplit"]),
        )
        for row in json.loads(text)
    ]
