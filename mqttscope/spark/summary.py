"""What an ingest did, in numbers: read from the files that it wrote, whoever wrote them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mqttscope.lake.manifest import Manifest, read_manifest
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

    def new(table: str) -> list[str]:
        known = set(before.files.get(table, ()))
        return [name for name in after.files.get(table, ()) if name not in known]

    changed = after.generation != before.generation
    findings = [*new("findings"), *after.open_files.get("findings", ())] if changed else []
    return Summary(
        done,
        after.generation,
        {table: _rows(root, after.files.get(table, ())) for table in SUMS},
        _rows(root, after.open_files.get("connections", ())),
        _by_severity(root, findings),
        _errors(root, new("ingest_errors")),
    )


def _rows(root: Path, names: Sequence[str]) -> int:
    return sum(int(pq.read_metadata(root / name).num_rows) for name in names)


def _by_severity(root: Path, names: Sequence[str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name in names:
        for found in pq.ParquetFile(root / name).iter_batches(columns=["severity"]):
            counts.update(found.column("severity").to_pylist())
    return dict(sorted(counts.items()))


def _errors(root: Path, names: Sequence[str]) -> list[CaptureError]:
    rows: list[dict[str, Any]] = []
    for name in names:
        for found in pq.ParquetFile(root / name).iter_batches():
            rows += found.to_pylist()[: MOST_ERRORS - len(rows)]
    return [
        CaptureError(row["capture"], row["message"], row["offset"], row["frames"] or 0)
        for row in rows
        if row["event"] == "capture_error"
    ]
