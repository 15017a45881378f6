"""Topics, clients and sessions of a lake, summed by Spark into the rows of `mqttscope.lake.aggregates`.

For few rows `mqttscope.lake.aggregates` runs in the driver: Spark's plans and jobs would take seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mqttscope.lake import aggregates
from mqttscope.lake.files import LakeFiles
from mqttscope.lake.manifest import Manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.spark.ingest_tasks import REPORT_DDL, TaskReport
from mqttscope.spark.tables import parquet_paths, run_all

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MESSAGES_DDL = (
    "connection_id string, server string, topic string, direction string, payload_length bigint, qos smallint, "
    "retain boolean, retransmissions int, timestamp_ns bigint"
)
FEW_BYTES = {"messages": 64 << 20, "connections": 8 << 20}
"""Maximum size of tables that the driver sums: one or two million messages, and fifty thousand connections, which it
holds all at once."""
_BY_DIRECTION = "struct<client_to_server: bigint, server_to_client: bigint>"
CONNECTIONS_DDL = (
    "connection_id string, server string, client_identifier string, timestamp_ns bigint, closed_ns bigint, "
    "clean_start boolean, session_present boolean, session_expiry_interval bigint, version string, "
    f"packets {_BY_DIRECTION}, bytes {_BY_DIRECTION}"
)
_TOPIC = ("server", "topic", "direction")
_CLIENT = ("server", "client_identifier")
_ADDED = ("messages", "payload_bytes", "qos_0", "qos_1", "qos_2", "retained", "retransmissions")


@dataclass(slots=True)
class _SumTask:
    root: str
    generation: int
    table: str


def write_sums(spark: SparkSession, root: Path, after: Manifest) -> None:
    """Compute topics, clients and sessions again from all files of ``after``, and put the new files into it."""
    root = root.resolve()
    sizes = {name: sum(os.stat(root / file).st_size for file in _files(after, name)) for name in FEW_BYTES}
    if all(sizes[name] <= most for name, most in FEW_BYTES.items()):
        aggregates.write_sums(root, after)
        return
    frames = {}
    messages, connections = (_read(spark, root, after, name) for name in ("messages", "connections"))
    if messages is not None:
        frames["topics"] = topics(messages)
    if connections is not None:
        frames |= {"clients": clients(connections), "sessions": sessions(connections)}
    tasks = [
        # One task for each table, in order of its key: sums are small.
        frame.repartition(1)
        .sortWithinPartitions(*TABLES[name].key)
        .mapInArrow(partial(_write, work=_SumTask(str(root), after.generation, name)), REPORT_DDL)
        for name, frame in frames.items()
    ]
    files: dict[str, list[str]] = {"topics": [], "clients": [], "sessions": []}
    for report in run_all(tasks):
        files |= report.files
        after.checksums |= report.checksums
    after.files |= files


def topics(messages: DataFrame) -> DataFrame:
    """Topics of each server; messages of unknown topic are left out."""
    from pyspark.sql import functions as f

    known = messages.where(f.col("topic").isNotNull())
    levels = [f.sum((f.col("qos") == level).cast("bigint")).alias(f"qos_{level}") for level in range(3)]
    # By connection first, so that counting connections needs no rows of its own.
    parts = known.groupBy(*_TOPIC, "connection_id").agg(
        f.count(f.lit(1)).alias("messages"),
        f.sum("payload_length").alias("payload_bytes"),
        *levels,
        f.sum(f.col("retain").cast("bigint")).alias("retained"),
        f.sum("retransmissions").alias("retransmissions"),
        f.min("timestamp_ns").alias("first_ns"),
        f.max("timestamp_ns").alias("last_ns"),
    )
    whole = parts.groupBy(*_TOPIC).agg(
        *(f.sum(name).alias(name) for name in _ADDED),
        f.count(f.lit(1)).alias("connections"),
        f.min("first_ns").alias("first_ns"),
        f.max("last_ns").alias("last_ns"),
    )
    return whole.select(*TABLES["topics"].names)


def clients(connections: DataFrame) -> DataFrame:
    """Clients of each server; connections without a Client Identifier are left out."""
    from pyspark.sql import functions as f

    summed = (
        _named(connections)
        .groupBy(*_CLIENT)
        .agg(
            f.count(f.lit(1)).alias("connections"),
            f.sum("packets.client_to_server").alias("packets_sent"),
            f.sum("packets.server_to_client").alias("packets_received"),
            f.sum("bytes.client_to_server").alias("bytes_sent"),
            f.sum("bytes.server_to_client").alias("bytes_received"),
            f.min("timestamp_ns").alias("first_ns"),
            f.max(_last()).alias("last_ns"),
            f.sort_array(f.collect_set("version")).alias("versions"),
        )
    )
    return summed.select(*TABLES["clients"].names)


def sessions(connections: DataFrame) -> DataFrame:
    """Sessions of each client; one begins with the first connection, and with each that has no earlier session."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # Row by row: a range would merge rows with equal time and identity, of overlapping captures.
    ordered = Window.partitionBy(*_CLIENT).orderBy("timestamp_ns", "connection_id")
    order = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    fresh = f.coalesce(f.col("clean_start"), f.lit(False)) | ~f.coalesce(f.col("session_present"), f.lit(True))
    begins = f.col("fresh") | (f.row_number().over(order) == 1)
    numbered = (
        _named(connections)
        .withColumn("fresh", fresh)
        .withColumn("begins", begins)
        .withColumn("session", f.sum(f.col("begins").cast("bigint")).over(order) - 1)
    )
    place = f.struct("timestamp_ns", "connection_id")
    listed = f.sort_array(f.collect_list(place))
    summed = numbered.groupBy(*_CLIENT, "session").agg(
        f.min("timestamp_ns").alias("first_ns"),
        f.max(_last()).alias("last_ns"),
        f.min_by("clean_start", place).alias("clean_start"),
        f.min_by("fresh", place).alias("begin_known"),
        f.max_by("session_expiry_interval", place).alias("session_expiry_interval"),
        f.count(f.lit(1)).alias("connections"),
        f.transform(listed, lambda pair: pair["connection_id"]).alias("connection_ids"),
    )
    return summed.select(*TABLES["sessions"].names)


def _named(connections: DataFrame) -> DataFrame:
    return connections.where("client_identifier is not null and client_identifier != ''")


def _last() -> Column:
    from pyspark.sql import functions as f

    return f.coalesce("closed_ns", "timestamp_ns")


def _files(manifest: Manifest, name: str) -> list[str]:
    return [*manifest.files.get(name, ()), *manifest.open_files.get(name, ())]


def _read(spark: SparkSession, root: Path, manifest: Manifest, name: str) -> DataFrame | None:
    """A table with the columns for sums, open connections included; ``None`` without rows."""
    names = _files(manifest, name)
    if not names:
        return None
    columns = MESSAGES_DDL if name == "messages" else CONNECTIONS_DDL
    return spark.read.schema(columns).parquet(*parquet_paths(root, names))


def _write(batches: Iterable[pa.RecordBatch], work: _SumTask) -> Iterator[pa.RecordBatch]:
    schema = TABLES[work.table].arrow()
    with LakeFiles(work.root, work.generation) as files:
        for record_batch in batches:
            if record_batch.num_rows:
                columns = [record_batch.column(field.name).cast(field.type) for field in schema]
                files.write(work.table, pa.RecordBatch.from_arrays(columns, schema=schema))
    yield TaskReport(files.names, files.rows, files.checksums).dump()
