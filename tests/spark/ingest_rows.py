"""Rows as Spark hands them to the tasks of a fold, and the report of a task that is run in process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from mqttscope.spark.ingest_tasks import FoldSettings, TaskReport, fold_flows
from tests.cli.running import capture
from tests.lake.reading import TYPES, options, read_segments, segment_rows

QOS = capture("v5-qos")
ROWS = segment_rows(read_segments(QOS))
EXTRA = (("message", pa.string()), ("offset", pa.int64()), ("count", pa.int64()), ("notice", pa.string()))


INPUT = pa.schema([*TYPES, *EXTRA])


Values = tuple[Any, ...]


def aside(kind: str, **values: Any) -> Values:
    """A row that belongs to no flow."""
    return tuple(({"kind": kind, "file": 0, "capture": "a.pcap"} | values).get(name) for name in INPUT.names)


def batches(*asides: Values, segments: Iterable[Values] = (), size: int = 50) -> Iterator[pa.RecordBatch]:
    """Rows as Spark hands them over: those without a flow first."""
    rows = sorted(segments, key=lambda row: (row[1], *row[3:5]))
    rows = [*asides, *((*row, None, None, None, None) for row in rows)]
    for at in range(0, len(rows), size):
        columns = [
            pa.array(row, kind) for row, kind in zip(zip(*rows[at : at + size], strict=True), INPUT.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=INPUT)


def folded(work: FoldSettings, *asides: Values, segments: Iterable[Values] = (), size: int = 50) -> TaskReport:
    (row,) = (
        row
        for fold_flow in fold_flows(batches(*asides, segments=segments, size=size), work)
        for row in fold_flow.to_pylist()
    )
    return TaskReport.load(row["report"])


def work(root: Path, **changes: Any) -> FoldSettings:
    return replace(FoldSettings(str(root), 3, options()), **changes)
