"""What an ingest did, in numbers: read from the files that its tasks wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow.parquet as pq

from mqttscope.lake.files import reading, rows_of
from mqttscope.lake.finding_collector import OfConnections
from mqttscope.lake.manifest import Manifest, is_of, read_manifest
from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.store import Place, opened
from mqttscope.lake.writer import Ingested
from mqttscope.net.frame import CaptureError

SUMS = ("topics", "clients", "sessions")
MOST_ERRORS = 1_000
"""Maximum number of errors of captures that are reported one by one."""


@dataclass(slots=True)
class Summary:
    """The lake after an ingest."""

    done: Ingested
    generation: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each table, those of connections that are still open included; tables without any are not named."""
    open_rows: dict[str, int] = field(default_factory=dict)
    """How many of them are of connections that are still open."""
    sums: dict[str, int] = field(default_factory=dict)
    """Rows of the tables that are sums over the complete lake."""
    open_connections: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    """New findings by severity, of what is still open as well."""
    errors: list[CaptureError] = field(default_factory=list)
    """New errors of captures, `MOST_ERRORS` at most."""
    more_errors: int = 0
    """How many others there are."""
    of_connections: OfConnections = field(default_factory=OfConnections)
    late: int = 0
    """Connections whose captures came later than newer ones: no rule of wider scope has judged them."""


def summarize(root: Place, before: Manifest, done: Ingested) -> Summary:
    """Numbers of the ingest that found the lake in the state of ``before``."""
    after = read_manifest(root)

    changed = after.generation != before.generation

    def new(table: str) -> list[str]:
        # Files that were merged have new names and no new rows; they keep the number of the ingest that these are of.
        return [name for name in after.files.get(table, ()) if changed and is_of(name, after.generation)]

    def all_of(table: str) -> list[str]:
        return [*new(table), *after.open_files.get(table, ())] if changed else []

    findings = Counter(row["severity"] for row in _rows_of(root, all_of("findings"), ["severity"]))
    of_connections, late = _of_connections(root, all_of("connections"))
    _discarded(root, all_of("gaps"), of_connections)
    errors, more_errors = _errors(root, new("ingest_errors"))
    return Summary(
        done,
        after.generation,
        table_rows(root, after),
        _rows(root, after, after.open_files),
        {table: _count(root, after, after.files.get(table, ())) for table in SUMS},
        _count(root, after, after.open_files.get("connections", ())),
        dict(sorted(findings.items())),
        errors,
        more_errors,
        of_connections,
        late,
    )


def table_rows(root: Place, manifest: Manifest) -> dict[str, int]:
    """Rows of each table that a lake has, what is still open included; sums and tables without rows are left out."""
    rows = Counter(_rows(root, manifest, manifest.files))
    rows.update(_rows(root, manifest, manifest.open_files))
    return {table: rows[table] for table in EVENT_TABLES if rows[table]}


def _rows(root: Place, manifest: Manifest, files: Mapping[str, Sequence[str]]) -> dict[str, int]:
    counted = {table: _count(root, manifest, files.get(table, ())) for table in EVENT_TABLES}
    return {table: rows for table, rows in counted.items() if rows}


def _count(root: Place, manifest: Manifest, names: Sequence[str]) -> int:
    return sum(manifest.rows[name] if name in manifest.rows else rows_of(root / name) for name in names)


def _of_connections(root: Place, names: Sequence[str]) -> tuple[OfConnections, int]:
    """What is counted of connections, and how many of them came late."""
    made, late = OfConnections(), 0
    for row in _rows_of(root, names, ["copied_segments", "one_sided", "tcp", "late"]):
        made.copied_segments += row["copied_segments"] or 0
        made.one_sided += row["one_sided"] is not None
        made.overlaps += sum(side["overlaps"] or 0 for side in (row["tcp"] or {}).values() if side is not None)
        late += bool(row["late"])
    return made, late


def _discarded(root: Place, names: Sequence[str], made: OfConnections) -> None:
    for row in _rows_of(root, names, ["event", "length", "reason"]):
        if row["event"] == "discarded" and row["reason"] == "damaged":
            made.damaged_segments += 1
        elif row["event"] == "discarded":
            made.discarded_segments += 1
            made.discarded_bytes += row["length"] or 0


def _rows_of(root: Place, names: Sequence[str], columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    for name in names:
        with reading(root / name):
            for found in pq.ParquetFile(opened(root / name)).iter_batches(columns=columns):
                yield from found.to_pylist()


def _errors(root: Place, names: Sequence[str]) -> tuple[list[CaptureError], int]:
    """The first errors, and how many others there are."""
    rows = (row for row in _rows_of(root, names) if row["event"] == "capture_error")
    errors = [
        CaptureError(row["capture"], row["message"], row["offset"], row["frames"] or 0)
        for row in islice(rows, MOST_ERRORS)
    ]
    return errors, sum(1 for _ in rows)
