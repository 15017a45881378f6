"""Spark gives the answers that DuckDB gives in process, to every question, over all captures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

import pyarrow as pa
from pyspark.sql import functions as f

from mqttscope.analysis import joins as queries
from mqttscope.analysis.fleet import PARTS
from mqttscope.analysis.local import LocalEngine
from mqttscope.analysis.questions import Lake
from mqttscope.analysis.selection import Selection
from mqttscope.mqtt.topics import matches
from mqttscope.report.fleet.model import PROPERTIES, Asked, FleetReport
from mqttscope.spark import joins
from mqttscope.spark.engine import SparkEngine
from tests.analysis.asking import WORDS, rows_of
from tests.analysis.conftest import ALL
from tests.analysis.conftest import lake as lake
from tests.analysis.test_joins import FIXED, conversations, expiry
from tests.analysis.test_selection import CASES, NAMES, ROWS
from tests.analysis.test_shapes import SHAPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqttscope.analysis.questions import Engine

SINCE_NS, UNTIL_NS = 1_795_532_613_000_000_000, 1_795_534_904_000_000_000
ASKED = {
    "everything": Asked(top=ALL, group_by=["nothing", "Firmware"]),
    "a part": Asked(
        SINCE_NS, UNTIL_NS, client=["*e*", "it's \\ {x}"], topic=["#", "$SYS/+"], server=["127.0.0.?:*"],
        rule=["OPS", "ACK", "delivery-qos-wrong"], top=3, group_by=list(PROPERTIES),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def local(lake: Path) -> Any:
    with LocalEngine(lake) as engine:
        yield engine


@pytest.fixture(scope="module")
def engine(spark: SparkSession, lake: Path) -> SparkEngine:
    return SparkEngine(spark, lake)


def asked_of(engine: Engine, add: Any, asked: Asked) -> dict[str, Any]:
    """What one part fills in."""
    report = FleetReport("", asked)
    # How long the parts of the time are depends on the overview.
    report.overview.first_ns, report.overview.last_ns = 0, 10**12
    add(report, Lake(engine, asked))
    return asdict(report)


@pytest.mark.parametrize("add", PARTS, ids=[one.__name__ for one in PARTS])
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_both_engines_give_the_same_answers(local: LocalEngine, engine: SparkEngine, add: Any, asked: Asked) -> None:
    expected = asked_of(local, add, asked)

    assert asked_of(engine, add, asked) == expected
    assert expected != asdict(FleetReport("", asked))


def test_a_session_is_left_as_it_was(spark: SparkSession, engine: SparkEngine) -> None:
    """It may be the user's, with views of these names."""
    spark.range(3).createOrReplaceTempView("packets")
    try:
        asked_of(engine, PARTS[-1], ASKED["everything"])
        assert spark.table("packets").count() == 3
        assert [row["tableName"] for row in spark.sql("show tables").collect()] == ["packets"]
    finally:
        spark.catalog.dropTempView("packets")


def rows(frame: DataFrame) -> list[str]:
    return sorted(repr(row.asDict(recursive=True)) for row in frame.collect())


def test_joins_of_data_frames(spark: SparkSession, local: LocalEngine, engine: SparkEngine) -> None:
    """The rows of all joins, with all of their columns."""
    packets, messages = (spark.table(engine.table(name)) for name in ("packets", "messages"))
    here = {name: local.table(name) for name in ("packets", "messages")}
    delivered = local.view(queries.deliveries(WORDS, here["messages"]))
    asking = local.view(queries.subscriptions(WORDS, here["packets"]))
    retained = local.view(queries.retained_intervals(here["messages"]))
    found = {
        asking: joins.subscriptions(packets),
        retained: joins.retained_intervals(messages),
        delivered: joins.deliveries(messages),
    }
    for name, frame in found.items():
        # Times of a zone are objects of other classes.
        columns = [one for one in frame.columns if one != "timestamp"]
        wanted = local.rows(f"select {', '.join(columns)} from {name}")
        assert rows(frame.select(*columns)) == sorted(map(repr, wanted)), columns
        assert len(wanted) > 10, columns
    engine.forget()


def test_message_expiry(spark: SparkSession) -> None:
    tables, _ = conversations()
    packets, messages, gaps = (spark.createDataFrame(tables[name]) for name in ("packets", "messages", "gaps"))

    judged = joins.message_expiry(joins.deliveries(messages), packets, gaps)

    expected = sorted(repr(one) for one in rows_of(expiry(), **tables))
    assert rows(judged) == expected
    assert len(expected) > 10


def test_topics_and_filters(spark: SparkSession) -> None:
    names, filters = (pa.table({name: pa.array(FIXED, pa.string())}) for name in ("topic", "topic_filter"))
    pairs = joins.matching(spark.createDataFrame(names), spark.createDataFrame(filters))
    columns = [joins.topic_matches("topic", one).alias(str(place)) for place, one in enumerate(FIXED[:19])]

    found = {(row["topic"], row["topic_filter"]) for row in pairs.collect()}
    answers = spark.createDataFrame(names).select("topic", *columns).collect()

    assert found == {(topic, one) for topic in FIXED for one in FIXED if matches(one, topic)}
    for row in answers:
        assert list(row[1:]) == [matches(one, row["topic"]) for one in FIXED[:19]], row["topic"]


def test_selections(spark: SparkSession) -> None:
    """All cases in one job."""
    table = pa.table(dict(zip(NAMES, zip(*ROWS, strict=True), strict=True)))
    spark.createDataFrame(table).createOrReplaceTempView("found")
    words = SparkEngine.words
    asked = [
        f"select {place} as place, timestamp_ns from {Selection(words, Asked(**case)).findings('found')}"
        for place, (case, _) in enumerate(CASES)
    ]
    found: list[list[int]] = [[] for _ in CASES]
    for place, time in spark.sql(" union all ".join(asked)).collect():
        found[place].append(time)
    spark.catalog.dropTempView("found")

    for (case, expected), times in zip(CASES, found, strict=True):
        assert sorted(times) == expected, case
    assert rows_of(f"select count(*) as n from {Selection(WORDS, Asked()).findings('found')}", found=table)[0]["n"] == 4


def test_shapes(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.table({"name": list(SHAPES)}))

    assert dict(frame.select("name", joins.shape_of(f.col("name"))).collect()) == SHAPES


def test_values_of_any_kind_come_back(spark: SparkSession, engine: SparkEngine) -> None:
    given = {"text": 'a\n\u00fc"', "flag": True, "many": [1, None], "pair": {"x": 1}, "big": 2**62 + 1, "none": None}
    frame = spark.createDataFrame(
        [given], "text string, flag boolean, many array<int>, pair struct<x:int>, big bigint, none int"
    )
    frame.createOrReplaceTempView("one")
    kept = engine.view("select id from range(20)", kept=True)
    answers = engine.answer(
        {
            "one": "select * from one", "none": f"select * from {kept} where id < 0",
            "highest": f"select id as `a b.c` from {kept} order by id desc limit 3",
        }
    )  # fmt: skip
    spark.catalog.dropTempView("one")

    assert answers == {"one": [given], "none": [], "highest": [{"a b.c": number} for number in (19, 18, 17)]}
