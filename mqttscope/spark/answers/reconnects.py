"""Finds out how connections end and how often clients come back.

`add_endings` counts endings and the clients that return again and again.  `add_reconnects` finds reconnect storms:
minutes in which clients connect far more often than usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from mqttscope.report.fleet.model import ClientEndings, EndingRow, Endings, FleetReport, Reconnects, StormRow
from mqttscope.spark.answers.frames import Gathering, Row, count_where, units_since_1970

if TYPE_CHECKING:
    from collections.abc import Sequence

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


MINUTE_NS = 60 * 10**9
CLIENT_BURST = 5
"""CONNECT packets of one client in a minute that are a burst, whatever is usual: it cannot keep a connection."""
SERVER_BURST = 10
"""The fewest CONNECT packets of all clients in a minute that can be a burst."""
SERVER_RATIO = 3
"""How many times the usual they have to be."""
PARTS = 60
"""Parts of the time that are plotted, at most."""


def add_reconnects(report: FleetReport, frames: Frames) -> None:
    """Fill in how often clients connect, by the CONNECT packets that were captured."""
    packets = frames.selection.rows(frames.packets().drop("topic"))
    questions = Gathering()
    connects = questions.keep(connecting(packets))
    questions.add("connects", connects.agg(f.count(f.lit(1)).alias("connects")))
    refused = (f.col("type") == "connack") & (f.col("reason_code") != 0)
    questions.add("refused", packets.agg(count_where(refused, "refused")))
    of_clients = bursts(connects, ["server", "who"], f.lit(CLIENT_BURST))
    least = f.greatest(f.lit(SERVER_BURST), f.col("usual") * SERVER_RATIO)
    of_servers = bursts(connects, ["server"], least).withColumn("who", f.lit(None).cast("string"))
    both = of_servers.unionByName(of_clients)
    order = [f.col("who").isNotNull().asc(), f.desc("connects"), f.asc("from_minute"), f.asc("server"), f.asc("who")]
    questions.top("storms", both, order, report.asked.top)
    questions.add("parts", _parts(connects))
    questions.collect()

    parts = questions.rows("parts")
    report.reconnects = Reconnects(
        questions.row("connects")["connects"],
        questions.row("refused")["refused"],
        questions.ranked("storms", _storm_row),
        _timeline(parts),
        parts[0]["each"] if parts else 1,
    )


def connecting(packets: DataFrame) -> DataFrame:
    """CONNECT packets: server, minute, and who connects, the address where there is no Client Identifier."""
    address = f.regexp_replace("client", ":[0-9]+$", "")
    named = f.coalesce("connect.client_identifier", "client_identifier")
    minute = units_since_1970(MINUTE_NS)
    return packets.where(f.col("type") == "connect").select(
        "server", f.when(named != "", named).otherwise(address).alias("who"), minute.alias("minute")
    )


def bursts(connects: DataFrame, keys: Sequence[str], least: Column) -> DataFrame:
    """Neighbouring minutes with at least so many CONNECT packets, by server or by client.

    ``least`` may depend on ``usual``, the median of the minutes that have any.  Minutes without any do not count: the
    capture may have paused.
    """
    minutes = connects.groupBy(*keys, "minute").agg(f.count(f.lit(1)).alias("in_minute"))
    usual = minutes.groupBy(*keys).agg(f.median("in_minute").alias("usual"))
    busy = minutes.join(usual, list(keys)).where(f.col("in_minute") >= least)
    in_order = Window.partitionBy(*keys).orderBy("minute")
    begins = (f.col("minute") - f.lag("minute").over(in_order) == 1).cast("int")
    numbered = busy.withColumn("begins", 1 - f.coalesce(begins, f.lit(0))).withColumn(
        "burst", f.sum("begins").over(in_order.rowsBetween(Window.unboundedPreceding, 0))
    )
    return (
        connects.join(numbered, [*keys, "minute"])
        .groupBy(*keys, "burst", "usual")
        .agg(
            f.min("minute").alias("from_minute"),
            f.max("minute").alias("last_minute"),
            f.count(f.lit(1)).alias("connects"),
            f.max("in_minute").alias("peak"),
            *([] if "who" in keys else [f.countDistinct("who").alias("clients")]),
        )
        .withColumn("clients", f.lit(1).cast("bigint") if "who" in keys else f.col("clients"))
        .drop("burst")
    )


def _parts(connects: DataFrame) -> DataFrame:
    """CONNECT packets of equal parts of the time."""
    edges = connects.agg(f.min("minute").alias("first"), f.max("minute").alias("last"))
    each = f.ceil((f.col("last") - f.col("first") + 1) / PARTS)
    part = f.floor((f.col("minute") - f.col("first")) / f.col("each"))
    return (
        connects.crossJoin(f.broadcast(edges.withColumn("each", each)))
        .groupBy("first", "last", "each", part.alias("part"))
        .agg(f.count(f.lit(1)).alias("connects"))
    )


def _timeline(parts: Sequence[Row]) -> list[tuple[int, int]]:
    """All parts in order, those without any CONNECT as well."""
    if not parts:
        return []
    first, last, each = (parts[0][name] for name in ("first", "last", "each"))
    counts = {row["part"]: row["connects"] for row in parts}
    number = (last - first) // each + 1
    return [((first + part * each) * MINUTE_NS, counts.get(part, 0)) for part in range(number)]


def _storm_row(row: Row) -> StormRow:
    begin, end = row["from_minute"] * MINUTE_NS, (row["last_minute"] + 1) * MINUTE_NS
    counts = row["connects"], row["peak"], row["usual"], row["clients"]
    return StormRow(row["server"], row["who"], begin, end, *counts)
