"""What a lake consists of: one small file that says which files and versions of its tables belong together.

    lake/
      manifest.json                     generation, captures that are in, files and version of each table
      packets/_delta_log/...            each table is a Delta table (`lake.delta`), for readers of any kind
      packets/0000000001-TOKEN-0.parquet ...   one file or more of each generation
      packets/0000000001-TOKEN-open-0.parquet  what is read so far of connections that are open; replaced each time
      state/0000000001-TOKEN-0.parquet         what flows remember, for the next ingest
      scope_state/0000000001-TOKEN-0.parquet   what rules of wider scope remember of sessions and servers
      pending.json                      the manifest that is to come, while the tables take in what it names

The manifest has a checksum of each of them, and one of itself: what a disk or a copy changed is noticed when it is
read.  Files of large lakes are read by others than us; pages of Parquet have checksums too.

A reader goes by the manifest alone, or by the log of a table.  Files that a commit replaces stay until the tables are
vacuumed, for readers that began before.  Files of a later generation than the manifest's are of an ingest that broke
off; the next one takes them away.  Each writer of files has a token of its own.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any
from zlib import crc32

from mqttscope.capture.write import opener, replace_file
from mqttscope.errors import MqttscopeError, schema_fault
from mqttscope.lake.store import Lake, Place, Status, StorePath, place
from mqttscope.system import sync_folder

FORMAT = 3
NAME = "manifest.json"
PENDING = "pending.json"
"""The manifest that counts as soon as all tables have what it names (`lake.commit`)."""
SCHEMA = 2
"""Version of the schemas of its tables (`lake.schemas`)."""
EARLIER = 2
"""The format of lakes whose tables are no Delta tables yet; it is read, and `lake.convert` makes it one of today."""
CHECKED_BYTES = 1 << 30
"""Maximum size of tables that are read for their checksums before a query reads them."""
_PIECE = 1 << 20
_CHECKSUM = "checksum"
_FILE = re.compile(r"[a-z_]+/[^/\0]+\.parquet")
Errors = list[list[Any]]
"""What is wrong with one capture: message, offset, frames of each error."""


class LakeError(MqttscopeError, ValueError):
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
    """Captures that are in, by the digest of their bytes (`capture.fingerprint`): the name each had."""
    files: dict[str, list[str]] = field(default_factory=dict)
    """Paths of the Parquet files of each table, relative to the lake."""
    open_files: dict[str, list[str]] = field(default_factory=dict)
    """The same of what is still open."""
    state_files: list[str] = field(default_factory=list)
    """What flows remember."""
    scope_state_files: list[str] = field(default_factory=list)
    """What rules of wider scope remember."""
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of each stream that is watched: the last batch that is in, and what the next one continues with."""
    versions: dict[str, int] = field(default_factory=dict)
    """The version of each table, as Delta counts them, that has these files; lakes of an earlier release have none."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each file; older lakes do not have them."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each file; older lakes do not have them."""
    faulty: dict[str, Errors] = field(default_factory=dict)
    """Captures with errors, by digest; older lakes do not have them."""
    begins: dict[str, list[int]] = field(default_factory=dict)
    """What identifies each capture when it has grown (`capture.fingerprint`); older lakes do not have it."""
    checksums: dict[str, int] = field(default_factory=dict)
    """CRC-32 of each file; older lakes do not have them."""
    schema: int = 1
    """Version of the schemas of its tables (`lake.schemas`)."""
    options: dict[str, str] = field(default_factory=dict)
    """The options that rows depend on in words, by how a command spells them; older lakes do not have them."""
    objects: dict[str, list[Any]] = field(default_factory=dict)
    """Captures of stores that are in, by name: digest of the content, bytes, when it was written (`locations.Seen`).
    They need not be fetched to be known; older lakes do not have them."""
    shift_ns: int = 0
    """How far forward the clock of the captures was set in all, up to the last segment."""

    def all_files(self) -> set[str]:
        return {*self.table_files(), *self.state_files, *self.scope_state_files}

    def table_files(self) -> set[str]:
        """What readers of tables want."""
        return {name for names in (*self.files.values(), *self.open_files.values()) for name in names}


def folder_of(lake: Lake) -> Path:
    """The folder of a lake; `LakeError` where it is in a store."""
    root = place(lake)
    if isinstance(root, StorePath):
        raise LakeError(f"{root} is in a store, and this works with a lake in a folder alone")
    return root


def read_manifest(folder: Place, name: str = NAME) -> Manifest:
    """The manifest of a lake; an empty one where there is no lake yet."""
    path = folder / name
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return Manifest()
    except NotADirectoryError:
        raise LakeError(f"{folder} is no folder") from None
    except OSError as error:
        why = error.strerror if isinstance(folder, StorePath) else error
        raise LakeError(f"{path} cannot be read: {why}") from None
    return load_manifest(found, path)


def load_manifest(written: bytes, path: Place) -> Manifest:
    """A manifest from what `dump_manifest` made, or an earlier release.  ``path``: what an error names."""
    try:
        data: Any = json.loads(written)
    except RecursionError:
        raise LakeError(f"{path} cannot be read: it is nested too deeply: the lake is damaged") from None
    except ValueError as error:
        # Neither UTF-8 nor JSON, and what a parser says of it helps nobody.
        where = f" (character {error.pos})" if isinstance(error, json.JSONDecodeError) else ""
        raise LakeError(
            f"{path} cannot be read: it is not the JSON that was written{where}: the lake is damaged"
        ) from None
    version = data.pop("format", None) if isinstance(data, dict) else None
    if not isinstance(version, int):
        raise LakeError(f"{path} is not the manifest of a lake, or is damaged")
    if version != EARLIER and (fault := schema_fault(version, FORMAT, "format")):
        raise LakeError(f"{path}: {fault}")
    checksum = data.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(data):
        raise LakeError(f"{path} is not what was written (its checksum differs): the lake is damaged")
    if version == EARLIER:
        data.pop("retired", None)
    unknown = data.keys() - {column.name for column in fields(Manifest)}
    if checksum is not None and unknown:
        names = ", ".join(sorted(unknown))[:60]
        raise LakeError(f"{path}: a later version of mqttscope wrote it (it has {names}): update mqttscope")
    try:
        found = Manifest(**data)
    except TypeError:
        raise LakeError(f"{path} is not the manifest of a lake") from None
    if not _is_well_formed(found):
        raise LakeError(f"{path} is not the manifest of a lake, or is damaged")
    if found.schema > SCHEMA:
        raise LakeError(f"{path}: {schema_fault(found.schema, SCHEMA, 'schema of its tables')}")
    return found


def _checksum(data: Any) -> int:
    return crc32(json.dumps(data, sort_keys=True, separators=(",", ":")).encode())


def _is_well_formed(manifest: Manifest) -> bool:
    """Whether all of its content can be used."""
    files = [*manifest.files.values(), *manifest.open_files.values()] if _all_lists(manifest) else None
    return (
        files is not None
        and _is_count(manifest.generation)
        and _is_count(manifest.schema)
        and isinstance(manifest.group, str)
        and isinstance(manifest.settings, str)
        and all(isinstance(one, str) for one in manifest.options.values())
        and (manifest.last_ns is None or type(manifest.last_ns) is int)
        and type(manifest.shift_ns) is int
        and all(isinstance(name, str) for name in manifest.captures.values())
        and all(_are_files(one) for one in (*files, manifest.state_files, manifest.scope_state_files))
        and all(map(_is_stream, manifest.streams.values()))
        and all(all(map(_is_count, one.values())) for one in _counts(manifest))
        and all(map(_are_errors, manifest.faulty.values()))
        and all(_are_lists(one, 2) and all(map(_is_count, one)) for one in manifest.begins.values())
        and all(map(_is_object, manifest.objects.values()))
    )


def _all_lists(manifest: Manifest) -> bool:
    tables = (
        manifest.captures, manifest.files, manifest.open_files, manifest.streams, manifest.faulty, manifest.begins,
        manifest.options, manifest.objects,
        *_counts(manifest),
    )  # fmt: skip
    return all(isinstance(one, dict) for one in tables)


def _counts(manifest: Manifest) -> tuple[dict[str, int], ...]:
    return manifest.sizes, manifest.rows, manifest.checksums, manifest.versions


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _are_lists(value: object, length: int) -> bool:
    return isinstance(value, list) and len(value) == length


def _are_files(names: object) -> bool:
    """Whether these are files in the folders of a lake: what the manifest names may be taken away."""
    return isinstance(names, list) and all(isinstance(one, str) and _FILE.fullmatch(one) for one in names)


def _are_errors(errors: object) -> bool:
    return isinstance(errors, list) and all(
        _are_lists(one, 3)
        and isinstance(one[0], str)
        and all(number is None or type(number) is int for number in one[1:])
        for one in errors
    )


def _is_object(found: object) -> bool:
    return isinstance(found, list) and len(found) == 3 and isinstance(found[0], str) and all(map(_is_count, found[1:]))


def _is_stream(stream: object) -> bool:
    if not isinstance(stream, dict) or type(stream.get("batch")) is not int:
        return False
    faulty = stream.get("faulty", {})
    return (
        isinstance(stream.get("fragments", ""), str)
        and isinstance(faulty, dict)
        and all(number.isdecimal() and _are_errors(errors) for number, errors in faulty.items())
    )


def check_files(folder: Place, manifest: Manifest) -> None:
    """Look whether everything that belongs to a lake is there, as long as it was; `LakeError` names what is not."""
    there = _there(folder) if isinstance(folder, StorePath) else None
    for name in sorted(manifest.all_files()):
        path = folder / name
        try:
            if there is None:
                size = path.stat().st_size
            elif name in there:
                size = there[name].st_size
            else:
                raise FileNotFoundError(2, "No such file or directory")
        except OSError as error:
            why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
            raise LakeError(f"{path} {why}: the lake is damaged") from None
        wanted = manifest.sizes.get(name, size)
        if size != wanted:
            raise LakeError(f"{path} has {size:,} bytes and should have {wanted:,}: the lake is damaged")


def _there(folder: StorePath) -> dict[str, Status]:
    """All objects of a lake: one question, and not one for each file."""
    try:
        return folder.store.files()
    except OSError as error:
        raise LakeError(f"{folder} cannot be read: {error.strerror or error}") from None


def check_content(folder: Place, manifest: Manifest, names: Collection[str]) -> None:
    """Read files of a lake and compare their checksums, as far as there are any; `LakeError` names one that differs."""
    known = [name for name in names if name in manifest.checksums]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for name, found in zip(known, pool.map(lambda name: checksum_of(folder / name), known), strict=True):
            if found != manifest.checksums[name]:
                raise LakeError(f"{folder / name} is not what was written (its checksum differs): the lake is damaged")


def check_tables(
    folder: Place, manifest: Manifest, tables: Iterable[str] | None = None, *, most: int | None = None
) -> None:
    """The same for the files of some tables, or of all of them, unless together they are larger than ``most`` bytes.

    ``most`` is `CHECKED_BYTES` unless given.
    Of larger ones only pages are checked, by who reads them; and so are all of a store, which would have to be fetched
    twice.
    """
    if isinstance(folder, StorePath):
        return
    wanted = {*manifest.files, *manifest.open_files} if tables is None else set(tables)
    names = [
        name for files in (manifest.files, manifest.open_files) for table in wanted for name in files.get(table, ())
    ]
    if sum(manifest.sizes.get(name, 0) for name in names) <= (CHECKED_BYTES if most is None else most):
        check_content(folder, manifest, sorted(names))


def checksum_of(path: Place) -> int:
    """CRC-32 of a file; `LakeError` where it cannot be read."""
    found = 0
    try:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                found = crc32(piece, found)
    except OSError as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
        raise LakeError(f"{path} {why}: the lake is damaged") from None
    return found


def open_lake(lake: Lake) -> Manifest:
    """The manifest of a lake; `LakeError` where there is none, or where files of it are missing or cut off."""
    root = place(lake)
    manifest = read_manifest(root)
    if not manifest.generation:
        there = isinstance(root, StorePath) or root.is_dir()
        raise LakeError(f"{root} holds no lake" if there else f"{root} does not exist")
    while True:
        try:
            check_files(root, manifest)
            check_tables(root, manifest)
            return manifest
        except LakeError:
            before, manifest = manifest, read_manifest(root)
            if manifest.generation == before.generation:
                raise

            # An ingest has just taken files away that were of the generation before.


def dump_manifest(manifest: Manifest) -> bytes:
    """A manifest as it is written."""
    data = asdict(manifest)
    return json.dumps({"format": FORMAT, _CHECKSUM: _checksum(data)} | data, indent=1).encode()


def write_manifest(folder: Path, manifest: Manifest, name: str = NAME) -> None:
    """Make a manifest the one that counts, in one step that a crash cannot halve."""
    new = folder / f"{name}.new"
    with open(new, "wb", opener=opener) as file:
        file.write(dump_manifest(manifest))
        file.flush()
        os.fsync(file.fileno())
    replace_file(new, folder / name)
    sync_folder(folder)


def remove_strays(folder: Place, manifest: Manifest) -> list[str]:
    """Take away Parquet files that belong to no finished ingest; returns their names.

    Of the tables only what is of a later generation: what earlier ones had and the manifest does not name is for the
    readers of earlier versions, until the tables are vacuumed.  In a store another ingest may be writing: what is there
    only since `ALIVE_S` may be of that.
    """
    known = manifest.all_files()
    if (folder / PENDING).exists():
        known |= read_manifest(folder, PENDING).all_files()
    strays = []
    for name in _parquet_files(folder):
        if name not in known and (name.startswith(KEPT_APART) or is_later(name, manifest.generation)):
            (folder / name).unlink()
            strays.append(name)
    return strays


ALIVE_S = 86_400
"""An ingest into a store is not expected to take longer than this."""


def _parquet_files(folder: Place) -> list[str]:
    """All that is in the folders of a lake, but what another ingest may just have written."""
    if not isinstance(folder, StorePath):
        return [path.relative_to(folder).as_posix() for path in sorted(folder.glob("*/*.parquet"))]
    before = time.time() - ALIVE_S
    return [name for name, one in _there(folder).items() if _FILE.fullmatch(name) and one.st_mtime < before]


def is_later(name: str, generation: int) -> bool:
    """Whether a file is of a later generation."""
    return _generation(name.rpartition("/")[2]) > generation


KEPT_APART = ("state/", "scope_state/", "flow_keys/", "open/")
"""Folders of what is of no use to readers; the last one is of lakes of an earlier release."""


def _generation(name: str) -> int:
    """The generation that a file is of; 0 where its name does not say it."""
    number = name.partition("-")[0]
    return int(number) if len(number) == 10 and number.isdecimal() else 0


def is_of(name: str, generation: int) -> bool:
    """Whether a file has rows of a generation."""
    return _generation(name.rpartition("/")[2]) == generation > 0
