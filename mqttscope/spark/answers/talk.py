"""Who talks on which topic: publishers, subscribers by the filters that match, and who really gets messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from mqttscope.report.fleet.model import FilterRow, FleetReport, Names, Talk, TopicRow
from mqttscope.spark.answers.gathering import Gathering, Row, count_where
from mqttscope.spark.joins import FAILURE, FROM_CLIENT, matching, subscriptions

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
