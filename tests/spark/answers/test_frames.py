"""Which rows are meant, and several questions in one job; times have more digits than doubles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

import pyarrow as pa
from pyspark.sql import functions as f

from mqttscope.report.fleet.model import Asked, Percentiles, Ranked
from mqttscope.spark.answers.frames import Gathering, Selection, count_where, percentiles, spread, units_since_1970

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_NS = 86_400 * 10**9


def test_days_begin_at_their_first_nanosecond(spark: SparkSession) -> None:
    times = [day * DAY_NS + more for day in (-1, 0, 20_000) for more in (-1, 0, 1, DAY_NS - 150)]

    found = spark.createDataFrame([(one,) for one in times], "timestamp_ns bigint")
    days = [row[0] for row in found.select(units_since_1970(DAY_NS)).collect()]

    assert days == [one // DAY_NS for one in times]


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


if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_answers_are_told_apart_and_keep_their_order(spark: SparkSession) -> None:
    numbers = spark.range(20)
    questions = Gathering()
    questions.add("few", numbers.where("id < 2"))
    questions.add("none", numbers.where("id < 0"))
    questions.add("one", numbers.agg(f.sum("id").alias("sum"), f.lit(None).cast("int").alias("nothing")))
    questions.top("highest", numbers.withColumn("a b.c", f.col("id")), [f.col("id").desc()], 3)
    questions.top("all of them", numbers, [f.col("id").asc()], 100)
    questions.collect()

    assert sorted(row["id"] for row in questions.rows("few")) == [0, 1]
    assert questions.rows("none") == []
    # What is null is there all the same.
    assert questions.row("one") == {"sum": 190, "nothing": None}
    assert questions.ranked("highest", lambda row: row["a b.c"]) == Ranked([19, 18, 17], 20)
    assert questions.ranked("all of them", lambda row: row["id"]) == Ranked([*range(20)], 20)
    for name in ("few", "none"):
        with pytest.raises(ValueError, match="unpack"):
            questions.row(name)
    with pytest.raises(KeyError):
        questions.rows("never asked")


def test_what_is_kept_is_forgotten_when_it_was_answered(spark: SparkSession) -> None:
    questions = Gathering()
    kept = questions.keep(spark.range(3))
    questions.add("one", kept)
    assert kept.is_cached

    questions.collect()
    assert not kept.is_cached
    assert len(questions.rows("one")) == 3


def test_values_of_any_kind_come_back(spark: SparkSession) -> None:
    given = {"text": 'a\n\u00fc"', "flag": True, "many": [1, None], "pair": {"x": 1}, "big": 2**62 + 1}
    frame = spark.createDataFrame([given], "text string, flag boolean, many array<int>, pair struct<x:int>, big bigint")
    questions = Gathering()
    questions.add("one", frame)
    questions.collect()

    assert questions.row("one") == given


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Percentiles()),
        ([None], Percentiles()),
        ([7, None], Percentiles(1, 7, 7, 7, 7)),
        ([*range(1, 101)], Percentiles(100, 50, 90, 99, 100)),
    ],
)
def test_percentiles_leave_out_what_was_not_measured(
    spark: SparkSession, values: list[int | None], expected: Percentiles
) -> None:
    frame = spark.createDataFrame([(one,) for one in values], "value bigint")
    for column in ("value", f.col("value")):
        (row,) = frame.agg(*spread(column)).collect()
        assert percentiles(row.asDict()) == expected


def test_counting_where_nothing_is_gives_0(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1,), (5,), (None,)], "value int")
    counts = [count_where(f.col("value") > 1, "some"), count_where(f.col("value") > 9, "none")]

    assert frame.agg(*counts).first().asDict() == {"some": 1, "none": 0}  # type: ignore[union-attr]
    assert frame.where("value > 9").agg(*counts).first().asDict() == {"some": 0, "none": 0}  # type: ignore[union-attr]
