"""What the rules of wide scopes remember of a server, in parts that are read when a rule asks for them.

A batch of a quiet stream concerns a few connections of a server that has thousands.  What rules remember of the server
is not one row, but

* one for each model of it, with the rules that read it: they may share objects;
* one for each of its sessions;
* one for each open connection that a rule wants to be asked about again, or that something was found of.

The same holds for the flows of the server: what another connection remembers is read when a rule looks at it.  What was
not asked for stays in its file, and so does what has not changed.

The rows of connections that are still open say what rules find if these end here.  Such an end changes what is
remembered of the server, and so what is found at the end of the next one: where any of them is *restless*, since a rule
may have something to say of its end, all of them are read.  Mostly none is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mqttscope.lake.carried import index_of, read_rows
from mqttscope.lake.keys import stage_key
from mqttscope.lake.memory import connection_of, flow_memory, key_memory, resume
from mqttscope.lake.public import PUBLIC
from mqttscope.lake.schemas import SCOPE_STATE, STATE, ScopeStateRow
from mqttscope.lake.state import dump
from mqttscope.lake.tracker import KeyMemory
from mqttscope.lint.context import ConnectionKey, is_of_one
from mqttscope.lint.finding import Scope
from mqttscope.net.segment import group_key
from mqttscope.session.history import NEVER_NS

if TYPE_CHECKING:
    from pathlib import Path

    from mqttscope.dissect import Dissector
    from mqttscope.lake.memory import Late
    from mqttscope.lake.tables import Collector
    from mqttscope.lint.engine import Linter

OVER_NS = -1 << 63
"""When a flow ends that is over already: no rule asks at its end."""
OF_A_CONNECTION = "connection"
"""The part of rows about one connection, which have a flow."""
PARTS = ("key", "due_ns", "part", "flow", "next_ns")
"""Columns of ``scope_state`` by which rows are found."""
STATES = ("flow", "due_ns", "keys", "connections", "ending_ns")
"""The same of ``state``."""


def rows_of_key(key: str, memory: KeyMemory, linter: Linter, *, whole: bool) -> list[ScopeStateRow]:
    """What is remembered of a key as rows of ``scope_state``.

    ``whole``: as one row, where the key is that of a session.
    """
    asked = [at for one in memory.open.values() for at in one.asked.values()]
    if whole:
        return [ScopeStateRow(key, dump(memory, compress=False, shown=PUBLIC), min(asked, default=NEVER_NS))]
    models = models_of(linter)
    parts: dict[str, KeyMemory] = {}
    flows: dict[bytes, KeyMemory] = {}
    for kept, memories in memory.memories.items():
        if is_of_one(kept) and len(kept) > 1:
            flows.setdefault(_flow_of(kept[1]), KeyMemory()).memories[kept] = memories
            continue
        for code, one in memories.items():
            part = parts.setdefault(_part_of(kept, code, models), KeyMemory())
            part.memories.setdefault(kept, {})[code] = one
    for whom, opened in memory.open.items():
        flows.setdefault(_flow_of(whom), KeyMemory()).open[whom] = opened
    rows = [ScopeStateRow(key, dump(one, compress=False, shown=PUBLIC), NEVER_NS, part) for part, one in parts.items()]
    for flow, one in flows.items():
        times = [at for opened in one.open.values() for at in opened.asked.values()]
        later = [at for opened in one.open.values() for at in opened.asked_next.values()]
        due_ns, next_ns = min(times, default=NEVER_NS), min([*times, *later], default=None)
        state = dump(one, compress=False, shown=PUBLIC)
        rows.append(ScopeStateRow(key, state, due_ns, OF_A_CONNECTION, flow, next_ns))
    return rows


def models_of(linter: Linter) -> dict[str, str]:
    """The part that each rule and model belongs to, by code: that of the model that the rule reads."""
    found = {model.code: model.code for model in linter.models}
    for rule in linter.rules:
        read = sorted({found[model.code] for model in rule.models})
        found[rule.code] = read[0] if read else rule.code
        for code, part in found.items():
            if part in read:
                found[code] = read[0]
    return found


def _part_of(kept: tuple[Hashable, ...], code: str, models: Mapping[str, str]) -> str:
    # A key of a session has a blank in it, a code has none.
    return models[code] if len(kept) == 1 else stage_key(kept, Scope.SESSION)


def _flow_of(whom: Any) -> bytes:
    return group_key(whom[0]) if isinstance(whom[0], bytes) else b""


@dataclass(slots=True)
class _Given:
    """A row that was read."""

    place: tuple[str, int]
    """Its file, and its place there."""
    state: bytes


@dataclass(slots=True)
class KeyParts:
    """One key, as far as it was asked for (`lint.context.Elsewhere`)."""

    root: Path
    key: str
    parts: pa.Table
    """Where the rows of ``scope_state`` are: `PARTS`, ``file`` and ``row``."""
    others: pa.Table
    """Where the rows of ``state`` are of flows that the batch does not bring itself: `STATES`, ``file`` and ``row``."""
    own: Mapping[bytes, int | None]
    """When the flows of the batch end, where no rule has anything to say of that (``ending_ns``)."""
    is_restless: bool = False
    """Whether what is found at the end of connections has to be found again."""
    _given: dict[tuple[str | None, bytes | None], _Given] = field(default_factory=dict)
    _brought: set[bytes] = field(default_factory=set)
    _files: dict[tuple[str, str], pa.ChunkedArray] = field(default_factory=dict)
    _models: dict[str, str] = field(default_factory=dict)
    _dissector: Dissector | None = None
    _collector: Collector | None = None
    _late: Late | None = None

    def begin(self, dissector: Dissector, collector: Collector, late: Late, watermark_ns: int | None) -> None:
        """Be asked by a run, before its first row."""
        assert collector.linter is not None
        self._dissector, self._collector, self._late = dissector, collector, late
        self._models = models_of(collector.linter)
        collector.linter.memories.elsewhere = self
        for flow in self.own:
            self._recall(flow)
            self._brought.add(flow)
        due = self.parts.filter(pc.fill_null(pc.less_equal(self.parts["due_ns"], watermark_ns or 0), True))
        for flow in sorted(set(due["flow"].drop_null().to_pylist())):
            self._bring(flow)

    def bring_memories(self, key: tuple[Hashable, ...], code: str) -> None:
        """See `lint.context.Elsewhere`."""
        if is_of_one(key) and len(key) > 1:
            return  # it came with its connection
        part = _part_of(key, code, self._models)
        if (part, None) not in self._given:
            for row in self._found(self.parts, "part", part):
                self._linter.memories.adopt(self._read(row, part, None).memories)

    def bring_connection(self, whom: ConnectionKey) -> None:
        self._bring(_flow_of(whom))

    def end(self) -> None:
        """All rows were read; what is remembered is written down next."""
        self.is_restless = self._has_restless()
        if self.is_restless:
            for flow in self.others["flow"].to_pylist():
                self._bring(flow)

    def changed(self, rows: Iterable[ScopeStateRow]) -> list[ScopeStateRow]:
        """Those of the rows of the key that are other than they were; the others stay where they are."""
        found: list[ScopeStateRow] = []
        for row in rows:
            known = self._given.get((row.part, row.flow))
            if known is not None and known.state == row.state:
                del self._given[row.part, row.flow]
            else:
                found.append(row)
        return found

    def replaced(self) -> dict[str, list[int]]:
        """After `changed`: the places of rows that are no more, by their files."""
        found: dict[str, list[int]] = {}
        for one in self._given.values():
            if one.place[1] >= 0:
                found.setdefault(one.place[0], []).append(one.place[1])
        return found

    @property
    def _linter(self) -> Linter:
        assert self._collector is not None
        assert self._collector.linter is not None
        return self._collector.linter

    def _bring(self, flow: bytes) -> None:
        if flow in self._brought:
            return
        self._brought.add(flow)
        states = self._found(self.others, "flow", flow)
        if not states:
            return
        self._recall(flow)
        assert self._dissector is not None
        assert self._collector is not None
        assert self._late is not None
        for row in states:
            memory = flow_memory(self._state(STATE.name, row))
            resume(memory, self._dissector, self._collector)
            self._late.adopt(memory)

    def _recall(self, flow: bytes) -> None:
        assert self._collector is not None
        for row in self._found(self.parts, "flow", flow):
            self._collector.recall(self._read(row, OF_A_CONNECTION, flow))

    def _read(self, row: Mapping[str, Any], part: str, flow: bytes | None) -> KeyMemory:
        state = self._state(SCOPE_STATE.name, row)
        self._given[part, flow] = _Given((row["file"], row["row"]), state)
        return key_memory(state)

    def _state(self, table: str, row: Mapping[str, Any]) -> bytes:
        known = self._files.get((table, row["file"]))
        if known is None:
            known = read_rows(self.root, [row["file"]], table, ("state",))["state"]
            self._files[table, row["file"]] = known
        state: bytes = known[row["row"]].as_py()
        return state

    @staticmethod
    def _found(table: pa.Table, column: str, value: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = table.filter(pc.equal(table[column], value)).select(["file", "row"]).to_pylist()
        return rows

    def _has_restless(self) -> bool:
        """Whether a rule may have something to say of the end of any connection."""
        if None in self.own.values() or self.others["ending_ns"].null_count:
            return True
        if not all(rule.is_ours() for rule in self._linter.rules):
            return True
        waits = self.parts.filter(pc.is_valid(self.parts["next_ns"]))
        times = zip(waits["flow"].to_pylist(), waits["next_ns"].to_pylist(), strict=True)
        asked = {flow: next_ns for flow, next_ns in times if flow not in self._brought}
        assert self._dissector is not None
        for one in self._dissector.flows.flows.values():
            connection = connection_of(one)
            history = None if connection is None else connection.history
            if history is not None and (history.asked or history.asked_next):
                flow = group_key(one.key)
                asked[flow] = min([*history.asked.values(), *history.asked_next.values(), asked.get(flow, NEVER_NS)])
        if not asked:
            return False
        ends = dict(zip(self.others["flow"].to_pylist(), self.others["ending_ns"].to_pylist(), strict=True))
        ends |= self.own
        return any(next_ns <= ends.get(flow, NEVER_NS) for flow, next_ns in asked.items())


def key_parts(
    root: Path,
    key: str,
    scope_state_files: Iterable[str],
    state_files: Iterable[str],
    own: Mapping[bytes, int | None],
) -> KeyParts | None:
    """One key, as far as it is in these files; ``None`` where they do not have it in parts.

    ``own``: see `KeyParts`; these flows are not looked for in the files.
    """
    parts = _places(root, scope_state_files, SCOPE_STATE.name, PARTS)
    parts = parts.filter(pc.equal(parts["key"], key))
    if parts["part"].null_count:
        return None
    others = _places(root, state_files, STATE.name, STATES)
    lists = others["keys"].combine_chunks()
    judged = pc.list_parent_indices(lists).filter(pc.equal(pc.list_flatten(lists), key)).unique()
    others = others.take(judged)
    others = others.filter(pc.invert(pc.is_in(others["flow"], value_set=pa.array([*own], pa.binary()))))
    return KeyParts(root, key, parts, others, own)


def _places(root: Path, names: Iterable[str], table: str, columns: tuple[str, ...]) -> pa.Table:
    found = []
    for name in names:
        index = index_of(root, name, table, columns)
        count = index.num_rows
        index = index.append_column("file", pa.repeat(pa.scalar(name), count))
        found.append(index.append_column("row", pa.array(range(count), pa.int64())))
    if not found:
        empty = read_rows(root, [], table, columns)
        found = [empty.append_column("file", pa.array([], pa.string())).append_column("row", pa.array([], pa.int64()))]
    return pa.concat_tables(found)
