"""Reads captures in process for one ingest: events become rows, and what comes late is read apart.

Frames that continue a known connection are taken where they lie in the reader's buffer (`dissect.fast_path`), all
others come as segments.  Both ways end in the same collector, and of both the intake notes what an ingest reports: how
far time has come, which captures begin before an earlier one ends, and which before the end of what the lake has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mqttscope.capture import open_capture
from mqttscope.capture.files import Part
from mqttscope.dissect import Dissector, dissect_segments, segments
from mqttscope.dissect.fast_path import FastPath
from mqttscope.lake.files import reading
from mqttscope.lake.kernel import flow_memory, key_memory
from mqttscope.lake.manifest import Manifest
from mqttscope.lake.memory import FlowMemory, Late, remembered, resume
from mqttscope.lake.store import Place, opened
from mqttscope.lake.tables import LOOK, Collector
from mqttscope.net.frame import FrameSink
from mqttscope.net.segment import Segment

STATE_ROWS: Final = 1_000
"""So many states of flows are read or written at a time."""
_BEFORE_ALL_NS: Final = -1 << 61


class Intake(FrameSink):
    """What one ingest reads."""

    def __init__(
        self,
        collector: Collector,
        write: Callable[[str, pa.RecordBatch], object],
        last_ns: int | None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """``collector`` makes rows, ``write`` takes those of a table.

        ``last_ns``: time of the last segment of all earlier ingests.  ``progress`` is called with the number of
        segments after each of them.
        """
        self.dissector: Final = Dissector(collector.options.reading())
        self.collector: Final = collector
        self.late: Final = Late(self.dissector, collector)
        self.skipped: Counter[str] = Counter()
        """Frames without TCP, by reason."""
        self.out_of_order: set[str] = set()
        """Captures that begin before the end of what earlier ingests read."""
        self.overlapping: set[str] = set()
        """Captures that begin before an earlier one of this ingest ends."""
        self.segments = 0
        self.now_ns: int = _BEFORE_ALL_NS
        """Time of the latest segment of this ingest."""
        self._before_ns = _BEFORE_ALL_NS if last_ns is None else last_ns
        self._last_ns = self._before_ns
        self._capture = ""
        """The one that is read."""
        self._write = write
        self._progress = progress
        self._resumes = False
        """Whether there are flows of earlier ingests, to which something may come late."""
        self._path = FastPath(self.dissector, collector.feed)

    @property
    def last_ns(self) -> int | None:
        """Time of the latest segment of this ingest and all earlier ones; ``None`` where there is none."""
        return None if self._last_ns == _BEFORE_ALL_NS else self._last_ns

    def resume(self, root: Place, before: Manifest) -> None:
        """Continue with what rules and flows remember of earlier ingests; `LakeError` where that cannot be read."""
        for key in _states(root, before.scope_state_files):
            self.collector.recall(key_memory(key))
        for state in _states(root, before.state_files):
            self._resumes = True
            memory = flow_memory(state)
            resume(memory, self.dissector, self.collector)
            self.late.adopt(memory)

    def read(self, captures: Sequence[str], parts: Mapping[str, Part]) -> None:
        """Read captures, in the order of their first frames; ``parts``: what is to be read of each."""
        found = segments(open_capture(captures, parts=parts, direct=self), self.skipped)
        for event in dissect_segments(self._watch(found), dissector=self.dissector, more=True):
            self.collector.feed(event)
            if self.collector.waiting >= LOOK:
                self.flush()
        for event in self.late.advance(self.now_ns):
            self.collector.feed(event)

    def remembered(self) -> list[FlowMemory]:
        """What is remembered of the flows that continue, once all is read."""
        return self.late.remembered(remembered(self.dissector, self.collector, self.now_ns), self.now_ns)

    def flush(self, *, everything: bool = False) -> None:
        """Write rows of tables that have enough, or all."""
        for name, found in self.collector.batches(everything=everything):
            self._write(name, found)

    def take(
        self,
        data: bytes,
        start: int,
        end: int,
        number: int,
        timestamp_ns: int,
        link_type: int,
        original_length: int,
        capture: str,
    ) -> bool:
        """As `FrameSink.take`."""
        if self._resumes and timestamp_ns < self._last_ns:
            # It may be late.
            return False
        if not self._path.take(data, start, end, number, timestamp_ns, link_type, original_length, capture):
            return False
        self._note(timestamp_ns, capture)
        if self.collector.waiting >= LOOK:
            self.flush()
        return True

    def _note(self, timestamp_ns: int, capture: str) -> None:
        """Take note of the next segment."""
        self.segments += 1
        if timestamp_ns < self._before_ns:
            self.out_of_order.add(capture)
        if capture != self._capture:
            if timestamp_ns < self.now_ns:
                self.overlapping.add(capture)
            self._capture = capture
        if timestamp_ns > self.now_ns:
            self.now_ns = timestamp_ns
            if timestamp_ns > self._last_ns:
                self._last_ns = timestamp_ns
        if self._progress is not None:
            self._progress(self.segments)

    def _watch(self, source: Iterable[Any]) -> Iterator[Any]:
        """Pass everything on, and what comes late as events."""
        for item in source:
            if type(item) is Segment:
                is_behind = self._resumes and item.timestamp_ns < self._last_ns
                events = self.late.events(item) if is_behind else None
                self._note(item.timestamp_ns, item.capture)
                if events is not None:
                    yield from events
                    continue
            yield item


def _states(root: Place, names: Iterable[str]) -> Iterator[bytes]:
    """What flows, or rules, remember."""
    for name in names:
        with reading(root / name):
            for found in pq.ParquetFile(opened(root / name)).iter_batches(STATE_ROWS, columns=["state"]):
                yield from found.column("state").to_pylist()
