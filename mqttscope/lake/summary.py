"""Numbers of an ingest, read from the files that its tasks wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow.parquet as pq

from mqttscope.lake.files import reading, rows_of
from mqttscope.lake.finding_collector import ConnectionCounts
from mqttscope.lake.manifest import Manifest, is_of, read_manifest
from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.store import Place, opened
from mqttscope.lake.writer import IngestResult
from mqttscope.net.frame import CaptureError

SUMS = ("topics", "clients", "sessions")
MOST_ERRORS = 1_000
"""Maximum number of errors of captures that are reported one by one."""


@dataclass(slots=True)
class IngestSummary:
    """The lake after an ingest."""

    done: IngestResult
    generation: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each table, rows of open connections included; empty tables are left out."""
    open_rows: dict[str, int] = field(default_factory=dict)
    """Number of these rows that belong to open connections."""
    sums: dict[str, int] = field(default_factory=dict)
    """Rows of the tables that are sums over the complete lake."""
    open_connections: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    """New findings by severity, findings of open connections included."""
    errors: list[CaptureError] = field(default_factory=list)
    """The first new errors of captures, at most `MOST_ERRORS`."""
    more_errors: int = 0
    """Number of further errors."""
    connection_counts: ConnectionCounts = field(default_factory=ConnectionCounts)
    late: int = 0
    """Connections from late captures: no rule of wider scope has judged them."""


def summarize(root: Place, before: Manifest, done: IngestResult) -> IngestSummary:
    """Numbers of the ingest that began with the manifest ``before``."""
    after = read_manifest(root)

    changed = after.generation != before.generation

    def new(table: str) -> list[str]:
        # Merged files have new names without new rows; they keep the number of the ingest with these rows.
        return [name for name in after.files.get(table, ()) if changed and is_of(name, after.generation)]

    def all_of(table: str) -> list[str]:
        return [*new(table), *after.open_files.get(table, ())] if changed else []

    findings = Counter(row["severity"] for row in _rows_of(root, all_of("findings"), ["severity"]))
    connection_counts, late = _of_connections(root, all_of("connections"))
    _discarded(root, all_of("gaps"), connection_counts)
    errors, more_errors = _errors(root, new("ingest_errors"))
    return IngestSummary(
        done,
        after.generation,
        table_rows(root, after),
        _rows(root, after, after.open_files),
        {table: _count(root, after, after.files.get(table, ())) for table in SUMS},
        _count(root, after, after.open_files.get("connections", ())),
        dict(sorted(findings.items())),
        errors,
        more_errors,
        connection_counts,
        late,
    )


def table_rows(root: Place, manifest: Manifest) -> dict[str, int]:
    """Rows of each table of a lake, rows of open connections included; sums and empty tables are left out."""
    rows = Counter(_rows(root, manifest, manifest.files))
    rows.update(_rows(root, manifest, manifest.open_files))
    return {table: rows[table] for table in EVENT_TABLES if rows[table]}


def _rows(root: Place, manifest: Manifest, files: Mapping[str, Sequence[str]]) -> dict[str, int]:
    counted = {table: _count(root, manifest, files.get(table, ())) for table in EVENT_TABLES}
    return {table: rows for table, rows in counted.items() if rows}


def _count(root: Place, manifest: Manifest, names: Sequence[str]) -> int:
    return sum(manifest.rows[name] if name in manifest.rows else rows_of(root / name) for name in names)


def _of_connections(root: Place, names: Sequence[str]) -> tuple[ConnectionCounts, int]:
    counts, late = ConnectionCounts(), 0
    for row in _rows_of(root, names, ["copied_segments", "one_sided", "tcp", "late"]):
        counts.copied_segments += row["copied_segments"] or 0
        counts.one_sided += row["one_sided"] is not None
        counts.overlaps += sum(side["overlaps"] or 0 for side in (row["tcp"] or {}).values() if side is not None)
        late += bool(row["late"])
    return counts, late


def _discarded(root: Place, names: Sequence[str], counts: ConnectionCounts) -> None:
    for row in _rows_of(root, names, ["event", "length", "reason"]):
        if row["event"] == "discarded" and row["reason"] == "damaged":
            counts.damaged_segments += 1
        elif row["event"] == "discarded":
            counts.discarded_segments += 1
            counts.discarded_bytes += row["length"] or 0


def _rows_of(root: Place, names: Sequence[str], columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    for name in names:
        with reading(root / name):
            for record_batch in pq.ParquetFile(opened(root / name)).iter_batches(columns=columns):
                yield from record_batch.to_pylist()


def _errors(root: Place, names: Sequence[str]) -> tuple[list[CaptureError], int]:
    rows = (row for row in _rows_of(root, names) if row["event"] == "capture_error")
    errors = [
        CaptureError(row["capture"], row["message"], row["offset"], row["frames"] or 0)
        for row in islice(rows, MOST_ERRORS)
    ]
    return errors, sum(1 for _ in rows)
