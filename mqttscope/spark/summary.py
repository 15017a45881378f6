"""What an ingest did, in numbers: read from the files that it wrote, whoever wrote them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mqttscope.lake.files import reading, rows_of
from mqttscope.lake.manifest import Manifest, read_manifest
from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.writer import Ingested
from mqttscope.net.frame import CaptureError

SUMS = ("topics", "clients", "sessions")
MOST_ERRORS = 1_000
"""Errors of captures that are told one by one."""


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
    """Rows of the tables that are sums over the whole lake."""
    open_connections: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    """New findings by severity, of what is still open as well."""
    errors: list[CaptureError] = field(default_factory=list)
    """New errors of captures, `MOST_ERRORS` at most."""


def summarize(root: Path, before: Manifest, done: Ingested) -> Summary:
    """Numbers of the ingest that found the lake as ``before`` says it was."""
    after = read_manifest(root)

    changed = after.generation != before.generation

    def new(table: str) -> list[str]:
        # Files that were merged have new names and no new rows; they keep the number of the ingest that these are of.
        begins = f"{table}/{after.generation:010d}-"
        return [name for name in after.files.get(table, ()) if changed and name.startswith(begins)]

    findings = [*new("findings"), *after.open_files.get("findings", ())] if changed else []
    return Summary(
        done,
        after.generation,
        table_rows(root, after),
        _rows(root, after, after.open_files),
        {table: _count(root, after, after.files.get(table, ())) for table in SUMS},
        _count(root, after, after.open_files.get("connections", ())),
        _by_severity(root, findings),
        _errors(root, new("ingest_errors")),
    )


def table_rows(root: Path, manifest: Manifest) -> dict[str, int]:
    """Rows of each table that a lake has, what is still open included; sums and tables without rows are left out."""
    rows = Counter(_rows(root, manifest, manifest.files))
    rows.update(_rows(root, manifest, manifest.open_files))
    return {table: rows[table] for table in EVENT_TABLES if rows[table]}


def _rows(root: Path, manifest: Manifest, files: Mapping[str, Sequence[str]]) -> dict[str, int]:
    counted = {table: _count(root, manifest, files.get(table, ())) for table in EVENT_TABLES}
    return {table: rows for table, rows in counted.items() if rows}


def _count(root: Path, manifest: Manifest, names: Sequence[str]) -> int:
    return sum(manifest.rows[name] if name in manifest.rows else rows_of(root / name) for name in names)


def _by_severity(root: Path, names: Sequence[str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name in names:
        with reading(root / name):
            for found in pq.ParquetFile(root / name).iter_batches(columns=["severity"]):
                counts.update(found.column("severity").to_pylist())
    return dict(sorted(counts.items()))


def _errors(root: Path, names: Sequence[str]) -> list[CaptureError]:
    rows: list[dict[str, Any]] = []
    for name in names:
        with reading(root / name):
            for found in pq.ParquetFile(root / name).iter_batches():
                rows += found.to_pylist()[: MOST_ERRORS - len(rows)]
    return [
        CaptureError(row["capture"], row["message"], row["offset"], row["frames"] or 0)
        for row in rows
        if row["event"] == "capture_error"
    ]
