"""Joins of data frames: the rows of DuckDB, with all of their columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mqttscope.analysis import joins as queries
from mqttscope.analysis.local import LocalEngine
from mqttscope.mqtt.topics import matches
from mqttscope.spark import joins
from mqttscope.spark.tables import table
from tests.analysis.asking import WORDS, expiry, rows_of
from tests.analysis.conftest import lake as lake
from tests.analysis.test_joins import FIXED, conversations
from tests.analysis.test_shapes import SHAPES


@pytest.fixture(scope="module")
def local(lake: Path) -> Iterator[LocalEngine]:
    with LocalEngine(lake) as engine:
        yield engine


def rows(frame: DataFrame) -> list[str]:
    return sorted(repr(row.asDict(recursive=True)) for row in frame.collect())


@pytest.mark.long
def test_joins_of_data_frames(spark: SparkSession, local: LocalEngine, lake: Path) -> None:
    packets, messages = (table(spark, lake, name) for name in ("packets", "messages"))
    here = {name: local.table(name) for name in ("packets", "messages")}
    delivered = local.view(queries.deliveries(WORDS, here["messages"]))
    asking = local.view(queries.subscriptions(WORDS, here["packets"]))
    retained = local.view(queries.retained_intervals(here["messages"]))
    frames = {
        asking: joins.subscriptions(packets),
        retained: joins.retained_intervals(messages),
        delivered: joins.deliveries(messages),
    }
    for name, frame in frames.items():
        # Times of a zone are objects of other classes.
        columns = [column for column in frame.columns if column != "timestamp"]
        wanted = local.rows(f"select {', '.join(columns)} from {name}")
        assert rows(frame.select(*columns)) == sorted(map(repr, wanted)), columns
        assert len(wanted) > 10, columns


@pytest.mark.long
def test_message_expiry(spark: SparkSession) -> None:
    tables, _ = conversations()
    packets, messages, gaps = (spark.createDataFrame(tables[name]) for name in ("packets", "messages", "gaps"))

    judged = joins.message_expiry(joins.deliveries(messages), packets, gaps)

    expected = sorted(repr(row) for row in rows_of(expiry(), **tables))
    assert rows(judged) == expected
    assert len(expected) > 10


@pytest.mark.long
def test_topics_and_filters(spark: SparkSession) -> None:
    names, filters = (pa.table({name: pa.array(FIXED, pa.string())}) for name in ("topic", "topic_filter"))
    pairs = joins.matching(spark.createDataFrame(names), spark.createDataFrame(filters))
    columns = [joins.topic_matches("topic", text).alias(str(place)) for place, text in enumerate(FIXED[:19])]

    actual_pairs = {(row["topic"], row["topic_filter"]) for row in pairs.collect()}
    answers = spark.createDataFrame(names).select("topic", *columns).collect()

    assert actual_pairs == {(topic, text) for topic in FIXED for text in FIXED if matches(text, topic)}
    for row in answers:
        assert list(row[1:]) == [matches(text, row["topic"]) for text in FIXED[:19]], row["topic"]


def test_shapes(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.table({"name": list(SHAPES)}))

    assert dict(frame.select("name", joins.shape_of(f.col("name"))).collect()) == SHAPES
