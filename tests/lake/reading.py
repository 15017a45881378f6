"""Captures as tables, for the tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect_segments, segments
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.lake import delta
from mqttscope.lake.kernel import KEY_STATE, SEGMENT_COLUMNS, cross_kernel, kernel
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import EVENT_TABLES, OPEN, TABLES
from mqttscope.lake.store import Place
from mqttscope.lake.tables import Collector
from mqttscope.lake.writer import read_table
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.rule import Rule
from mqttscope.net.segment import Segment, group_key
from mqttscope.report.jsonl import EventJsonLines
from tests.conftest import ROOT

CAPTURES = sorted(ROOT.glob("captures/*/capture.pcapng"))
Row = dict[str, Any]
Tables = dict[str, list[Row]]
TYPES = (
    ("kind", pa.string()), ("flow", pa.binary()), ("timestamp_ns", pa.int64()), ("file", pa.int32()),
    ("frame", pa.int64()), ("direction", pa.binary()), ("sequence", pa.int64()), ("acknowledgment", pa.int64()),
    ("flags", pa.int32()), ("window", pa.int32()), ("payload", pa.binary()), ("missing", pa.int64()),
    ("capture", pa.string()), ("clock_ns", pa.int64()), ("options", pa.binary()), ("checksum", pa.int32()),
)  # fmt: skip
INPUT = pa.schema(TYPES)
assert INPUT.names == list(SEGMENT_COLUMNS)


@cache
def all_of_them() -> tuple[Rule, ...]:
    return tuple(usual_rule(rule) for rule in all_rules().values())


def options(**changes: Any) -> LakeOptions:
    return replace(LakeOptions(payload_limit=65_536, rules=all_of_them()), **changes)


def collect(events: Iterable[Event], lake_options: LakeOptions) -> Tables:
    """All rows of events, in process."""
    collector = Collector(lake_options)
    for event in events:
        collector.feed(event)
    return collected(collector)


def collected(collector: Collector) -> Tables:
    tables: Tables = {}
    for name, batch in collector.batches(everything=True):
        tables.setdefault(name, []).extend(batch.to_pylist())
    return tables


def in_process(paths: Iterable[Path], lake_options: LakeOptions) -> Tables:
    return collect(dissect_segments(segments(open_capture([*paths])), lake_options.reading()), lake_options)


@cache
def usual(path: Path) -> Tables:
    """One capture with all rules; only to look at."""
    return in_process([path], options())


def segment_rows(segments: Sequence[Segment], file: int = 0) -> list[tuple[Any, ...]]:
    clocks = accumulate((segment.timestamp_ns for segment in segments), max)
    return [
        ("segment", group_key(segment.key), segment.timestamp_ns, file, segment.frame, segment.key, segment.sequence,
         segment.acknowledgment, segment.flags, segment.window, segment.payload, segment.missing, segment.capture,
         clock_ns, segment.options, segment.checksum)
        for segment, clock_ns in zip(segments, clocks, strict=True)
    ]  # fmt: skip


def remembered_row(flow: bytes, state: bytes, kind: str = "state") -> tuple[Any, ...]:
    """What earlier ingests remember of a flow, as an input row."""
    return (kind, flow, 0, 0, 0, b"", 0, 0, 0, 0, state, 0, "", 0, None, None)


def read_segments(path: Path) -> list[Segment]:
    return [segment for segment in segments(open_capture([path])) if isinstance(segment, Segment)]


def batches_of(rows: list[tuple[Any, ...]], size: int = 100) -> Iterable[pa.RecordBatch]:
    """Sorted input rows as batches; state comes before segments."""
    order = {KEY_STATE: -1, "state": 0}
    rows = sorted(rows, key=lambda row: (row[1], order.get(row[0], 1), *row[3:5]))
    for at in range(0, len(rows), size):
        columns = list(zip(*rows[at : at + size], strict=True))
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, (_, kind) in zip(columns, TYPES, strict=True)], schema=INPUT
        )


def by_kernel(
    rows: list[tuple[Any, ...]],
    lake_options: LakeOptions,
    run: Callable[..., Iterable[pa.RecordBatch]] = kernel,
    **more: Any,
) -> Tables:
    tables: Tables = {}
    for batch in run(batches_of(rows), lake_options, **more):
        kinds = set(batch.column("kind").to_pylist())
        assert len(kinds) == 1
        (kind,) = kinds
        tables.setdefault(kind, []).extend(batch.column(kind.removeprefix(OPEN)).to_pylist())
    return tables


def in_runs(parts: Sequence[Sequence[Segment]], lake_options: LakeOptions) -> Tables:
    """Runs of the kernel one after the other, each with the state that the one before left; the last one ends."""
    tables: Tables = {}
    states: list[tuple[Any, ...]] = []
    for number, part in enumerate(parts, 1):
        given_rows, last_ns = [*states, *segment_rows(part)], part[-1].timestamp_ns
        documents = by_kernel(given_rows, lake_options, more=number < len(parts), watermark_ns=last_ns)
        states = [remembered_row(row["flow"], row["state"]) for row in documents.pop("state", [])]
        for name, rows in documents.items():
            if not name.startswith(OPEN):
                tables.setdefault(name, []).extend(rows)
    assert not states
    return tables


class Fold:
    """Ingests one after the other, as an engine with two stages makes them: what flows and keys remember continues."""

    def __init__(self, options: LakeOptions) -> None:
        self.options = options
        self.findings: list[Row] = []
        self.open: list[Row] = []
        self.states: list[Row] = []
        """What is remembered of flows."""
        self.keys: list[Row] = []
        """What is remembered of keys."""
        self.flow_keys: dict[bytes, set[str]] = {}
        """The keys of the flows of the last ingest."""

    @property
    def rows(self) -> list[Row]:
        """Findings, those of what is open as well."""
        return [*self.findings, *self.open]

    def ingest(self, actual_segments: Sequence[Segment]) -> None:
        last = actual_segments[-1].timestamp_ns
        rows = [*(remembered_row(row["flow"], row["state"]) for row in self.states), *segment_rows(actual_segments)]
        tables = by_kernel(rows, self.options, more=True, watermark_ns=last)
        self.states = tables.get("state", [])
        self.open = tables.get("open/findings", [])
        self.findings += tables.get("findings", [])
        self.flow_keys = {}
        for row in tables.get("flow_keys", []):
            self.flow_keys.setdefault(row["flow"], set()).add(row["key"])
        again = [(row[0], key.encode(), *row[2:]) for row in rows for key in self.flow_keys.get(row[1], ())]
        again += [remembered_row(row["key"].encode(), row["state"], KEY_STATE) for row in self.keys]
        tables = by_kernel(again, self.options, cross_kernel, more=True, watermark_ns=last)
        self.keys = tables.get("scope_state", [])
        self.open += tables.get("open/findings", [])
        self.findings += tables.get("findings", [])


PLACES = {"capture", "frame", "found_capture", "found_frame", "closed_capture", "closed_frame", "file"}


def placeless(value: Any) -> Any:
    """Without what says in which file something was."""
    if isinstance(value, dict):
        return {name: placeless(each) for name, each in value.items() if name not in PLACES}
    return [placeless(each) for each in value] if isinstance(value, list) else value


def ordered(tables: Tables, *, places: bool = True) -> Tables:
    """Tables as sets of rows, so to speak: in an order of their own."""
    result: Tables = {}
    for name in EVENT_TABLES:
        rows = tables.get(name, [])
        rows = rows if places else [placeless(row) for row in rows]
        result[name] = sorted(rows, key=lambda row: json.dumps(row, default=str, sort_keys=True))
    return result


def tables_of(lake: Place) -> Tables:
    """What mqttscope reads of a lake."""
    return {name: read_table(lake, name).to_pylist() for name in TABLES}


def all_rows(lake: Place, *, places: bool = True) -> dict[str, list[str]]:
    """The rows of all tables as text, in an order of their own."""
    tables = tables_of(lake)
    return {name: sorted(repr(row if places else placeless(row)) for row in rows) for name, rows in tables.items()}


def rows_for_others(lake: Place) -> dict[str, list[str]]:
    """What everyone else reads of a lake, in the form of `all_rows`."""
    from deltalake import DeltaTable

    texts = {}
    for name in TABLES:
        table = DeltaTable(delta._uri(lake / name), storage_options=delta._options(lake))
        texts[name] = sorted(map(repr, table.to_pyarrow_table().to_pylist()))
    return texts


class Lines:
    """The lines of JSON Lines, with those numbers of packets that count a connection."""

    def __init__(self) -> None:
        self.lines: list[Row] = []
        self._report = EventJsonLines(self)

    def write(self, data: bytes, /) -> object:
        self.lines.append(json.loads(data))
        return None

    def feed(self, event: Event) -> None:
        self._report.feed(event)


def numbered(event: Event) -> tuple[int, str, int] | None:
    """What names a packet in a run."""
    if isinstance(event, PacketEvent | MalformedEvent):
        return event.connection.number, str(event.direction), event.stream_offset
    return None
