"""Ingests captures into a lake with Spark: finds, identifies, reads and folds them, then commits in one step.

`tell_apart` identifies captures by their content, wherever they lie: which ones a lake has already, and how much of
them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import pyarrow as pa

from mqttscope.capture.files import SINCE, why_not_opened
from mqttscope.capture.fingerprint import Fingerprint, KnownFingerprints, find_prefixes, fingerprint_of, resume_offset
from mqttscope.capture.locations import PARALLEL, Location, Seen, find, open_location, open_named, why_replaced
from mqttscope.capture.ranges import WHOLE, Settled
from mqttscope.capture.read import NO_FRAME, BoundedFile
from mqttscope.dissect.clock_watch import Clock
from mqttscope.lake import writer
from mqttscope.lake.commit import commit, lake_lock, merge_small
from mqttscope.lake.manifest import LakeError, Manifest, folder_of, read_manifest, remove_strays
from mqttscope.lake.options import LakeOptions
from mqttscope.lint.failures import Failures
from mqttscope.mqtt.view import utf8
from mqttscope.spark.aggregates import write_sums
from mqttscope.spark.clock_steps import find_clock
from mqttscope.spark.dataframes import assemble, plan_captures, read_captures
from mqttscope.spark.distribute import ship
from mqttscope.spark.ingest_flows import Folded, fold
from mqttscope.spark.plan import Task, pack, read_plan, write_plan
from mqttscope.spark.session import cancel
from mqttscope.spark.tables import union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLD_BYTES = 16 << 20
"""So many bytes of captures make a task of the fold, as long as these are no more than `MANY_TASKS`."""
MANY_TASKS = 256
LARGE_FOLD_BYTES = 256 << 20
"""The same where there would be more tasks: each of them writes files of its own."""


def ingest(
    spark: SparkSession,
    sources: Sequence[str | Location],
    lake: str | os.PathLike[str],
    options: LakeOptions | None = None,
    *,
    split_bytes: int | None = None,
    ports: Iterable[int] = (),
    settings: Mapping[str, str] | None = None,
    partitions: int | None = None,
) -> writer.Ingested:
    """Take captures into a lake, in the order of their first frames; those that are in already are not read again.

    ``sources``: paths, globs, directories, URIs, or what `locations.find` found.  ``lake``: a folder that the driver
    and all executors see under this path.  ``split_bytes``: how long the ranges are that captures are read in.
    ``ports``: only segments from or to these ports.  ``settings``: for the file systems of URIs.  ``partitions``: into
    how many tasks the flows go, by default by the bytes of the captures.

    A rule that fails on an executor stops nothing: ``internal_errors`` and ``failures_told`` of the result say which
    did, and that findings may be missing.

    All or nothing: where this raises, the lake is as it was.  Raises `LakeError` where the lake cannot be written or
    has other settings, `NoCapturesError` where nothing can be opened, `SparkUnavailableError` where executors lack
    something, and what Spark raises.
    """
    root, options, known = folder_of(lake), options or LakeOptions(), dict(settings or {})
    named = [one for one in sources if isinstance(one, str)]
    seen = read_manifest(root).objects if named else {}
    locations = [one for one in sources if isinstance(one, Location)] + (find(named, known, seen) if named else [])
    ship(spark)
    with lake_lock(root):
        before = read_manifest(root)
        writer.check_settings(before, options, root)
        remove_strays(root, before)
        apart = tell_apart(spark, locations, before.captures, known, before.begins, before.objects)
        done = writer.Ingested(known=[name for name, _ in apart.known], faults=apart.faults)
        after = writer.next_generation(before, options)
        reading = Reading(spark, "", split_bytes, tuple(ports), known)
        try:
            while apart.fresh:
                fresh = list(apart.fresh.values())
                reading.plan = plan_captures(spark, fresh, split_bytes=split_bytes, settings=known)
                clock = find_clock(spark, fresh, known, shift_ns=before.shift_ns, last_ns=before.last_ns)
                tasks = partitions or good_partitions(sum(one.size for one in fresh))
                folded = _fold(reading, root, before, after, options, tasks, clock)
                gone = {one.capture: one.message for _, one in folded.errors if one.message.endswith(SINCE)}
                if not gone:
                    done.rows, done.open_flows, done.out_of_order = folded.rows, folded.open_flows, folded.out_of_order
                    done.overlapping, done.skipped = overlapping(fresh, folded.ends), folded.skipped
                    failures = Failures.together(folded.failures, [one.name for one in fresh])
                    done.internal_errors, done.failures_told = failures.errors, failures.told(options.rules)
                    write_sums(spark, root, after)
                    break
                # What was rotated, replaced or removed in between is left to the next ingest.
                if not apart.leave_out(gone):
                    raise LakeError(
                        f"{root}: nothing is done: {'; '.join(f'{name} {why}' for name, why in gone.items())}"
                    )
                remove_strays(root, before)
                after = writer.next_generation(before, options)
            names = {digest: one.name for digest, one in apart.fresh.items()}
            done.captures, done.grown = list(names.values()), [one.name for one in apart.fresh.values() if one.behind]
            apart.note(names, before, after)
            if writer.note_errors(root, after, done, names, apart.known, apart.faults) or names:
                merge_small(root, before, after)
                commit(root, before, after)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                cancel(spark)
            # Tasks that still run write files that the next ingest takes away.
            remove_strays(root, before)
            raise
    return done


def overlapping(captures: Sequence[Location], ends: Sequence[int]) -> list[str]:
    """Names of captures that begin before an earlier one ends; ``ends``: times of their last segments."""
    latest = accumulate(ends, max)
    pairs = zip(captures[1:], latest, strict=False)
    return sorted(later.name for later, end_ns in pairs if NO_FRAME < later.first_ns < end_ns)


def good_partitions(size: int) -> int:
    """Into how many tasks the flows of so many bytes of captures should go."""
    return max(1, min(size // FOLD_BYTES, MANY_TASKS), size // LARGE_FOLD_BYTES)


@dataclass(slots=True)
class Reading:
    """How captures are read, in a first pass and, for IP fragments, in a second one."""

    spark: SparkSession
    plan: str
    split_bytes: int | None
    ports: tuple[int, ...]
    settings: dict[str, str]

    def rows(self, rows: str, plan: str) -> DataFrame:
        return read_captures(
            self.spark, [], rows=rows, plan=plan, split_bytes=self.split_bytes, ports=self.ports, settings=self.settings
        )

    def fragments_of(self, files: Iterable[int]) -> DataFrame:
        """Rows of segments that were put together from the IP fragments of some captures."""
        wanted = set(files)
        # The others keep their places, but nothing of them is read.
        planned = [
            one if place in wanted else replace(one, settled=Settled(()))
            for place, one in enumerate(read_plan(self.plan))
        ]
        return assemble(self.rows("fragments", write_plan(planned)), summary=True)


def _fold(
    reading: Reading,
    root: Path,
    before: Manifest,
    after: Manifest,
    options: LakeOptions,
    partitions: int,
    clock: Clock,
) -> Folded:
    """Fold all rows; where there are IP fragments, put them together first and begin again."""
    rows = reading.rows("ingest", reading.plan)
    run = partial(fold, reading.spark, partitions=partitions, clock=clock)
    folded = run(rows, root, before, after, options, stops_at_fragments=True)
    if not folded.fragmented:
        return folded
    whole = union_all(rows, reading.fragments_of(folded.fragmented))
    return run(whole, root, before, after, options)


HERE_BYTES = 1 << 30
"""Captures on this machine are read on the executors when they have more bytes than this together."""
TASK_BYTES = 256 << 20
_GIVEN_DDL = "task int, place int, target string, size bigint, begins bigint"
_FOUND_DDL = (
    "place int, digest string, readable string, size bigint, head bigint, read_before bigint, first_ns bigint, "
    "fault string"
)
_ARROW = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
_FOUND = pa.schema([(name, _ARROW[kind]) for name, kind in map(str.split, _FOUND_DDL.split(","))])


@dataclass(slots=True)
class Apart(writer.IdentifiedCaptures):
    """Captures, identified by their content, with what is to be read."""

    fresh: dict[str, Location] = field(default_factory=dict)
    """Those that are to be read, by digest, in the order of reading."""

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
    read_before: int = 0
    """So many of them were read when it was shorter."""
    first_ns: int | None = None
    """Time of the first frame after these, where there is one."""
    fault: str | None = None
    """Why it cannot be read."""


def tell_apart(
    spark: SparkSession,
    locations: Sequence[Location],
    known: Mapping[str, str],
    settings: Mapping[str, str],
    begins: Mapping[str, Sequence[int]] | None = None,
    objects: Mapping[str, Seen] | None = None,
) -> Apart:
    """Which captures are new to a lake.

    ``known``: names of those that it has, by digest; ``begins``: how some of these begin, ``objects``: which objects of
    stores they were, as its manifest says.
    """
    found = Apart(faults={one.name: one.fault for one in locations if one.fault is not None})
    readable = []
    for location in locations:
        digest = location.known_as(objects or {})
        if digest is not None and digest in known:
            found.known.append((location.name, digest))
        elif location.fault is None:
            readable.append(location)
    seen, fresh, now_ns = set(known), dict[str, Location](), time.time_ns()
    for location, looked in zip(
        readable, look(spark, readable, settings, KnownFingerprints.of(begins or {}, known)), strict=True
    ):
        written_ns = location.written_ns
        if looked.fault is None and written_ns and now_ns - written_ns >= writer.SETTLED_NS:
            found.objects[location.name] = [looked.digest, location.size, written_ns]
        if looked.fault is not None:
            found.faults[location.name] = looked.fault
        elif looked.digest in seen:
            found.known.append((location.name, looked.digest))
        else:
            seen.add(looked.digest)
            found.contents[looked.digest] = Fingerprint(looked.digest, looked.readable, looked.size, looked.head)
            if looked.read_before:
                first_ns = NO_FRAME if looked.first_ns is None else looked.first_ns
                location = replace(location, behind=looked.read_before, first_ns=first_ns)
            fresh[looked.digest] = location
    targets = {digest: one.target for digest, one in fresh.items()}
    opened = partial(open_named, settings=settings)
    for digest in find_prefixes(found.contents, targets, begins or {}, known, opened):
        found.known.append((fresh.pop(digest).name, digest))
    if any(one.behind for one in fresh.values()):
        fresh = dict(sorted(fresh.items(), key=lambda one: one[1].first_ns))
    found.fresh = fresh
    return found


def look(
    spark: SparkSession, locations: Sequence[Location], settings: Mapping[str, str], known: KnownFingerprints
) -> list[Looked]:
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
    batches: Iterable[pa.RecordBatch], settings: Mapping[str, str], known: KnownFingerprints
) -> Iterator[pa.RecordBatch]:
    for one in batches:
        for row in one.to_pylist():
            location = Location("", json.loads(row["target"]), row["size"], begins=row["begins"])
            found = asdict(_look(location, settings, known))
            yield pa.RecordBatch.from_pylist([{"place": row["place"]} | found], schema=_FOUND)


def _look(one: Location, settings: Mapping[str, str], known: KnownFingerprints) -> Looked:
    try:
        with open_location(one.target, settings) as opened:
            if why := why_replaced(opened, one):
                return Looked(fault=why)
            file = cast(BinaryIO, BoundedFile(opened, one.size))
            content = fingerprint_of(file, known)
            read_before, first_ns = resume_offset(file, content)
            known_ns = None if first_ns == NO_FRAME else int(first_ns)
            return Looked(content.digest, content.readable, content.size, content.head, read_before, known_ns)
    except (OSError, ValueError) as error:
        return Looked(fault=why_not_opened(error))
