"""Which captures a lake has already, and how much of them: by their content, wherever they lie."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast

import pyarrow as pa

from mqttscope.capture.growing import Limited
from mqttscope.capture.ranges import WHOLE
from mqttscope.capture.reading import NO_FRAME
from mqttscope.capture.sources import why_not_opened
from mqttscope.lake.contents import Content, Known, beginnings, behind, content_of
from mqttscope.mqtt.view import utf8
from mqttscope.spark.locations import PARALLEL, Location, open_location, why_replaced
from mqttscope.spark.plan import Task, pack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE_BYTES = 1 << 30
"""Captures on this machine are read on the executors when they have more bytes than this together."""
TASK_BYTES = 256 << 20
_GIVEN_DDL = "task int, place int, target string, size bigint, begins bigint"
_FOUND_DDL = (
    "place int, digest string, readable string, size bigint, head bigint, behind bigint, first_ns bigint, fault string"
)
_ARROW = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
_FOUND = pa.schema([(name, _ARROW[kind]) for name, kind in map(str.split, _FOUND_DDL.split(","))])


@dataclass(slots=True)
class Apart:
    """Captures, told apart."""

    fresh: dict[str, Location] = field(default_factory=dict)
    """Those that are to be read, by digest, in the order of reading."""
    contents: dict[str, Content] = field(default_factory=dict)
    """What they hold, by digest."""
    known: list[tuple[str, str]] = field(default_factory=list)
    """Names and digests of those that are in already, and of copies among those that are given."""
    faults: dict[str, str] = field(default_factory=dict)
    """Why captures cannot be read, by name."""

    def leave_out(self, gone: Mapping[str, str]) -> int:
        """Read some captures no more; ``gone``: why, by their names as rows have them.  Returns how many these are."""
        left = [digest for digest, one in self.fresh.items() if utf8(one.name) in gone]
        for digest in left:
            one = self.fresh.pop(digest)
            self.faults[one.name] = gone[utf8(one.name)]
        return len(left)


@dataclass(slots=True, frozen=True)
class Looked:
    """What is known of the content of a capture."""

    digest: str = ""
    readable: str = ""
    size: int = 0
    head: int = 0
    """These as in `Content`."""
    behind: int = 0
    """So many of them were read when it was shorter."""
    first_ns: int | None = None
    """Time of the first frame behind these, where there is one."""
    fault: str | None = None
    """Why it cannot be read."""


def tell_apart(
    spark: SparkSession,
    locations: Sequence[Location],
    known: Mapping[str, str],
    settings: Mapping[str, str],
    begins: Mapping[str, Sequence[int]] | None = None,
) -> Apart:
    """Which captures are new to a lake.

    ``known``: names of those that it has, by digest; ``begins``: how some of these begin, as its manifest says.
    """
    found = Apart(faults={one.name: one.fault for one in locations if one.fault is not None})
    readable = [one for one in locations if one.fault is None]
    seen, fresh = set(known), dict[str, Location]()
    for location, looked in zip(readable, look(spark, readable, settings, Known.of(begins or {}, known)), strict=True):
        if looked.fault is not None:
            found.faults[location.name] = looked.fault
        elif looked.digest in seen:
            found.known.append((location.name, looked.digest))
        else:
            seen.add(looked.digest)
            found.contents[looked.digest] = Content(looked.digest, looked.readable, looked.size, looked.head)
            if looked.behind:
                first_ns = NO_FRAME if looked.first_ns is None else looked.first_ns
                location = replace(location, behind=looked.behind, first_ns=first_ns)
            fresh[looked.digest] = location
    targets = {digest: one.target for digest, one in fresh.items()}
    opened = partial(open_location, settings=settings)
    for digest in beginnings(found.contents, targets, begins or {}, known, opened):
        found.known.append((fresh.pop(digest).name, digest))
    if any(one.behind for one in fresh.values()):
        fresh = dict(sorted(fresh.items(), key=lambda one: one[1].first_ns))
    found.fresh = fresh
    return found


def look(spark: SparkSession, locations: Sequence[Location], settings: Mapping[str, str], known: Known) -> list[Looked]:
    """The content of each capture.  ``known``: contents of others.

    Captures in a store, and much on this machine, are read by the executors.
    """
    far = any(one.is_remote for one in locations) or sum(one.size for one in locations) > HERE_BYTES
    if not far:
        with ThreadPoolExecutor(PARALLEL) as pool:
            return list(pool.map(lambda one: _look(one, settings, known), locations))
    packed = pack([Task(place, one, WHOLE) for place, one in enumerate(locations)], TASK_BYTES)
    # In JSON, since names of files need not be UTF-8.
    rows = [
        (number, one.file, json.dumps(one.location.target), one.location.size, one.location.begins)
        for number, some in enumerate(packed)
        for one in some
    ]
    given = spark.createDataFrame(rows, _GIVEN_DDL).repartitionById(len(packed), "task")
    task = partial(_look_at_batches, settings=dict(settings), known=known)
    found = {row["place"]: row.asDict() for row in given.mapInArrow(task, _FOUND_DDL).collect()}
    return [Looked(**{name: found[place][name] for name in Looked.__slots__}) for place in range(len(locations))]


def _look_at_batches(
    batches: Iterable[pa.RecordBatch], settings: Mapping[str, str], known: Known
) -> Iterator[pa.RecordBatch]:
    for one in batches:
        for row in one.to_pylist():
            location = Location("", json.loads(row["target"]), row["size"], begins=row["begins"])
            found = asdict(_look(location, settings, known))
            yield pa.RecordBatch.from_pylist([{"place": row["place"]} | found], schema=_FOUND)


def _look(one: Location, settings: Mapping[str, str], known: Known) -> Looked:
    try:
        with open_location(one.target, settings) as opened:
            if why := why_replaced(opened, one):
                return Looked(fault=why)
            file = cast(BinaryIO, Limited(opened, one.size))
            content = content_of(file, known)
            read_before, first_ns = behind(file, content)
            known_ns = None if first_ns == NO_FRAME else int(first_ns)
            return Looked(content.digest, content.readable, content.size, content.head, read_before, known_ns)
    except (OSError, ValueError) as error:
        return Looked(fault=why_not_opened(error))
