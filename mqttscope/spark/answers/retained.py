"""Retained messages, and messages that expire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from mqttscope.report.fleet.model import Expiry, FleetReport, Retained, RetainedRow
from mqttscope.spark.answers.gathering import Gathering, count_where, percentiles, spread
from mqttscope.spark.joins import FROM_CLIENT, deliveries, message_expiry, retained_intervals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mqttscope.spark.answers.frames import Frames

VERDICTS = ("right", "not_reduced", "missing", "expired")


def add_retained(report: FleetReport, frames: Frames) -> None:
    """Fill in retained messages and expiry.

    What is held depends on all that came before, whatever time was asked for; counts are those of the time.
    """
    selection = frames.selection
    messages = selection.history(frames.messages())
    counted = selection.clients(selection.since(messages))
    delivered = selection.clients(
        selection.since(deliveries(messages)), "client_identifier", "published.client_identifier"
    )
    questions = Gathering()
    by_topic = questions.keep(retained_topics(counted, retained_intervals(messages)))
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("set", "cleared", "refused", "delivered")]
    states = [count_where(f.col("state") == name, name) for name in ("held", "expired", "unknown")]
    questions.add("retained", by_topic.agg(*sums, *states))
    busiest = [(f.col("set") + f.col("cleared") + f.col("delivered")).desc(), f.asc("server"), f.asc("topic")]
    questions.top("topics", by_topic.drop("refused"), busiest, report.asked.top)
    own = f.col("direction") == FROM_CLIENT
    told = counted.where("message_expiry_interval is not null")
    questions.add("told", told.agg(count_where(own, "published"), count_where(~own, "delivered")))
    remaining = f.when(~own, f.col("message_expiry_interval"))
    questions.add("remaining", told.agg(*spread(remaining)))
    judged = message_expiry(delivered, selection.history(frames.packets().drop("topic")), frames.gaps())
    counts = [count_where(f.col("verdict") == name, name) for name in VERDICTS]
    questions.add("judged", judged.agg(*counts, count_where(f.col("verdict").isNull(), "unknown")))
    questions.collect()

    report.retained = Retained(
        **questions.row("retained"), topics=questions.ranked("topics", lambda row: RetainedRow(**row))
    )
    report.expiry = Expiry(
        **questions.row("told"), remaining_s=percentiles(questions.row("remaining")), **questions.row("judged")
    )


def retained_topics(counted: DataFrame, intervals: DataFrame) -> DataFrame:
    """What happened to the retained message of each topic, and what is held at the end."""
    retained = counted.where("retain and topic is not null and topic != ''")
    own = f.col("direction") == FROM_CLIENT
    refused, empty = f.col("state") == "refused", f.col("payload_length") == 0
    happened = retained.groupBy("server", "topic").agg(
        count_where(own & ~refused & ~empty, "set"),
        count_where(own & ~refused & empty, "cleared"),
        count_where(own & refused, "refused"),
        count_where(~own, "delivered"),
    )
    last = intervals.groupBy("server", "topic").agg(f.max_by(f.struct("from_ns", "ended"), "from_ns").alias("last"))
    state = (
        f.when(f.col("last").isNull() & (f.col("cleared") > 0), "cleared")
        .when(f.col("last").isNull() & (f.col("delivered") > 0), "unknown")
        .when(f.col("last").isNull(), "refused")
        .otherwise(f.coalesce("last.ended", f.lit("held")))
    )
    return happened.join(last, ["server", "topic"], "left").select(
        "server", "topic", "set", "cleared", "refused", "delivered", state.alias("state"),
        f.col("last.from_ns").alias("since_ns"),
    )  # fmt: skip
