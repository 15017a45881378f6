"""The kernel of wider scopes: rows of events by key in, batches of findings out.  For every engine, and without Spark.

Input rows have the columns of `SCOPE_COLUMNS` and come in the order of `SCOPE_ORDER`; `scope_batch` and `state_batch`
make them.  Whatever uses the kernel gives all rows of a key to one call, and runs it once for each scope:

==========  ====================================================================================================
kind_order  what the row is
==========  ====================================================================================================
0           what the rules remember of the key, from an earlier ingest, in ``event``
1           an event, as the kernel of flows wrote it down (`lake.kernel`, kind ``scope_events``)
2           an event that only says how a connection would end if the captures ended here
==========  ====================================================================================================

Output rows are of the kinds ``findings`` and, of endings, ``open/findings``, which the next ingest makes anew.  When
more captures will come, there is ``scope_state`` too: what the rules remember before they see the endings.  So
a fold over ingests finds what one run finds that sees everything.

Memory holds what the rules remember of one key, and one batch of each kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mqttscope.lake import rows
from mqttscope.lake.manifest import LakeError
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.public import public_object
from mqttscope.lake.schemas import FINDINGS, OPEN, SCOPE_ROWS, SCOPE_STATE
from mqttscope.lake.scopes import Found, Remembered, ScopeRun
from mqttscope.lake.state import StateError, dump, load
from mqttscope.lake.tables import batch, event_batch
from mqttscope.lint.finding import Scope
from mqttscope.lint.rule import Rule
from mqttscope.report.base import View
from mqttscope.report.findings.conceal import conceal

SCOPE_COLUMNS = (
    "key", "kind_order", "emitted_ns", "file", "frame", "connection_id", "event_in_connection", "event",
)  # fmt: skip
"""Columns of a row."""
SCOPE_ORDER = SCOPE_COLUMNS[:-1]
"""What rows are sorted by."""
_READ = ("key", "kind_order", "emitted_ns", "connection_id", "event")
"""Those that count once the rows are in order."""
STATE_ORDER, EVENT_ORDER, ENDING_ORDER = 0, 1, 2
"""Values of ``kind_order``."""
KEYS = {Scope.SESSION: "session", Scope.BROKER: "server"}
"""The column of ``scope_events`` that holds the key of a scope."""

Row = tuple[Any, ...]


def scope_batch(found: pa.RecordBatch, scope: Scope) -> pa.RecordBatch:
    """Rows of ``scope_events`` as rows of one scope, by key; those that are not for it are left out."""
    found = found.filter(pc.is_valid(found.column(KEYS[scope])))
    order = pc.if_else(found.column("ending"), *(pa.scalar(one, pa.int32()) for one in (ENDING_ORDER, EVENT_ORDER)))
    columns = [found.column(KEYS[scope]), order, *(found.column(name) for name in SCOPE_COLUMNS[2:])]
    return pa.RecordBatch.from_arrays(columns, schema=SCOPE_ROWS.arrow())


def state_batch(found: pa.RecordBatch, scope: Scope) -> pa.RecordBatch:
    """Rows of ``scope_state`` as rows of one scope; those of the other are left out."""
    found = found.filter(pc.equal(found.column("scope"), str(scope)))
    count = found.num_rows
    zero = pa.repeat(pa.scalar(0, pa.int64()), count)
    return pa.RecordBatch.from_arrays(
        [
            found.column("key"), pa.repeat(pa.scalar(STATE_ORDER, pa.int32()), count), found.column("last_ns"), zero,
            zero, pa.repeat("", count), zero, found.column("state"),
        ],
        schema=SCOPE_ROWS.arrow(),
    )  # fmt: skip


def scope_kernel(
    batches: Iterable[pa.RecordBatch], scope: Scope, options: LakeOptions, *, more: bool = False
) -> Iterator[pa.RecordBatch]:
    """Findings of the rules of one scope; `StateError` where what they remember cannot be read.

    ``more``: further captures will come, so that what the rules remember is given as rows of ``scope_state``.
    """
    rules = options.rules_by(scope)
    output = _Output(scope, options)
    for key, found in groupby(_read(batches), key=itemgetter(0)):
        run = _Key(key, rules)
        for row in found:
            if run.feed(row, output):
                yield from output.batches()
        if more:
            run.write_state(output)
            yield from output.batches()
    yield from output.batches(everything=True)


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for one in batches:
        yield from zip(*(one.column(name).to_pylist() for name in _READ), strict=True)


class _Output:
    """Rows of the three kinds until they are enough for a batch."""

    def __init__(self, scope: Scope, options: LakeOptions) -> None:
        self.scope = str(scope)
        self.rows: dict[str, list[Row]] = {FINDINGS.name: [], OPEN + FINDINGS.name: [], SCOPE_STATE.name: []}
        self._limit = options.batch_rows
        self._view = View(width=0, payload_limit=256, secret_length=options.secret_length)

    def add(self, found: Iterable[Found], *, ending: bool) -> None:
        """Take findings, without the secrets that they show."""
        for one in found:
            finding = conceal(one.finding, self._view)
            row = rows.finding_row(finding, one.connection_id, str(one.scope), one.number, one.stream_offset)
            self.rows[OPEN + FINDINGS.name if ending else FINDINGS.name].append(row)

    def batches(self, *, everything: bool = False) -> Iterator[pa.RecordBatch]:
        """Take kinds that have enough for a batch, or all."""
        least = 1 if everything else self._limit
        for kind, found in self.rows.items():
            while len(found) >= least:
                some, found[:] = found[: self._limit], found[self._limit :]
                yield event_batch(kind, batch(kind.removeprefix(OPEN), some))


class _Key:
    """One key: its rows in, then what is remembered of it."""

    def __init__(self, key: str, rules: list[Rule]) -> None:
        self.key = key
        self._rules = rules
        self._run: ScopeRun | None = None
        self._state: bytes | None = None
        """What is remembered, as long as no event has changed it."""
        self._last_ns = 0
        self._changed = False

    def feed(self, row: Row, output: _Output) -> bool:
        """Take the next row of the key; returns whether anything was found."""
        _, order, emitted_ns, connection_id, data = row
        if order == STATE_ORDER:
            self._state, self._last_ns = data, emitted_ns
            return False
        run = self._run = self._run or ScopeRun(self._rules, self._before())
        if order == EVENT_ORDER:
            self._last_ns, self._changed = max(self._last_ns, emitted_ns), True
        elif self._changed:
            # Endings are only supposed.
            self._keep(run)
        found = run.feed(connection_id, data)
        if found:
            output.add(found, ending=order == ENDING_ORDER)
        return bool(found)

    def write_state(self, output: _Output) -> None:
        """Give what a later ingest has to know of the key, where that is anything."""
        if self._changed and self._run is not None:
            self._keep(self._run)
        if self._state is not None:
            output.rows[SCOPE_STATE.name].append((output.scope, self.key, self._last_ns, self._state))

    def _keep(self, run: ScopeRun) -> None:
        remembered = run.remembered()
        self._state = None if remembered is None else dump(remembered, shown=public_object)
        self._changed = False

    def _before(self) -> Remembered | None:
        if self._state is None:
            return None
        try:
            found = load(self._state)
        except StateError as error:
            raise LakeError(
                f"what rules remember of {self.key} cannot be read: the lake is damaged ({error})"
            ) from None
        if not isinstance(found, Remembered):
            raise LakeError(f"what rules remember of {self.key} cannot be read: the lake is damaged")
        return found
