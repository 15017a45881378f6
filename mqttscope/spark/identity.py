"""Which captures a lake has already: by their content, whatever they are called and wherever they lie."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from mqttscope.capture.ranges import WHOLE
from mqttscope.capture.sources import why_not_opened
from mqttscope.lake.manifest import digest_of
from mqttscope.spark.locations import PARALLEL, Location, open_location
from mqttscope.spark.plan import Task, pack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE_BYTES = 1 << 30
"""Captures on this machine are read on the executors when they have more bytes than this together."""
TASK_BYTES = 256 << 20
_GIVEN_DDL = "task int, place int, target string"
_FOUND_DDL = "place int, digest string, fault string"


@dataclass(slots=True)
class Known:
    """Captures, told apart."""

    fresh: dict[str, Location] = field(default_factory=dict)
    """Those that are to be read, by digest, in their order."""
    known: list[tuple[str, str]] = field(default_factory=list)
    """Names and digests of those that are in already, and of copies among those that are given."""
    faults: dict[str, str] = field(default_factory=dict)
    """Why captures cannot be read, by name."""


def tell_apart(
    spark: SparkSession, locations: Sequence[Location], known: Iterable[str], settings: Mapping[str, str]
) -> Known:
    """Which captures are new to a lake that has those with the digests ``known``."""
    found = Known(faults={one.name: one.fault for one in locations if one.fault is not None})
    readable = [one for one in locations if one.fault is None]
    seen = set(known)
    for location, (digest, fault) in zip(readable, digests(spark, readable, settings), strict=True):
        if fault is not None:
            found.faults[location.name] = fault
        elif digest in seen:
            found.known.append((location.name, digest))
        else:
            seen.add(digest)
            found.fresh[digest] = location
    return found


def digests(
    spark: SparkSession, locations: Sequence[Location], settings: Mapping[str, str]
) -> list[tuple[str, str | None]]:
    """For each capture the digest of its content (`digest_of`), or why it cannot be read.

    Captures in a store, and much on this machine, are read by the executors.
    """
    far = any(one.is_remote for one in locations) or sum(one.size for one in locations) > HERE_BYTES
    if not far:
        with ThreadPoolExecutor(PARALLEL) as pool:
            return list(pool.map(lambda one: _digest(one.target, settings), locations))
    packed = pack([Task(place, one, WHOLE) for place, one in enumerate(locations)], TASK_BYTES)
    # In JSON, since names of files need not be UTF-8.
    rows = [(number, one.file, json.dumps(one.location.target)) for number, some in enumerate(packed) for one in some]
    given = spark.createDataFrame(rows, _GIVEN_DDL).repartitionById(len(packed), "task")
    task = partial(_digest_batches, settings=dict(settings))
    found = {row["place"]: (row["digest"], row["fault"]) for row in given.mapInArrow(task, _FOUND_DDL).collect()}
    return [found[place] for place in range(len(locations))]


def _digest_batches(batches: Iterable[pa.RecordBatch], settings: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    for one in batches:
        for row in one.to_pylist():
            digest, fault = _digest(json.loads(row["target"]), settings)
            found = {"place": pa.array([row["place"]], pa.int32())}
            found |= {"digest": pa.array([digest]), "fault": pa.array([fault], pa.string())}
            yield pa.RecordBatch.from_pydict(found)


def _digest(target: str, settings: Mapping[str, str]) -> tuple[str, str | None]:
    try:
        with open_location(target, settings) as file:
            return digest_of(file), None
    except (OSError, ValueError) as error:
        return "", why_not_opened(error)
