"""Sums by Spark are those that are made in process."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from mqttscope.lake import aggregates
from mqttscope.lake.manifest import Manifest, read_manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import begin_generation, write_lake
from mqttscope.spark import aggregates as queries
from tests.cli.running import capture
from tests.spark.collection import usual_options


def messages(random: Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "connection_id": random.choice("abc"), "server": random.choice(["s:1", "s:2"]),
            "topic": random.choice([None, "", "a/b", "ä", "\U0001f600", "\uffff"]),
            "direction": random.choice(["client_to_server", "server_to_client"]),
            "payload_length": random.randrange(100), "qos": random.randrange(3), "retain": random.random() < 0.5,
            "retransmissions": random.randrange(2), "timestamp_ns": random.randrange(1000),
        }
        for _ in range(count)
    ]  # fmt: skip


def connections(random: Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "connection_id": f"{number:02d}", "server": random.choice(["s:1", "s:2"]),
            "client_identifier": random.choice([None, "", "one", "two"]), "timestamp_ns": random.randrange(20),
            "closed_ns": random.choice([None, random.randrange(20, 40)]),
            "clean_start": random.choice([None, True, False]), "session_present": random.choice([None, True, False]),
            "session_expiry_interval": random.choice([None, 0, 60]), "version": random.choice(["3.1.1", "5.0"]),
            "packets": {"client_to_server": random.randrange(9), "server_to_client": random.randrange(9)},
            "bytes": {"client_to_server": random.randrange(9), "server_to_client": random.randrange(9)},
        }
        for number in range(count)
    ]  # fmt: skip


@pytest.mark.long
def test_topics_clients_and_sessions(spark: SparkSession) -> None:
    random = Random(1)
    some, others = messages(random, 300), connections(random, 60)

    def same(name: str, frame: DataFrame, wanted: pa.Table) -> None:
        rows = [
            row.asDict(recursive=True) for row in frame.repartition(1).sortWithinPartitions(*TABLES[name].key).collect()
        ]
        assert rows == wanted.to_pylist()
        assert tuple(frame.columns) == TABLES[name].names

    batch = pa.RecordBatch.from_pylist(
        some,
        schema=pa.schema([(name, TABLES["messages"].arrow().field(name).type) for name in aggregates.TOPIC_COLUMNS]),
    )
    same("topics", queries.topics(spark.createDataFrame(some, queries.MESSAGES_DDL)), aggregates.topics([batch]))
    ours = spark.createDataFrame(others, queries.CONNECTIONS_DDL)
    same("clients", queries.clients(ours), aggregates.clients(others))
    same("sessions", queries.sessions(ours), aggregates.sessions(others))


def test_spark_makes_the_sums_of_much_and_the_driver_those_of_little(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, lake = usual_options(), tmp_path / "lake"
    write_lake([capture("v5-qos"), capture("v311-retained")], lake, options)
    before = read_manifest(lake)

    def rows(manifest: Manifest) -> dict[str, list[Any]]:
        files = {name: manifest.files[name] for name in ("topics", "clients", "sessions")}
        return {name: pq.read_table([lake / text for text in file]).to_pylist() for name, file in files.items()}

    wanted = rows(before)
    assert all(wanted.values())
    for most in ({}, {"messages": 1}):
        _, after = begin_generation(lake, before, options)
        with monkeypatch.context() as patched:
            patched.setattr(queries, "FEW_BYTES", queries.FEW_BYTES | most)
            patched.setattr(aggregates if most else queries, "topics", None)
            queries.write_sums(spark, lake, after)
        assert rows(after) == wanted
        assert not {*after.files["topics"]} & {*before.files["topics"]}


@pytest.mark.long
def test_connections_of_one_identity_begin_sessions_of_their_own(spark: SparkSession) -> None:
    # Captures of the same endpoints and times: test rigs make them.
    document = connections(Random(1), 1)[0] | {
        "client_identifier": "one",
        "clean_start": True,
        "session_present": False,
    }
    some = [dict(document) for _ in range(3)]
    wanted = aggregates.sessions(some)

    rows = queries.sessions(spark.createDataFrame(some, queries.CONNECTIONS_DDL)).orderBy("session").collect()

    assert [row["session"] for row in rows] == [0, 1, 2]
    assert [row.asDict(recursive=True) for row in rows] == wanted.to_pylist()
