"""Which rows are meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

import pyarrow as pa

from mqttscope.report.fleet.model import Asked
from mqttscope.spark.answers.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def test_findings(spark: SparkSession) -> None:
    """All cases in one job."""
    from functools import reduce

    from pyspark.sql import functions as f

    frame = spark.createDataFrame(pa.table(dict(zip(NAMES, zip(*ROWS, strict=True), strict=True))))
    asked = [
        Selection(Asked(**case)).findings(frame).select(f.lit(index).alias("case"), "timestamp_ns")
        for index, (case, _) in enumerate(CASES)
    ]

    found: list[list[int]] = [[] for _ in CASES]
    for index, time in reduce(lambda one, other: one.union(other), asked).collect():
        found[index].append(time)

    for (case, expected), times in zip(CASES, found, strict=True):
        assert sorted(times) == expected, case


def test_connections_and_history(spark: SparkSession) -> None:
    """Connections count if they were there in the time; history has all that came before."""
    names = ("client_identifier", "server", "timestamp_ns", "closed_ns")
    rows = [
        ("a", "s:1", 10, 19),
        ("a", "s:1", 10, 20),
        ("a", "s:1", 15, None),
        ("b", "s:1", 25, 50),
        ("a", "s:1", 30, 40),
    ]
    frame = spark.createDataFrame(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))))
    selection = Selection(Asked(since_ns=20, until_ns=30, client=["a"]))

    assert [row[2:] for row in selection.connections(frame).orderBy("closed_ns").collect()] == [(15, None), (10, 20)]
    assert selection.history(frame).count() == 4
