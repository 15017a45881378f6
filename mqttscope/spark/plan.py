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
from mqttscope.spark.rows import ERROR, UNSPLIT, Note

SMALLEST_TASK = 8 << 20
"""Tasks are filled up to this, whatever the length of ranges: starting one costs more than reading a few megabytes."""
TASKS = 16
"""How many tasks the bytes should make at least: more than the cores of most machines."""
FILE_COST = 256 << 10
"""What opening a file counts beside its bytes, so that very many small ones are not one task."""
MEASURES_DDL = (
    "file int, capture string, target string, size bigint, first bigint, head binary, "
    "begin bigint, end bigint, start bigint, stop bigint, frames bigint, fault string"
)
"""One row for each split of each capture, in SQL: what `measured` makes."""


def good_size(locations: Iterable[Location]) -> int:
    return max(SMALLEST_TASK, min(ranges.SPLIT_BYTES, sum(location.size for location in locations) // TASKS))


@dataclass(slots=True)
class Task:
    """A part of a capture that is read in one go."""

    file: int
    """Place of the capture in the order of reading, from 0."""
    location: Location
    part: ranges.Range | None = None
    """What to read; ``None``: nothing."""
    head: bytes = b""
    split: ranges.Split | None = None
    """What to measure instead."""
    grown: CaptureRange | None = None
    """What to read instead: a part of a capture that is still written."""
    notes: list[Note] = field(default_factory=list)
    """What is known of the capture already."""

    @property
    def start(self) -> int | None:
        """Offset from which on is read; ``None``: nothing is."""
        if self.grown is not None:
            return self.grown.begin.position
        return None if self.part is None else self.part.start

    @property
    def frames_before(self) -> int:
        if self.grown is not None:
            return self.grown.begin.frames
        return 0 if self.part is None else self.part.first - 1

    @property
    def told_link_types(self) -> frozenset[int]:
        """Link types of earlier frames that were already reported as not supported."""
        return frozenset() if self.grown is None else frozenset(self.grown.begin.link_types)

    def items(self, file: BinaryIO) -> Iterator[Frame | CaptureNotice]:
        """Frames and notices, of the capture that is open: as long as it was when it was found."""
        if self.grown is not None:
            return read_on(file, self.location.name, self.grown)
        assert self.part is not None
        file = cast(BinaryIO, BoundedFile(file, self.location.size))
        if self.location.behind:
            return read_rest(file, self.location.name, self.location.behind)
        return ranges.read_range(file, self.location.name, self.part, self.head)

    @property
    def cost(self) -> int:
        """How much there is to do, in bytes."""
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
class Planned:
    """One capture and its ranges."""

    location: Location
    head: bytes = b""
    settled: ranges.Settled = field(default_factory=lambda: ranges.Settled((ranges.WHOLE,)))

    def tasks(self, file: int) -> list[Task]:
        """Its tasks; ``file``: its place in the order of reading."""
        location = self.location
        if location.fault is not None:
            return [Task(file, location, notes=[Note(ERROR, location.fault, 0)])]
        made = [Task(file, location, part, self.head if part.start else b"") for part in self.settled.ranges]
        if self.settled.fault is not None:
            message = f"is read in one piece from here on: {self.settled.fault}"
            made[0].notes.append(Note(UNSPLIT, message, offset=self.settled.offset))
        return made


def plan(locations: Sequence[Location], settings: Mapping[str, str], split_bytes: int) -> list[Planned]:
    """Ranges by one walk over each long local capture.

    Remote ones stay whole: a walk would fetch all their bytes.  So does the rest of those that were read before.
    """
    made = []
    for location in locations:
        planned = Planned(location)
        if location.fault is None and not location.is_remote and location.size > split_bytes and not location.behind:
            # Where it is gone meanwhile, who reads it says so.
            with suppress(OSError), open_location(location.target, settings) as file:
                found = ranges.boundaries(ranges.read_head(file))
                if found is not None and why_replaced(file, location) is None:
                    planned.head = found.head
                    planned.settled = ranges.index(file, found, ranges.split(found, location.size, split_bytes))
        made.append(planned)
    return made


def splits(locations: Sequence[Location], settings: Mapping[str, str], split_bytes: int) -> list[Task]:
    """What has to be measured for a plan."""
    made = []
    for file, location in enumerate(locations):
        parts = [ranges.Split(0, location.size)]
        if location.fault is None and location.size > split_bytes:
            with open_location(location.target, settings) as opened:
                parts = ranges.split(ranges.boundaries(ranges.read_head(opened)), location.size, split_bytes)
        made += [Task(file, location, split=part) for part in parts]
    return made


def measured(task: Task, settings: Mapping[str, str]) -> dict[str, Any]:
    """Measure a split: a row of `MEASURES_DDL`.  What is not to be cut has no ``first``."""
    location, part = task.location, task.split
    assert part is not None
    row: dict[str, Any] = {
        "file": task.file, "capture": location.name, "target": location.target, "size": location.size,
        "begin": part.begin, "end": part.end, "fault": location.fault,
        "first": None, "head": None, "start": None, "stop": None, "frames": None,
    }  # fmt: skip
    if location.fault is None and (part.begin > 0 or part.end < location.size):
        with open_location(location.target, settings) as file:
            found = ranges.boundaries(ranges.read_head(file))
            extent = ranges.Extent(0, 0, 0, "it has changed")
            if found is not None:
                extent = ranges.measure(file, found, part, location.size)
                row |= {"first": found.first, "head": found.head}
        row |= {"start": extent.start, "stop": extent.stop, "frames": extent.frames, "fault": extent.fault}
    return row


def settled(rows: Iterable[Mapping[str, Any]]) -> list[Planned]:
    """The plan that follows from the measures of all splits."""
    files: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        files.setdefault(row["file"], []).append(row)
    made = []
    for _, measures in sorted(files.items()):
        measures.sort(key=lambda row: int(row["begin"]))
        one = measures[0]
        fault = one["fault"] if len(measures) == 1 else None
        planned = Planned(Location(one["capture"], one["target"], one["size"], fault=fault))
        if len(measures) > 1:
            extents = [ranges.Extent(row["start"], row["stop"], row["frames"], row["fault"]) for row in measures]
            planned.head = bytes(one["head"] or b"")
            planned.settled = ranges.settle(one["first"] or 0, extents)
        made.append(planned)
    return made


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


def write_plan(planned: Sequence[Planned]) -> str:
    """A plan as text, in ASCII: names of files need not be UTF-8."""
    return json.dumps(
        [
            {
                "name": one.location.name,
                "target": one.location.target,
                "size": one.location.size,
                "fault": one.location.fault,
                "behind": one.location.behind,
                "begins": one.location.begins,
                "head": one.head.hex(),
                "ranges": [[part.start, part.stop, part.first, part.frames] for part in one.settled.ranges],
                "unsplit": [one.settled.fault, one.settled.offset],
            }
            for one in planned
        ]
    )


def read_plan(text: str) -> list[Planned]:
    """A plan from text."""
    return [
        Planned(
            Location(
                one["name"], one["target"], one["size"], fault=one["fault"], behind=one["behind"], begins=one["begins"]
            ),
            bytes.fromhex(one["head"]),
            ranges.Settled(tuple(ranges.Range(*part) for part in one["ranges"]), *one["unsplit"]),
        )
        for one in json.loads(text)
    ]
