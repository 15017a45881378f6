"""Folds a batch of few rows in the process of the driver.

A batch of a quiet stream has a handful of segments.  Spark would plan jobs for them, start tasks, and move what is
remembered of their flows through Java: seconds of processor time, for milliseconds of work.  So the rows of a small
batch come to the driver, which runs the tasks of the executors itself, over the same rows in the same order
(`ingest_tasks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mqttscope.lake.carried import Carried, Taken, read_rows
from mqttscope.lake.kernel import KEY_STATE, ORDER_BY_TIME, SEGMENT_COLUMNS, STATE_KIND
from mqttscope.lake.key_parts import OVER_NS, KeyParts, key_parts
from mqttscope.lake.manifest import Manifest
from mqttscope.lake.schemas import FLOW_KEYS, SCOPE_STATE, STATE
from mqttscope.lint.finding import Scope
from mqttscope.spark.ingest_tasks import Asides, TaskReport, Work, fold_flows, ingest_keys

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

MOST_ROWS = 8_192
"""Rows of a small batch, at most."""
MOST_STATES = 4_096
"""Open flows of a lake, at most, where a small batch may have to read what all of them remember."""
_STATE, _KEY_STATE = ("flow", "state"), ("key", "state")


def small_batch(rows: DataFrame, work: Work) -> InDriver | None:
    """The batch, where it is small.  ``rows``: the input of a fold."""
    found = rows.limit(MOST_ROWS + 1).toArrow()
    return InDriver(found, work) if found.num_rows <= MOST_ROWS else None


def remembers_much(before: Manifest) -> bool:
    """Whether what a lake remembers of all its flows is too much for one process."""
    return sum(before.rows.get(name, 0) for name in before.state_files) > MOST_STATES


@dataclass(slots=True)
class InDriver:
    """The two stages of a fold (`ingest_flows.Stages`), one after the other in this process."""

    rows: pa.Table
    work: Work
    _states: list[str] = field(default_factory=list)
    """What the first stage has written of flows that stay open."""

    def looked(self) -> pa.Table:
        """See `ingest_flows.Stages`."""
        return self.rows

    def flows(self, states: Sequence[str] | Taken, carried: Carried | None) -> list[TaskReport]:
        """See `ingest_flows.Stages`."""
        self.rows = _sorted(self._with_states(self.rows, self._read(STATE.name, states, _STATE, carried)))
        reports = _reports(fold_flows(iter(self.rows.to_batches()), self.work))
        self._states = [name for one in reports for name in one.files.get(STATE.name, ())]
        return reports

    def keys(
        self, keys: Sequence[str], known: Sequence[str], aside: Sequence[dict[str, Any]], carried: Carried | None
    ) -> tuple[list[TaskReport], list[str]]:
        """See `ingest_flows.Stages`."""
        rows, left = self.rows, list[str]()
        pairs = read_rows(self._root, keys, FLOW_KEYS.name, ("flow", "key"))
        parts: dict[str, KeyParts] = {}
        if carried is not None and self.work.options.widest() is Scope.BROKER:
            parts = self._parts(pairs, carried)
        if carried is not None and parts.keys() >= carried.keys:
            # What is remembered is read when a rule asks for it; without a row the key would not be asked about.
            names = pa.chunked_array([pa.array(sorted(carried.keys), pa.string())])
            remembered = pa.table({"key": names, "state": pa.nulls(len(names), pa.binary())})
        else:
            parts, taken = {}, None
            if carried is not None:
                named, files = carried.take_others()
                states = read_rows(self._root, files, STATE.name, _STATE)
                wanted = pc.is_in(states["flow"], value_set=named["flow"].combine_chunks())
                rows = self._with_states(rows, states.filter(wanted))
                pairs = pa.concat_tables([pairs, named])
                taken, left = carried.take_keys()
            remembered = self._read(SCOPE_STATE.name, known if taken is None else taken, _KEY_STATE, carried)
        of_flows: dict[bytes, set[str]] = {}
        for flow, key in zip(pairs["flow"].to_pylist(), pairs["key"].to_pylist(), strict=True):
            of_flows.setdefault(flow, set()).add(key)
        rows = _by_key(rows, of_flows)
        flows = remembered["key"].cast(pa.binary())
        rows = pa.concat_tables([rows, _rows_of(rows.schema, KEY_STATE, -1, flows, remembered["state"])])
        reports: list[TaskReport] = []
        if rows.num_rows:
            asides = Asides.of(aside, self.work.watermark_ns)
            batches = iter(_sorted(rows).to_batches())
            reports = _reports(ingest_keys(batches, self.work, asides, parts.get if parts else None))
        if parts:
            assert carried is not None
            left = carried.replace_parts(one.replaced() for one in parts.values())
        return reports, left

    def _parts(self, pairs: pa.Table, carried: Carried) -> dict[str, KeyParts]:
        """The keys that the batch concerns, as far as they are in parts in the lake."""
        ends: dict[bytes, int | None] = {}
        for row in read_rows(self._root, self._states, STATE.name, ("flow", "ending_ns")).to_pylist():
            known, ending_ns = ends.get(row["flow"], OVER_NS), row["ending_ns"]
            ends[row["flow"]] = None if known is None or ending_ns is None else max(known, ending_ns)
        of_keys: dict[str, set[bytes]] = {key: set() for key in carried.keys}
        for flow, key in zip(pairs["flow"].to_pylist(), pairs["key"].to_pylist(), strict=True):
            of_keys[key].add(flow)
        for flow, names in zip(*(carried.concerned[one].to_pylist() for one in ("flow", "keys")), strict=True):
            for key in names or ():
                of_keys[key].add(flow)
        before, found = carried.before.scope_state_files, {}
        for key, flows in of_keys.items():
            own = {flow: ends.get(flow, OVER_NS) for flow in flows}
            parts = key_parts(self._root, key, before, carried.state_files, own)
            if parts is not None:
                found[key] = parts
        return found

    def _read(
        self, table: str, files: Sequence[str] | Taken, columns: tuple[str, ...], carried: Carried | None
    ) -> pa.Table:
        if isinstance(files, Taken):
            assert carried is not None
            return carried.rows(files, columns)
        return read_rows(self._root, files, table, columns)

    @property
    def _root(self) -> Path:
        from pathlib import Path

        return Path(self.work.root)

    @staticmethod
    def _with_states(rows: pa.Table, states: pa.Table) -> pa.Table:
        return pa.concat_tables([rows, _rows_of(rows.schema, STATE_KIND, 0, states["flow"], states["state"])])


def _rows_of(schema: pa.Schema, kind: str, order: int, flows: pa.ChunkedArray, states: pa.ChunkedArray) -> pa.Table:
    """What is remembered as rows that come before all others of a flow or key."""
    count = len(flows)
    values: dict[str, Any] = dict.fromkeys(("timestamp_ns", "clock_ns", "file", "frame"), 0)
    values |= {"kind": kind, "kind_order": order}
    columns: list[Any] = []
    for one in schema:
        if one.name in values:
            columns.append(pa.repeat(pa.scalar(values[one.name], one.type), count))
        elif one.name in ("flow", "payload"):
            columns.append((flows if one.name == "flow" else states).cast(one.type))
        else:
            columns.append(pa.nulls(count, one.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _sorted(rows: pa.Table) -> pa.Table:
    """Rows in the order in which tasks read them: what belongs to no flow comes first."""
    of_flows = pc.is_valid(rows["flow"])
    keys = [(name, "ascending") for name in ORDER_BY_TIME]
    some = rows.filter(of_flows)
    found = some.take(pc.sort_indices(some, sort_keys=keys))
    return pa.concat_tables([rows.filter(pc.invert(of_flows)), found]).combine_chunks()


def _by_key(rows: pa.Table, of_flows: Mapping[bytes, set[str]]) -> pa.Table:
    """Rows of flows with their key in the place of the flow, once for each key that a flow has."""
    places, keys = [], []
    for place, flow in enumerate(rows["flow"].to_pylist()):
        for key in sorted(of_flows.get(flow, ())):
            places.append(place)
            keys.append(key.encode())
    found = rows.select([*SEGMENT_COLUMNS, "kind_order"]).take(pa.array(places, pa.int64()))
    kind = found.schema.field("flow").type
    return found.set_column(found.schema.get_field_index("flow"), found.schema.field("flow"), pa.array(keys, kind))


def _reports(made: Iterator[pa.RecordBatch]) -> list[TaskReport]:
    return [TaskReport.load(text) for one in made for text in one.column("report").to_pylist()]
