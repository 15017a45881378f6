"""How long messages take: to be acknowledged, and from the publisher to the subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from mqttscope.report.fleet.model import AcknowledgeRow, DeliveryRow, FleetReport, Latency
from mqttscope.spark.answers.gathering import Gathering, Row, count_where, percentiles, spread
from mqttscope.spark.joins import FROM_CLIENT, deliveries

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from mqttscope.spark.answers.frames import Frames


def add_latency(report: FleetReport, frames: Frames) -> None:
    """Fill in latencies: of the messages, and deliveries, in the time that was asked for."""
    selection, top = frames.selection, report.asked.top
    messages = selection.history(frames.messages())
    delivered = live_deliveries(messages)
    delivered = selection.clients(selection.since(delivered), "client_identifier", "published.client_identifier")
    questions = Gathering()
    delivered = questions.keep(delivered.select(*_MEASURED))
    questions.add("acknowledged", acknowledged(selection.clients(selection.since(messages))))
    unknown = count_where(f.col("waited_ns").isNull(), "unknown")
    repeated = count_where(f.col("repeated") & f.col("waited_ns").isNotNull(), "repeats")
    questions.add("end to end", delivered.agg(*spread("waited_ns"), unknown, repeated))
    measured = delivered.where("waited_ns is not null")
    for name, column in (("topics", f.col("topic")), ("subscribers", f.coalesce("client_identifier", "client"))):
        questions.top(name, _slow(measured, column), _slowest(), top)
    questions.collect()

    whole = questions.row("end to end")
    report.latency = Latency(
        [_acknowledge_row(row) for row in questions.rows("acknowledged")],
        percentiles(whole),
        whole["unknown"],
        whole["repeats"],
        questions.ranked("topics", lambda row: DeliveryRow(row["called"], percentiles(row))),
        questions.ranked("subscribers", lambda row: DeliveryRow(row["called"], percentiles(row))),
    )


_MEASURED = ("topic", "client_identifier", "client", "waited_ns", "repeated")


def live_deliveries(messages: DataFrame) -> DataFrame:
    """`deliveries` of messages that were not kept as retained ones, and not sent again."""
    stored = f.col("retain") & (f.col("published.retain") | f.col("published").isNull())
    return deliveries(messages).where(~stored & ~f.col("dup"))


def acknowledged(messages: DataFrame) -> DataFrame:
    """Latency of the answers to messages of QoS 1 and 2, by who sent them."""
    return (
        messages.where(f.col("qos").isin(1, 2))
        .groupBy(f.when(f.col("direction") == FROM_CLIENT, "client").otherwise("server").alias("sender"), "qos")
        .agg(
            *spread("latency_ns"),
            count_where(f.col("completed_ns").isNull(), "unanswered"),
            count_where(f.col("state") == "refused", "refused"),
            count_where(f.col("retransmissions") > 0, "retransmitted"),
        )
        .orderBy("sender", "qos")
    )


def _acknowledge_row(row: Row) -> AcknowledgeRow:
    counts = row["unanswered"], row["refused"], row["retransmitted"]
    return AcknowledgeRow(row["sender"], row["qos"], percentiles(row), *counts)


def _slow(measured: DataFrame, name: Column) -> DataFrame:
    return measured.groupBy(name.alias("called")).agg(*spread("waited_ns"))


def _slowest() -> list[Column]:
    return [f.get("percentiles", f.lit(1)).desc(), f.asc("called")]
