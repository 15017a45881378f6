"""Long queries in stages: their results, and that the plan does not double."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqttscope.spark import staged as stages
from mqttscope.spark.staged import divide, staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "with a as (select ')' as x), b as (with c as (select 1 as y) select * from c)\nselect * from a, b"


def doubling(count: int) -> str:
    """A query of which each expression uses the one before twice."""
    parts = ["e0 as (select 1 as n)"]
    parts += [f"e{i} as (select x.n + y.n as n from e{i - 1} as x join e{i - 1} as y)" for i in range(1, count)]
    return f"with {', '.join(parts)} select n from e{count - 1}"


def test_a_query_is_divided_at_its_own_parentheses() -> None:
    expressions, rest = divide(QUERY)

    assert expressions == {"a": "select ')' as x", "b": "with c as (select 1 as y) select * from c"}
    assert rest.strip() == "select * from a, b"
    assert divide("select 1") == ({}, "select 1")


def test_many_expressions_that_use_each_other_twice(spark: SparkSession) -> None:
    with staged(spark, doubling(24), "doubling") as frame:
        assert frame.collect() == [(1 << 23,)]


def test_a_short_query_stays_whole(spark: SparkSession) -> None:
    with staged(spark, doubling(stages.MANY - 1), "short") as frame:
        assert frame.collect() == [(1 << (stages.MANY - 2),)]
        assert not spark.catalog.tableExists("short_e0")
    with staged(spark, doubling(stages.MANY), "long") as frame:
        assert frame.collect() == [(1 << (stages.MANY - 1),)]
        assert spark.catalog.tableExists("long_e0")


def test_a_view_outlives_the_stages(spark: SparkSession) -> None:
    with staged(spark, doubling(24), "stage") as frame:
        frame.createOrReplaceTempView("outcome")

    assert not spark.catalog.tableExists("stage_e0")
    assert spark.sql("select n from outcome").collect() == [(1 << 23,)]
    spark.catalog.dropTempView("outcome")
