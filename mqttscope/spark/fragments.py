"""IP fragments among the rows of captures, put together to segments.

A fragment has no ports, so it belongs to no flow before its datagram is whole; and which datagram it belongs to depends
on what came before it, in any range and any capture.  So fragments are rows of their own, and all of them are put
together in one task, in the order of the captures.  They are rare; reading them costs a second pass over the captures,
so it is done only where somebody asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mqttscope.net.fragments import FragmentTable
from mqttscope.net.segment import Fragment, NotSegment, Segment
from mqttscope.spark.rows import BATCH_ROWS, COLUMNS, DDL, FRAGMENT, SKIPPED, SUMMARY, Batches, Note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def assemble(fragments: DataFrame, *, summary: bool = False) -> DataFrame:
    """Rows of the segments that fragments hold, of fragments as ``read_captures(..., rows="fragments")`` gives them.

    With all columns.  A datagram without TCP is counted as ``skipped``; one that is not whole gives nothing.
    ``summary``: and a row of that kind with the time of the last segment.
    """
    ordered = fragments.where(fragments["kind"] == FRAGMENT).repartition(1).sortWithinPartitions("file", "frame")
    return ordered.select(*COLUMNS).mapInArrow(partial(assembled, summary=summary), DDL)


def assembled(
    batches: Iterable[pa.RecordBatch], *, summary: bool = False, table: FragmentTable | None = None
) -> Iterator[pa.RecordBatch]:
    """The same for batches of fragments in their order.  ``table``: what is not whole yet, before and afterwards."""
    table = table or FragmentTable()
    made: Batches | None = None
    segments: list[Segment] = []
    clock: list[int] = []
    last = -1, ""
    skipped: Counter[str] = Counter()
    last_ns: int | None = None
    for batch in batches:
        made = made or Batches(batch.schema)
        for row in batch.to_pylist():
            if (row["file"], row["capture"]) != last:
                yield from _flush(made, segments, clock, skipped, *last)
                segments, clock, skipped, last = [], [], Counter(), (row["file"], row["capture"])
            found = table.feed(_fragment(row))
            if isinstance(found, Segment):
                segments.append(found)
                clock.append(row["clock_ns"])
                last_ns = found.timestamp_ns if last_ns is None else max(last_ns, found.timestamp_ns)
                if len(segments) == BATCH_ROWS:
                    yield made.segments(segments, last[0], clock)
                    segments, clock = [], []
            elif isinstance(found, NotSegment):
                skipped[found.reason] += 1
    if made is not None:
        yield from _flush(made, segments, clock, skipped, *last)
        if summary:
            yield from made.notes([Note(SUMMARY, "", count=0, timestamp_ns=last_ns)], *last)


def _flush(
    made: Batches, segments: list[Segment], clock: list[int], skipped: Counter[str], file: int, capture: str
) -> Iterator[pa.RecordBatch]:
    if segments:
        yield made.segments(segments, file, clock)
    yield from made.notes((Note(SKIPPED, reason, count=count) for reason, count in skipped.items()), file, capture)


def _fragment(row: dict[str, Any]) -> Fragment:
    parts = row["fragment"]
    return Fragment(
        row["direction"],
        data=row["payload"],
        missing=row["missing"],
        frame=row["frame"],
        timestamp_ns=row["timestamp_ns"],
        capture=row["capture"],
        **parts,
    )
