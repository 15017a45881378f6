"""Ingests captures into a lake while they are written: each batch of a stream is a separate ingest.

A batch runs through the fold of an ingest and is committed in one step together with its number (`Watcher`), so
that a batch repeated after a crash changes nothing.  Time is the time of the last segment: flows time out by it,
in the batch that brings it.  While a capture lags behind the others, because a batch has a limit, its time is used.

The checkpoint of the stream is in the lake; it remembers captures as offsets, and flows are in the lake's own
state.  Sums over the complete lake (topics, clients, sessions) are computed at intervals and at the end, not
with each batch: the larger the lake, the longer they take.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from mqttscope.capture.fingerprint import Fingerprint
from mqttscope.capture.write import make_folder, opener, write_file
from mqttscope.lake.commit import STREAM, commit, complete, lake_lock, merge_small
from mqttscope.lake.erasure import erase_again
from mqttscope.lake.files import add_errors, known_errors, reading
from mqttscope.lake.manifest import Errors, LakeError, Manifest, folder_of, read_manifest, remove_strays
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import dump, load
from mqttscope.lake.summary import table_rows
from mqttscope.lake.writer import begin_generation, check_settings
from mqttscope.lint.failures import RuleFailures
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import CaptureError
from mqttscope.spark.aggregates import write_sums
from mqttscope.spark.dataframes import assembled
from mqttscope.spark.distribute import register
from mqttscope.spark.follower import COMPLETE, KNOWN, content_now
from mqttscope.spark.ingest import good_partitions
from mqttscope.spark.ingest_flows import FoldResult, fold
from mqttscope.spark.rows import COLUMNS, DDL, FRAGMENT
from mqttscope.spark.session import keeping_active
from mqttscope.spark.source import FORMAT
from mqttscope.spark.tables import union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INTERVAL_S = 10.0
MAX_BYTES = 64 << 20
"""Approximate maximum number of capture bytes per batch."""
SUMS_SHARE = 9
"""Minimum pause between two computations of sums, as a multiple of the last duration."""
RESTARTS = 10
"""Maximum number of consecutive restarts of a stream without a finished batch."""
_PASSING = ("Python worker failed to connect back", "Python worker exited unexpectedly")
"""Messages of failures on a busy machine, or of a killed process, that may not occur again."""
_WORKER = "pyspark.sql.streaming.python_streaming_source_runner"
"""Module that a stream's worker runs."""
WORKER_START_S = 10.0
"""Spark's fixed timeout for such a worker to start and connect."""
READY_S = 5.0
"""A worker that starts by itself within this time also starts and connects in time while Spark computes."""
_LOOK_S = 0.2


@dataclass(slots=True)
class BatchReport:
    """Report of a batch."""

    batch: int
    rows: dict[str, int] = field(default_factory=dict)
    """Rows added to each table, rows of open connections included."""
    open_flows: int = 0
    last_ns: int | None = None
    """Time of the last segment in the lake."""
    waiting: int = 0
    """Bytes left to the next batch."""
    late: list[str] = field(default_factory=list)
    """Captures with segments from before the last one of earlier batches."""
    errors: list[CaptureError] = field(default_factory=list)
    """Errors of captures."""
    live: bool = True
    """A capture of the batch may still grow: only then the batch shows the delay of the lake."""
    failures: RuleFailures = field(default_factory=RuleFailures)
    """Rules that failed; findings may be missing."""


def watch(
    spark: SparkSession,
    sources: Sequence[str],
    lake: str | os.PathLike[str],
    options: LakeOptions | None = None,
    *,
    interval_s: float = INTERVAL_S,
    once: bool = False,
    max_bytes: int | None = MAX_BYTES,
    quiet_seconds: float | None = None,
    ports: Iterable[int] = (),
    tell: Callable[[BatchReport], None] | None = None,
    note: Callable[[str], None] | None = None,
    over: threading.Event | None = None,
) -> None:
    """Follow captures and ingest new data into a lake until ``over`` is set.

    ``sources``: folders, globs, files; the driver and all executors see them and ``lake`` under these paths.
    ``interval_s``: seconds between the beginnings of two batches.  ``once``: ingest the present data, then end.
    ``max_bytes``: approximate maximum number of capture bytes per batch, ``None`` for all.  ``quiet_seconds``: a
    capture is complete after this time without a change.  ``ports``: only segments from or to these ports.  ``tell`` is
    called with each batch, by another thread; ``note`` with a sentence when the machine is too busy for Spark and the
    stream waits.

    When ``over`` is set, the running batch ends before this returns.  Raises `LakeError` if the lake cannot be
    written, has other settings, or is written by another process, and Spark's errors.  Whenever and however this
    ends, the lake is consistent, and the next call with the same sources continues.
    """
    root, options = folder_of(lake).resolve(), options or LakeOptions()
    over = over or threading.Event()
    with lake_lock(root):
        before = read_manifest(root)
        options = check_settings(before, options, root)
        remove_strays(root, before)
        stream = _Stream.of(root, sources, before)
        watcher = Watcher(root, options, stream, tell or (lambda report: None), good_partitions(max_bytes or MAX_BYTES))
        register(spark)
        settings: dict[str, Any] = {"rows": "watch", "lake": str(root), "ports": ",".join(map(str, ports))}
        settings |= {"max_bytes": str(max_bytes or 0)}
        if quiet_seconds is not None:
            settings["quiet_seconds"] = str(quiet_seconds)
        rows = spark.readStream.format(FORMAT).options(**settings).load(**_load(sources))
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{interval_s} seconds"}
        writer = (
            rows.writeStream.foreachBatch(watcher.ingest_batch)
            .option("checkpointLocation", str(stream.folder / "checkpoint"))
            .trigger(**trigger)
        )
        try:
            _run(spark, writer, watcher, over, note or (lambda text: None))
        finally:
            watcher.close()
        watcher.finish(spark)


def _load(sources: Sequence[str]) -> dict[str, Any]:
    paths = [os.path.abspath(source) if "://" not in source else source for source in sources]
    return {"path": paths[0]} if len(paths) == 1 else {"paths": json.dumps(paths)}


def _run(
    spark: SparkSession, writer: DataStreamWriter, watcher: Watcher, over: threading.Event, note: Callable[[str], None]
) -> None:
    """Run the stream until it ends or ``over`` is set; restart it after a temporary failure."""
    from pyspark.errors import StreamingQueryException

    failures, batches = 0, watcher.batches
    while True:
        query = writer.start()
        try:
            while query.isActive and not over.is_set():
                over.wait(_LOOK_S)
            error = query.exception()
            if error is not None:
                raise error
            return
        except StreamingQueryException as error:
            failures = failures + 1 if watcher.batches == batches else 1
            batches = watcher.batches
            if over.is_set():
                return
            if failures > RESTARTS or not any(text in str(error) for text in _PASSING):
                raise
        finally:
            watcher.wait()
            with suppress(Exception):
                query.stop()
        await_worker(spark.sparkContext.pythonExec, over, note)


def await_worker(python: str, over: threading.Event, note: Callable[[str], None]) -> None:
    """Wait until a worker of a stream starts within `READY_S`, or ``over`` is set.

    On a machine that is too busy for that, restarting the stream again and again would only add to the work.
    """
    is_noted = False
    while not over.is_set():
        begun = time.monotonic()
        try:
            worker = subprocess.Popen(
                [python, "-c", f"import {_WORKER}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:  # the stream reports the error
            return
        with worker:
            while worker.poll() is None and not over.wait(_LOOK_S):
                pass
            worker.kill()
        if time.monotonic() - begun < READY_S:
            return
        if not is_noted:
            is_noted = True
            note(f"too busy to start a Python worker within {WORKER_START_S:g} s: waiting until the machine has time")


@dataclass(slots=True)
class _Stream:
    """The stream of some sources into a lake."""

    name: str
    """Name of the stream in the manifest; a new one after its checkpoint was removed."""
    folder: Path

    @classmethod
    def of(cls, root: Path, sources: Sequence[str], manifest: Manifest) -> _Stream:
        """The stream of these sources; `LakeError` if its checkpoint has batches that the lake lacks."""
        key = "\0".join(sorted(map(os.path.abspath, sources))).encode("utf-8", "surrogateescape")
        folder = root / STREAM / blake2b(key, digest_size=8).hexdigest()
        try:
            make_folder(folder)
            named = folder / "name"
            if not named.exists():
                write_file(named, uuid4().hex.encode())
            name = named.read_text().strip()
        except OSError as error:
            raise LakeError(f"{folder} cannot be written: {error.strerror or error}") from None
        commits = folder / "checkpoint" / "commits"
        if name not in manifest.streams and commits.is_dir() and any(path.name.isdigit() for path in commits.iterdir()):
            raise LakeError(f"{folder} belongs to another lake; remove it to read all captures from the beginning")
        return cls(name, folder)


class Watcher:
    """Ingests batches into a lake, each once."""

    def __init__(
        self,
        root: Path,
        options: LakeOptions,
        stream: _Stream,
        tell: Callable[[BatchReport], None],
        most_partitions: int,
    ) -> None:
        self._root = root
        self._options = options
        self._stream = stream
        self._tell = tell
        self._most_partitions = most_partitions
        self.batches = 0
        """Number of ingested batches."""
        self._busy = threading.Lock()
        self._closed = False
        self._partitions = 1
        self._positions: dict[int, int] = {}
        self._is_fragmented = False
        self._sums_due = 0.0

    def ingest_batch(self, batch: DataFrame, number: int) -> None:
        """Ingest a batch; a batch that was ingested before changes nothing."""
        with self._busy:
            if self._closed:
                raise LakeError("the watch is over")
            # The stream may have been restarted after an aborted commit.
            complete(self._root)
            before = read_manifest(self._root)
            seen = self._seen(before)
            if number <= seen["batch"]:
                return
            if number != seen["batch"] + 1:
                raise LakeError(f"batch {number} comes after batch {seen['batch']} of {self._root}: some are missing")
            report = self._ingest(batch, number, before, seen)
            self.batches += 1
            self._tell(report)

    def wait(self) -> None:
        with self._busy:
            pass

    def close(self) -> None:
        """Wait for the running batch, and refuse further ones."""
        with self._busy:
            self._closed = True

    def finish(self, spark: SparkSession) -> None:
        """Compute postponed sums."""
        before = read_manifest(self._root)
        seen = self._seen(before)
        if seen.get("summed", True):
            return
        _, after = begin_generation(self._root, before, self._options)
        write_sums(spark, self._root, after)
        after.streams = before.streams | {self._stream.name: seen | {"summed": True}}
        commit(self._root, before, after)

    def _seen(self, manifest: Manifest) -> dict[str, Any]:
        return manifest.streams.get(self._stream.name, {"batch": -1})

    def _ingest(self, batch: DataFrame, number: int, before: Manifest, seen: dict[str, Any]) -> BatchReport:
        spark, root = batch.sparkSession, self._root
        resumed, after = begin_generation(root, before, self._options)
        rows = batch.where(batch["kind"] != FRAGMENT)
        waiting = seen.get("fragments")
        folded: FoldResult | None = None
        if not self._is_fragmented:
            folded = self._fold(spark, rows, resumed, after, stops_at_fragments=True)
            self._is_fragmented = bool(folded.fragmented)
        if self._is_fragmented:
            # Two passes for the first fragments, one pass from then on.
            whole, waiting = self._defragmented(batch, waiting, after.generation)
            folded = self._fold(spark, union_all(rows, whole), resumed, after)
        assert folded is not None
        erase_again(root, before, after, self._options.key_file)
        pending = self._note(folded, after, seen.get("faulty", {}))
        summed = self._sum(spark, after)
        state = {"batch": number, "summed": summed} | ({"fragments": waiting} if waiting else {})
        state |= {"faulty": pending} if pending else {}
        after.streams = before.streams | {self._stream.name: state}
        merge_small(root, before, after)
        commit(root, before, after)
        for path in self._stream.folder.glob("fragments-*"):
            if path.relative_to(root).as_posix() != waiting:
                path.unlink()
        rows_before, rows_after = table_rows(root, before), table_rows(root, after)
        added = {table: count - rows_before.get(table, 0) for table, count in rows_after.items()}
        return BatchReport(
            number, added, folded.open_flows, after.last_ns, sum(row["count"] or 0 for row in folded.read),
            folded.out_of_order, [error for _, error in folded.errors],
            any(row["message"] not in (COMPLETE, KNOWN) for row in folded.read), RuleFailures.together(folded.failures),
        )  # fmt: skip

    def _fold(
        self,
        spark: SparkSession,
        rows: DataFrame,
        before: Manifest,
        after: Manifest,
        *,
        stops_at_fragments: bool = False,
    ) -> FoldResult:
        return fold(
            spark, rows, self._root, before, after, self._options, partitions=self._partitions,
            stops_at_fragments=stops_at_fragments, by_time=True,
        )  # fmt: skip

    def _note(self, folded: FoldResult, after: Manifest, pending: Mapping[str, Errors]) -> dict[str, Errors]:
        """Add complete captures to the manifest, as an ingest does; measure the size of batches.

        ``pending``: errors of incomplete captures, by their places; returns the present ones.
        """
        wrong = {int(file): list(errors) for file, errors in pending.items()}
        for file, error in folded.errors:
            wrong.setdefault(file, []).append([error.message, error.offset, error.frames])
        size = waiting = 0
        for row in folded.read:
            size += max(0, row["offset"] - self._positions.get(row["file"], 0))
            waiting += row["count"] or 0
            self._positions[row["file"]] = row["offset"]
            if row["message"] == COMPLETE:
                errors = wrong.pop(row["file"], [])
                if content := _content(row):
                    if content.digest not in after.captures:
                        after.add_captures({content.digest: row["capture"]})
                    after.begins |= content.manifest_entry
                    after.faulty |= {content.digest: errors} if errors else {}
        if after.faulty:
            # A copy of a faulty capture is not read, but is faulty too.
            read = [row for row in folded.read if row["message"] == KNOWN]
            copies = [(row["capture"], content.digest) for row in read if (content := _content(row))]
            copied = known_errors(after, copies)
            add_errors(self._root, after, copied)
            folded.errors += ((0, error) for error in copied)
        self._partitions = self._most_partitions if waiting else min(self._most_partitions, good_partitions(size))
        read_files = {row["file"] for row in folded.read}
        return {str(file): errors for file, errors in wrong.items() if file in read_files or str(file) in pending}

    def _sum(self, spark: SparkSession, after: Manifest) -> bool:
        begun = time.monotonic()
        if begun < self._sums_due:
            return False
        write_sums(spark, self._root, after)
        ended = time.monotonic()
        self._sums_due = ended + SUMS_SHARE * (ended - begun)
        return True

    def _defragmented(self, batch: DataFrame, waiting: str | None, generation: int) -> tuple[DataFrame, str | None]:
        """Segments from IP fragments, pending ones of earlier batches included, and the file of the still pending ones.

        On the driver: fragments are rare, and a batch has a limit.
        """
        table = FragmentTable()
        if waiting is not None:
            with reading(self._root / waiting):
                table = _resumed((self._root / waiting).read_bytes())
        fragments = batch.where(batch["kind"] == FRAGMENT).select(*COLUMNS).toArrow()
        self._is_fragmented = fragments.num_rows > 0
        ordered = fragments.sort_by([("file", "ascending"), ("frame", "ascending")])
        batches = list(assembled(ordered.to_batches(), summary=True, table=table))
        with keeping_active():
            whole = batch.sparkSession.createDataFrame(pa.Table.from_batches(batches, ordered.schema), DDL)
        if not table.datagrams:
            return whole, None
        path = self._stream.folder / f"fragments-{generation:010d}"
        with open(path, "wb", opener=opener) as file:
            file.write(dump(list(table.datagrams.items())))
            file.flush()
            os.fsync(file.fileno())
        return whole, path.relative_to(self._root).as_posix()


def _content(read: Mapping[str, Any]) -> Fingerprint | None:
    name, position, head, tail = json.loads(read["notice"])
    return content_now(name, position, head, tail, read["offset"])


def _resumed(data: bytes) -> FragmentTable:
    table = FragmentTable()
    for key, datagram in load(data):
        table.datagrams[key] = datagram
        table.held += datagram.cost
    return table
