"""Captures into a lake with Spark: found, told apart, read in ranges, folded, summed up, committed in one step."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from mqttscope.capture.ranges import Settled
from mqttscope.capture.reading import NO_FRAME
from mqttscope.capture.sources import SINCE
from mqttscope.lake.files import commit, lake_lock
from mqttscope.lake.manifest import LakeError, Manifest, read_manifest, remove_strays
from mqttscope.lake.merging import merge_small
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.writer import Ingested as IngestedInProcess
from mqttscope.lake.writer import check_settings, next_generation, note_errors
from mqttscope.spark.fold import Folded, fold
from mqttscope.spark.fragments import assemble
from mqttscope.spark.identity import tell_apart
from mqttscope.spark.jobs import union_all
from mqttscope.spark.locations import Location, find
from mqttscope.spark.plan import read_plan, write_plan
from mqttscope.spark.progress import cancel
from mqttscope.spark.reading import plan_captures, read_captures
from mqttscope.spark.ship import ship
from mqttscope.spark.sums import write_sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLD_BYTES = 16 << 20
"""So many bytes of captures make a task of the fold, as long as these are no more than `MANY_TASKS`."""
MANY_TASKS = 256
LARGE_FOLD_BYTES = 256 << 20
"""The same where there would be more tasks: each of them writes files of its own."""


@dataclass(slots=True)
class Ingested(IngestedInProcess):
    """What an ingest did."""

    faults: dict[str, str] = field(default_factory=dict)
    """Why captures could not be opened, by name; they can be given again."""


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
) -> Ingested:
    """Take captures into a lake, in the order of their first frames; those that are in already are not read again.

    ``sources``: paths, globs, directories, URIs, or what `locations.find` found.  ``lake``: a folder that the driver
    and all executors see under this path.  ``split_bytes``: how long the ranges are that captures are read in.
    ``ports``: only segments from or to these ports.  ``settings``: for the file systems of URIs.  ``partitions``: into
    how many tasks the flows go, by default by the bytes of the captures.

    All or nothing: where this raises, the lake is as it was.  Raises `LakeError` where the lake cannot be written or
    has other settings, `NoCaptures` where nothing can be opened, `SparkUnavailable` where executors lack something, and
    what Spark raises.
    """
    root, options, known = Path(lake), options or LakeOptions(), dict(settings or {})
    named = [one for one in sources if isinstance(one, str)]
    locations = [one for one in sources if isinstance(one, Location)] + (find(named, known) if named else [])
    ship(spark)
    with lake_lock(root):
        before = read_manifest(root)
        check_settings(before, options, root)
        remove_strays(root, before)
        apart = tell_apart(spark, locations, before.captures, known, before.begins)
        done = Ingested(known=[name for name, _ in apart.known], faults=apart.faults)
        after = next_generation(before, options)
        reading = Reading(spark, "", split_bytes, tuple(ports), known)
        try:
            while apart.fresh:
                fresh = list(apart.fresh.values())
                reading.plan = plan_captures(spark, fresh, split_bytes=split_bytes, settings=known)
                tasks = partitions or good_partitions(sum(one.size for one in fresh))
                folded = _fold(reading, root, before, after, options, tasks)
                gone = {one.capture: one.message for _, one in folded.errors if one.message.endswith(SINCE)}
                if not gone:
                    done.rows, done.open_flows, done.out_of_order = folded.rows, folded.open_flows, folded.out_of_order
                    done.overlapping, done.skipped = overlapping(fresh, folded.ends), folded.skipped
                    write_sums(spark, root, after)
                    break
                # What was rotated, replaced or removed in between is left to the next ingest.
                if not apart.leave_out(gone):
                    raise LakeError(
                        f"{root}: nothing is done: {'; '.join(f'{name} {why}' for name, why in gone.items())}"
                    )
                remove_strays(root, before)
                after = next_generation(before, options)
            names = {digest: one.name for digest, one in apart.fresh.items()}
            done.captures, done.grown = list(names.values()), [one.name for one in apart.fresh.values() if one.behind]
            after.captures |= names
            for digest in names:
                after.begins |= apart.contents[digest].begins
            if note_errors(root, after, done, names, apart.known, apart.faults) or names:
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
        """Rows of these captures."""
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
    reading: Reading, root: Path, before: Manifest, after: Manifest, options: LakeOptions, partitions: int
) -> Folded:
    """Fold all rows; where there are IP fragments, put them together first and begin again."""
    rows = reading.rows("ingest", reading.plan)
    folded = fold(reading.spark, rows, root, before, after, options, partitions=partitions, stops_at_fragments=True)
    if not folded.fragmented:
        return folded
    whole = union_all(rows, reading.fragments_of(folded.fragmented))
    return fold(reading.spark, whole, root, before, after, options, partitions=partitions)
