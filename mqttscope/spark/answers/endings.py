"""How connections ended, and which clients come back again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from mqttscope.report.fleet.model import ClientEndings, EndingRow, Endings, FleetReport
from mqttscope.spark.answers.gathering import Gathering, count_where

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from mqttscope.spark.answers.frames import Frames


def add_endings(report: FleetReport, frames: Frames) -> None:
    """Fill in how connections ended."""
    known = frames.selection.connections(frames.connections())
    known = known.withColumn("ended", ended()).withColumn("ended_by", ended_by())
    ways = known.groupBy("ended", "ended_by").agg(f.count(f.lit(1)).alias("connections"))
    questions = Gathering()
    questions.add("ways", ways.orderBy(f.desc("connections"), "ended", "ended_by"))
    order = [f.desc("broken"), f.desc("reconnects"), f.asc("server"), f.asc("client")]
    questions.top("clients", by_client(known), order, report.asked.top)
    questions.collect()
    report.endings = Endings(
        [EndingRow(row["ended"], row["ended_by"], row["connections"]) for row in questions.rows("ways")],
        questions.ranked("clients", lambda row: ClientEndings(**{name: row[name] for name in row if name != "broken"})),
    )


def ended() -> Column:
    """How a connection ended, a DISCONNECT before what TCP did after it."""
    how = f.col("closed_how")
    return (
        f.when(f.col("disconnect_by").isNotNull(), "disconnect")
        .when(how.isin("open", "capture_end"), "open")
        .otherwise(f.coalesce(how, f.lit("open")))
    )


def ended_by() -> Column:
    """Who ended it."""
    return f.when(f.col("ended") != "open", f.coalesce("disconnect_by", "closed_by"))


def by_client(known: DataFrame) -> DataFrame:
    """Clients that came back, or whose connections ended without DISCONNECT."""
    how, by = f.col("ended"), f.coalesce("ended_by", f.lit(""))
    return (
        known.where("client_identifier is not null and client_identifier != ''")
        .groupBy("server", f.col("client_identifier").alias("client"))
        .agg(
            f.count(f.lit(1)).alias("connections"),
            (f.count(f.lit(1)) - 1).alias("reconnects"),
            count_where(how == "disconnect", "disconnects"),
            count_where((how == "fin") & (by == "client"), "by_client"),
            count_where((how == "fin") & (by == "server"), "by_server"),
            count_where(how == "reset", "resets"),
            count_where(how.isin("idle", "port_reused", "evicted"), "timeouts"),
            count_where(~how.isin("open", "disconnect"), "broken"),
        )
        .where("reconnects > 0 or broken > 0")
    )
