"""Reads captures in process for one ingest: events become rows, and what comes late is read apart.

Frames that continue a known connection are taken where they lie in the reader's buffer (`dissect.fast_path`), all
others come as segments.  Both ways end in the same collector, and of both the intake notes what an ingest reports: how
far time has come, which captures begin before an earlier one ends, and which before the end of what the lake has.

Two processes can share the work (`Intake.read_beside`): one asks the rules, the other makes the rows of packets and
messages, which are nearly all rows and need no rule.  Both read the captures and follow the connections, so that
nothing is passed on between them but what is remembered of messages that wait for an answer when all is read.
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
from mqttscope.capture.files import Part
from mqttscope.capture.taps import Taps, open_taps
from mqttscope.dissect import Dissector, dissect_segments, segments
from mqttscope.dissect.fast_path import FastPath
from mqttscope.errors import MqttscopeError
from mqttscope.events import Event
from mqttscope.lake.files import LakeFiles, reading
from mqttscope.lake.manifest import Manifest
from mqttscope.lake.memory import FlowMemory, Late, flow_memory, key_memory, remembered, resume
from mqttscope.lake.schemas import MESSAGES, PACKETS
from mqttscope.lake.state import dump, load
from mqttscope.lake.store import Place, opened
from mqttscope.lake.tables import LOOK, Collector
from mqttscope.lake.tracker import Exchanges
from mqttscope.net.frame import SegmentItem
from mqttscope.net.segment import Segment

STATE_ROWS: Final = 1_000
"""So many states of flows are read or written at a time."""
_BEFORE_ALL_NS: Final = -1 << 61
_APART: Final = frozenset((PACKETS.name, MESSAGES.name))
"""Tables whose rows another process makes."""

Work = Callable[[Callable[[], object]], bytes]
"""What another process does; it calls what it is given now and then, which ends it where nobody waits any more."""


class Beside(Protocol):
    """Does work in a process that is a copy of this one."""

    def __call__(self, work: Work) -> AbstractContextManager[Callable[[], bytes]]:
        """Begin.  What is called in the context waits for the result; when the context is left the process is over."""


class ReadDifferentlyError(MqttscopeError):
    """Two processes have read different captures: one was changed meanwhile."""


@dataclass(slots=True)
class _Made:
    """What the other process has made and found."""

    exchanges: dict[int, Exchanges]
    """Messages that wait for an answer, by the numbers of their connections."""
    read: tuple[object, ...]
    names: dict[str, list[str]]
    rows: dict[str, int]
    checksums: dict[str, int]


class Intake:
    """What one ingest reads."""

    def __init__(
        self,
        collector: Collector,
        write: Callable[[str, pa.RecordBatch], object],
        last_ns: int | None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """``collector`` makes rows, ``write`` takes those of a table.

        ``last_ns``: time of the last segment of all earlier ingests.  ``progress`` is called now and then with the
        number of segments so far.
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
        self.taps: Taps | None = None
        """What each tap has captured, where the captures are those of several."""
        self._segments = 0
        """Those that were not taken by the fast path."""
        self._now_ns: int = _BEFORE_ALL_NS
        self._before_ns = _BEFORE_ALL_NS if last_ns is None else last_ns
        self._capture = ""
        """The one that is read."""
        self._parts: list[Part] = []
        self._write = write
        self._progress = progress
        self._path = FastPath(self.dissector, self._feed, counting=True)

    @property
    def now_ns(self) -> int:
        """Time of the latest segment of this ingest."""
        return max(self._now_ns, max((one.last_ns for one in self._path.counts.values()), default=_BEFORE_ALL_NS))

    @property
    def _steady_ns(self) -> int:
        return self.dissector.clock.steady_ns(self.now_ns)

    @property
    def last_ns(self) -> int | None:
        """Time of the latest segment of this ingest and all earlier ones; ``None`` where there is none."""
        last_ns = max(self.now_ns, self._before_ns)
        return None if last_ns == _BEFORE_ALL_NS else last_ns

    @property
    def segments(self) -> int:
        """How many came so far."""
        return self._segments + sum(one.frames for one in self._path.counts.values())

    def resume(self, root: Place, before: Manifest) -> None:
        """Continue with what rules and flows remember of earlier ingests; `LakeError` where that cannot be read."""
        for key in _states(root, before.scope_state_files):
            self.collector.recall(key_memory(key))
        for state in _states(root, before.state_files):
            memory = flow_memory(state)
            resume(memory, self.dissector, self.collector)
            self.late.adopt(memory)

    def read(self, captures: Sequence[str], parts: Mapping[str, Part]) -> None:
        """Read captures, in the order of their first frames; ``parts``: what is to be read of each."""
        self._parts = list(parts.values())
        for event in dissect_segments(self._watch(self._open(captures, parts)), dissector=self.dissector, more=True):
            self._feed(event)
        self.out_of_order |= {name for name, one in self._path.counts.items() if one.first_ns < self._before_ns}
        for event in self.late.advance(self._steady_ns):
            self.collector.feed(event)

    def _open(self, captures: Sequence[str], parts: Mapping[str, Part]) -> Iterator[SegmentItem]:
        if not self.collector.options.deduplicate:
            return segments(open_capture(captures, parts=parts, direct=self._path), self.skipped)
        self.taps = Taps()
        found = segments(open_taps(captures, self.taps, parts=parts), self.skipped)
        return self.taps.deduplication.under_one_key(found)

    def read_beside(
        self, beside: Beside, captures: Sequence[str], parts: Mapping[str, Part], root: Place, generation: int,
        files: LakeFiles,
    ) -> None:  # fmt: skip
        """The same in two processes, which write into the lake ``root``; ``files`` takes what the other one wrote.

        `ReadDifferentlyError` where one of them has not read what the other one has.
        """
        with beside(partial(self._make_apart, captures, parts, root, generation)) as result:
            self.collector.make_only(self.collector.rows.keys() - _APART)
            self.read(captures, parts)
            made = load(result())
            assert isinstance(made, _Made)
            files.adopt(made.names, made.rows, made.checksums)
            if made.read != self._what_was_read():
                raise ReadDifferentlyError("a capture was changed while two processes read it")
        self.collector.make_all(made.exchanges)

    def _make_apart(
        self, captures: Sequence[str], parts: Mapping[str, Part], root: Place, generation: int,
        goes_on: Callable[[], object],
    ) -> bytes:  # fmt: skip
        self._progress = None
        with LakeFiles(root, generation) as files:

            def write(name: str, found: pa.RecordBatch) -> None:
                goes_on()
                files.write(name, found)

            self._write = write
            self.collector.make_only(_APART)
            self.read(captures, parts)
            self.flush(everything=True)
        waiting = {number: one.exchanges for number, one in self.collector.trackers.items()}
        made = _Made(waiting, self._what_was_read(), files.names, files.rows, files.checksums)
        return dump(made, compress=False)

    def _what_was_read(self) -> tuple[object, ...]:
        """What two processes have in common that have read the same."""
        counts = sorted(self.skipped.items())
        return self.segments, self.now_ns, self.dissector.connections, *counts, *(one.was_opened for one in self._parts)

    def remembered(self) -> list[FlowMemory]:
        """What is remembered of the flows that continue, once all is read."""
        now_ns = self._steady_ns
        return self.late.remembered(remembered(self.dissector, self.collector, now_ns), now_ns)

    def flush(self, *, everything: bool = False) -> None:
        """Write rows of tables that have enough, or all."""
        for name, found in self.collector.batches(everything=everything):
            self._write(name, found)

    def _feed(self, event: Event) -> None:
        self.collector.feed(event)
        if self.collector.waiting >= LOOK:
            self.flush()
            if self._progress is not None:
                self._progress(self.segments)

    def _note(self, timestamp_ns: int, capture: str) -> None:
        """Take note of the next segment that the fast path did not take; it takes none that is a capture's first."""
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
        """Pass everything on, and what comes late as events."""
        for item in source:
            if type(item) is Segment:
                # The fast path takes none that is late: it takes what continues the capture that a flow was last in.
                events = self.late.events(item)
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
