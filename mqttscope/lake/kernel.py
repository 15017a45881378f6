"""The kernel: batches of segment rows in, batches of event rows out, for every engine and without Spark.

Input rows have the columns of `SEGMENT_COLUMNS`, and may have more.  They are sorted by `ORDER`: both directions of a
flow together, a ``state`` row of an earlier run before its segments.  A caller passes all rows of a flow to one call.
Rows of other kinds (errors of captures) may be anywhere.  IP fragments have to be reassembled before: the flow of a
datagram is unknown until all its fragments are there.

Output rows have ``kind``, the name of a table, and one struct for each table; all rows of a batch are of one kind.
``flow_keys`` lists the flows that rules of wide scope need together; `cross_kernel` reads these once more.
If more segments will come, rows of the kind ``open/<table>`` show open connections as if they ended here.  The next
run makes these rows again.

No flow depends on another one, so the result does not depend on how flows are distributed, nor on the files of the
segments, as long as their order is unchanged.  Memory holds one flow at a time: its reassembly and protocol state
within their limits, and one batch of each table.  `net.flows` decides when a flow with reused ports is a new one.

The output has no numbers of a run: ``connection_id`` identifies a connection.  `inspect` reads everything in one run
and numbers connections in the order of recognition; a rank over ``found_ns``, the order of the captures and
``found_frame`` gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.dissect.clock_watch import NO_CLOCK, CaptureClock
from mqttscope.events import CaptureRemark, ConnectionClosed, Event
from mqttscope.lake.key_parts import KeyParts, rows_of_key
from mqttscope.lake.keys import AT_THE_END, Drop
from mqttscope.lake.memory import FlowMemory, LateData, flow_memory, key_memory, open_connections, remembered, resume
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.public import PUBLIC, forget_secrets
from mqttscope.lake.schemas import EVENT_TABLES, FINDINGS, FLOW_KEYS, OPEN, SCOPE_STATE, STATE, StateRow
from mqttscope.lake.state import dump
from mqttscope.lake.tables import LOOK, Collector, batch, event_batch
from mqttscope.lint.failures import RuleFailures
from mqttscope.lint.finding import Scope
from mqttscope.net.checksum import UNJUDGED
from mqttscope.net.segment import Segment, flow_key, group_key
from mqttscope.session.history import NEVER_NS

SEGMENT_COLUMNS = (
    "kind", "flow", "timestamp_ns", "file", "frame", "direction", "sequence", "acknowledgment", "flags", "window",
    "payload", "missing", "capture", "clock_ns", "options", "checksum",
)  # fmt: skip
"""Columns that are read from a row; ``kind`` is ``segment``, ``state`` (its bytes in ``payload``) or something else."""
ORDER = ("flow", "kind_order", "file", "frame")
"""Sort order of rows if captures are read one after the other, as one process does.

``kind_order`` is 0 for state and 1 for segments; it is optional without state."""
ORDER_BY_TIME = ("flow", "kind_order", "clock_ns", "file", "frame")
"""Sort order of rows if captures were written at the same time and are merged.

``clock_ns`` is the latest time of a segment of the capture up to this one.  So frames of one capture keep their order
when their times go back."""
SEGMENT, STATE_KIND, KEY_STATE = "segment", "state", "key_state"
"""Kinds of rows: a segment, the memory of a flow, and the memory of a key's connections (`cross_kernel`)."""
_KINDS = (SEGMENT, STATE_KIND, KEY_STATE)
OF_CONNECTIONS = frozenset(EVENT_TABLES) - {"ingest_errors"}
"""Tables with the connection in their first column."""
_BEFORE_ALL_NS = -1 << 63
_NOT_SILENT = -1 << 64


class SegmentRow(NamedTuple):
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
    clock_ns: int
    options: bytes | None
    checksum: int | None


_flow_of: Callable[[SegmentRow], bytes | None] = attrgetter("flow")


def kernel(
    batches: Iterable[pa.RecordBatch],
    options: LakeOptions | None = None,
    *,
    more: bool = False,
    watermark_ns: int | None = None,
    dropping: Collection[str] = (),
    drops: Mapping[str, Drop] | None = None,
    ends: tuple[int, ...] = (),
    clock: CaptureClock = NO_CLOCK,
    failures: RuleFailures | None = None,
) -> Iterator[pa.RecordBatch]:
    """Event rows of segment rows.

    ``more``: further segments will come, so that flows stay open and leave a row of ``state``.  ``watermark_ns``: time
    of the last segment of all flows; flows that are idle for too long by then end.  ``dropping``: captures that are
    known to lack frames.  ``drops``: captures that report dropped frames, and where.  ``ends``: times of the last
    segments of all captures in order, if they are read one after the other; a capture that overlaps the previous one
    lets time go back.  ``clock``: steps of the captures' clock.  ``failures`` gets the rules that failed, after all
    rows.
    """
    options, drops = options or LakeOptions(), drops or {}
    collector, unfinished = Collector(options), OpenFlowRows(Collector(options))
    collector.position.ends = clock.ends or ends
    collector.note_drops(dropping, drops)
    unfinished.collector.note_drops({*dropping, *drops})
    states: list[StateRow] = []
    for _, rows in groupby(read_rows(batches), key=_flow_of):
        memories: list[FlowMemory] = []
        for _ in run_flows(rows, options, collector, memories, more=more, watermark_ns=watermark_ns, clock=clock):
            for name, record_batch in collector.batches():
                yield event_batch(name, record_batch)
        for memory in memories:
            # Before its memory is consumed.
            row, due_ns = state_row(memory), due_of(memory)
            keys, connections, ending_ns = unfinished.follow(memory)
            states.append(StateRow(row.flow, row.last_ns, row.state, due_ns, keys, connections, ending_ns))
        for name, record_batch in unfinished.batches():
            yield event_batch(name, record_batch)
        if len(states) >= options.batch_rows:
            yield event_batch(STATE.name, batch(STATE.name, states))
            states = []
    for producer in (collector, unfinished):
        for name, record_batch in producer.batches(everything=True):
            yield event_batch(name, record_batch)
    if states:
        yield event_batch(STATE.name, batch(STATE.name, states))
    if failures is not None:
        for linter in (collector.linter, unfinished.collector.linter):
            if linter is not None:
                failures.take(linter)


def cross_kernel(
    batches: Iterable[pa.RecordBatch],
    options: LakeOptions,
    *,
    more: bool = False,
    watermark_ns: int | None = None,
    dropping: Collection[str] = (),
    drops: Mapping[str, Drop] | None = None,
    ends: tuple[int, ...] = (),
    clock: CaptureClock = NO_CLOCK,
    elsewhere: Callable[[str], KeyParts | None] | None = None,
    failures: RuleFailures | None = None,
) -> Iterator[pa.RecordBatch]:
    """Findings of the rules of wide scope, from the segment rows of all flows of a key, read together.

    Rows are like rows of `kernel`, but ``flow`` has the key (`lake.keys.stage_key`) that ``flow_keys`` of the first
    stage assigns, and rows of the kind ``key_state`` come first within a key.  Batches are of the kinds ``findings``,
    ``open/findings`` and ``scope_state``.  ``elsewhere``: returns parts of a key that are read when a rule asks for
    them, if the rows do not have everything.  For the other parameters see `kernel`.
    """
    findings, ending = _FindingBatches(FINDINGS.name, options), _FindingBatches(OPEN + FINDINGS.name, options)
    states: list[Any] = []
    # Rules of wide scope may depend on narrow rules, which run here again; `kernel` has reported their failures.
    narrow = {rule.code for rule in options.narrow_rules()}
    for key, rows in groupby(read_rows(batches), key=_flow_of):
        assert key is not None
        collector = Collector(options, key=key.decode())
        collector.position.ends = clock.ends or ends
        collector.note_drops(dropping, drops or {})
        memories: list[FlowMemory] = []
        parts = None if elsewhere is None else elsewhere(key.decode())
        run = run_flows(
            rows, options, collector, memories, more=more, watermark_ns=watermark_ns, elsewhere=parts, clock=clock
        )
        for _ in run:
            yield from findings.take(collector)
        yield from findings.take(collector)
        if more:
            for memory in memories:
                forget_secrets(memory.flow)
            key_state, key_rows = collector.key_memory(open_connections(memories)), list[Any]()
            if key_state is not None and collector.linter is not None:
                whole = collector.widest is not Scope.BROKER
                key_rows = rows_of_key(key.decode(), key_state, collector.linter, whole=whole)
            states += key_rows if parts is None else parts.changed(key_rows)
            if parts is None or parts.is_restless:
                collector.note_drops({*dropping, *(drops or {})})
                unfinished = OpenFlowRows(collector)
                for memory in sorted(memories, key=begun):
                    unfinished.feed(memory)
                    yield from ending.take(collector)
        if failures is not None and collector.linter is not None:
            failures.take(collector.linter, but=narrow)
    yield from findings.rest()
    yield from ending.rest()
    for start in range(0, len(states), options.batch_rows):
        yield event_batch(SCOPE_STATE.name, batch(SCOPE_STATE.name, states[start : start + options.batch_rows]))


class _FindingBatches:
    """Findings of successive collectors, until there are enough for a batch."""

    def __init__(self, kind: str, options: LakeOptions) -> None:
        self._kind = kind
        self._most = options.batch_rows
        self._rows: list[Any] = []

    def take(self, collector: Collector) -> Iterator[pa.RecordBatch]:
        """Take the findings of a collector; yield complete batches."""
        collector.waiting = 0
        rows = collector.rows[FINDINGS.name]
        self._rows += rows
        rows.clear()
        while len(self._rows) >= self._most:
            yield event_batch(self._kind, batch(FINDINGS.name, self._rows[: self._most]))
            del self._rows[: self._most]

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The last, smaller batch."""
        if self._rows:
            yield event_batch(self._kind, batch(FINDINGS.name, self._rows))


def begun(memory: FlowMemory) -> tuple[int, int]:
    """Sort key: open flows end in the order of their beginnings."""
    return memory.flow.opened_ns, memory.flow.first_frame


def read_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[SegmentRow]:
    """The rows of batches that are segments or state."""
    for record_batch in batches:
        columns = [record_batch.column(name).to_pylist() for name in SEGMENT_COLUMNS]
        for values in zip(*columns, strict=True):
            if values[0] in _KINDS:
                yield SegmentRow._make(values)


def run_flows(
    rows: Iterable[SegmentRow],
    options: LakeOptions,
    collector: Collector,
    memories: list[FlowMemory],
    *,
    more: bool = False,
    watermark_ns: int | None = None,
    parts: bool = True,
    elsewhere: KeyParts | None = None,
    clock: CaptureClock = NO_CLOCK,
) -> Iterator[None]:
    """Feed the rows of some flows to the collector.  If more will come, ``memories`` gets the memories of the flows.

    ``parts``: segments later than newer ones of other captures are read as separate parts (`lake.memory`); otherwise
    all are read in one stream, as in `inspect` and `lint`.  ``elsewhere``: reads state that the rows leave out.
    ``clock``: steps of the captures' clock.

    Yields now and then, and at the end, so that the caller can take rows out of the collector: a flow may be very long.
    """
    dissector, position = Dissector(options.reading()), collector.position
    dissector.clock.disable()
    if clock.changes and watermark_ns is not None:
        watermark_ns = max(clock.ends, default=watermark_ns)
    late = LateData(dissector, collector)
    position.segment(_BEFORE_ALL_NS, 0, 0)
    if elsewhere is not None:
        elsewhere.begin(dissector, collector, late, watermark_ns)
    for event in dissect_segments(
        _segments(rows, dissector, collector, late if parts else None, clock), dissector=dissector, more=True
    ):
        collector.feed(event)
        if collector.waiting >= LOOK:
            yield
    if watermark_ns is not None:
        _wait(max(position.ends[position.read :], default=watermark_ns), dissector, collector)
    for event in late.advance(watermark_ns) if more else late.close():
        collector.feed(event)
    if elsewhere is not None:
        elsewhere.end()
    if more:
        memories += late.remembered(remembered(dissector, collector, watermark_ns), watermark_ns)
    else:
        begins = {flow_key(flow.key): (flow.opened_ns, flow.first_frame) for flow in dissector.flows.flows.values()}
        for event in dissector.close():
            place = begins.get(_flow_of_event(event))
            if place is not None:
                position.set(AT_THE_END, *place)
            collector.feed(event)
    collector.ended(dissector)
    if collector.waiting >= LOOK:
        yield


def _flow_of_event(event: Event) -> bytes:
    connection = getattr(event, "connection", None)
    return b"" if connection is None else flow_key(connection.flow_key)


def _segments(
    rows: Iterable[SegmentRow], dissector: Dissector, collector: Collector, late: LateData | None, clock: CaptureClock
) -> Iterator[Any]:
    """Segments for the dissector, and the events of late segments, which pass through it."""
    changes = 0
    for row in rows:
        if row.kind == KEY_STATE:
            if row.payload:
                collector.recall(key_memory(row.payload))
            continue
        if row.kind == STATE_KIND:
            memory = flow_memory(row.payload)
            resume(memory, dissector, collector)
            if late is not None:
                late.adopt(memory)
            continue
        segment = Segment(
            row.direction, row.sequence, row.acknowledgment, row.flags, row.window, row.payload or b"",
            row.missing or 0, row.frame, row.timestamp_ns, row.capture, row.options or b"", row.checksum or UNJUDGED,
        )  # fmt: skip
        if clock.changes:
            before, changes = changes, clock.changes_before(row.file, row.frame)
            dissector.clock.shift_ns = shift_ns = clock.changes[changes - 1].shift_ns if changes else 0
            has_step = any(change.step is not None for change in clock.changes[before:changes])
            if collector.linter is not None and has_step:
                collector.linter.note_clock_step()
            # If the clock was set back, the latest time is from before the step.
            latest_ns = row.timestamp_ns if clock.is_set_back(changes, row.file) else row.clock_ns
            row = row._replace(timestamp_ns=row.timestamp_ns - shift_ns, clock_ns=latest_ns - shift_ns)
        _wait_for(row, dissector, collector)
        collector.position.segment(row.clock_ns, row.file, row.frame)
        segment = dissector.clock.shifted(segment)
        events = late.events(segment) if late is not None else None
        if events is None:
            yield segment
        else:
            yield from events


def _wait_for(row: SegmentRow, dissector: Dissector, collector: Collector) -> None:
    """Advance the time to a segment; captures that are read before its own may reach further."""
    position = collector.position
    if dissector.flows.next_due_ns is not None and position.read < row.file:
        _wait(max(position.ends[position.read : row.file], default=row.clock_ns), dissector, collector)
    # If the clock has not advanced, times went back, and timeouts count from there.
    _wait(row.clock_ns if row.clock_ns > position.now_ns else row.timestamp_ns, dissector, collector)


def _wait(timestamp_ns: int, dissector: Dissector, collector: Collector) -> None:
    """Advance the time; each timeout happens at its own time."""
    flows, position = dissector.flows, collector.position
    while (due_ns := flows.next_due_ns) is not None and due_ns <= timestamp_ns:
        passes = due_ns > position.now_ns
        frames = {flow_key(flow.key): flow.last_frame for flow in flows.next_to_time_out()} if passes else {}
        for frame in frames.values():
            position.time_out(due_ns, frame)
        for event in dissector.advance(due_ns):
            last_frame = frames.get(_flow_of_event(event))
            if last_frame is not None:
                position.time_out(due_ns, last_frame)
            collector.feed(event)


class OpenFlowRows:
    """Rows of flows that continue, as if they ended here.  Store their memories before."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.collector.over = False
        self._ends: list[int] = []
        """End times of flows that end without a finding of a wide rule."""

    def feed(self, memory: FlowMemory) -> None:
        """Feed one flow and its parts; its memory is consumed."""
        for part in memory.parts:
            self.feed(part)
        collector = self.collector
        ending = Dissector(collector.options.reading())
        ending.connections = len(collector.trackers)
        resume(memory, ending, collector)
        collector.position.set(AT_THE_END, *begun(memory))
        for event in ending.close():
            collector.feed(event)
            silent = isinstance(event, ConnectionClosed) and is_silent(event)
            self._ends.append(event.timestamp_ns if silent else _NOT_SILENT)  # type: ignore[union-attr]

    def follow(self, memory: FlowMemory) -> tuple[list[str], list[str], int | None]:
        """Feed a flow; return its keys for judging it with others, the connections of its rows, and its end.

        The end is ``None`` if a rule of wide scope may report something about it, unless the rule asked earlier.
        """
        rows, self._ends = self.collector.rows, []
        before = {name: len(table_rows) for name, table_rows in rows.items()}
        self.feed(memory)
        keys = {key for _, key in rows[FLOW_KEYS.name][before[FLOW_KEYS.name] :]}
        connections = {
            row[0] for name, table_rows in rows.items() if name in OF_CONNECTIONS for row in table_rows[before[name] :]
        }
        silent = not memory.parts and _NOT_SILENT not in self._ends
        return sorted(keys), sorted(connections), max(self._ends, default=_BEFORE_ALL_NS) if silent else None

    def batches(self, *, everything: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Take the rows of kinds with enough for a batch, or all rows: ``open/<table>`` and ``flow_keys``."""
        for name, record_batch in self.collector.batches(everything=everything):
            yield name if name == FLOW_KEYS.name else f"{OPEN}{name}", record_batch


def state_row(memory: FlowMemory) -> StateRow:
    """The ``state`` row of a flow, without the result of `OpenFlowRows.follow`."""
    memory.note_beginnings()
    forget_secrets(memory.flow)
    state = dump(memory, compress=False, shown=PUBLIC)
    return StateRow(group_key(memory.flow.key), memory.flow.last_timestamp_ns, state)


def is_silent(event: ConnectionClosed) -> bool:
    """Whether the end of a connection that is still open cannot cause a finding of a wide rule.

    All wide rules use the end of a connection to forget it.  They report something about it only if the server gave a
    reason (CON432), or if packets come out at the end.
    """
    connection, history = event.connection, event.connection.history
    ended = connection.closed_how != "capture_end" or connection.also_closed is not None
    return not ended and (history is None or history.server.disconnect is None)


def due_of(memory: FlowMemory) -> int:
    """Capture time until which nothing happens to a flow or its parts without further segments."""
    flow = memory.flow
    return min(flow.check_ns, flow.undecided_until_ns, *(due_of(part) for part in memory.parts), NEVER_NS)


def errors_of(notices: Iterable[CaptureRemark]) -> pa.RecordBatch:
    """Rows of errors of captures."""
    collector = Collector(LakeOptions())
    for notice in notices:
        collector.feed(notice)
    return batch("ingest_errors", collector.rows["ingest_errors"])
