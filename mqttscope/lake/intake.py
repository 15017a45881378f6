"""Reads captures in this process for one ingest: events become rows, and late segments are read separately.

Frames that continue a known connection are used inside the reader's buffer (`dissect.fast_path`), all others are
copied as segments.  Both ways end in one collector.  From both the intake notes the results of an ingest: the time
reached, captures that begin before an earlier one ends, and captures that begin before the end of the lake's data.

Two processes can share the work (`Intake.read_beside`): one asks the rules, the other makes the rows of packets and
messages, which are nearly all rows and need no rule.  Both read the captures and follow the connections, so that
only the memories of unanswered messages are passed on, after all is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from mqttscope.capture import open_capture
from mqttscope.capture.files import CapturePortion
from mqttscope.capture.taps import Taps, open_taps
from mqttscope.dissect import Dissector, dissect_segments, segments
from mqttscope.dissect.fast_path import FastPath
from mqttscope.errors import MqttscopeError
from mqttscope.events import Event
from mqttscope.lake.files import LakeFiles, reading
from mqttscope.lake.manifest import Manifest
from mqttscope.lake.memory import FlowMemory, LateData, flow_memory, key_memory, remembered, resume
from mqttscope.lake.schemas import MESSAGES, PACKETS
from mqttscope.lake.state import dump, load
from mqttscope.lake.store import Place, opened
from mqttscope.lake.tables import LOOK, Collector
from mqttscope.lake.tracker import Exchanges
from mqttscope.net.frame import SegmentItem
from mqttscope.net.segment import Segment

STATE_ROWS: Final = 1_000
"""Maximum number of flow states read or written at a time."""
_BEFORE_ALL_NS: Final = -1 << 61
_APART: Final = frozenset((PACKETS.name, MESSAGES.name))
"""Tables with rows made by the second process."""

Work = Callable[[Callable[[], object]], bytes]
"""Work of the second process; it calls its argument now and then, which ends it if nobody waits for it."""


class SecondProcess(Protocol):
    """Runs work in a second process, a copy of this one."""

    def __call__(self, work: Work) -> AbstractContextManager[Callable[[], bytes]]:
        """Begin.  A call within the context waits for the result; after the context the process is over."""


class ReadDifferentlyError(MqttscopeError):
    """Two processes have read different captures: one was changed meanwhile."""


@dataclass(slots=True)
class _ProcessResult:
    """Results of the second process."""

    exchanges: dict[int, Exchanges]
    """Unanswered messages, by connection number."""
    read: tuple[object, ...]
    names: dict[str, list[str]]
    rows: dict[str, int]
    checksums: dict[str, int]


class Intake:
    """The reading of one ingest."""

    def __init__(
        self,
        collector: Collector,
        write: Callable[[str, pa.RecordBatch], object],
        last_ns: int | None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """``collector`` makes rows, ``write`` takes rows of a table.

        ``last_ns``: time of the last segment of all earlier ingests.  ``progress`` is called now and then with the
        number of segments.
        """
        self.dissector: Final = Dissector(collector.options.reading())
        self.collector: Final = collector
        self.late: Final = LateData(self.dissector, collector)
        self.skipped: Counter[str] = Counter()
        """Frames without TCP, by reason."""
        self.out_of_order: set[str] = set()
        """Captures that begin before the end of earlier ingests."""
        self.overlapping: set[str] = set()
        """Captures that begin before an earlier one of this ingest ends."""
        self.taps: Taps | None = None
        """Statistics of the taps, if the captures come from several taps."""
        self._segments = 0
        """Number of segments outside the fast path."""
        self._now_ns: int = _BEFORE_ALL_NS
        self._before_ns = _BEFORE_ALL_NS if last_ns is None else last_ns
        self._capture = ""
        """Name of the present capture."""
        self._parts: list[CapturePortion] = []
        self._write = write
        self._progress = progress
        self._path = FastPath(self.dissector, self._feed, counting=True)

    @property
    def now_ns(self) -> int:
        """Time of the latest segment of this ingest."""
        return max(self._now_ns, max((counts.last_ns for counts in self._path.counts.values()), default=_BEFORE_ALL_NS))

    @property
    def _steady_ns(self) -> int:
        return self.dissector.clock.steady_ns(self.now_ns)

    @property
    def last_ns(self) -> int | None:
        """Time of the latest segment of this ingest and all earlier ones; ``None`` without segments."""
        last_ns = max(self.now_ns, self._before_ns)
        return None if last_ns == _BEFORE_ALL_NS else last_ns

    @property
    def segments(self) -> int:
        """Number of segments up to now."""
        return self._segments + sum(counts.frames for counts in self._path.counts.values())

    def resume(self, root: Place, before: Manifest) -> None:
        """Continue with the memories of earlier ingests; `LakeError` if they cannot be read."""
        for key in _states(root, before.scope_state_files):
            self.collector.recall(key_memory(key))
        for state in _states(root, before.state_files):
            memory = flow_memory(state)
            resume(memory, self.dissector, self.collector)
            self.late.adopt(memory)

    def read(self, captures: Sequence[str], parts: Mapping[str, CapturePortion]) -> None:
        """Read captures, in the order of their first frames; ``parts``: the part of each to read."""
        self._parts = list(parts.values())
        # The clock may read ahead; whether a segment is late is decided when its turn comes.
        items = self.dissector.clock.follow(self._watch(self._open(captures, parts)))
        for event in dissect_segments(self._apart(items), dissector=self.dissector, more=True):
            self._feed(event)
        self.out_of_order |= {name for name, counts in self._path.counts.items() if counts.first_ns < self._before_ns}
        for event in self.late.advance(self._steady_ns):
            self.collector.feed(event)

    def _open(self, captures: Sequence[str], parts: Mapping[str, CapturePortion]) -> Iterator[SegmentItem]:
        if not self.collector.options.deduplicate:
            return segments(open_capture(captures, parts=parts, direct=self._path), self.skipped)
        self.taps = Taps()
        items = segments(open_taps(captures, self.taps, parts=parts), self.skipped)
        return self.taps.deduplication.unify_keys(items)

    def read_beside(
        self, second_process: SecondProcess, captures: Sequence[str], parts: Mapping[str, CapturePortion], root: Place,
        generation: int, files: LakeFiles,
    ) -> None:  # fmt: skip
        """Read captures in two processes, which write into the lake ``root``; ``files`` takes the second one's files.

        `ReadDifferentlyError` if the two processes have not read equal captures.
        """
        with second_process(partial(self._make_apart, captures, parts, root, generation)) as result:
            self.collector.make_only(self.collector.rows.keys() - _APART)
            self.read(captures, parts)
            outcome = load(result())
            assert isinstance(outcome, _ProcessResult)
            files.adopt(outcome.names, outcome.rows, outcome.checksums)
            if outcome.read != self._what_was_read():
                raise ReadDifferentlyError("a capture was changed while two processes read it")
        self.collector.make_all(outcome.exchanges)

    def _make_apart(
        self, captures: Sequence[str], parts: Mapping[str, CapturePortion], root: Place, generation: int,
        goes_on: Callable[[], object],
    ) -> bytes:  # fmt: skip
        self._progress = None
        with LakeFiles(root, generation) as files:

            def write(name: str, record_batch: pa.RecordBatch) -> None:
                goes_on()
                files.write(name, record_batch)

            self._write = write
            self.collector.make_only(_APART)
            self.read(captures, parts)
            self.flush(everything=True)
        waiting = {number: tracker.exchanges for number, tracker in self.collector.trackers.items()}
        outcome = _ProcessResult(waiting, self._what_was_read(), files.names, files.rows, files.checksums)
        return dump(outcome, compress=False)

    def _what_was_read(self) -> tuple[object, ...]:
        """Equal in two processes that have read equal captures."""
        counts, opened = sorted(self.skipped.items()), [part.was_opened for part in self._parts]
        return self.segments, self.now_ns, self.dissector.connections, *counts, *opened

    def flow_memories(self) -> list[FlowMemory]:
        """Memories of the flows that continue, after all is read."""
        now_ns = self._steady_ns
        return self.late.remembered(remembered(self.dissector, self.collector, now_ns), now_ns)

    def flush(self, *, everything: bool = False) -> None:
        """Write rows of tables that have enough for a batch, or all rows."""
        for name, record_batch in self.collector.batches(everything=everything):
            self._write(name, record_batch)

    def _feed(self, event: Event) -> None:
        self.collector.feed(event)
        if self.collector.waiting >= LOOK:
            self.flush()
            if self._progress is not None:
                self._progress(self.segments)

    def _note(self, timestamp_ns: int, capture: str) -> None:
        """Note a segment outside the fast path, which never takes the first segment of a capture."""
        self._segments += 1
        if timestamp_ns < self._before_ns:
            self.out_of_order.add(capture)
        if capture != self._capture:
            if timestamp_ns < self.now_ns:
                self.overlapping.add(capture)
            self._capture = capture
        if timestamp_ns > self._now_ns:
            self._now_ns = timestamp_ns
        if self._progress is not None:
            self._progress(self.segments)

    def _watch(self, source: Iterable[Any]) -> Iterator[Any]:
        """Pass all items on, and note the segments."""
        for item in source:
            if type(item) is Segment:
                self._note(item.timestamp_ns, item.capture)
            yield item

    def _apart(self, source: Iterable[Any]) -> Iterator[Any]:
        """Pass items on, and late segments as events."""
        for item in source:
            if type(item) is Segment:
                # The fast path takes no late segment: its segments continue the last capture of their flow.
                events = self.late.events(item)
                if events is not None:
                    yield from events
                    continue
            yield item


def _states(root: Place, names: Iterable[str]) -> Iterator[bytes]:
    for name in names:
        with reading(root / name):
            for record_batch in pq.ParquetFile(opened(root / name)).iter_batches(STATE_ROWS, columns=["state"]):
                yield from record_batch.column("state").to_pylist()
