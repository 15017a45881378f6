"""The tables of a lake as Delta tables: what any engine opens that reads Delta.

Each table is a folder with a log (``_delta_log``).  A commit of a lake is one transaction of each table whose files it
changes: it adds what was written, removes rows of connections that were open before and files that were merged, and
carries the generation of the lake as application transaction, so that it can be repeated and nothing is in twice.
delta-rs writes the log; the Parquet files are ours (`lake.files`).  Only who commits needs it: neither readers nor the
executors of Spark load it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
"""Names our transactions in the log of a table; their version is the generation of the lake."""
LOG = "_delta_log"
PROPERTIES = {"delta.logRetentionDuration": "interval 1 days", "delta.deletedFileRetentionDuration": "interval 1 days"}
"""How long earlier versions can be read: a watch makes a version of most tables every few seconds."""
_THREADS = 4
_TIME = "timestamp_ns"
_STRANGE = re.compile(r"[\x00-\x1f\x7f\\]|%[0-9A-Fa-f]{2}")
"""What delta-rs takes for something else in a path."""
_T = TypeVar("_T")


def open_tables(root: Place, before: Manifest, after: Manifest, *, again: bool = False) -> Tables:
    """The tables that a commit changes; ``None`` for those that there are not yet.

    ``before``: the manifest that they have.  `LakeError` where they do not, since another program has changed them.
    ``again``: the commit broke off before, so that some of them may have what it changes.
    """
    changed = [
        name for name in TABLES if name not in before.versions or _files_of(before, name) != _files_of(after, name)
    ]
    done = after.generation if again else None
    return _of_all(lambda name: _checked(root, name, before, done), changed)


def publish(root: Place, before: Manifest, after: Manifest, tables: Tables) -> dict[str, int]:
    """Give tables the files of a manifest that they do not have yet; returns the versions of all tables."""
    return before.versions | _of_all(lambda name: _publish(root, name, before, after, tables[name]), tables)


def require(root: Place) -> None:
    """`LakeError` where what writes the log is not installed, or cannot write it into this folder."""
    if _STRANGE.search(str(root) if isinstance(root, StorePath) else root.resolve().as_posix()):
        raise LakeError(
            f"{root}: no Delta table can lie there: the path has a backslash, a control character, or % before two "
            "hexadecimal digits"
        )
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise LakeError(f"a lake needs what is not installed ({error}): {extra_command('lake')}") from None


def check(root: Place, manifest: Manifest) -> None:
    """`LakeError` where a table lacks files of the manifest, because another program has changed it."""
    for name in TABLES:
        folder, version = root / name, manifest.versions.get(name)
        if version is not None and (_entry(folder, version + 1).exists() or not _entry(folder, version).exists()):
            _checked(root, name, manifest)


def earlier(lake: Lake, manifest: Manifest, generation: int) -> Manifest:
    """The files that the tables had in an earlier generation; `LakeError` where they are no longer kept.

    ``manifest``: the one that counts.  What the result does not have is what readers of tables do not need.
    """
    root = place(lake)
    if not 0 < generation < manifest.generation or not manifest.versions:
        last = f"{manifest.generation} is the last one" if manifest.generation else "there is none"
        raise LakeError(f"{root} has no generation {generation}: {last}")
    versions = _of_all(lambda name: _version_in(root, name, manifest.versions[name], generation), manifest.versions)
    gone = LakeError(f"{root} does not keep generation {generation} any more")
    if None in versions.values():
        raise gone
    files = _of_all(lambda name: sorted(_files_in(root, name, int(versions[name] or 0))), versions)
    found = Manifest(generation, manifest.group, manifest.settings, files=files, schema=manifest.schema)
    found.versions = {name: int(version or 0) for name, version in versions.items()}
    try:
        check_files(root, found)
    except LakeError:
        raise gone from None
    return found


def _version_in(root: Place, name: str, last: int, generation: int) -> int | None:
    """The version of a table in a generation; ``None`` where its log does not say it any more."""
    for version in range(last, -1, -1):
        try:
            entry = _entry(root / name, version).read_bytes()
        except FileNotFoundError:
            return None
        with _damaged(root / name):
            for one in map(json.loads, entry.splitlines()):
                taken = one.get("txn", {})
                if taken.get("appId") == APPLICATION and taken["version"] <= generation:
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
    """Take away files that the tables have not had for as long as `PROPERTIES` says."""
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
        new = [one for one in wanted if one not in had]
        if _has(table, after.generation):
            if not frozenset(new) <= _names(table, name):
                raise LakeError(f"{folder} was changed by another ingest in the meantime; run this one again")
            return table.version()
        _add_columns(table, name)
        gone = [one for one in had if one not in wanted]
        actions: list[AddAction | RemoveAction] = [
            *(_added(root, one, after) for one in new),
            *(_removed(one, before) for one in gone),
        ]
        table.create_write_transaction(
            actions, "append", table.schema(), commit_properties=_properties(after.generation, max_commit_retries=0)
        )
        version = table.version() + 1
        _sync(folder, version)
        return version


def _add_columns(table: DeltaTable, name: str) -> None:
    """Columns that a table of an earlier release does not have yet."""
    known = {one.name for one in table.schema().fields}
    missing = [one for one in schema_of(name).fields if one.name not in known]
    if missing:
        table.alter.add_columns(missing)


def _create(root: Place, name: str, names: Iterable[str], manifest: Manifest) -> None:
    from deltalake.transaction import create_table_with_add_actions

    if isinstance(root, Path):
        make_folder(root / name / LOG)
    create_table_with_add_actions(
        _uri(root / name),
        schema_of(name),
        [_added(root, one, manifest) for one in names],
        name=name,
        description=TABLES[name].meaning,
        configuration=PROPERTIES,
        commit_properties=_properties(manifest.generation),
        storage_options=_options(root),
    )


@cache
def schema_of(name: str) -> Schema:
    """The schema of a table in Delta's own types, with the meanings of columns as comments."""
    from deltalake import Schema

    return Schema.from_arrow(TABLES[name].arrow())


def _properties(generation: int, **more: Any) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(APPLICATION, generation)], **more)


def _checked(root: Place, name: str, manifest: Manifest, done: int | None = None) -> DeltaTable | None:
    """A table that has the files of the manifest, or what the commit of the generation ``done`` changes."""
    folder, version = root / name, manifest.versions.get(name)
    with _talking(folder):
        table = _opened(folder)
        if table is not None and (table.version() == version or _has(table, done)):
            return table
        here = _names(table, name)
    if version is not None and any(one not in here for one in _files_of(manifest, name)):
        raise LakeError(
            f"{folder} is not what was written: another program has changed the table; restore its version {version}"
        )
    return table


def _has(table: DeltaTable, generation: int | None) -> bool:
    """Whether a table has taken in what a commit changes."""
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
    """A folder as delta-rs takes it whatever its name is."""
    if isinstance(folder, StorePath):
        return f"{folder.store.delta_uri}/{folder.key}"
    return folder.absolute().as_uri()


def _options(folder: Place) -> dict[str, str] | None:
    return folder.store.delta_options if isinstance(folder, StorePath) else None


def _names(table: DeltaTable | None, name: str) -> frozenset[str]:
    """The files of a table, relative to the lake."""
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
    """What a reader needs not look into a file for: its rows, and the times of the first and the last."""
    found: dict[str, Any] = {"numRecords": rows}
    footer = pq.read_metadata(opened(path))
    place = next((at for at in range(footer.num_columns) if footer.schema.column(at).path == _TIME), None)
    if place is None:
        return found
    groups = [footer.row_group(at).column(place).statistics for at in range(footer.num_row_groups)]
    if groups and all(one is not None and one.has_min_max for one in groups):
        found["minValues"] = {_TIME: min(one.min for one in groups)}
        found["maxValues"] = {_TIME: max(one.max for one in groups)}
        found["nullCount"] = {_TIME: sum(one.null_count for one in groups)}
    return found


def _sync(folder: Place, version: int) -> None:
    """Bring an entry of the log to the disk: delta-rs leaves that to the system."""
    if isinstance(folder, StorePath):
        return
    with _entry(folder, version).open("rb") as entry:
        os.fsync(entry.fileno())
    sync_folder(folder / LOG)


def _damaged_entry(folder: Place) -> Path | None:
    """The first entry of the log of a table that is not what entries are, lines of JSON; stores are not looked into."""
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
    """`LakeError` for what goes wrong with a table."""
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
