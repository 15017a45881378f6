"""Ingests captures into a lake with Spark: finds, identifies, reads and folds them, then commits in one step.

`tell_apart` identifies captures by their content, local or remote: which of them a lake has already, and how much of
each.
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
from mqttscope.capture.locations import PARALLEL, Location, StoredObject, find, open_location, open_named, why_replaced
from mqttscope.capture.ranges import WHOLE, RangeList
from mqttscope.capture.read import NO_FRAME, BoundedFile
from mqttscope.dissect.clock_watch import CaptureClock
from mqttscope.lake import writer
from mqttscope.lake.commit import commit, lake_lock, merge_small
from mqttscope.lake.erasure import erase_again
from mqttscope.lake.manifest import LakeError, Manifest, folder_of, read_manifest, remove_strays
from mqttscope.lake.options import LakeOptions
from mqttscope.lint.failures import RuleFailures
from mqttscope.mqtt.view import utf8
from mqttscope.spark.aggregates import write_sums
from mqttscope.spark.clock_steps import find_clock
from mqttscope.spark.dataframes import assemble, plan_captures, read_captures
from mqttscope.spark.distribute import ship
from mqttscope.spark.ingest_flows import FoldResult, fold
from mqttscope.spark.plan import Task, pack, read_plan, write_plan
from mqttscope.spark.session import cancel
from mqttscope.spark.tables import union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLD_BYTES = 16 << 20
"""Capture bytes per task of the fold, up to `MANY_TASKS` tasks."""
MANY_TASKS = 256
LARGE_FOLD_BYTES = 256 << 20
"""Capture bytes per task beyond `MANY_TASKS` tasks: each of them writes files of its own."""


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
    rebuild: bool = False,
    without_missing: bool = False,
) -> writer.IngestResult:
    """Ingest captures into a lake, in the order of their first frames; captures that it has are not read again.

    ``sources``: paths, globs, directories, URIs, or locations from `locations.find`.  ``lake``: a folder that the
    driver and all executors see under this path.  ``split_bytes``: length of the ranges that captures are read in.
    ``ports``: only segments from or to these ports.  ``settings``: for the file systems of URIs.  ``partitions``:
    number of tasks for the flows, by default from the bytes of the captures.  ``rebuild``: the rows of these captures
    replace all rows; ``without_missing``: even if the lake has other captures.

    A rule that fails on an executor stops nothing: ``internal_errors`` and ``failures_told`` of the result list the
    failed rules; findings may be missing then.

    All or nothing: if this raises, the lake is unchanged.  Raises `LakeError` if the lake cannot be written or
    has other settings, `NoCapturesError` if nothing can be opened, `SparkUnavailableError` if executors lack
    something, and Spark's errors.
    """
    root, options, known = folder_of(lake), options or LakeOptions(), dict(settings or {})
    named = [source for source in sources if isinstance(source, str)]
    seen = read_manifest(root).objects if named else {}
    locations = [source for source in sources if isinstance(source, Location)]
    locations += find(named, known, seen) if named else []
    ship(spark)
    with lake_lock(root):
        before = read_manifest(root)
        start, chosen = writer.starting_point(root, before, options, rebuild=rebuild)
        waiting, options = [rule.code for rule in options.rules if rule not in chosen.rules], chosen
        remove_strays(root, before)
        apart = tell_apart(spark, locations, start.captures, known, start.begins, start.objects)
        if rebuild and not without_missing:
            new = {digest: capture.target for digest, capture in apart.fresh.items()}
            writer.check_complete(root, before, apart, new, known)
        known_names = [name for name, _ in apart.known]
        done = writer.IngestResult(known=known_names, faults=apart.faults, waiting_rules=waiting)
        resumed, after = writer.begin_generation(root, start, options)
        reading = IngestReader(spark, "", split_bytes, tuple(ports), known)
        try:
            while apart.fresh:
                fresh = list(apart.fresh.values())
                reading.plan = plan_captures(spark, fresh, split_bytes=split_bytes, settings=known)
                clock = find_clock(spark, fresh, known, shift_ns=start.shift_ns, last_ns=start.last_ns)
                tasks = partitions or good_partitions(sum(capture.size for capture in fresh))
                folded = _fold(reading, root, resumed, after, options, tasks, clock)
                gone = {error.capture: error.message for _, error in folded.errors if error.message.endswith(SINCE)}
                if not gone:
                    done.rows, done.open_flows, done.out_of_order = folded.rows, folded.open_flows, folded.out_of_order
                    done.overlapping, done.skipped = overlapping(fresh, folded.ends), folded.skipped
                    failures = RuleFailures.together(folded.failures, [capture.name for capture in fresh])
                    done.internal_errors, done.failures_told = failures.errors, failures.sentences(options.rules)
                    erase_again(root, start, after, options.key_file)
                    write_sums(spark, root, after)
                    break
                # Captures that were rotated, replaced or removed meanwhile are left to the next ingest.
                if not apart.leave_out(gone):
                    raise LakeError(
                        f"{root}: nothing is done: {'; '.join(f'{name} {why}' for name, why in gone.items())}"
                    )
                remove_strays(root, before)
                resumed, after = writer.begin_generation(root, start, options)
            names = {digest: capture.name for digest, capture in apart.fresh.items()}
            done.captures = list(names.values())
            done.grown = [capture.name for capture in apart.fresh.values() if capture.behind]
            apart.note(names, start, after)
            if writer.note_errors(root, after, done, names, apart.known, apart.faults) or names:
                merge_small(root, start, after)
                commit(root, before, after)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                cancel(spark)
            # Tasks that still run write files that the next ingest removes.
            remove_strays(root, before)
            raise
    return done


def overlapping(captures: Sequence[Location], ends: Sequence[int]) -> list[str]:
    """Names of captures that begin before an earlier one ends; ``ends``: times of their last segments."""
    latest = accumulate(ends, max)
    pairs = zip(captures[1:], latest, strict=False)
    return sorted(later.name for later, end_ns in pairs if NO_FRAME < later.first_ns < end_ns)


def good_partitions(size: int) -> int:
    """Number of tasks for the flows of this many capture bytes."""
    return max(1, min(size // FOLD_BYTES, MANY_TASKS), size // LARGE_FOLD_BYTES)


@dataclass(slots=True)
class IngestReader:
    """Reads captures, in a first pass and, for IP fragments, in a second one."""

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
        """Rows of the segments reassembled from IP fragments of some captures."""
        wanted = set(files)
        # The others keep their places, but are not read.
        planned = [
            capture if place in wanted else replace(capture, settled=RangeList(()))
            for place, capture in enumerate(read_plan(self.plan))
        ]
        return assemble(self.rows("fragments", write_plan(planned)), summary=True)


def _fold(
    reading: IngestReader,
    root: Path,
    before: Manifest,
    after: Manifest,
    options: LakeOptions,
    partitions: int,
    clock: CaptureClock,
) -> FoldResult:
    """Fold all rows; if there are IP fragments, reassemble them first and begin again."""
    rows = reading.rows("ingest", reading.plan)
    run = partial(fold, reading.spark, partitions=partitions, clock=clock)
    folded = run(rows, root, before, after, options, stops_at_fragments=True)
    if not folded.fragmented:
        return folded
    whole = union_all(rows, reading.fragments_of(folded.fragmented))
    return run(whole, root, before, after, options)


HERE_BYTES = 1 << 30
"""Minimum size of all captures on this machine to read them on the executors."""
TASK_BYTES = 256 << 20
_GIVEN_DDL = "task int, place int, target string, size bigint, begins bigint"
_FOUND_DDL = (
    "place int, digest string, readable string, size bigint, head bigint, read_before bigint, first_ns bigint, "
    "fault string"
)
_ARROW = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
_FOUND = pa.schema([(name, _ARROW[kind]) for name, kind in map(str.split, _FOUND_DDL.split(","))])


@dataclass(slots=True)
class IngestSelection(writer.IdentifiedCaptures):
    """Captures, identified by their content, with the selection to read."""

    fresh: dict[str, Location] = field(default_factory=dict)
    """The captures to read, by digest, in the order of reading."""

    def leave_out(self, gone: Mapping[str, str]) -> int:
        """Leave captures out; ``gone``: reasons, by name in rows.  Returns the number of these captures."""
        left = [digest for digest, capture in self.fresh.items() if utf8(capture.name) in gone]
        for digest in left:
            capture = self.fresh.pop(digest)
            self.faults[capture.name] = gone[utf8(capture.name)]
        return len(left)


@dataclass(slots=True, frozen=True)
class CaptureIdentity:
    """The identified content of a capture."""

    digest: str = ""
    readable: str = ""
    size: int = 0
    head: int = 0
    """Fields as in `Fingerprint`."""
    read_before: int = 0
    """Number of its bytes that were read when it was shorter."""
    first_ns: int | None = None
    """Time of the first frame after these bytes, if there is one."""
    fault: str | None = None
    """Reason why it cannot be read."""


def tell_apart(
    spark: SparkSession,
    locations: Sequence[Location],
    known: Mapping[str, str],
    settings: Mapping[str, str],
    begins: Mapping[str, Sequence[int]] | None = None,
    objects: Mapping[str, StoredObject] | None = None,
) -> IngestSelection:
    """The captures that are new to a lake.

    ``known``: names of captures in the lake, by digest; ``begins``: how some of these begin; ``objects``: their
    objects in stores, from the manifest.
    """
    faults = {location.name: location.fault for location in locations if location.fault is not None}
    selection = IngestSelection(faults=faults)
    readable = []
    for location in locations:
        digest = location.known_as(objects or {})
        if digest is not None and digest in known:
            selection.known.append((location.name, digest))
        elif location.fault is None:
            readable.append(location)
    seen, fresh, now_ns = set(known), dict[str, Location](), time.time_ns()
    fingerprints = KnownFingerprints.from_manifest(begins or {}, known)
    for location, looked in zip(readable, identify_captures(spark, readable, settings, fingerprints), strict=True):
        written_ns = location.written_ns
        if looked.fault is None and written_ns and now_ns - written_ns >= writer.SETTLED_NS:
            selection.objects[location.name] = [looked.digest, location.size, written_ns]
        if looked.fault is not None:
            selection.faults[location.name] = looked.fault
        elif looked.digest in seen:
            selection.known.append((location.name, looked.digest))
        else:
            seen.add(looked.digest)
            selection.contents[looked.digest] = Fingerprint(looked.digest, looked.readable, looked.size, looked.head)
            if looked.read_before:
                first_ns = NO_FRAME if looked.first_ns is None else looked.first_ns
                location = replace(location, behind=looked.read_before, first_ns=first_ns)
            fresh[looked.digest] = location
    targets = {digest: capture.target for digest, capture in fresh.items()}
    opened = partial(open_named, settings=settings)
    for digest in find_prefixes(selection.contents, targets, begins or {}, known, opened):
        selection.known.append((fresh.pop(digest).name, digest))
    if any(capture.behind for capture in fresh.values()):
        fresh = dict(sorted(fresh.items(), key=lambda pair: pair[1].first_ns))
    selection.fresh = fresh
    return selection


def identify_captures(
    spark: SparkSession, locations: Sequence[Location], settings: Mapping[str, str], known: KnownFingerprints
) -> list[CaptureIdentity]:
    """The content of each capture.  ``known``: contents of others.

    Captures in a store, and many bytes on this machine, are read by the executors.
    """
    far = any(place.is_remote for place in locations) or sum(place.size for place in locations) > HERE_BYTES
    if not far:
        with ThreadPoolExecutor(PARALLEL) as pool:
            return list(pool.map(lambda location: _look(location, settings, known), locations))
    packed = pack([Task(place, location, WHOLE) for place, location in enumerate(locations)], TASK_BYTES)
    # In JSON, since names of files need not be UTF-8.
    rows = [
        (number, entry.file, json.dumps(entry.location.target), entry.location.size, entry.location.begins)
        for number, some in enumerate(packed)
        for entry in some
    ]
    task_rows = spark.createDataFrame(rows, _GIVEN_DDL).repartitionById(len(packed), "task")
    task = partial(_look_at_batches, settings=dict(settings), known=known)
    by_place = {row["place"]: row.asDict() for row in task_rows.mapInArrow(task, _FOUND_DDL).collect()}
    names = CaptureIdentity.__slots__
    return [CaptureIdentity(**{name: by_place[place][name] for name in names}) for place in range(len(locations))]


def _look_at_batches(
    batches: Iterable[pa.RecordBatch], settings: Mapping[str, str], known: KnownFingerprints
) -> Iterator[pa.RecordBatch]:
    for record_batch in batches:
        for row in record_batch.to_pylist():
            location = Location("", json.loads(row["target"]), row["size"], begins=row["begins"])
            fields = asdict(_look(location, settings, known))
            yield pa.RecordBatch.from_pylist([{"place": row["place"]} | fields], schema=_FOUND)


def _look(location: Location, settings: Mapping[str, str], known: KnownFingerprints) -> CaptureIdentity:
    try:
        with open_location(location.target, settings) as opened:
            if why := why_replaced(opened, location):
                return CaptureIdentity(fault=why)
            file = cast(BinaryIO, BoundedFile(opened, location.size))
            content = fingerprint_of(file, known)
            read_before, first_ns = resume_offset(file, content)
            known_ns = None if first_ns == NO_FRAME else int(first_ns)
            return CaptureIdentity(content.digest, content.readable, content.size, content.head, read_before, known_ns)
    except (OSError, ValueError) as error:
        return CaptureIdentity(fault=why_not_opened(error))
