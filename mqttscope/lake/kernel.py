"""The kernel: batches of segment rows in, batches of event rows out.  The same for every engine, and without Spark.

Input rows have the columns of `SEGMENT_COLUMNS`, more do not matter.  They come in the order of `ORDER`: both
directions of a flow together, a row of ``state`` of an earlier run before its segments.  Whatever uses the kernel gives
all rows of a flow to one call.  Rows of other kinds (errors of captures) may stand anywhere; IP fragments have to be
put together before, since all parts of a datagram are needed and their flow is not known.

Output rows have ``kind``, the name of a table, and one struct for each table; all rows of a batch are of one kind.
``flow_keys`` says which flows the rules
that look beyond one connection need together; `cross_kernel` reads these once more.
When more segments will come, rows of the kind ``open/<table>`` say what is known so far of connections that are still
open: as if they ended here.  The next run makes them again.

Nothing of one flow depends on another one, so the result does not depend on how flows were shared out, nor on the files
that the segments come from, as long as their order is the same.  Memory holds one flow at a time:
what reassembly and the protocol state hold within their limits, and one batch of each table.  A flow whose ports are
used again is told from the one before by the rules of `net.flows`.

Numbers that count a run do not come out: ``connection_id`` names a connection.  `inspect`, which reads everything in
one go, numbers connections by the order in which it recognises them, and so does a rank over ``found_ns``, the order
of the captures and ``found_frame``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.dissect.clock_watch import NO_CLOCK, Clock
from mqttscope.events import CaptureRemark, ConnectionClosed, Event
from mqttscope.lake.key_parts import KeyParts, rows_of_key
from mqttscope.lake.keys import AT_THE_END, Drop
from mqttscope.lake.memory import FlowMemory, Late, flow_memory, key_memory, open_connections, remembered, resume
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.public import PUBLIC, forget_secrets
from mqttscope.lake.schemas import EVENT_TABLES, FINDINGS, FLOW_KEYS, OPEN, SCOPE_STATE, STATE, StateRow
from mqttscope.lake.state import dump
from mqttscope.lake.tables import LOOK, Collector, batch, event_batch
from mqttscope.lint.failures import Failures
from mqttscope.lint.finding import Scope
from mqttscope.net.checksum import UNJUDGED
from mqttscope.net.segment import Segment, flow_key, group_key
from mqttscope.session.history import NEVER_NS

SEGMENT_COLUMNS = (
    "kind", "flow", "timestamp_ns", "file", "frame", "direction", "sequence", "acknowledgment", "flags", "window",
    "payload", "missing", "capture", "clock_ns", "options", "checksum",
)  # fmt: skip
"""Columns that are read of a row; ``kind`` is ``segment``, ``state`` (its bytes in ``payload``) or something else."""
ORDER = ("flow", "kind_order", "file", "frame")
"""What rows are sorted by: one capture after the other, as one process reads them.

``kind_order`` is 0 for state and 1 for segments, and may be left out without state."""
ORDER_BY_TIME = ("flow", "kind_order", "clock_ns", "file", "frame")
"""The same where captures are written at the same time and put into each other.

``clock_ns`` is how far time has come in the capture: that of the latest segment up to this one.  So frames of one
capture whose times go back keep their order."""
SEGMENT, STATE_KIND, KEY_STATE = "segment", "state", "key_state"
"""Kinds of rows: a segment, and what was remembered of a flow, or of the connections of a key (`cross_kernel`)."""
_KINDS = (SEGMENT, STATE_KIND, KEY_STATE)
OF_CONNECTIONS = frozenset(EVENT_TABLES) - {"ingest_errors"}
"""Tables whose rows begin with the connection."""
_BEFORE_ALL_NS = -1 << 63
_NOT_SILENT = -1 << 64


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
    clock_ns: int
    options: bytes | None
    checksum: int | None


_flow_of: Callable[[Row], bytes | None] = attrgetter("flow")


def kernel(
    batches: Iterable[pa.RecordBatch],
    options: LakeOptions | None = None,
    *,
    more: bool = False,
    watermark_ns: int | None = None,
    dropping: Collection[str] = (),
    drops: Mapping[str, Drop] | None = None,
    ends: tuple[int, ...] = (),
    clock: Clock = NO_CLOCK,
    failures: Failures | None = None,
) -> Iterator[pa.RecordBatch]:
    """Event rows of segment rows.

    ``more``: further segments will come, so that flows stay open and leave a row of ``state``.  ``watermark_ns`` is the
    time of the last segment of all flows: those that have been idle for too long by then are over, whatever comes.
    ``dropping``: captures that are known to lack frames.  ``drops``: where others say so, by their names.  ``ends``:
    times of the last segments of all captures in their order, where these are read one after the other: a capture that
    overlaps with the one before lets time go back.  ``clock``: where their clock was set.  ``failures`` gets the rules
    that failed, once all rows are made.
    """
    options, drops = options or LakeOptions(), drops or {}
    collector, unfinished = Collector(options), Unfinished(Collector(options))
    collector.position.ends = clock.ends or ends
    collector.note_drops(dropping, drops)
    unfinished.collector.note_drops({*dropping, *drops})
    states: list[StateRow] = []
    for _, rows in groupby(read_rows(batches), key=_flow_of):
        memories: list[FlowMemory] = []
        for _ in run_flows(rows, options, collector, memories, more=more, watermark_ns=watermark_ns, clock=clock):
            for name, found in collector.batches():
                yield event_batch(name, found)
        for memory in memories:
            # Before its memory is used up.
            row, due_ns = state_row(memory), due_of(memory)
            keys, connections, ending_ns = unfinished.follow(memory)
            states.append(StateRow(row.flow, row.last_ns, row.state, due_ns, keys, connections, ending_ns))
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
    clock: Clock = NO_CLOCK,
    elsewhere: Callable[[str], KeyParts | None] | None = None,
    failures: Failures | None = None,
) -> Iterator[pa.RecordBatch]:
    """What the rules of wide scopes find, of the segment rows of all flows of a key, read together.

    Rows are those of `kernel`, but ``flow`` holds the key (`lake.keys.stage_key`), as ``flow_keys`` of the first stage
    say, and rows of the kind ``key_state`` come before all others of a key.  Batches are of the kinds ``findings``,
    ``open/findings`` and ``scope_state``.  ``elsewhere``: gives what is read of a key when a rule asks for it, where
    the rows do not have everything.  The other parameters are those of `kernel`.
    """
    found, ending, states = _Taken(FINDINGS.name, options), _Taken(OPEN + FINDINGS.name, options), list[Any]()
    # Rules of wide scopes may have them run here as well, and `kernel` has reported these.
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
            yield from found.take(collector)
        yield from found.take(collector)
        if more:
            for memory in memories:
                forget_secrets(memory.flow)
            kept, made = collector.key_memory(open_connections(memories)), list[Any]()
            if kept is not None and collector.linter is not None:
                made = rows_of_key(key.decode(), kept, collector.linter, whole=collector.widest is not Scope.BROKER)
            states += made if parts is None else parts.changed(made)
            if parts is None or parts.is_restless:
                collector.note_drops({*dropping, *(drops or {})})
                unfinished = Unfinished(collector)
                for memory in sorted(memories, key=begun):
                    unfinished.feed(memory)
                    yield from ending.take(collector)
        if failures is not None and collector.linter is not None:
            failures.take(collector.linter, but=narrow)
    yield from found.rest()
    yield from ending.rest()
    for start in range(0, len(states), options.batch_rows):
        yield event_batch(SCOPE_STATE.name, batch(SCOPE_STATE.name, states[start : start + options.batch_rows]))


class _Taken:
    """Findings of one collector after the other, until they are enough for a batch."""

    def __init__(self, kind: str, options: LakeOptions) -> None:
        self._kind = kind
        self._most = options.batch_rows
        self._rows: list[Any] = []

    def take(self, collector: Collector) -> Iterator[pa.RecordBatch]:
        """Take what a collector has; gives what is enough for batches."""
        collector.waiting = 0
        rows = collector.rows[FINDINGS.name]
        self._rows += rows
        rows.clear()
        while len(self._rows) >= self._most:
            yield event_batch(self._kind, batch(FINDINGS.name, self._rows[: self._most]))
            del self._rows[: self._most]

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The others."""
        if self._rows:
            yield event_batch(self._kind, batch(FINDINGS.name, self._rows))


def begun(memory: FlowMemory) -> tuple[int, int]:
    """Flows that are open end in the order in which they began."""
    return memory.flow.opened_ns, memory.flow.first_frame


def read_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of batches that are segments or state."""
    for one in batches:
        columns = [one.column(name).to_pylist() for name in SEGMENT_COLUMNS]
        for values in zip(*columns, strict=True):
            if values[0] in _KINDS:
                yield Row._make(values)


def run_flows(
    rows: Iterable[Row],
    options: LakeOptions,
    collector: Collector,
    memories: list[FlowMemory],
    *,
    more: bool = False,
    watermark_ns: int | None = None,
    parts: bool = True,
    elsewhere: KeyParts | None = None,
    clock: Clock = NO_CLOCK,
) -> Iterator[None]:
    """Feed the rows of some flows to the collector.  When more will come, ``memories`` gets what is remembered of them.

    ``parts``: segments that come later than newer ones of other captures are read as parts of their own
    (`lake.memory`); else as `inspect` and `lint` read them, in one stream.  ``elsewhere``: what the rows leave out.
    ``clock``: where the clock of the captures was set.

    Stops now and then, and at the end, so that rows can be taken out of the collector: a flow may be very long.
    """
    dissector, position = Dissector(options.reading()), collector.position
    dissector.clock.stand_aside()
    if clock.changes and watermark_ns is not None:
        watermark_ns = max(clock.ends, default=watermark_ns)
    late = Late(dissector, collector)
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
        begins = {flow_key(one.key): (one.opened_ns, one.first_frame) for one in dissector.flows.flows.values()}
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
    rows: Iterable[Row], dissector: Dissector, collector: Collector, late: Late | None, clock: Clock
) -> Iterator[Any]:
    """The segments that the dissector takes, and events of those that are late, which pass through it."""
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
            if collector.linter is not None and any(one.step is not None for one in clock.changes[before:changes]):
                collector.linter.note_clock_step()
            # If the clock was set back, the latest time so far is one of before.
            latest_ns = row.timestamp_ns if clock.is_set_back(changes, row.file) else row.clock_ns
            row = row._replace(timestamp_ns=row.timestamp_ns - shift_ns, clock_ns=latest_ns - shift_ns)
        _wait_for(row, dissector, collector)
        collector.position.segment(row.clock_ns, row.file, row.frame)
        events = late.events(segment) if late is not None else None
        if events is None:
            yield dissector.clock.shifted(segment)
        else:
            yield from events


def _wait_for(row: Row, dissector: Dissector, collector: Collector) -> None:
    """Let the time up to a segment pass; captures that are read before its own may go further."""
    position = collector.position
    if dissector.flows.next_due_ns is not None and position.read < row.file:
        _wait(max(position.ends[position.read : row.file], default=row.clock_ns), dissector, collector)
    # Where the clock stands still times went back, and what the flow waits for since then counts from there on.
    _wait(row.clock_ns if row.clock_ns > position.now_ns else row.timestamp_ns, dissector, collector)


def _wait(timestamp_ns: int, dissector: Dissector, collector: Collector) -> None:
    """Let time pass: what times out does so at its own time."""
    flows, position = dissector.flows, collector.position
    while (due_ns := flows.next_due_ns) is not None and due_ns <= timestamp_ns:
        passes = due_ns > position.now_ns
        frames = {flow_key(one.key): one.last_frame for one in flows.next_to_time_out()} if passes else {}
        for frame in frames.values():
            position.time_out(due_ns, frame)
        for event in dissector.advance(due_ns):
            last_frame = frames.get(_flow_of_event(event))
            if last_frame is not None:
                position.time_out(due_ns, last_frame)
            collector.feed(event)


class Unfinished:
    """Rows of flows that continue, as if they ended here.  What is remembered of them has to be written down before."""

    def __init__(self, collector: Collector) -> None:
        """``collector``: takes nothing else any more."""
        self.collector = collector
        self.collector.over = False
        self._ends: list[int] = []
        """When flows have ended of whose end no rule of a wide scope has anything to say."""

    def feed(self, memory: FlowMemory) -> None:
        """Take one flow and its parts; its memory is used up."""
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
        """The same; returns the keys by which it is judged with others, the connections of its rows, and when it ends.

        That is ``None`` where a rule of a wide scope may have something to say of the end, unless it asked before.
        """
        rows, self._ends = self.collector.rows, []
        before = {name: len(found) for name, found in rows.items()}
        self.feed(memory)
        keys = {key for _, key in rows[FLOW_KEYS.name][before[FLOW_KEYS.name] :]}
        connections = {
            row[0] for name, found in rows.items() if name in OF_CONNECTIONS for row in found[before[name] :]
        }
        silent = not memory.parts and _NOT_SILENT not in self._ends
        return sorted(keys), sorted(connections), max(self._ends, default=_BEFORE_ALL_NS) if silent else None

    def batches(self, *, everything: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Take the rows of kinds that have enough for a batch, or all: ``open/<table>`` and ``flow_keys``."""
        for name, found in self.collector.batches(everything=everything):
            yield name if name == FLOW_KEYS.name else f"{OPEN}{name}", found


def state_row(memory: FlowMemory) -> StateRow:
    """The row of what is remembered of a flow, without what `Unfinished.follow` says."""
    forget_secrets(memory.flow)
    state = dump(memory, compress=False, shown=PUBLIC)
    return StateRow(group_key(memory.flow.key), memory.flow.last_timestamp_ns, state)


def is_silent(event: ConnectionClosed) -> bool:
    """Whether the end of a connection that is still open lets no rule of a wide scope report anything.

    All of them look at the end of a connection, in order to forget it.  They have something to say of it where the
    server has said why (CON432), or where packets come out at last.
    """
    connection, history = event.connection, event.connection.history
    ended = connection.closed_how != "capture_end" or connection.also_closed is not None
    return not ended and (history is None or history.server.disconnect is None)


def due_of(memory: FlowMemory) -> int:
    """Capture time before which nothing happens to a flow or its parts while no segments of it come."""
    flow = memory.flow
    return min(flow.check_ns, flow.kept_until_ns, *(due_of(one) for one in memory.parts), NEVER_NS)


def errors_of(notices: Iterable[CaptureRemark]) -> pa.RecordBatch:
    """Rows of what is wrong with captures."""
    collector = Collector(LakeOptions())
    for notice in notices:
        collector.feed(notice)
    return batch("ingest_errors", collector.rows["ingest_errors"])
