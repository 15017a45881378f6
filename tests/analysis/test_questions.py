"""Which rows are meant, and what several questions need; times have more digits than doubles."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mqttscope.analysis.questions import RowSelection, labels, percentiles, spread, units_since_1970
from mqttscope.report.fleet.model import Percentiles, ReportQuery
from tests.analysis.asking import WORDS, rows_of

DAY_NS = 86_400 * 10**9


def test_days_begin_at_their_first_nanosecond() -> None:
    times = [day * DAY_NS + more for day in (-1, 0, 20_000) for more in (-1, 0, 1, DAY_NS - 150)]

    query = f"select {units_since_1970(WORDS, DAY_NS)} as day from times"
    days = [row["day"] for row in rows_of(query, times=pa.table({"timestamp_ns": times}))]

    assert days == [time // DAY_NS for time in times]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Percentiles()),
        ([None], Percentiles()),
        ([7, None], Percentiles(1, 7, 7, 7, 7)),
        ([*range(1, 101)], Percentiles(100, 50, 90, 99, 100)),
    ],
)
def test_percentiles_leave_out_what_was_not_measured(values: list[int | None], expected: Percentiles) -> None:
    measured = pa.table({"value": pa.array(values, pa.int64())})
    (row,) = rows_of(f"select {spread(WORDS, 'value')} from measured", measured=measured)
    assert percentiles(row) == expected


ROWS = [
    ("pump-1", "10.0.0.2:1883", "plant/a", 10, "PUB101", "qos-3"),
    ("pump-2", "10.0.0.2:1884", "plant/a/b", 20, "ALS202", "topic-alias-exceeds-maximum"),
    ("Pump.1\nx", "[::1]:1883", "$SYS/x", 30, "PUB103", "wildcard-in-topic-name"),
    (None, "10.0.0.3:1883", None, 40, "CON212", "second-connect"),
]
NAMES = ("client_identifier", "server", "topic", "timestamp_ns", "rule", "slug")
CASES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [10, 20, 30, 40]),
    ({"since_ns": 20}, [20, 30, 40]),
    ({"since_ns": 20, "until_ns": 40}, [20, 30]),
    ({"client": ["pump-*"]}, [10, 20]),
    ({"client": ["pump-?", "Pump.1\nx"]}, [10, 20, 30]),
    ({"client": ["P*x"]}, [30]),
    ({"client": ["pump"]}, []),
    ({"client": ["*"]}, [10, 20, 30]),
    ({"server": ["10.0.0.2:*"]}, [10, 20]),
    ({"server": ["[::1]:*", "10.0.0.3:1883"]}, [30, 40]),
    ({"topic": ["plant/#"]}, [10, 20]),
    ({"topic": ["#"]}, [10, 20]),
    ({"topic": ["$SYS/+", "plant/+"]}, [10, 30]),
    ({"rule": ["PUB"]}, [10, 30]),
    ({"rule": ["pub101", "Second-Connect"]}, [10, 40]),
]  # fmt: skip


@pytest.mark.parametrize(("case", "expected"), CASES)
def test_findings(case: dict[str, Any], expected: list[int]) -> None:
    result = pa.table(dict(zip(NAMES, zip(*ROWS, strict=True), strict=True)))
    chosen = RowSelection(WORDS, ReportQuery(**case)).findings("found")

    assert sorted(row["timestamp_ns"] for row in rows_of(f"select * from {chosen}", found=result)) == expected


def test_connections_and_history() -> None:
    """Connections count if they were there in the time; history has all that came before."""
    names = ("client_identifier", "server", "timestamp_ns", "closed_ns")
    rows = [
        ("a", "s:1", 10, 19),
        ("a", "s:1", 10, 20),
        ("a", "s:1", 15, None),
        ("b", "s:1", 25, 50),
        ("a", "s:1", 30, 40),
    ]
    known = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
    selection = RowSelection(WORDS, ReportQuery(since_ns=20, until_ns=30, client=["a"]))

    documents = rows_of(f"select * from {selection.connections('known')}", known=known)
    assert sorted((row["timestamp_ns"], row["closed_ns"]) for row in documents) == [(10, 20), (15, None)]
    assert len(rows_of(f"select * from {selection.history('known', 'connections')}", known=known)) == 4


def test_labels_of_lakes() -> None:
    assert labels(["/srv/a", "s3://bucket/b/"]) == ["a", "b"]
    assert labels(["/x/lake", "/y/lake"]) == ["/x/lake", "/y/lake"]
