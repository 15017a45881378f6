"""Several questions in one job: each gets its own rows, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from pyspark.sql import functions as f

from mqttscope.report.fleet.model import Percentiles, Ranked
from mqttscope.spark.answers.gathering import Gathering, count_where, percentiles, spread

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
