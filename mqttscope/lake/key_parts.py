"""Memories of wide rules about a server, in parts that are read when a rule asks for them.

A batch of a quiet stream concerns a few connections of a server that has thousands.  The memory about the server is
not one row, but

* one for each model of it, with the rules that read it: they may share objects;
* one for each of its sessions;
* one for each open connection with findings, or with a rule that wants to be asked again.

Flows of the server are treated alike: the memory of another connection is read when a rule looks at it.  Rows that
nobody asked for or that have not changed stay in their files.

The rows of open connections show what rules find if the connections end here.  Such an end changes the memory about
the server, and so the findings at the end of the next connection.  If any connection is *restless*, since a rule may
report something about its end, all are read.  This is rare.
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
    from mqttscope.lake.memory import LateData
    from mqttscope.lake.tables import Collector
    from mqttscope.lint.engine import Linter

OVER_NS = -1 << 63
"""End of a flow that is over already: no rule asks at its end."""
OF_A_CONNECTION = "connection"
"""Part name of rows about one connection, which have a flow."""
PARTS = ("key", "due_ns", "part", "flow", "next_ns")
"""Columns of ``scope_state`` for finding rows."""
STATES = ("flow", "due_ns", "keys", "connections", "ending_ns")
"""Columns of ``state`` for finding rows."""


def rows_of_key(key: str, memory: KeyMemory, linter: Linter, *, whole: bool) -> list[ScopeStateRow]:
    """The memory of a key as rows of ``scope_state``.

    ``whole``: as one row, for the key of a session.
    """
    asked = [at for connection in memory.open.values() for at in connection.asked.values()]
    if whole:
        return [ScopeStateRow(key, dump(memory, compress=False, shown=PUBLIC), min(asked, default=NEVER_NS))]
    models = models_of(linter)
    parts: dict[str, KeyMemory] = {}
    flows: dict[bytes, KeyMemory] = {}
    for memory_key, memories in memory.memories.items():
        if is_of_one(memory_key) and len(memory_key) > 1:
            flows.setdefault(_flow_of(memory_key[1]), KeyMemory()).memories[memory_key] = memories
            continue
        for code, flow_state in memories.items():
            part = parts.setdefault(_part_of(memory_key, code, models), KeyMemory())
            part.memories.setdefault(memory_key, {})[code] = flow_state
    for whom, opened in memory.open.items():
        flows.setdefault(_flow_of(whom), KeyMemory()).open[whom] = opened
    rows = [ScopeStateRow(key, dump(own, compress=False, shown=PUBLIC), NEVER_NS, part) for part, own in parts.items()]
    for flow, flow_state in flows.items():
        times = [at for opened in flow_state.open.values() for at in opened.asked.values()]
        later = [at for opened in flow_state.open.values() for at in opened.asked_next.values()]
        due_ns, next_ns = min(times, default=NEVER_NS), min([*times, *later], default=None)
        state = dump(flow_state, compress=False, shown=PUBLIC)
        rows.append(ScopeStateRow(key, state, due_ns, OF_A_CONNECTION, flow, next_ns))
    return rows


def models_of(linter: Linter) -> dict[str, str]:
    """The part that each rule and model belongs to, by code: the part of the model that the rule reads."""
    parts = {model.code: model.code for model in linter.models}
    for rule in linter.rules:
        read = sorted({parts[model.code] for model in rule.models})
        parts[rule.code] = read[0] if read else rule.code
        for code, part in parts.items():
            if part in read:
                parts[code] = read[0]
    return parts


def _part_of(memory_key: tuple[Hashable, ...], code: str, models: Mapping[str, str]) -> str:
    # A session key contains a blank, a rule code does not.
    return models[code] if len(memory_key) == 1 else stage_key(memory_key, Scope.SESSION)


def _flow_of(whom: Any) -> bytes:
    return group_key(whom[0]) if isinstance(whom[0], bytes) else b""


@dataclass(slots=True)
class _StoredRow:
    """A row that was read."""

    place: tuple[str, int]
    """Its file, and its row number there."""
    state: bytes


@dataclass(slots=True)
class KeyParts:
    """The requested rows of one key (`lint.context.Elsewhere`)."""

    root: Path
    key: str
    parts: pa.Table
    """Places of rows of ``scope_state``: `PARTS`, ``file`` and ``row``."""
    others: pa.Table
    """Places of rows of ``state`` for flows outside the batch: `STATES`, ``file`` and ``row``."""
    own: Mapping[bytes, int | None]
    """When the flows of the batch end, if no rule may report something about it (``ending_ns``)."""
    is_restless: bool = False
    """Whether the findings at the end of connections have to be computed again."""
    _stored_rows: dict[tuple[str | None, bytes | None], _StoredRow] = field(default_factory=dict)
    _brought: set[bytes] = field(default_factory=set)
    _files: dict[tuple[str, str], pa.ChunkedArray] = field(default_factory=dict)
    _models: dict[str, str] = field(default_factory=dict)
    _dissector: Dissector | None = None
    _collector: Collector | None = None
    _late: LateData | None = None

    def begin(self, dissector: Dissector, collector: Collector, late: LateData, watermark_ns: int | None) -> None:
        """Join a run, before its first row."""
        assert collector.linter is not None
        self._dissector, self._collector, self._late = dissector, collector, late
        self._models = models_of(collector.linter)
        collector.linter.memories.elsewhere = self
        for flow in self.own:
            self._recall(flow)
            self._brought.add(flow)
        due = self.parts.filter(pc.fill_null(pc.less_equal(self.parts["due_ns"], watermark_ns or 0), True))
        for flow in sorted(set(due["flow"].drop_null().to_pylist())):
            self._load_flow(flow)

    def bring_memories(self, key: tuple[Hashable, ...], code: str) -> None:
        """See `lint.context.Elsewhere`."""
        if is_of_one(key) and len(key) > 1:
            return  # it came with its connection
        part = _part_of(key, code, self._models)
        if (part, None) not in self._stored_rows:
            for row in self._matching_rows(self.parts, "part", part):
                self._linter.memories.adopt(self._read(row, part, None).memories)

    def bring_connection(self, whom: ConnectionKey) -> None:
        self._load_flow(_flow_of(whom))

    def end(self) -> None:
        """Read the remaining connections if one is restless; the memories are stored next."""
        self.is_restless = self._has_restless()
        if self.is_restless:
            for flow in self.others["flow"].to_pylist():
                self._load_flow(flow)

    def changed(self, rows: Iterable[ScopeStateRow]) -> list[ScopeStateRow]:
        """The rows that have changed; the other rows stay in their files."""
        changed: list[ScopeStateRow] = []
        for row in rows:
            known = self._stored_rows.get((row.part, row.flow))
            if known is not None and known.state == row.state:
                del self._stored_rows[row.part, row.flow]
            else:
                changed.append(row)
        return changed

    def replaced(self) -> dict[str, list[int]]:
        """After `changed`: the places of obsolete rows, by file."""
        places: dict[str, list[int]] = {}
        for row in self._stored_rows.values():
            if row.place[1] >= 0:
                places.setdefault(row.place[0], []).append(row.place[1])
        return places

    @property
    def _linter(self) -> Linter:
        assert self._collector is not None
        assert self._collector.linter is not None
        return self._collector.linter

    def _load_flow(self, flow: bytes) -> None:
        if flow in self._brought:
            return
        self._brought.add(flow)
        states = self._matching_rows(self.others, "flow", flow)
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
        for row in self._matching_rows(self.parts, "flow", flow):
            self._collector.recall(self._read(row, OF_A_CONNECTION, flow))

    def _read(self, row: Mapping[str, Any], part: str, flow: bytes | None) -> KeyMemory:
        state = self._state(SCOPE_STATE.name, row)
        self._stored_rows[part, flow] = _StoredRow((row["file"], row["row"]), state)
        return key_memory(state)

    def _state(self, table: str, row: Mapping[str, Any]) -> bytes:
        known = self._files.get((table, row["file"]))
        if known is None:
            known = read_rows(self.root, [row["file"]], table, ("state",))["state"]
            self._files[table, row["file"]] = known
        state: bytes = known[row["row"]].as_py()
        return state

    @staticmethod
    def _matching_rows(table: pa.Table, column: str, value: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = table.filter(pc.equal(table[column], value)).select(["file", "row"]).to_pylist()
        return rows

    def _has_restless(self) -> bool:
        """Whether a rule may report something about the end of any connection."""
        if None in self.own.values() or self.others["ending_ns"].null_count:
            return True
        if not all(rule.is_ours() for rule in self._linter.rules):
            return True
        waits = self.parts.filter(pc.is_valid(self.parts["next_ns"]))
        times = zip(waits["flow"].to_pylist(), waits["next_ns"].to_pylist(), strict=True)
        asked = {flow: next_ns for flow, next_ns in times if flow not in self._brought}
        assert self._dissector is not None
        for open_flow in self._dissector.flows.flows.values():
            connection = connection_of(open_flow)
            history = None if connection is None else connection.history
            if history is not None and (history.asked or history.asked_next):
                flow = group_key(open_flow.key)
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
    """One key in these files; ``None`` if the files do not have it in parts.

    ``own``: see `KeyParts`; these flows are not looked up in the files.
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
    tables = []
    for name in names:
        index = index_of(root, name, table, columns)
        count = index.num_rows
        index = index.append_column("file", pa.repeat(pa.scalar(name), count))
        tables.append(index.append_column("row", pa.array(range(count), pa.int64())))
    if not tables:
        empty = read_rows(root, [], table, columns)
        tables = [empty.append_column("file", pa.array([], pa.string())).append_column("row", pa.array([], pa.int64()))]
    return pa.concat_tables(tables)
