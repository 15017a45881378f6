"""Folds a batch of few rows in the driver process.

A batch of a quiet stream has a handful of segments.  Spark would plan jobs for them, start tasks, and move the memories
of their flows through Java: seconds of processor time for milliseconds of work.  So the rows of a small
batch come to the driver, which runs the tasks of the executors itself, over the rows in the order of the executors
(`ingest_tasks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mqttscope.lake.carried import RowExtract, StateDivision, read_rows
from mqttscope.lake.kernel import KEY_STATE, ORDER_BY_TIME, SEGMENT_COLUMNS, STATE_KIND
from mqttscope.lake.key_parts import OVER_NS, KeyParts, key_parts
from mqttscope.lake.manifest import Manifest
from mqttscope.lake.schemas import FLOW_KEYS, SCOPE_STATE, STATE
from mqttscope.lint.finding import Scope
from mqttscope.spark.ingest_tasks import FoldSettings, SharedNotices, TaskReport, fold_flows, ingest_keys

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

MOST_ROWS = 8_192
"""Maximum number of rows of a small batch."""
MOST_STATES = 4_096
"""Maximum number of open flows of a lake if a small batch may have to read all of their memories."""
_STATE, _KEY_STATE = ("flow", "state"), ("key", "state")


def small_batch(rows: DataFrame, work: FoldSettings) -> DriverStages | None:
    """The batch, if it is small.  ``rows``: the input of a fold."""
    table = rows.limit(MOST_ROWS + 1).toArrow()
    return DriverStages(table, work) if table.num_rows <= MOST_ROWS else None


def remembers_much(before: Manifest) -> bool:
    """Whether the memories of all flows of a lake are too much for one process."""
    return sum(before.rows.get(name, 0) for name in before.state_files) > MOST_STATES


@dataclass(slots=True)
class DriverStages:
    """The two stages of a fold (`ingest_flows.Stages`), one after the other in this process."""

    rows: pa.Table
    work: FoldSettings
    _states: list[str] = field(default_factory=list)
    """State files of the first stage for flows that stay open."""

    def examined_rows(self) -> pa.Table:
        """See `ingest_flows.Stages`."""
        return self.rows

    def flows(self, states: Sequence[str] | RowExtract, carried: StateDivision | None) -> list[TaskReport]:
        """See `ingest_flows.Stages`."""
        self.rows = _sorted(self._with_states(self.rows, self._read(STATE.name, states, _STATE, carried)))
        reports = _reports(fold_flows(iter(self.rows.to_batches()), self.work))
        self._states = [name for report in reports for name in report.files.get(STATE.name, ())]
        return reports

    def keys(
        self, keys: Sequence[str], known: Sequence[str], aside: Sequence[dict[str, Any]], carried: StateDivision | None
    ) -> tuple[list[TaskReport], list[str]]:
        """See `ingest_flows.Stages`."""
        rows, left = self.rows, list[str]()
        pairs = read_rows(self._root, keys, FLOW_KEYS.name, ("flow", "key"))
        parts: dict[str, KeyParts] = {}
        if carried is not None and self.work.options.widest() is Scope.BROKER:
            parts = self._parts(pairs, carried)
        if carried is not None and parts.keys() >= carried.keys:
            # Memories are read when a rule asks for them; without a row the key would be skipped.
            names = pa.chunked_array([pa.array(sorted(carried.keys), pa.string())])
            remembered = pa.table({"key": names, "state": pa.nulls(len(names), pa.binary())})
        else:
            parts, extract = {}, None
            if carried is not None:
                named, files = carried.take_others()
                states = read_rows(self._root, files, STATE.name, _STATE)
                wanted = pc.is_in(states["flow"], value_set=named["flow"].combine_chunks())
                rows = self._with_states(rows, states.filter(wanted))
                pairs = pa.concat_tables([pairs, named])
                extract, left = carried.take_keys()
            remembered = self._read(SCOPE_STATE.name, known if extract is None else extract, _KEY_STATE, carried)
        of_flows: dict[bytes, set[str]] = {}
        for flow, key in zip(pairs["flow"].to_pylist(), pairs["key"].to_pylist(), strict=True):
            of_flows.setdefault(flow, set()).add(key)
        rows = _by_key(rows, of_flows)
        flows = remembered["key"].cast(pa.binary())
        rows = pa.concat_tables([rows, _rows_of(rows.schema, KEY_STATE, -1, flows, remembered["state"])])
        reports: list[TaskReport] = []
        if rows.num_rows:
            asides = SharedNotices.of(aside, self.work.watermark_ns)
            batches = iter(_sorted(rows).to_batches())
            reports = _reports(ingest_keys(batches, self.work, asides, parts.get if parts else None))
        if parts:
            assert carried is not None
            left = carried.replace_parts(part.replaced() for part in parts.values())
        return reports, left

    def _parts(self, pairs: pa.Table, carried: StateDivision) -> dict[str, KeyParts]:
        """The keys that the batch concerns, if the lake has them in parts."""
        ends: dict[bytes, int | None] = {}
        for row in read_rows(self._root, self._states, STATE.name, ("flow", "ending_ns")).to_pylist():
            known, ending_ns = ends.get(row["flow"], OVER_NS), row["ending_ns"]
            ends[row["flow"]] = None if known is None or ending_ns is None else max(known, ending_ns)
        of_keys: dict[str, set[bytes]] = {key: set() for key in carried.keys}
        for flow, key in zip(pairs["flow"].to_pylist(), pairs["key"].to_pylist(), strict=True):
            of_keys[key].add(flow)
        for flow, names in zip(*(carried.concerned[column].to_pylist() for column in ("flow", "keys")), strict=True):
            for key in names or ():
                of_keys[key].add(flow)
        before, by_key = carried.before.scope_state_files, {}
        for key, flows in of_keys.items():
            own = {flow: ends.get(flow, OVER_NS) for flow in flows}
            parts = key_parts(self._root, key, before, carried.state_files, own)
            if parts is not None:
                by_key[key] = parts
        return by_key

    def _read(
        self, table: str, files: Sequence[str] | RowExtract, columns: tuple[str, ...], carried: StateDivision | None
    ) -> pa.Table:
        if isinstance(files, RowExtract):
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
    """Memories as rows that come before all others of a flow or key."""
    count = len(flows)
    values: dict[str, Any] = dict.fromkeys(("timestamp_ns", "clock_ns", "file", "frame"), 0)
    values |= {"kind": kind, "kind_order": order}
    columns: list[Any] = []
    for column in schema:
        if column.name in values:
            columns.append(pa.repeat(pa.scalar(values[column.name], column.type), count))
        elif column.name in ("flow", "payload"):
            columns.append((flows if column.name == "flow" else states).cast(column.type))
        else:
            columns.append(pa.nulls(count, column.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _sorted(rows: pa.Table) -> pa.Table:
    """Rows in the reading order of tasks: rows without a flow come first."""
    of_flows = pc.is_valid(rows["flow"])
    keys = [(name, "ascending") for name in ORDER_BY_TIME]
    some = rows.filter(of_flows)
    ordered = some.take(pc.sort_indices(some, sort_keys=keys))
    return pa.concat_tables([rows.filter(pc.invert(of_flows)), ordered]).combine_chunks()


def _by_key(rows: pa.Table, of_flows: Mapping[bytes, set[str]]) -> pa.Table:
    """Rows of flows with their key in place of the flow, once for each key of a flow."""
    places, keys = [], []
    for place, flow in enumerate(rows["flow"].to_pylist()):
        for key in sorted(of_flows.get(flow, ())):
            places.append(place)
            keys.append(key.encode())
    copied = rows.select([*SEGMENT_COLUMNS, "kind_order"]).take(pa.array(places, pa.int64()))
    kind = copied.schema.field("flow").type
    return copied.set_column(copied.schema.get_field_index("flow"), copied.schema.field("flow"), pa.array(keys, kind))


def _reports(batches: Iterator[pa.RecordBatch]) -> list[TaskReport]:
    return [TaskReport.load(text) for record_batch in batches for text in record_batch.column("report").to_pylist()]
