"""What a lake consists of: one small file that names all others, replaced in one step.

    lake/
      manifest.json                     generation, captures that are in, files of each table
      packets/0000000001-0.parquet ...  one file or more of each generation
      open/0000000001-packets-0.parquet what is read so far of connections that are still open; replaced each time
      state/0000000001-0.parquet        what flows remember, for the next ingest
      scope_state/0000000001-0.parquet  what rules of wider scope remember of sessions and servers

A reader goes by the manifest alone.  Files that it does not name are of an ingest that broke off; the next one takes
them away.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
NAME = "manifest.json"
_PIECE = 1 << 20


class LakeError(ValueError):
    """The folder is no lake, or one of another version."""


@dataclass(slots=True)
class Manifest:
    """The content of a lake."""

    generation: int = 0
    """How many ingests there were."""
    group: str = ""
    """The group of captures that all ingests name (`lake.keys`)."""
    settings: str = ""
    """Digest of the options that rows depend on."""
    last_ns: int | None = None
    """Time of the last segment."""
    captures: dict[str, str] = field(default_factory=dict)
    """Captures that are in, by the digest of their bytes: the name each had."""
    files: dict[str, list[str]] = field(default_factory=dict)
    """Paths of the Parquet files of each table, relative to the lake."""
    open_files: dict[str, list[str]] = field(default_factory=dict)
    """The same of what is still open."""
    state_files: list[str] = field(default_factory=list)
    """What flows remember."""
    scope_state_files: list[str] = field(default_factory=list)
    """What rules of wider scope remember."""
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of each stream that is watched: the last batch that is in, and what the next one goes on with."""

    def all_files(self) -> set[str]:
        """Everything that belongs to the lake."""
        tables = (*self.files.values(), *self.open_files.values(), self.state_files, self.scope_state_files)
        return {name for names in tables for name in names}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder; an empty one where there is no lake yet."""
    try:
        data: dict[str, Any] = json.loads((folder / NAME).read_text("utf-8"))
    except FileNotFoundError:
        return Manifest()
    except (ValueError, OSError) as error:
        raise LakeError(f"{folder / NAME} cannot be read: {error}") from None
    version = data.pop("format", None) if isinstance(data, dict) else None
    if version != FORMAT:
        raise LakeError(f"{folder / NAME} has format {version}, this program reads {FORMAT}")
    try:
        return Manifest(**data)
    except TypeError:
        raise LakeError(f"{folder / NAME} is not the manifest of a lake") from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make a manifest the one that counts, in one step that a crash cannot halve."""
    new = folder / f"{NAME}.new"
    with new.open("w", encoding="utf-8") as file:
        json.dump({"format": FORMAT} | asdict(manifest), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / NAME)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_strays(folder: Path, manifest: Manifest) -> list[str]:
    """Take away Parquet files that belong to no finished ingest; returns their names."""
    known = manifest.all_files()
    strays = [path for path in sorted(folder.glob("*/*.parquet")) if path.relative_to(folder).as_posix() not in known]
    for path in strays:
        path.unlink()
    return [path.relative_to(folder).as_posix() for path in strays]


def content_digest(path: Path, size: int | None = None) -> str:
    """Names the content of a file, wherever it lies: SHA-256 of all its bytes, or of the first ``size`` of them.

    Head and tail alone would not do: captures of one device begin alike, and one whose middle was damaged on the way
    ends alike.
    """
    digest = hashlib.sha256()
    left = -1 if size is None else size
    with path.open("rb") as file:
        while piece := file.read(_PIECE if left < 0 else min(_PIECE, left)):
            digest.update(piece)
            left -= len(piece) if left >= 0 else 0
    return digest.hexdigest()
