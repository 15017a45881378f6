"""A lake in a local folder, written in process: for small inputs, and as the measure of every other way.

An ingest is all or nothing: files are written beside those that count, then the manifest is replaced.  What is in
already, by content, is not read again, so that an ingest that is repeated changes nothing.  A connection that is open
when the captures end goes on with the next ingest, from what its flow remembers; until then its rows so far are in the
tables as well, ``how`` being ``open``.  What rules remember of sessions and servers goes on in the same way.  So the
tables of several ingests are those of one, as long as the captures come in the order of time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, dissect_segments, segments
from mqttscope.lake.aggregates import CONNECTION_COLUMNS, TOPIC_COLUMNS, clients, sessions, topics
from mqttscope.lake.kernel import Unfinished, connection_of, remembered, resume, state_row
from mqttscope.lake.manifest import (
    LakeError,
    Manifest,
    content_digest,
    read_manifest,
    remove_strays,
    sync_folder,
    write_manifest,
)
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import EVENT_TABLES, OPEN, SCOPE_EVENTS, SCOPE_STATE, STATE, TABLES
from mqttscope.lake.schemas import VERSION as SCHEMA_VERSION
from mqttscope.lake.scopes import Fed
from mqttscope.lake.state import VERSION as STATE_VERSION
from mqttscope.lake.state import load
from mqttscope.lake.tables import LOOK, Collector, batch
from mqttscope.lake.wide import WideRules
from mqttscope.net.segment import Segment

ROWS_PER_FILE = 1_000_000
_SUMS = ("topics", "clients", "sessions")
_STATE_ROWS = 1_000


@dataclass(slots=True)
class Ingested:
    """What an ingest did."""

    captures: list[str] = field(default_factory=list)
    """Those that were read."""
    known: list[str] = field(default_factory=list)
    """Those that were in already."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows that were added to each table."""
    open_flows: int = 0
    """Flows that the next ingest goes on with."""
    out_of_order: list[str] = field(default_factory=list)
    """Captures that begin before the last segment of an earlier ingest: connections that both have are not joined."""


def write_lake(
    captures: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    options: LakeOptions | None = None,
    *,
    progress: Callable[[Segment], None] | None = None,
) -> Ingested:
    """Take captures into the lake of a folder, which is made where there is none; `LakeError` where that cannot be.

    ``captures``: files.  ``progress`` is called with each segment.
    """
    root = Path(folder)
    options = options or LakeOptions()
    options = replace(options, scope_events=options.has_wide_rules())
    before = read_manifest(root)
    check_settings(before, options, root)
    done = Ingested()
    fresh = _fresh(captures, before, done)
    if not fresh:
        return done
    root.mkdir(parents=True, exist_ok=True)
    remove_strays(root, before)
    after = replace(
        before,
        generation=before.generation + 1,
        group=options.group,
        settings=settings_digest(options),
        captures=before.captures | fresh,
        files={name: list(names) for name, names in before.files.items()},
        open_files={},
        state_files=[],
        scope_state_files=[],
    )
    _read(root, list(fresh.values()), options, before, after, done, progress)
    _write_sums(root, after)
    for name in {*after.files, "open", STATE.name, SCOPE_STATE.name}:
        with suppress(FileNotFoundError):
            sync_folder(root / name)
    write_manifest(root, after)
    remove_strays(root, after)
    return done


def read_table(folder: str | os.PathLike[str], name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A table of a lake, what is still open included; `LakeError` where there is no such table."""
    root = Path(folder)
    return _dataset(root, read_manifest(root), name).to_table(columns=None if columns is None else list(columns))


def _dataset(root: Path, manifest: Manifest, name: str) -> ds.Dataset:
    if name not in TABLES:
        raise LakeError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
    names = (*manifest.files.get(name, ()), *manifest.open_files.get(name, ()))
    return ds.dataset([str(root / one) for one in names], schema=TABLES[name].arrow(), format="parquet")


def settings_digest(options: LakeOptions) -> str:
    """What rows depend on; the tables of a lake are made with the same."""
    rules = [(rule.code, sorted(rule.set.items())) for rule in options.rules]
    told = repr((SCHEMA_VERSION, STATE_VERSION, options.reading(), options.payload_limit, rules, options.secret_length))
    if options.has_wide_rules():
        told += "wide"  # lakes from before there was their state lack findings
    return hashlib.sha256(told.encode()).hexdigest()


def check_settings(before: Manifest, options: LakeOptions, root: Path) -> None:
    """`LakeError` where a lake was made with other options than these."""
    if not before.generation:
        return
    if before.group != options.group:
        raise LakeError(f"{root} holds captures of the group {before.group!r}, not of {options.group!r}")
    if before.settings != settings_digest(options):
        raise LakeError(f"{root} was written with other options, rules or schemas; take another folder")


def _fresh(captures: Sequence[str | os.PathLike[str]], before: Manifest, done: Ingested) -> dict[str, str]:
    """Captures that are not in yet, by digest."""
    fresh: dict[str, str] = {}
    for one in captures:
        name = os.fspath(one)
        try:
            digest = content_digest(Path(name))
        except OSError as error:
            raise LakeError(f"{name} cannot be opened: {error.strerror or error}") from None
        if digest in before.captures or digest in fresh:
            done.known.append(name)
        else:
            fresh[digest] = name
            done.captures.append(name)
    return fresh


def _read(
    root: Path,
    captures: Sequence[str],
    options: LakeOptions,
    before: Manifest,
    after: Manifest,
    done: Ingested,
    progress: Callable[[Segment], None] | None,
) -> None:
    dissector, collector = Dissector(options.reading()), Collector(options)
    fed = collector.emitted = Fed(file=after.generation)
    collector.note_drops(_dropping(root, before))
    for data in _states(root, before):
        resume(load(data), dissector, collector)
    seen = _Seen(before.last_ns, progress)
    source = seen.watch(segments(open_capture(captures)))
    with _Files(root, after.generation) as files, WideRules(options) as wide:

        def write(made: Iterable[tuple[str, pa.RecordBatch]]) -> None:
            for name, found in made:
                if name == SCOPE_EVENTS.name:
                    wide.feed(found)
                else:
                    files.write(name, found)

        def look(segment: Segment) -> None:
            found = dissector.flows.direction(segment.key)
            collector.segment_taken(None if found is None else connection_of(found[0]), segment)

        seen.taken = look if options.scope_events else None
        for event in dissect_segments(source, dissector=dissector, more=True):
            fed.now_ns = seen.last_ns or 0
            collector.feed(event)
            if collector.waiting >= LOOK:
                write(collector.batches())
        memories = remembered(dissector, collector, seen.last_ns)
        write(collector.batches(everything=True))
        unfinished = Unfinished(options)
        unfinished.collector.note_drops(collector.dropping)
        for start in range(0, len(memories), _STATE_ROWS):
            some = memories[start : start + _STATE_ROWS]
            files.write(STATE.name, batch(STATE.name, [state_row(one) for one in some]))
            for one in some:
                unfinished.feed(one)
                write(unfinished.batches())
        write(unfinished.batches(everything=True))
        for found in _batches_of(root, before.scope_state_files):
            wide.resume(found)
        write(wide.batches())
    after.last_ns = seen.last_ns
    done.out_of_order, done.open_flows = sorted(seen.late), len(memories)
    for name, written in files.names.items():
        table = name.removeprefix(OPEN)
        if name == STATE.name:
            after.state_files = written
        elif name == SCOPE_STATE.name:
            after.scope_state_files = written
        elif table != name:
            after.open_files[table] = written
        else:
            after.files.setdefault(name, []).extend(written)
            done.rows[name] = files.rows[name]


def _dropping(root: Path, manifest: Manifest) -> set[str]:
    """Captures that said to have dropped frames; connections that are open may have their last frames there."""
    if not manifest.generation:
        return set()
    notices = _dataset(root, manifest, "ingest_errors").to_table(columns=["capture", "dropped"])
    return {row["capture"] for row in notices.to_pylist() if row["dropped"]}


@dataclass(slots=True)
class _Seen:
    """What went by while segments were read."""

    last_ns: int | None
    progress: Callable[[Segment], None] | None
    late: set[str] = field(default_factory=set)
    taken: Callable[[Segment], None] | None = None
    """Called behind all events of a segment."""

    def watch(self, source: Iterable[Any]) -> Iterator[Any]:
        """Pass everything on."""
        before = self.last_ns
        for item in source:
            if type(item) is Segment:
                now = item.timestamp_ns
                if before is not None and now < before:
                    self.late.add(item.capture)
                if self.last_ns is None or now > self.last_ns:
                    self.last_ns = now
                if self.progress is not None:
                    self.progress(item)
            yield item
            if self.taken is not None and type(item) is Segment:
                self.taken(item)


def _states(root: Path, manifest: Manifest) -> Iterator[bytes]:
    for found in _batches_of(root, manifest.state_files):
        yield from found.column("state").to_pylist()


def _batches_of(root: Path, names: Iterable[str]) -> Iterator[pa.RecordBatch]:
    for name in names:
        yield from pq.ParquetFile(root / name).iter_batches(_STATE_ROWS)


def _write_sums(root: Path, after: Manifest) -> None:
    """Topics, clients and sessions are made anew of all that is there."""
    messages = _dataset(root, after, "messages").to_batches(columns=list(TOPIC_COLUMNS))
    connections = _dataset(root, after, "connections").to_table(columns=list(CONNECTION_COLUMNS)).to_pylist()
    made = {"topics": topics(messages), "clients": clients(connections), "sessions": sessions(connections)}
    with _Files(root, after.generation) as files:
        for name, table in made.items():
            for found in table.to_batches():
                files.write(name, found)
    for name in _SUMS:
        after.files[name] = files.names.get(name, [])


class _Files:
    """The Parquet files of one ingest."""

    def __init__(self, root: Path, generation: int) -> None:
        self.names: dict[str, list[str]] = {}
        self.rows: dict[str, int] = dict.fromkeys(EVENT_TABLES, 0)
        self._root = root
        self._generation = generation
        self._open: dict[str, tuple[pq.ParquetWriter, int, Any]] = {}

    def write(self, name: str, found: pa.RecordBatch) -> None:
        """Add rows to the file of a table."""
        writer, rows, file = self._open.get(name) or self._begin(name, found.schema)
        writer.write_batch(found)
        rows += found.num_rows
        self.rows[name] = self.rows.get(name, 0) + found.num_rows
        self._open[name] = (writer, rows, file)
        if rows >= ROWS_PER_FILE:
            self._end(name)

    def __enter__(self) -> _Files:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish all files and bring them to the disk."""
        for name in list(self._open):
            self._end(name)

    def _begin(self, name: str, schema: pa.Schema) -> tuple[pq.ParquetWriter, int, Any]:
        names = self.names.setdefault(name, [])
        folder, _, table = name.rpartition("/")
        part = f"{table}-{len(names)}" if folder else str(len(names))
        path = f"{folder or name}/{self._generation:010d}-{part}.parquet"
        (self._root / path).parent.mkdir(exist_ok=True)
        names.append(path)
        file = (self._root / path).open("wb")
        begun = self._open[name] = (pq.ParquetWriter(file, schema, compression="zstd"), 0, file)
        return begun

    def _end(self, name: str) -> None:
        writer, _, file = self._open.pop(name)
        with file:
            writer.close()
            file.flush()
            os.fsync(file.fileno())
