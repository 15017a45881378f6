"""What a lake consists of: one small file that names all others, replaced in one step.

    lake/
      manifest.json                     generation, captures that are in, files of each table
      packets/0000000001-TOKEN-0.parquet ...   one file or more of each generation
      open/0000000001-packets-TOKEN-0.parquet  what is read so far of connections that are open; replaced each time
      state/0000000001-TOKEN-0.parquet         what flows remember, for the next ingest
      scope_state/0000000001-TOKEN-0.parquet   what rules of wider scope remember of sessions and servers

A reader goes by the manifest alone.  Files of tables that a commit replaces stay for a while, for readers that have
the manifest before.  Files that the manifest does not name are of an ingest that broke off; the next one takes them
away.  Each writer of files has a token of its own.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mqttscope.capture.own_file import opener, replace_file

FORMAT = 1
NAME = "manifest.json"
RETIRED_S = 600.0
"""Seconds that a file stays which readers of an earlier manifest may still want."""
Errors = list[list[Any]]
"""What is wrong with one capture: message, offset, frames of each error."""


class LakeError(ValueError):
    """The folder is no lake, one of another version, damaged, or cannot be written."""


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
    """Captures that are in, by the digest of their bytes (`lake.contents`): the name each had."""
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
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each file; older lakes do not say them."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each file; older lakes do not say them."""
    retired: dict[str, float] = field(default_factory=dict)
    """Files of tables that earlier manifests named, and when they were replaced: seconds since 1970."""
    faulty: dict[str, Errors] = field(default_factory=dict)
    """Captures with errors, by digest; older lakes do not say them."""
    begins: dict[str, list[int]] = field(default_factory=dict)
    """What is known of each capture to find it when it has grown (`lake.contents`); older lakes do not say it."""

    def all_files(self) -> set[str]:
        """Everything that belongs to the lake."""
        return {*self.table_files(), *self.state_files, *self.scope_state_files}

    def kept_files(self) -> set[str]:
        """The same, and what readers of an earlier manifest may still want."""
        return self.all_files() | set(self.retired)

    def table_files(self) -> set[str]:
        """What readers of tables want."""
        return {name for names in (*self.files.values(), *self.open_files.values()) for name in names}

    def retire(self, before: Manifest) -> None:
        """Note which files of the manifest before are replaced; forget those that nobody waits for any more."""
        now = time.time()
        replaced = before.table_files() - self.table_files()
        # A time that lies ahead is of a clock that was wrong.
        retired = {name: min(at, now) for name, at in before.retired.items()} | dict.fromkeys(sorted(replaced), now)
        self.retired = {name: at for name, at in retired.items() if now - at < RETIRED_S}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder; an empty one where there is no lake yet."""
    try:
        data: dict[str, Any] = json.loads((folder / NAME).read_text("utf-8"))
    except FileNotFoundError:
        return Manifest()
    except NotADirectoryError:
        raise LakeError(f"{folder} is no folder") from None
    except (ValueError, OSError) as error:
        raise LakeError(f"{folder / NAME} cannot be read: {error}") from None
    version = data.pop("format", None) if isinstance(data, dict) else None
    if version != FORMAT:
        raise LakeError(f"{folder / NAME} has format {version}, this program reads {FORMAT}")
    try:
        found = Manifest(**data)
    except TypeError:
        raise LakeError(f"{folder / NAME} is not the manifest of a lake") from None
    if not _is_well_formed(found):
        raise LakeError(f"{folder / NAME} is not the manifest of a lake")
    return found


def _is_well_formed(manifest: Manifest) -> bool:
    """Whether what it says of captures can be used."""
    if not all(isinstance(one, dict) for one in (manifest.captures, manifest.begins, manifest.faulty)):
        return False
    errors = all(
        isinstance(some, list) and all(isinstance(one, list) and len(one) == 3 for one in some)
        for some in manifest.faulty.values()
    )
    return errors and all(
        isinstance(one, list) and len(one) == 2 and all(type(number) is int for number in one)
        for one in manifest.begins.values()
    )


def check_files(folder: Path, manifest: Manifest) -> None:
    """Look whether everything that belongs to a lake is there, as long as it was; `LakeError` names what is not."""
    for name in sorted(manifest.all_files()):
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
            raise LakeError(f"{path} {why}: the lake is damaged") from None
        wanted = manifest.sizes.get(name, size)
        if size != wanted:
            raise LakeError(f"{path} has {size:,} bytes and should have {wanted:,}: the lake is damaged")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make a manifest the one that counts, in one step that a crash cannot halve."""
    new = folder / f"{NAME}.new"
    with open(new, "w", encoding="utf-8", opener=opener) as file:
        json.dump({"format": FORMAT} | asdict(manifest), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    replace_file(new, folder / NAME)
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
    """Take away Parquet files that belong to no finished ingest, and that no reader waits for; returns their names."""
    known = manifest.kept_files()
    strays = [path for path in sorted(folder.glob("*/*.parquet")) if path.relative_to(folder).as_posix() not in known]
    for path in strays:
        path.unlink()
    return [path.relative_to(folder).as_posix() for path in strays]
