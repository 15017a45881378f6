"""Captures that are faulty: what the lake remembers of them, and rows for those that are not read.

A capture that cannot be opened has no content to be known by, and one with the same bytes as another is not read again.
Both get rows in the table of errors all the same, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mqttscope.lake.files import LakeFiles, add_files, reading
from mqttscope.lake.manifest import Errors, Manifest
from mqttscope.lake.rows import error_row
from mqttscope.lake.tables import batch
from mqttscope.mqtt.view import utf8
from mqttscope.net.frame import CaptureError

_TABLE = "ingest_errors"
_COLUMNS = ("capture", "event", "message", "offset", "frames")


def remember(root: Path, after: Manifest, captures: Mapping[str, str]) -> None:
    """Note in a manifest what the table of errors says of captures, whose names are given by their digests.

    Only what has been written with this manifest counts: earlier rows are of other files that had these names.
    """
    begins = f"{_TABLE}/{after.generation:010d}-"
    files = [name for name in after.files.get(_TABLE, ()) if name.startswith(begins)] if captures else []
    found: dict[str, Errors] = {}
    for row in _errors(root, files):
        found.setdefault(row["capture"], []).append([row["message"], row["offset"], row["frames"]])
    for digest, name in captures.items():
        if utf8(name) in found:
            after.faulty[digest] = found[utf8(name)]


def known_errors(manifest: Manifest, known: Iterable[tuple[str, str]]) -> list[CaptureError]:
    """What is wrong with captures that a lake has: pairs of a name and a digest."""
    return [
        CaptureError(name, message, offset, frames)
        for name, digest in known
        for message, offset, frames in manifest.faulty.get(digest, ())
    ]


def add_errors(root: Path, after: Manifest, errors: Iterable[CaptureError]) -> int:
    """Write rows for errors of captures that the table does not have yet; returns how many."""
    wanted = {(utf8(one.capture), utf8(one.message)): one for one in errors}
    if not wanted:
        return 0
    for row in _errors(root, after.files.get(_TABLE, ())):
        wanted.pop((row["capture"], row["message"]), None)
    if wanted:
        with LakeFiles(root, after.generation) as files:
            files.write(_TABLE, batch(_TABLE, [error_row(one) for one in wanted.values()]))
        add_files(after, files.names)
    return len(wanted)


def _errors(root: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in names:
        with reading(root / name):
            rows += pq.read_table(root / name, columns=list(_COLUMNS), partitioning=None).to_pylist()
    return [row for row in rows if row["event"] == "capture_error"]
