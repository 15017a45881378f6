"""Finds out who talks on which topic, how long messages take, and what becomes of retained messages.

`add_talk` counts publishers, subscribers by the filters that match, and those that really get messages.  `add_latency`
measures how long messages take to be acknowledged, and from the publisher to the subscribers.  `add_retained` follows
retained messages, and messages that expire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from mqttscope.report.fleet.model import (
    AcknowledgeRow,
    DeliveryRow,
    Expiry,
    FilterRow,
    FleetReport,
    Latency,
    Names,
    Retained,
    RetainedRow,
    Talk,
    TopicRow,
)
from mqttscope.spark.answers.frames import Gathering, Row, count_where, percentiles, spread
from mqttscope.spark.joins import (
    FAILURE,
    FROM_CLIENT,
    deliveries,
    matching,
    message_expiry,
    retained_intervals,
    subscriptions,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from mqttscope.spark.answers.frames import Frames

_FILTER = ["server", "topic_filter"]
NAMED = 5
"""Clients that are named of those that have to do with a topic."""


def add_talk(report: FleetReport, frames: Frames) -> None:
    """Fill in topics and filters.

    A subscription counts if it was asked for before the end of the time, and not refused: sessions keep them.
    """
    selection, top = frames.selection, report.asked.top
    messages = selection.since(selection.history(frames.messages())).where("topic is not null and topic != ''")
    # A condition on topics is none on filters, and one on clients is none on who else has to do with their topics.
    questions = Gathering()
    listening = questions.keep(listeners(selection.history(frames.packets().drop("topic"))))
    topics, chosen = spoken(messages), listening
    if report.asked.client:
        topics = topics.join(selection.clients(messages).select("server", "topic").distinct(), ["server", "topic"])
        chosen = listening.join(
            selection.clients(listening, "who").select("server", "topic_filter").distinct(), _FILTER
        )
    topics = questions.keep(topics)
    pairs = questions.keep(matching(topics, listening))
    heard = (
        topics.select("server", "topic")
        .join(pairs, "topic")
        .join(listening, _FILTER)
        .groupBy("server", "topic")
        .agg(*_who("who", "subscribers"))
    )
    whole = topics.join(heard, ["server", "topic"], "left")
    filters = (
        chosen.join(pairs.join(topics.select("server", "topic"), "topic"), _FILTER, "left")
        .groupBy(*_FILTER)
        .agg(*_who("who", "subscribers"), f.countDistinct("topic").alias("topics"))
    )
    if report.asked.topic:
        filters = filters.where("topics > 0")
    whole, filters = questions.keep(whole), questions.keep(filters)
    busiest = [(f.col("published") + f.col("delivered")).desc(), f.asc("server"), f.asc("topic")]
    questions.top("topics", whole, busiest, top)
    nobody = f.coalesce("subscribers", f.lit(0)) == 0
    questions.add(
        "counts",
        whole.agg(
            count_where((f.col("published") > 0) & nobody, "unheard"),
            count_where((f.col("receivers") > 0) & nobody, "unexplained"),
        ),
    )
    questions.top("filters", filters, [f.desc("subscribers"), f.desc("topics"), f.asc("topic_filter")], top)
    questions.add("idle", filters.agg(count_where(f.col("topics") == 0, "idle")))
    questions.collect()

    report.talk = Talk(
        questions.ranked("topics", _topic_row),
        questions.ranked("filters", _filter_row),
        questions.row("counts")["unheard"],
        questions.row("idle")["idle"],
        questions.row("counts")["unexplained"],
    )


def spoken(messages: DataFrame) -> DataFrame:
    """Topics of each server: messages, bytes, and the clients at both ends."""
    own = f.col("direction") == FROM_CLIENT
    who = f.coalesce("client_identifier", "client")
    return (
        messages.withColumn("publisher", f.when(own, who))
        .withColumn("receiver", f.when(~own, who))
        .groupBy("server", "topic")
        .agg(
            count_where(own, "published"),
            count_where(~own, "delivered"),
            f.coalesce(f.sum(f.when(own, f.col("payload_length"))), f.lit(0)).alias("payload_bytes"),
            *_who("publisher", "publishers"),
            *_who("receiver", "receivers"),
        )
    )


def listeners(packets: DataFrame) -> DataFrame:
    """Who subscribed to which Topic Filter of which server, each once; refused ones are left out."""
    granted = f.coalesce("granted", f.lit(0)) < FAILURE
    who = f.coalesce("client_identifier", "client").alias("who")
    return subscriptions(packets).where(granted).select("server", "topic_filter", who).distinct()


def _who(column: str, name: str) -> list[Column]:
    """How many different names there are, and the first few."""
    found = f.array_sort(f.collect_set(column))
    return [f.countDistinct(column).alias(name), f.slice(found, 1, NAMED).alias(f"{name}_names")]


def _names(row: Row, name: str) -> Names:
    return Names(row[name] or 0, row[f"{name}_names"] or [])


def _topic_row(row: Row) -> TopicRow:
    counts = row["published"], row["delivered"], row["payload_bytes"]
    people = (_names(row, name) for name in ("publishers", "subscribers", "receivers"))
    return TopicRow(row["server"], row["topic"], *counts, *people)


def _filter_row(row: Row) -> FilterRow:
    return FilterRow(row["server"], row["topic_filter"], _names(row, "subscribers"), row["topics"])


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
