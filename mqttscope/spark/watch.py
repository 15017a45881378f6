"""Takes captures into a lake while they are written: each batch of a stream is a separate ingest.

A batch runs through the same fold as an ingest and is committed in one step together with its number (`Watcher`), so
that one that is repeated after a crash changes nothing.  Time is the time of the last segment: flows time out by it,
in the batch that brings it.  While a capture lags behind the others, because a batch has a limit, time is its time.

The checkpoint of the stream lies in the lake; what it remembers of captures are offsets, what flows remember is in the
lake's own state.  Sums over the complete lake (topics, clients, sessions) are computed at intervals and at the end, not
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
from mqttscope.lake.files import add_errors, known_errors, reading
from mqttscope.lake.manifest import Errors, LakeError, Manifest, folder_of, read_manifest, remove_strays
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import dump, load
from mqttscope.lake.summary import table_rows
from mqttscope.lake.writer import check_settings, next_generation
from mqttscope.lint.failures import Failures
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import CaptureError
from mqttscope.spark.aggregates import write_sums
from mqttscope.spark.dataframes import assembled
from mqttscope.spark.distribute import register
from mqttscope.spark.follower import COMPLETE, KNOWN, content_now
from mqttscope.spark.ingest import good_partitions
from mqttscope.spark.ingest_flows import Folded, fold
from mqttscope.spark.rows import COLUMNS, DDL, FRAGMENT
from mqttscope.spark.session import keeping_active
from mqttscope.spark.source import FORMAT
from mqttscope.spark.tables import union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INTERVAL_S = 10.0
MAX_BYTES = 64 << 20
"""So many bytes of captures a batch has, about."""
SUMS_SHARE = 9
"""Sums wait so many times as long as they took the last time."""
RESTARTS = 10
"""So many times in a row a stream is started again that breaks off without having taken a batch."""
_PASSING = ("Python worker failed to connect back", "Python worker exited unexpectedly")
"""What goes wrong on a machine that is busy, or where a process was killed, and may not go wrong again."""
_WORKER = "pyspark.sql.streaming.python_streaming_source_runner"
"""Module that a worker of a stream runs."""
WORKER_START_S = 10.0
"""Time that Spark, which has no setting for it, gives such a worker to start and to connect."""
READY_S = 5.0
"""A worker that starts by itself within this time also starts and connects in time while Spark computes."""
_LOOK_S = 0.2


@dataclass(slots=True)
class Taken:
    """What a batch was."""

    batch: int
    rows: dict[str, int] = field(default_factory=dict)
    """By how many rows each table has grown, those of connections that are open included."""
    open_flows: int = 0
    last_ns: int | None = None
    """Time of the last segment in the lake."""
    waiting: int = 0
    """Bytes that are there and were left to the next batch."""
    late: list[str] = field(default_factory=list)
    """Captures with segments from before the last one of earlier batches."""
    errors: list[CaptureError] = field(default_factory=list)
    """What is wrong with captures."""
    live: bool = True
    """A capture of the batch may still grow: only then does it say how far behind now the lake is."""
    failures: Failures = field(default_factory=Failures)
    """Rules that failed, so that findings may be missing."""


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
    tell: Callable[[Taken], None] | None = None,
    note: Callable[[str], None] | None = None,
    over: threading.Event | None = None,
) -> None:
    """Follow captures and take what is new of them into a lake, until ``over`` is set.

    ``sources``: folders, globs, files; the driver and all executors see them and ``lake`` under these paths.
    ``interval_s``: seconds between the beginnings of two batches.  ``once``: take what is there now, then end.
    ``max_bytes``: about how many bytes of captures a batch has, ``None`` for all.  ``quiet_seconds``: a capture that
    has not changed for so long is complete.  ``ports``: only segments from or to these ports.  ``tell`` is called with
    each batch, by another thread; ``note`` with a sentence when this waits for a machine that is too busy for Spark.

    When ``over`` is set, the batch that runs ends before this returns.  Raises `LakeError` where the lake cannot be
    written, has other settings, or is written by another process, and what Spark raises.  Whenever and however this
    ends, the lake is consistent, and the next call with the same sources continues.
    """
    root, options = folder_of(lake).resolve(), options or LakeOptions()
    over = over or threading.Event()
    with lake_lock(root):
        before = read_manifest(root)
        check_settings(before, options, root)
        remove_strays(root, before)
        stream = _Stream.of(root, sources, before)
        watcher = Watcher(root, options, stream, tell or (lambda taken: None), good_partitions(max_bytes or MAX_BYTES))
        register(spark)
        given: dict[str, Any] = {"rows": "watch", "lake": str(root), "ports": ",".join(map(str, ports))}
        given |= {"max_bytes": str(max_bytes or 0)}
        if quiet_seconds is not None:
            given["quiet_seconds"] = str(quiet_seconds)
        rows = spark.readStream.format(FORMAT).options(**given).load(**_load(sources))
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{interval_s} seconds"}
        writer = (
            rows.writeStream.foreachBatch(watcher.take)
            .option("checkpointLocation", str(stream.folder / "checkpoint"))
            .trigger(**trigger)
        )
        try:
            _run(spark, writer, watcher, over, note or (lambda text: None))
        finally:
            watcher.close()
        watcher.finish(spark)


def _load(sources: Sequence[str]) -> dict[str, Any]:
    found = [os.path.abspath(one) if "://" not in one else one for one in sources]
    return {"path": found[0]} if len(found) == 1 else {"paths": json.dumps(found)}


def _run(
    spark: SparkSession, writer: DataStreamWriter, watcher: Watcher, over: threading.Event, note: Callable[[str], None]
) -> None:
    """Run the stream until it ends or ``over`` is set, again and again where it only broke off."""
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

    On a machine that is so busy that no worker does, starting the stream again and again would only add to the work.
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
        except OSError:  # the stream says what is wrong
            return
        with worker:
            while worker.poll() is None and not over.wait(_LOOK_S):
                pass
            worker.kill()
        if time.monotonic() - begun < READY_S:
            return
        if not is_noted:
            is_noted = True
            note(f"too busy to start a Python worker within {WORKER_START_S:g} s: waiting until this machine is not")


@dataclass(slots=True)
class _Stream:
    """The stream of some sources into a lake."""

    name: str
    """Names it in the manifest; another one when its checkpoint was removed."""
    folder: Path

    @classmethod
    def of(cls, root: Path, sources: Sequence[str], manifest: Manifest) -> _Stream:
        """The stream of these sources; `LakeError` where its checkpoint has batches that the lake does not have."""
        key = "\0".join(sorted(os.path.abspath(one) for one in sources)).encode("utf-8", "surrogateescape")
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
        if name not in manifest.streams and commits.is_dir() and any(one.name.isdigit() for one in commits.iterdir()):
            raise LakeError(f"{folder} is of another lake; remove it to read all captures from the beginning")
        return cls(name, folder)


class Watcher:
    """Takes batches into a lake, each once."""

    def __init__(
        self,
        root: Path,
        options: LakeOptions,
        stream: _Stream,
        tell: Callable[[Taken], None],
        most_partitions: int,
    ) -> None:
        self._root = root
        self._options = options
        self._stream = stream
        self._tell = tell
        self._most_partitions = most_partitions
        self.batches = 0
        """How many were taken."""
        self._busy = threading.Lock()
        self._closed = False
        self._partitions = 1
        self._positions: dict[int, int] = {}
        self._is_fragmented = False
        self._sums_due = 0.0

    def take(self, batch: DataFrame, number: int) -> None:
        """Take a batch; one that is in already changes nothing."""
        with self._busy:
            if self._closed:
                raise LakeError("the watch is over")
            # The stream may have been started again after a commit that broke off.
            complete(self._root)
            before = read_manifest(self._root)
            seen = self._seen(before)
            if number <= seen["batch"]:
                return
            if number != seen["batch"] + 1:
                raise LakeError(f"batch {number} comes after batch {seen['batch']} of {self._root}: some are missing")
            taken = self._take(batch, number, before, seen)
            self.batches += 1
            self._tell(taken)

    def wait(self) -> None:
        with self._busy:
            pass

    def close(self) -> None:
        """Wait for the batch that runs; take no other one."""
        with self._busy:
            self._closed = True

    def finish(self, spark: SparkSession) -> None:
        """Make sums of everything, where that was left to later."""
        before = read_manifest(self._root)
        seen = self._seen(before)
        if seen.get("summed", True):
            return
        after = next_generation(before, self._options)
        write_sums(spark, self._root, after)
        after.streams = before.streams | {self._stream.name: seen | {"summed": True}}
        commit(self._root, before, after)

    def _seen(self, manifest: Manifest) -> dict[str, Any]:
        return manifest.streams.get(self._stream.name, {"batch": -1})

    def _take(self, batch: DataFrame, number: int, before: Manifest, seen: dict[str, Any]) -> Taken:
        spark, root = batch.sparkSession, self._root
        after = next_generation(before, self._options)
        rows = batch.where(batch["kind"] != FRAGMENT)
        waiting = seen.get("fragments")
        folded: Folded | None = None
        if not self._is_fragmented:
            folded = self._fold(spark, rows, before, after, stops_at_fragments=True)
            self._is_fragmented = bool(folded.fragmented)
        if self._is_fragmented:
            # Two passes where there were none before, one from then on.
            whole, waiting = self._whole(batch, waiting, after.generation)
            folded = self._fold(spark, union_all(rows, whole), before, after)
        assert folded is not None
        pending = self._note(folded, after, seen.get("faulty", {}))
        summed = self._sum(spark, after)
        told = {"batch": number, "summed": summed} | ({"fragments": waiting} if waiting else {})
        told |= {"faulty": pending} if pending else {}
        after.streams = before.streams | {self._stream.name: told}
        merge_small(root, before, after)
        commit(root, before, after)
        for path in self._stream.folder.glob("fragments-*"):
            if path.relative_to(root).as_posix() != waiting:
                path.unlink()
        rows_before, rows_after = table_rows(root, before), table_rows(root, after)
        added = {table: count - rows_before.get(table, 0) for table, count in rows_after.items()}
        return Taken(
            number, added, folded.open_flows, after.last_ns, sum(one["count"] or 0 for one in folded.read),
            folded.out_of_order, [error for _, error in folded.errors],
            any(one["message"] not in (COMPLETE, KNOWN) for one in folded.read), Failures.together(folded.failures),
        )  # fmt: skip

    def _fold(
        self,
        spark: SparkSession,
        rows: DataFrame,
        before: Manifest,
        after: Manifest,
        *,
        stops_at_fragments: bool = False,
    ) -> Folded:
        return fold(
            spark, rows, self._root, before, after, self._options, partitions=self._partitions,
            stops_at_fragments=stops_at_fragments, by_time=True,
        )  # fmt: skip

    def _note(self, folded: Folded, after: Manifest, pending: Mapping[str, Errors]) -> dict[str, Errors]:
        """Captures that are complete are in the lake, as if they had been ingested; and how large batches are.

        ``pending``: what was wrong with captures that are not complete yet, by their places; returns what is now.
        """
        wrong = {int(file): list(errors) for file, errors in pending.items()}
        for file, error in folded.errors:
            wrong.setdefault(file, []).append([error.message, error.offset, error.frames])
        size = waiting = 0
        for one in folded.read:
            size += max(0, one["offset"] - self._positions.get(one["file"], 0))
            waiting += one["count"] or 0
            self._positions[one["file"]] = one["offset"]
            if one["message"] == COMPLETE:
                errors = wrong.pop(one["file"], [])
                if content := _content(one):
                    after.captures.setdefault(content.digest, one["capture"])
                    after.begins |= content.begins
                    after.faulty |= {content.digest: errors} if errors else {}
        if after.faulty:
            # What has the same bytes as a faulty one is not read, and faulty all the same.
            read = [one for one in folded.read if one["message"] == KNOWN]
            copies = [(one["capture"], content.digest) for one in read if (content := _content(one))]
            told = known_errors(after, copies)
            add_errors(self._root, after, told)
            folded.errors += ((0, error) for error in told)
        self._partitions = self._most_partitions if waiting else min(self._most_partitions, good_partitions(size))
        taken = {one["file"] for one in folded.read}
        return {str(file): errors for file, errors in wrong.items() if file in taken or str(file) in pending}

    def _sum(self, spark: SparkSession, after: Manifest) -> bool:
        begun = time.monotonic()
        if begun < self._sums_due:
            return False
        write_sums(spark, self._root, after)
        ended = time.monotonic()
        self._sums_due = ended + SUMS_SHARE * (ended - begun)
        return True

    def _whole(self, batch: DataFrame, waiting: str | None, generation: int) -> tuple[DataFrame, str | None]:
        """Rows of the segments that IP fragments make, with those of earlier batches; and the file of what still waits.

        On the driver: they are rare, and a batch has a limit.
        """
        table = FragmentTable()
        if waiting is not None:
            with reading(self._root / waiting):
                table = _resumed((self._root / waiting).read_bytes())
        found = batch.where(batch["kind"] == FRAGMENT).select(*COLUMNS).toArrow()
        self._is_fragmented = found.num_rows > 0
        ordered = found.sort_by([("file", "ascending"), ("frame", "ascending")])
        made = list(assembled(ordered.to_batches(), summary=True, table=table))
        with keeping_active():
            whole = batch.sparkSession.createDataFrame(pa.Table.from_batches(made, ordered.schema), DDL)
        if not table.datagrams:
            return whole, None
        path = self._stream.folder / f"fragments-{generation:010d}"
        with open(path, "wb", opener=opener) as file:
            file.write(dump(list(table.datagrams.items())))
            file.flush()
            os.fsync(file.fileno())
        return whole, path.relative_to(self._root).as_posix()


def _content(read: Mapping[str, Any]) -> Fingerprint | None:
    """The content of a capture, of a row of the kind `READ`; ``None`` where it is gone."""
    name, position, head, tail = json.loads(read["notice"])
    return content_now(name, position, head, tail, read["offset"])


def _resumed(data: bytes) -> FragmentTable:
    table = FragmentTable()
    for key, datagram in load(data):
        table.datagrams[key] = datagram
        table.held += datagram.cost
    return table
