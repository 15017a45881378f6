"""Asks a lake for its fleet report: `fleet_report` runs all questions of this package.

`add_overview` and `by_capture` answer its own: how much there is in the lake, and how far its data can be trusted.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from mqttscope.lake.rows import MOST
from mqttscope.report.fleet.model import PROPERTIES, Asked, CaptureTrust, FleetReport, Overview, Trust
from mqttscope.spark.answers.frames import Frames, Gathering, Selection, count_where
from mqttscope.spark.answers.reconnects import add_endings, add_reconnects
from mqttscope.spark.answers.rules import add_rules
from mqttscope.spark.answers.talk import add_latency, add_retained, add_talk
from mqttscope.spark.joins import FROM_CLIENT
from mqttscope.spark.tables import open_lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

ERRORS = 3
"""Errors of a capture that are shown."""


def add_overview(report: FleetReport, frames: Frames) -> None:
    """Fill in how much there is, and what is missing."""
    selection = frames.selection
    packets = selection.rows(frames.packets().drop("topic"))
    messages, gaps = selection.rows(frames.messages()), selection.rows(frames.gaps())
    connections = selection.connections(frames.connections())
    own = f.col("direction") == FROM_CLIENT
    questions = Gathering()
    questions.add(
        "packets",
        packets.agg(
            f.count(f.lit(1)).alias("packets"),
            f.countDistinct("capture").alias("captures"),
            f.min("timestamp_ns").alias("first_ns"),
            f.max("timestamp_ns").alias("last_ns"),
            count_where(f.col("event") == "malformed", "malformed"),
        ),
    )
    questions.add(
        "messages",
        messages.agg(
            count_where(own, "messages_published"),
            count_where(~own, "messages_delivered"),
            f.countDistinct("server", "topic").alias("topics"),
            count_where(f.col("topic").isNull(), "unknown_topics"),
        ),
    )
    questions.add("connections", _connections(connections))
    questions.add(
        "findings",
        selection.findings(frames.findings()).agg(
            f.count(f.lit(1)).alias("findings"), count_where(f.col("severity") == "error", "errors")
        ),
    )
    lacking = by_capture(gaps, frames.ingest_errors())
    sums = ("gaps", "gap_bytes", "unparsed", "unparsed_bytes", "dropped", "errors")
    added = [_added(f.col("error_count" if name == "errors" else name)).alias(name) for name in sums]
    questions.add("lacking", lacking.agg(*added))
    worst = [f.desc("error_count"), f.desc("dropped"), f.desc("gap_bytes"), f.desc("unparsed_bytes"), f.asc("capture")]
    questions.top("captures", lacking, worst, report.asked.top)
    questions.collect()

    said, talked = questions.row("packets"), questions.row("messages")
    known: dict[str, Any] = questions.row("connections")
    trust = {"malformed": said.pop("malformed"), "unknown_topics": talked.pop("unknown_topics")}
    counted = {name: known.pop(name) for name in ("servers", "clients")}
    report.overview = Overview(
        **said, **talked, **counted, **questions.row("findings"), connections=known["connections"]
    )
    report.trust = Trust(
        **known, **trust, **questions.row("lacking"),
        captures=questions.ranked("captures", lambda row: CaptureTrust(**_without(row, "error_count"))),
    )  # fmt: skip


def _connections(connections: DataFrame) -> DataFrame:
    return connections.agg(
        f.count(f.lit(1)).alias("connections"),
        f.countDistinct("server").alias("servers"),
        f.countDistinct("server", "client_identifier").alias("clients"),
        count_where(~f.coalesce("version_known", f.lit(False)), "joined"),
        count_where(f.col("gaps") > 0, "with_gaps"),
        count_where(f.col("closed_how").isin("open", "capture_end"), "open"),
        count_where(f.col("client_identifier").isNull(), "unnamed"),
    )


def _added(counts: Column) -> Column:
    """A sum that stops at the largest number there is: a capture may report that many dropped frames.

    The sum of no rows is null, which ``least`` passes over: it has to be zero before that.
    """
    nothing, most = (f.lit(number).cast("decimal(38,0)") for number in (0, MOST))
    return f.least(f.coalesce(f.sum(counts.cast("decimal(38,0)")), nothing), most).cast("bigint")


def by_capture(gaps: DataFrame, errors: DataFrame) -> DataFrame:
    """What each capture lacks; captures that lack nothing have no row."""
    lost = gaps.groupBy("capture").agg(
        *(
            column
            for event, name in (("gap", "gap"), ("unparsed", "unparsed"))
            for column in (
                count_where(f.col("event") == event, "gaps" if event == "gap" else name),
                f.sum(f.when(f.col("event") == event, f.col("length"))).alias(f"{name}_bytes"),
            )
        )
    )
    said = errors.groupBy("capture").agg(
        _added(f.when(f.col("event") == "capture_drops", f.col("dropped"))).alias("dropped"),
        count_where(f.col("event") == "capture_error", "error_count"),
        f.slice(
            f.array_sort(f.collect_set(f.when(f.col("event") == "capture_error", f.col("message")))), 1, ERRORS
        ).alias("errors"),
    )
    both = lost.join(said, "capture", "full")
    numbers = ("gaps", "gap_bytes", "unparsed", "unparsed_bytes", "dropped", "error_count")
    return both.select(
        "capture",
        *(f.coalesce(name, f.lit(0)).alias(name) for name in numbers),
        f.coalesce("errors", f.array().cast("array<string>")).alias("errors"),
    )


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


PARTS = (add_overview, add_rules, add_latency, add_talk, add_retained, add_endings, add_reconnects)
"""What fills in a report; each runs one job."""


def fleet_report(
    spark: SparkSession,
    lake: str | os.PathLike[str],
    asked: Asked | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> FleetReport:
    """Ask a lake for the health of its fleet; `LakeError` where there is no lake.

    ``progress`` is told how many parts are done, and of how many.
    """
    asked = asked or Asked(group_by=list(PROPERTIES))
    report = FleetReport(os.fspath(lake), asked)
    frames = Frames(spark, lake, open_lake(lake), Selection(asked))
    for number, add in enumerate(PARTS):
        if progress is not None:
            progress(number, len(PARTS))
        add(report, frames)
    return report
