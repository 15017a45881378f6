"""Sorting gives one order, however many runs it takes, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqttscope.lake import spill
from mqttscope.lake.spill import READ_ROWS, Sorter

SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64()), ("data", pa.binary())])
Row = tuple[str, int, bytes]


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.RecordBatch.from_arrays(
        [pa.array(one, field.type) for one, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def taken(sorter: Sorter) -> list[Row]:
    found = list(sorter.batches())
    assert all(one.num_rows <= READ_ROWS and one.schema == SCHEMA for one in found)
    return [tuple(row.values()) for one in found for row in one.to_pylist()]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.lists(st.tuples(st.text(max_size=3), st.integers(-9, 9), st.binary(max_size=3)), max_size=9)),
    limit=st.sampled_from([1, 60, 1 << 20]),
)
def test_rows_come_in_order(pieces: list[list[Row]], limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "RUN_BYTES", limit)
    with Sorter(SCHEMA, ["key", "number"]) as sorter:
        for rows in pieces:
            sorter.add(batch(rows))
        found = taken(sorter)

    # Text is in the order of its bytes.
    assert [row[:2] for row in found] == sorted(row[:2] for rows in pieces for row in rows)
    assert sorted(found) == sorted(row for rows in pieces for row in rows)


def test_nothing_is_left_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "RUN_BYTES", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = [(f"{number % 7}", number, b"") for number in range(2 * READ_ROWS)]
    with Sorter(SCHEMA, ["key", "number"]) as sorter:
        for row in rows[:3]:
            sorter.add(batch([row]))
        assert len(list(tmp_path.rglob("*.arrow"))) == len(sorter.runs) == 3
        sorter.add(batch(rows[3:]))
        assert taken(sorter) == sorted(rows)
    assert not list(tmp_path.iterdir())
