"""The kernel: batches of segment rows in, batches of event rows out.  The same for every engine, and without Spark.

Input rows have the columns of `SEGMENT_COLUMNS`, more do not matter.  They come in the order of `ORDER`: both
directions of a flow together, a row of ``state`` of an earlier run before its segments.  Whatever uses the kernel gives
all rows of a flow to one call.  Rows of other kinds (errors of captures) may stand anywhere; IP fragments have to be
put together before (`whole_segments`), since all parts of a datagram are needed and their flow is not known.

Output rows have ``kind``, the name of a table, and one struct for each table; all rows of a batch are of one kind.
When more segments will come, rows of the kind ``open/<table>`` say what is known so far of connections that are still
open: as if they ended here.  The next run makes them anew.

Nothing of one flow depends on another one, so the result does not depend on how flows were shared out, nor on the files
that the segments come from, as long as their times put them into the right order.  Memory holds one flow at a time:
what reassembly and the protocol state hold within their limits, and one batch of each table.  A flow whose ports are
used again is told from the one before by the rules of `net.flows`.

Numbers that count a run do not come out: ``connection_id`` names a connection.  `inspect`, which reads everything in
one go, numbers connections by the order in which it recognises them, and so does a rank over ``found_ns``, the order
of the captures and ``found_frame``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.dissect.dialogue import Dialogue
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import OPEN, SCOPE_EVENTS, STATE
from mqttscope.lake.scopes import AT_THE_END
from mqttscope.lake.state import dump, load
from mqttscope.lake.tables import LOOK, Collector, batch, event_batch
from mqttscope.lake.tracker import Tracker
from mqttscope.net.flows import Flow
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.net.housekeeping import LINGER_NS
from mqttscope.net.segment import Fragment, Segment, reverse_key

SEGMENT_COLUMNS = (
    "kind", "flow", "timestamp_ns", "file", "frame", "direction", "sequence", "acknowledgment", "flags", "window",
    "payload", "missing", "capture",
)  # fmt: skip
"""Columns that are read of a row; ``kind`` is ``segment``, ``state`` (its bytes in ``payload``) or something else."""
ORDER = ("flow", "kind_order", "timestamp_ns", "file", "frame")
"""What rows are sorted by; ``kind_order`` is 0 for state and 1 for segments, and may be left out without state."""
SEGMENT, STATE_KIND = "segment", "state"


class Row(NamedTuple):
    """An input row."""

    kind: str
    flow: bytes | None
    timestamp_ns: int
    file: int
    frame: int
    direction: bytes
    sequence: int
    acknowledgment: int
    flags: int
    window: int
    payload: bytes
    missing: int
    capture: str


@dataclass(slots=True)
class Memory:
    """What is remembered of a flow between two runs.  Plain data."""

    flow: Flow
    tracker: Tracker | None = None


def _flow_of(row: Row) -> bytes | None:
    return row.flow


def flow_key(direction: bytes) -> bytes:
    """The key of a flow: the same for both directions."""
    return min(direction, reverse_key(direction))


def kernel(
    batches: Iterable[pa.RecordBatch],
    options: LakeOptions | None = None,
    *,
    more: bool = False,
    watermark_ns: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Event rows of segment rows.

    ``more``: further segments will come, so that flows stay open and leave a row of ``state``.  ``watermark_ns`` is the
    time of the last segment of all flows: those that have been idle for too long by then are over, whatever comes.
    """
    options = options or LakeOptions()
    collector, unfinished = Collector(options), Unfinished(options)
    states: list[tuple[Any, ...]] = []
    for _, rows in groupby(read_rows(batches), key=_flow_of):
        memories: list[Memory] = []
        for _ in run_flow(rows, options, collector, memories, more=more, watermark_ns=watermark_ns):
            for name, found in collector.batches():
                yield event_batch(name, found)
        states += map(state_row, memories)
        for memory in memories:
            unfinished.feed(memory)
        for name, found in unfinished.batches():
            yield event_batch(name, found)
        if len(states) >= options.batch_rows:
            yield event_batch(STATE.name, batch(STATE.name, states))
            states = []
    for one in (collector, unfinished):
        for name, found in one.batches(everything=True):
            yield event_batch(name, found)
    if states:
        yield event_batch(STATE.name, batch(STATE.name, states))


def read_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of batches that are segments or state."""
    for one in batches:
        columns = [one.column(name).to_pylist() for name in SEGMENT_COLUMNS]
        for values in zip(*columns, strict=True):
            if values[0] in (SEGMENT, STATE_KIND):
                yield Row._make(values)


def run_flow(
    rows: Iterable[Row],
    options: LakeOptions,
    collector: Collector,
    memories: list[Memory],
    *,
    more: bool = False,
    watermark_ns: int | None = None,
) -> Iterator[None]:
    """Feed the rows of one flow to the collector; what is remembered of it goes to ``memories`` when more will come.

    Stops now and then, and at the end, so that rows can be taken out of the collector: a flow may be very long.
    """
    dissector = Dissector(options.reading())
    for event in dissect_segments(_segments(rows, dissector, collector), dissector=dissector, more=True):
        collector.feed(event)
        if collector.waiting >= LOOK:
            yield
    if watermark_ns is not None:
        _wait(watermark_ns, dissector, collector)
    if more:
        memories += remembered(dissector, collector, watermark_ns)
    else:
        for flow in dissector.flows.flows.values():
            collector.emitted.set(AT_THE_END, flow.opened_ns, flow.first_frame)
        for event in dissector.close():
            collector.feed(event)
    collector.ended(dissector)
    if collector.waiting >= LOOK:
        yield


def _segments(rows: Iterable[Row], dissector: Dissector, collector: Collector) -> Iterator[Segment]:
    ordered = collector.ordered
    for row in rows:
        if row.kind == STATE_KIND:
            resume(load(row.payload), dissector, collector)
            continue
        if ordered:
            now = row.timestamp_ns
            collector.emitted.segment(now, row.file, row.frame)
            for flow in dissector.flows.flows.values():
                if not flow.closed:
                    collector.emitted.due_ns = min(now, flow.check_ns)
        segment = Segment(
            row.direction, row.sequence, row.acknowledgment, row.flags, row.window, row.payload or b"",
            row.missing or 0, row.frame, row.timestamp_ns, row.capture,
        )  # fmt: skip
        yield segment
        if ordered:
            for flow in dissector.flows.flows.values():
                collector.segment_taken(connection_of(flow), segment)


def _wait(timestamp_ns: int, dissector: Dissector, collector: Collector) -> None:
    """Let time pass."""
    for flow in dissector.flows.flows.values():
        collector.emitted.set(flow.check_ns, 0, 0)
    for event in dissector.advance(timestamp_ns):
        collector.feed(event)
    collector.time_passed()


def resume(memory: Memory, dissector: Dissector, collector: Collector) -> None:
    """Go on with a flow."""
    connection = connection_of(memory.flow)
    if connection is not None:
        # Numbers only have to be different.
        connection.number = dissector.connections
        dissector.connections += 1
        if memory.tracker is not None:
            collector.adopt(connection, memory.tracker)
    dissector.flows.adopt(memory.flow)


def remembered(dissector: Dissector, collector: Collector, watermark_ns: int | None = None) -> list[Memory]:
    """What is remembered of the flows of a dissector: those that are open, or so fresh that copies may still come."""
    found = []
    for flow in dissector.flows.flows.values():
        if flow.closed and watermark_ns is not None and watermark_ns - flow.closed_ns > LINGER_NS:
            continue
        connection = connection_of(flow)
        tracker = None if connection is None else collector.remember(connection)
        found.append(Memory(flow, tracker))
    return found


class Unfinished:
    """Rows of flows that go on, as if they ended here.  What is remembered of them has to be written down before."""

    def __init__(self, options: LakeOptions) -> None:
        self.collector = Collector(options)
        self.collector.over = False

    def feed(self, memory: Memory) -> None:
        """Take one flow; its memory is used up."""
        collector = self.collector
        ending = Dissector(collector.options.reading())
        ending.connections = len(collector.trackers)
        resume(memory, ending, collector)
        for flow in ending.flows.flows.values():
            collector.emitted.set(AT_THE_END, flow.opened_ns, flow.first_frame)
        for event in ending.close():
            collector.feed(event)

    def batches(self, *, everything: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Take the rows of kinds that have enough for a batch, or all: ``open/<table>`` and ``scope_events``."""
        for name, found in self.collector.batches(everything=everything):
            yield name if name == SCOPE_EVENTS.name else f"{OPEN}{name}", found


def connection_of(flow: Flow) -> Any:
    """The connection that a flow carries, once it is recognised and until it ends."""
    return flow.context.connection if isinstance(flow.context, Dialogue) else None


def state_row(memory: Memory) -> tuple[Any, ...]:
    """The row of what is remembered of a flow."""
    return flow_key(memory.flow.key), memory.flow.last_timestamp_ns, dump(memory)


def whole_segments(fragments: Iterable[Fragment]) -> Iterator[Segment]:
    """Segments of IP fragments, which come sorted by the key of their datagram, then by time."""
    for _, parts in groupby(fragments, key=lambda fragment: fragment.key):
        table = FragmentTable()
        for part in parts:
            whole = table.feed(part)
            if isinstance(whole, Segment):
                yield whole


def errors_of(notices: Iterable[CaptureError | CaptureDrops], options: LakeOptions | None = None) -> pa.RecordBatch:
    """Rows of what is wrong with captures."""
    collector = Collector(options or LakeOptions())
    for notice in notices:
        collector.feed(notice)
    return batch("ingest_errors", collector.rows["ingest_errors"])
