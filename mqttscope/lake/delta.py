"""The tables of a lake as Delta tables, which any engine with Delta support can open.

Each table is a folder with a log (``_delta_log``).  A commit of a lake is one transaction of each table that it
changes: it adds the written files, removes old files of open connections and merged files, and has the generation
of the lake as application transaction, so that it can be repeated without adding anything twice.
delta-rs writes the log; the Parquet files are ours (`lake.files`).  Only commits load it, not readers or the
executors of Spark.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import pyarrow.parquet as pq

from mqttscope.capture.write import for_the_owner, make_folder
from mqttscope.installation import extra_command
from mqttscope.lake.manifest import LakeError, Manifest, check_files
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.store import Lake, Place, StorePath, opened, place
from mqttscope.system import sync_folder

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction

    Tables = Mapping[str, DeltaTable | None]

APPLICATION = "mqttscope"
"""Name of our transactions in the log of a table; their version is the generation of the lake."""
LOG = "_delta_log"
PROPERTIES = {"delta.logRetentionDuration": "interval 1 days", "delta.deletedFileRetentionDuration": "interval 1 days"}
"""Earlier versions can be read for this time: a watch makes a version of most tables every few seconds."""
_THREADS = 4
_TIME = "timestamp_ns"
_STRANGE = re.compile(r"[\x00-\x1f\x7f\\]|%[0-9A-Fa-f]{2}")
"""Parts of a path that delta-rs misreads."""
_T = TypeVar("_T")


def open_tables(root: Place, before: Manifest, after: Manifest, *, again: bool = False) -> Tables:
    """The tables that a commit changes; ``None`` for tables that do not exist yet.

    ``before``: the manifest of their present files.  `LakeError` if another program has changed these files.
    ``again``: the commit was aborted before, so that some tables may have its changes.
    """
    changed = [
        name for name in TABLES if name not in before.versions or _files_of(before, name) != _files_of(after, name)
    ]
    done = after.generation if again else None
    return _of_all(lambda name: _checked(root, name, before, done), changed)


def publish(root: Place, before: Manifest, after: Manifest, tables: Tables) -> dict[str, int]:
    """Add the files of a manifest to tables that lack them; return the versions of all tables."""
    return before.versions | _of_all(lambda name: _publish(root, name, before, after, tables[name]), tables)


def require(root: Place) -> None:
    """Raise `LakeError` if deltalake is not installed, or cannot write its log into this folder."""
    if _STRANGE.search(str(root) if isinstance(root, StorePath) else root.resolve().as_posix()):
        raise LakeError(
            f"{root}: no Delta table can be there: the path has a backslash, a control character, or % before two "
            "hexadecimal digits"
        )
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise LakeError(f"a lake needs what is not installed ({error}): {extra_command('lake')}") from None


@dataclass(slots=True, frozen=True)
class ChangedTable:
    """A table that another program has changed."""

    table: DeltaTable
    files: frozenset[str]
    """Its present files, relative to the lake."""


def changed_tables(root: Path, manifest: Manifest) -> dict[str, ChangedTable]:
    """The tables with other files than the manifest has."""
    changed = {}
    for name, version in manifest.versions.items():
        if _entry(root / name, version + 1).exists() or not _entry(root / name, version).exists():
            with _talking(root / name):
                table = _opened(root / name)
                files = _names(table, name)
            if table is not None and files != _files_of(manifest, name).keys():
                changed[name] = ChangedTable(table, files)
    return changed


def replace_files(root: Path, before: Manifest, after: Manifest, changed: Mapping[str, ChangedTable]) -> dict[str, int]:
    """Put the files of a manifest in the place of the present ones; returns the versions of all tables."""
    versions = dict(before.versions)
    for name in TABLES:
        wanted, known = _files_of(after, name), changed.get(name)
        if known is None and wanted == _files_of(before, name):
            continue
        table = _checked(root, name, before) if known is None else known.table
        assert table is not None
        there = frozenset(_files_of(before, name)) if known is None else known.files
        versions[name] = _write(root, name, table, wanted, there, after)
    return versions


def _write(
    root: Path, name: str, table: DeltaTable, wanted: Iterable[str], there: frozenset[str], after: Manifest
) -> int:
    """Commit a transaction that gives a table the wanted files; returns its version."""
    gone = sorted(there.difference(wanted))
    sizes = replace(after, sizes=after.sizes | {file: (root / file).stat().st_size for file in gone})
    actions: list[AddAction | RemoveAction] = [
        *(_added(root, file, after) for file in wanted if file not in there), *(_removed(file, sizes) for file in gone)
    ]  # fmt: skip
    with _talking(root / name):
        _add_columns(table, name)
        table.create_write_transaction(
            actions, "append", table.schema(), commit_properties=_properties(after.generation, max_commit_retries=0)
        )
        _sync(root / name, table.version() + 1)
    return table.version() + 1


def check(root: Place, manifest: Manifest) -> None:
    """Raise `LakeError` if another program has changed a table, so that it lacks files of the manifest."""
    for name in TABLES:
        folder, version = root / name, manifest.versions.get(name)
        if version is not None and (_entry(folder, version + 1).exists() or not _entry(folder, version).exists()):
            _checked(root, name, manifest)


def earlier(lake: Lake, manifest: Manifest, generation: int) -> Manifest:
    """The files of the tables in an earlier generation; `LakeError` if they are no longer kept.

    ``manifest``: the present one.  The result has only the fields that readers of tables need.
    """
    root = place(lake)
    if not 0 < generation < manifest.generation or not manifest.versions:
        last = f"{manifest.generation} is the last one" if manifest.generation else "the lake is empty"
        raise LakeError(f"{root} has no generation {generation}: {last}")
    versions = _of_all(lambda name: _version_in(root, name, manifest.versions[name], generation), manifest.versions)
    gone = LakeError(f"{root} no longer has generation {generation}")
    if None in versions.values():
        raise gone
    files = _of_all(lambda name: sorted(_files_in(root, name, int(versions[name] or 0))), versions)
    older = Manifest(generation, manifest.group, manifest.settings, files=files, schema=manifest.schema)
    older.versions = {name: int(version or 0) for name, version in versions.items()}
    try:
        check_files(root, older)
    except LakeError:
        raise gone from None
    return older


def _version_in(root: Place, name: str, last: int, generation: int) -> int | None:
    """The version of a table in a generation; ``None`` if its log no longer shows it."""
    for version in range(last, -1, -1):
        try:
            entry = _entry(root / name, version).read_bytes()
        except FileNotFoundError:
            return None
        with _damaged(root / name):
            for action in map(json.loads, entry.splitlines()):
                transaction = action.get("txn", {})
                if transaction.get("appId") == APPLICATION and transaction["version"] <= generation:
                    return version
    return None


def _files_in(root: Place, name: str, version: int) -> frozenset[str]:
    from deltalake import DeltaTable

    with _talking(root / name):
        folder = root / name
        return _names(DeltaTable(_uri(folder), version=version, storage_options=_options(folder)), name)


@contextmanager
def _damaged(folder: Place) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, AttributeError, TypeError):
        raise LakeError(f"the log of {folder} cannot be read: the lake is damaged") from None


def vacuum(root: Place) -> None:
    """Delete files that the tables have not used for the time in `PROPERTIES`."""
    _of_all(lambda name: _vacuum(root / name), TABLES)


def _vacuum(folder: Place) -> None:
    from deltalake import DeltaTable

    with _talking(folder):
        DeltaTable(_uri(folder), storage_options=_options(folder)).vacuum(dry_run=False, full=True)


def _of_all(work: Callable[[str], _T], names: Iterable[str]) -> dict[str, _T]:
    names = list(names)
    # delta-rs waits for the disk without Python's lock.
    with for_the_owner(), ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(names, pool.map(work, names), strict=True))


def _publish(root: Place, name: str, before: Manifest, after: Manifest, table: DeltaTable | None) -> int:
    folder = root / name
    had, wanted = _files_of(before, name), _files_of(after, name)
    with _talking(folder):
        if table is None:
            _create(root, name, wanted, after)
            _sync(folder, 0)
            return 0
        new = [file for file in wanted if file not in had]
        if _has(table, after.generation):
            if not frozenset(new) <= _names(table, name):
                raise LakeError(f"{folder} was changed by another ingest in the meantime; run this one again")
            return table.version()
        _add_columns(table, name)
        gone = [file for file in had if file not in wanted]
        actions: list[AddAction | RemoveAction] = [
            *(_added(root, file, after) for file in new),
            *(_removed(file, before) for file in gone),
        ]
        table.create_write_transaction(
            actions, "append", table.schema(), commit_properties=_properties(after.generation, max_commit_retries=0)
        )
        version = table.version() + 1
        _sync(folder, version)
        return version


def _add_columns(table: DeltaTable, name: str) -> None:
    """Add columns that a table of an earlier release lacks."""
    known = {field.name for field in table.schema().fields}
    missing = [field for field in schema_of(name).fields if field.name not in known]
    if missing:
        table.alter.add_columns(missing)


def _create(root: Place, name: str, names: Iterable[str], manifest: Manifest) -> None:
    from deltalake.transaction import create_table_with_add_actions

    if isinstance(root, Path):
        make_folder(root / name / LOG)
    create_table_with_add_actions(
        _uri(root / name),
        schema_of(name),
        [_added(root, file, manifest) for file in names],
        name=name,
        description=TABLES[name].meaning,
        configuration=PROPERTIES,
        commit_properties=_properties(manifest.generation),
        storage_options=_options(root),
    )


@cache
def schema_of(name: str) -> Schema:
    """The schema of a table in Delta's types, with the meanings of columns as comments."""
    from deltalake import Schema

    return Schema.from_arrow(TABLES[name].arrow())


def _properties(generation: int, **more: Any) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(APPLICATION, generation)], **more)


def _checked(root: Place, name: str, manifest: Manifest, done: int | None = None) -> DeltaTable | None:
    """A table with the files of the manifest, or with the changes of the commit of generation ``done``."""
    folder, version = root / name, manifest.versions.get(name)
    with _talking(folder):
        table = _opened(folder)
        if table is not None and (table.version() == version or _has(table, done)):
            return table
        here = _names(table, name)
    if version is not None and any(file not in here for file in _files_of(manifest, name)):
        raise LakeError(
            f"{folder} is not what was written: another program has changed the table, and this cannot be adopted; "
            f"restore its version {version}, and delete rows with 'mqttscope pipeline forget' or 'expire'"
        )
    return table


def _has(table: DeltaTable, generation: int | None) -> bool:
    """Whether a table has the changes of a commit."""
    last = table.transaction_version(APPLICATION)
    return last is not None and generation is not None and last >= generation


def _entry(folder: Place, version: int) -> Place:
    return folder / LOG / f"{version:020d}.json"


def _opened(folder: Place) -> DeltaTable | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with suppress(TableNotFoundError):
        return DeltaTable(_uri(folder), storage_options=_options(folder))
    return None


def _uri(folder: Place) -> str:
    """The URI of a folder for delta-rs, whatever its name."""
    if isinstance(folder, StorePath):
        return f"{folder.store.delta_uri}/{folder.key}"
    return folder.absolute().as_uri()


def _options(folder: Place) -> dict[str, str] | None:
    return folder.store.delta_options if isinstance(folder, StorePath) else None


def _names(table: DeltaTable | None, name: str) -> frozenset[str]:
    if table is None:
        return frozenset()
    paths = table.get_add_actions(flatten=True).column("path").to_pylist()
    return frozenset(f"{name}/{unquote(path)}" for path in paths)


def _files_of(manifest: Manifest, name: str) -> dict[str, None]:
    return dict.fromkeys((*manifest.files.get(name, ()), *manifest.open_files.get(name, ())))


def _added(root: Place, name: str, manifest: Manifest) -> AddAction:
    from deltalake.transaction import AddAction

    now = int(time.time() * 1000)
    stats = json.dumps(_statistics(root / name, manifest.rows[name]))
    return AddAction(name.partition("/")[2], manifest.sizes[name], {}, now, True, stats)


def _removed(name: str, manifest: Manifest) -> RemoveAction:
    from deltalake.transaction import RemoveAction

    return RemoveAction(name.partition("/")[2], True, int(time.time() * 1000), manifest.sizes[name], {})


def _statistics(path: Place, rows: int) -> Mapping[str, Any]:
    """Statistics that spare readers a look into the file: its number of rows, first and last time."""
    statistics: dict[str, Any] = {"numRecords": rows}
    footer = pq.read_metadata(opened(path))
    place = next((at for at in range(footer.num_columns) if footer.schema.column(at).path == _TIME), None)
    if place is None:
        return statistics
    groups = [footer.row_group(at).column(place).statistics for at in range(footer.num_row_groups)]
    if groups and all(group is not None and group.has_min_max for group in groups):
        statistics["minValues"] = {_TIME: min(group.min for group in groups)}
        statistics["maxValues"] = {_TIME: max(group.max for group in groups)}
        statistics["nullCount"] = {_TIME: sum(group.null_count for group in groups)}
    return statistics


def _sync(folder: Place, version: int) -> None:
    """Sync an entry of the log to the disk, which delta-rs does not do."""
    if isinstance(folder, StorePath):
        return
    with _entry(folder, version).open("rb") as entry:
        os.fsync(entry.fileno())
    sync_folder(folder / LOG)


def _damaged_entry(folder: Place) -> Path | None:
    """The first entry of a table's log that is not lines of JSON; stores are not checked."""
    if isinstance(folder, StorePath):
        return None
    for entry in sorted((folder / LOG).glob("*.json")):
        try:
            if not all(isinstance(json.loads(line), dict) for line in entry.read_bytes().splitlines() or [b""]):
                return entry
        except OSError:
            continue
        except (ValueError, RecursionError):
            return entry
    return None


@contextmanager
def _talking(folder: Place) -> Iterator[None]:
    """Raise `LakeError` for errors of a Delta table."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError:
        raise LakeError(f"{folder} was changed by another program in the meantime; run this one again") from None
    except DeltaError as error:
        entry = _damaged_entry(folder)
        if entry is not None:
            raise LakeError(f"{entry} is damaged, so that the table cannot be read") from None
        why = str(error).strip().split("\n")[0]
        raise LakeError(f"{folder} cannot be read or written as a Delta table ({why})") from None
