"""Captures as data frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mqttscope.spark.plan import settled, write_plan
from mqttscope.spark.rows import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = ("file", "frame")
"""What orders rows as ``inspect`` reads them."""


def read_captures(
    spark: SparkSession,
    sources: str | Sequence[str],
    *,
    columns: Iterable[str] | None = None,
    rows: str = "all",
    split_bytes: int | None = None,
    ports: Iterable[int] = (),
    settings: dict[str, str] | None = None,
    measure: bool | None = None,
) -> DataFrame:
    """Rows of captures (``rows.COLUMNS``): segments, fragments and all else that the captures say.

    ``columns``: only these, which is faster.  ``rows``, ``split_bytes``, ``ports``: options of the data source.
    ``settings``: for the file systems of URIs.  ``measure``: whether the executors find the ranges, in a job that runs
    at once, instead of the driver when the rows are asked for; ``None`` does so where a URI is named.
    """
    from mqttscope.spark.source import FORMAT

    named = [sources] if isinstance(sources, str) else list(sources)
    options = {"rows": rows, "split_bytes": str(split_bytes or 0), "ports": ",".join(map(str, ports))}
    options |= {f"fs.{name}": value for name, value in (settings or {}).items()}
    reader = spark.read.format(FORMAT).options(**options)
    if measure or (measure is None and any("://" in one and not one.startswith("file:") for one in named)):
        measures = spark.read.format(FORMAT).options(**(options | {"rows": "measures"})).load(named).collect()
        reader = reader.option("plan", write_plan(settled(row.asDict() for row in measures)))
    if columns is not None:
        wanted = set(columns)
        reader = reader.schema(", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if name in wanted))
    return reader.load(named)


def ingest_notes(rows: DataFrame) -> DataFrame:
    """What the captures say beside their frames, once for each capture: of rows as `read_captures` gives them.

    What every range of a capture says for itself (frames that were skipped, link types that are not supported) is
    counted together.
    """
    from pyspark.sql import functions as f

    notes = rows.where(~f.col("kind").isin("segment", "fragment"))
    return notes.groupBy("kind", "file", "capture", "message", "notice", "payload", "offset").agg(
        f.min("frame").alias("frame"), f.sum("count").alias("count")
    )
