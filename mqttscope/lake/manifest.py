"""The content of a lake: one small file that lists which files and versions of its tables belong together.

    lake/
      manifest.json                     generation, ingested captures, files and version of each table
      packets/_delta_log/...            each table is a Delta table (`lake.delta`), for readers of any kind
      packets/0000000001-TOKEN-0.parquet ...   one file or more of each generation
      packets/0000000001-TOKEN-open-0.parquet  rows of open connections; replaced each time
      state/0000000001-TOKEN-0.parquet         memories of flows, for the next ingest
      scope_state/0000000001-TOKEN-0.parquet   memories of rules of wider scope about sessions and servers
      pending.json                      the next manifest, while the tables add its files

The manifest has a checksum of each file and one of itself: damage by a disk or a copy is noticed on reading.  Files of
large lakes are read by other programs; pages of Parquet have checksums too.

A reader uses the manifest alone, or the log of a table.  Files that a commit replaces stay until the tables are
vacuumed, for readers that began before.  Files of a later generation than the manifest's are of an aborted ingest;
the next one deletes them.  Each writer of files has a token of its own.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from mqttscope import __version__
from mqttscope.capture.write import opener, replace_file
from mqttscope.errors import MqttscopeError, schema_fault
from mqttscope.lake.store import Lake, Place, Status, StorePath, place
from mqttscope.system import sync_folder

FORMAT = 3
NAME = "manifest.json"
PENDING = "pending.json"
"""The manifest that comes into force when all tables have its files (`lake.commit`)."""
SCHEMA = 2
"""Version of the schemas of its tables (`lake.schemas`)."""
DIGEST_DIGITS, ALL_DIGITS = 32, 64
"""Hexadecimal digits of the SHA-256 of a payload, in today's lakes and in lakes of 1.0.0.

Digests of payloads that do not recur cannot be compressed: all digits are up to 44 % of the tables.  With 128 bits, two
payloads of a lake do not get the same digest by chance.
"""
EARLIER = 2
"""Format of lakes without Delta tables; it can be read, and `lake.convert` converts it."""
CHECKED_BYTES = 1 << 30
"""Maximum size of tables that are read for their checksums before a query reads them."""
_PIECE = 1 << 20
_CHECKSUM = "checksum"
_FILE = re.compile(r"[a-z_]+/[^/\0]+\.parquet")
Errors = list[list[Any]]
"""Errors of one capture: message, offset, frames of each."""


class LakeError(MqttscopeError, ValueError):
    """The folder is not a lake, is a lake of another version or damaged, or cannot be written."""


@dataclass(slots=True)
class Manifest:
    """The content of a lake."""

    generation: int = 0
    """Number of ingests."""
    group: str = ""
    """The group of captures that all ingests name (`lake.keys`)."""
    settings: str = ""
    """Digest of the options that rows depend on."""
    last_ns: int | None = None
    """Time of the last segment."""
    captures: dict[str, str] = field(default_factory=dict)
    """Names of ingested captures, by the digest of their bytes (`capture.fingerprint`)."""
    files: dict[str, list[str]] = field(default_factory=dict)
    """Paths of the Parquet files of each table, relative to the lake."""
    open_files: dict[str, list[str]] = field(default_factory=dict)
    """Paths of the files of open connections, by table."""
    state_files: list[str] = field(default_factory=list)
    """Memories of flows."""
    scope_state_files: list[str] = field(default_factory=list)
    """Memories of rules of wider scope."""
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For each watched stream, its last committed batch and the state for the next one."""
    versions: dict[str, int] = field(default_factory=dict)
    """The version of each Delta table with these files; lakes of an earlier release lack versions."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Size of each file; older lakes do not have them."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each file; older lakes do not have them."""
    faulty: dict[str, Errors] = field(default_factory=dict)
    """Captures with errors, by digest; older lakes do not have them."""
    begins: dict[str, list[int]] = field(default_factory=dict)
    """Data that identifies each capture after it has grown (`capture.fingerprint`); older lakes do not have it."""
    checksums: dict[str, int] = field(default_factory=dict)
    """CRC-32 of each file; older lakes do not have them."""
    schema: int = 1
    """Version of the schemas of its tables (`lake.schemas`)."""
    options: dict[str, str] = field(default_factory=dict)
    """The options that rows depend on, in words, by command-line option; older lakes do not have them."""
    objects: dict[str, list[Any]] = field(default_factory=dict)
    """Ingested captures in stores, by name: digest of the content, size, time of writing (`locations.StoredObject`).
    They are identified without a download; older lakes do not have them."""
    shift_ns: int = 0
    """Total advance of the captures' clock by its steps, up to the last segment."""
    rule_sets: list[str] = field(default_factory=list)
    """The sets of rules of all ingests in order, a rule a line; older lakes do not have them."""
    tombstones: list[str] = field(default_factory=list)
    """Keyed hashes of forgotten clients, users and open connections (`lake.tombstones`)."""
    tombstone_key: str = ""
    """Hash that identifies their key; empty without tombstones."""
    expired_ns: int | None = None
    """Rows from before this time are expired; later ingests do not add any."""
    erased: list[str] = field(default_factory=list)
    """Files with erased rows, of earlier versions too; they are deleted after the commit, or by the next one."""
    ingests: dict[str, list[Any]] = field(default_factory=dict)
    """Generation and time of the ingest of each capture, and version of mqttscope, by digest; older lakes lack them."""
    digest_digits: int = DIGEST_DIGITS
    """Hexadecimal digits of the SHA-256 of payloads; lakes of 1.0.0 have all digits."""

    def add_captures(self, names: Mapping[str, str]) -> None:
        """Add captures that the ingest of this generation read; ``names``: by digest."""
        self.captures |= names
        self.ingests |= {digest: [self.generation, time.time_ns(), __version__] for digest in names}

    def all_files(self) -> set[str]:
        return {*self.table_files(), *self.state_files, *self.scope_state_files}

    def following(self) -> Manifest:
        """The manifest of the next generation, before anything of it is written."""
        return replace(
            self,
            generation=self.generation + 1,
            schema=SCHEMA,
            captures=dict(self.captures),
            ingests=dict(self.ingests),
            begins=dict(self.begins),
            faulty=dict(self.faulty),
            sizes=dict(self.sizes),
            rows=dict(self.rows),
            checksums=dict(self.checksums),
            files={name: list(names) for name, names in self.files.items()},
            open_files={name: list(names) for name, names in self.open_files.items()},
            state_files=list(self.state_files),
            scope_state_files=list(self.scope_state_files),
            tombstones=list(self.tombstones),
            erased=[],
        )

    def table_files(self) -> set[str]:
        """The files that readers of tables need."""
        return {name for names in (*self.files.values(), *self.open_files.values()) for name in names}


def folder_of(lake: Lake) -> Path:
    """The folder of a lake; `LakeError` if it is in an object store."""
    root = place(lake)
    if isinstance(root, StorePath):
        raise LakeError(f"{root} is in a store; this works only with a lake in a folder")
    return root


def read_manifest(folder: Place, name: str = NAME) -> Manifest:
    """The manifest of a lake; an empty one if the lake does not exist yet."""
    path = folder / name
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return Manifest()
    except NotADirectoryError:
        raise LakeError(f"{folder} is not a folder") from None
    except OSError as error:
        why = error.strerror if isinstance(folder, StorePath) else error
        raise LakeError(f"{path} cannot be read: {why}") from None
    return load_manifest(written, path)


def load_manifest(written: bytes, path: Place) -> Manifest:
    """A manifest from the bytes of `dump_manifest`, or of an earlier release.  ``path``: for error messages."""
    try:
        data: Any = json.loads(written)
    except RecursionError:
        raise LakeError(f"{path} cannot be read: it is nested too deeply: the lake is damaged") from None
    except ValueError as error:
        # Neither UTF-8 nor JSON; the parser's message would not help.
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
    data.setdefault("digest_digits", ALL_DIGITS)
    unknown = data.keys() - {column.name for column in fields(Manifest)}
    if checksum is not None and unknown:
        names = ", ".join(sorted(unknown))[:60]
        raise LakeError(f"{path}: a later version of mqttscope wrote it (it has {names}): update mqttscope")
    try:
        manifest = Manifest(**data)
    except TypeError:
        raise LakeError(f"{path} is not the manifest of a lake") from None
    if not _is_well_formed(manifest):
        raise LakeError(f"{path} is not the manifest of a lake, or is damaged")
    if manifest.schema > SCHEMA:
        raise LakeError(f"{path}: {schema_fault(manifest.schema, SCHEMA, 'schema of its tables')}")
    return manifest


def _checksum(data: Any) -> int:
    return crc32(json.dumps(data, sort_keys=True, separators=(",", ":")).encode())


def _is_well_formed(manifest: Manifest) -> bool:
    """Whether all of its content is usable."""
    files = [*manifest.files.values(), *manifest.open_files.values()] if _all_lists(manifest) else None
    return (
        files is not None
        and _is_count(manifest.generation)
        and _is_count(manifest.schema)
        and manifest.digest_digits in (DIGEST_DIGITS, ALL_DIGITS)
        and isinstance(manifest.group, str)
        and isinstance(manifest.settings, str)
        and all(isinstance(text, str) for text in manifest.options.values())
        and (manifest.last_ns is None or type(manifest.last_ns) is int)
        and type(manifest.shift_ns) is int
        and all(isinstance(name, str) for name in manifest.captures.values())
        and all(map(_are_files, (*files, manifest.state_files, manifest.scope_state_files, manifest.erased)))
        and isinstance(manifest.tombstones, list)
        and isinstance(manifest.rule_sets, list)
        and all(isinstance(text, str) for text in (manifest.tombstone_key, *manifest.tombstones, *manifest.rule_sets))
        and (manifest.expired_ns is None or type(manifest.expired_ns) is int)
        and all(map(_is_stream, manifest.streams.values()))
        and all(all(map(_is_count, counts.values())) for counts in _counts(manifest))
        and all(map(_are_errors, manifest.faulty.values()))
        and all(_are_lists(begin, 2) and all(map(_is_count, begin)) for begin in manifest.begins.values())
        and all(map(_is_object, manifest.objects.values()))
        and all(map(_is_ingest, manifest.ingests.values()))
    )


def _all_lists(manifest: Manifest) -> bool:
    tables = (
        manifest.captures, manifest.files, manifest.open_files, manifest.streams, manifest.faulty, manifest.begins,
        manifest.options, manifest.objects, manifest.ingests,
        *_counts(manifest),
    )  # fmt: skip
    return all(isinstance(table, dict) for table in tables)


def _counts(manifest: Manifest) -> tuple[dict[str, int], ...]:
    return manifest.sizes, manifest.rows, manifest.checksums, manifest.versions


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _are_lists(value: object, length: int) -> bool:
    return isinstance(value, list) and len(value) == length


def _are_files(names: object) -> bool:
    """Whether these are files in the folders of a lake: files in the manifest may be deleted."""
    return isinstance(names, list) and all(isinstance(name, str) and _FILE.fullmatch(name) for name in names)


def _are_errors(errors: object) -> bool:
    return isinstance(errors, list) and all(
        _are_lists(error, 3)
        and isinstance(error[0], str)
        and all(number is None or type(number) is int for number in error[1:])
        for error in errors
    )


def _is_object(seen: object) -> bool:
    return isinstance(seen, list) and len(seen) == 3 and isinstance(seen[0], str) and all(map(_is_count, seen[1:]))


def _is_ingest(ingest: object) -> bool:
    return (
        isinstance(ingest, list) and len(ingest) == 3 and all(map(_is_count, ingest[:2])) and isinstance(ingest[2], str)
    )


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
    """Check that all files of a lake exist with their sizes; `LakeError` names a file that does not."""
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
            raise LakeError(
                f"{path} {why}: the lake is damaged; restore it from a backup, or ingest the captures into another lake"
            ) from None
        wanted = manifest.sizes.get(name, size)
        if size != wanted:
            raise LakeError(f"{path} has {size:,} bytes and should have {wanted:,}: the lake is damaged")


def _there(folder: StorePath) -> dict[str, Status]:
    """All objects of a lake, in one request instead of one for each file."""
    try:
        return folder.store.files()
    except OSError as error:
        raise LakeError(f"{folder} cannot be read: {error.strerror or error}") from None


def check_content(folder: Place, manifest: Manifest, names: Collection[str]) -> None:
    """Compare the checksums of files, if they are known; `LakeError` names a file that differs."""
    known = [name for name in names if name in manifest.checksums]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for name, checksum in zip(known, pool.map(lambda name: checksum_of(folder / name), known), strict=True):
            if checksum != manifest.checksums[name]:
                raise LakeError(f"{folder / name} is not what was written (its checksum differs): the lake is damaged")


def check_tables(
    folder: Place, manifest: Manifest, tables: Iterable[str] | None = None, *, most: int | None = None
) -> None:
    """Compare the checksums of files of some or all tables, unless these are larger than ``most`` bytes together.

    The default of ``most`` is `CHECKED_BYTES`.
    For larger tables readers check only the pages they read, and for stores too, since files would be fetched twice.
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
    """CRC-32 of a file; `LakeError` if it cannot be read."""
    checksum = 0
    try:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                checksum = crc32(piece, checksum)
    except OSError as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
        raise LakeError(f"{path} {why}: the lake is damaged") from None
    return checksum


def open_lake(lake: Lake) -> Manifest:
    """The manifest of a lake; `LakeError` if it does not exist, or files are missing or truncated."""
    root = place(lake)
    manifest = read_manifest(root)
    if not manifest.generation:
        there = isinstance(root, StorePath) or root.is_dir()
        raise LakeError(f"{root} is not a lake" if there else f"{root} does not exist")
    while True:
        try:
            check_files(root, manifest)
            check_tables(root, manifest)
            return manifest
        except LakeError:
            before, manifest = manifest, read_manifest(root)
            if manifest.generation == before.generation:
                raise

            # An ingest has just deleted files of the previous generation.


def dump_manifest(manifest: Manifest) -> bytes:
    """A manifest as bytes."""
    data = asdict(manifest)
    return json.dumps({"format": FORMAT, _CHECKSUM: _checksum(data)} | data, indent=1).encode()


def write_manifest(folder: Path, manifest: Manifest, name: str = NAME) -> None:
    """Put a manifest in force, in one step that a crash cannot split."""
    new = folder / f"{name}.new"
    with open(new, "wb", opener=opener) as file:
        file.write(dump_manifest(manifest))
        file.flush()
        os.fsync(file.fileno())
    replace_file(new, folder / name)
    sync_folder(folder)


def remove_strays(folder: Place, manifest: Manifest) -> list[str]:
    """Delete Parquet files that belong to no finished ingest; return their names.

    In tables only files of a later generation are deleted: files of earlier ones outside the manifest serve the readers
    of earlier versions until the tables are vacuumed.  In a store another ingest may be writing: objects younger than
    `ALIVE_S` may be its files.
    """
    known = manifest.all_files()
    if (folder / PENDING).exists():
        known |= read_manifest(folder, PENDING).all_files()
    strays = []
    for name in _parquet_files(folder):
        if name not in known and (name.startswith(KEPT_APART) or is_later(name, manifest.generation)):
            (folder / name).unlink()
            strays.append(name)
    for name in set(manifest.erased) - known:
        (folder / name).unlink(missing_ok=True)
    return strays


def unused_files(folder: Place, manifest: Manifest) -> list[str]:
    """Files of earlier versions of the tables, and files that no finished ingest has written."""
    if isinstance(folder, StorePath):
        names = [name for name in _there(folder) if _FILE.fullmatch(name) and not is_later(name, manifest.generation)]
    else:
        names = _parquet_files(folder)
    return sorted(set(names) - manifest.all_files())


ALIVE_S = 86_400
"""Maximum expected duration of an ingest into a store."""


def _parquet_files(folder: Place) -> list[str]:
    """All Parquet files of a lake, except files that another ingest may just have written."""
    if not isinstance(folder, StorePath):
        return [path.relative_to(folder).as_posix() for path in sorted(folder.glob("*/*.parquet"))]
    before = time.time() - ALIVE_S
    return [name for name, status in _there(folder).items() if _FILE.fullmatch(name) and status.st_mtime < before]


def is_later(name: str, generation: int) -> bool:
    """Whether a file is of a later generation."""
    return _generation(name.rpartition("/")[2]) > generation


KEPT_APART = ("state/", "scope_state/", "flow_keys/", "open/")
"""Folders of files that readers do not need; the last one is of lakes of an earlier release."""


def _generation(name: str) -> int:
    """The generation of a file; 0 if its name does not contain it."""
    number = name.partition("-")[0]
    return int(number) if len(number) == 10 and number.isdecimal() else 0


def is_of(name: str, generation: int) -> bool:
    """Whether a file has rows of a generation."""
    return _generation(name.rpartition("/")[2]) == generation > 0
