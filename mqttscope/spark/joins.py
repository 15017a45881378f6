"""Joins of the tables that no column gives: topics with filters, deliveries with their messages.

Data frames in, data frames out, in SQL functions alone: nothing runs before it is asked for, and no rows pass through
Python.  What a capture cannot know is null: it may have begun late, and who stores messages is the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from mqttscope.mqtt.topics import MAX_TOPIC_BYTES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SECOND_NS = 1_000_000_000
EXPIRY_TOLERANCE_S = 2
"""Seconds by which a Message Expiry Interval may be off: clocks and rounding."""
FAILURE = 0x80
"""Reason codes from here on are failures."""
FROM_CLIENT = "client_to_server"
_ORDER = ("timestamp_ns", "capture", "frame", "packet_in_connection")


def topic_matches(topic: Column, topic_filter: str) -> Column:
    """Whether one Topic Filter matches a column of Topic Names, as `mqttscope.mqtt.topics.matches` says."""
    from mqttscope.mqtt.topics import SHARE, topic_filter_problem

    if topic_filter_problem(topic_filter) is not None:
        return f.lit(False)
    plain = topic_filter.split("/", 2)[2] if topic_filter.startswith(f"{SHARE}/") else topic_filter
    wanted = plain.split("/")
    levels = f.split(topic, "/", -1)
    open_ended = wanted[-1] == "#"
    fixed = wanted[:-1] if open_ended else wanted
    found = topic != ""
    found &= f.size(levels) >= len(fixed) if open_ended else f.size(levels) == len(fixed)
    if wanted[0] in ("+", "#"):
        found &= ~topic.startswith("$")
    for index, level in enumerate(fixed):
        if level != "+":
            found &= f.get(levels, f.lit(index)) == level
    return found


def matching(topics: DataFrame, filters: DataFrame) -> DataFrame:
    """Pairs of ``topic`` and ``topic_filter`` that match, each once; a filter that is not valid matches nothing.

    ``topics`` has a column ``topic``, ``filters`` a column ``topic_filter``.  The result is that of
    `mqttscope.mqtt.topics.matches`.  Filters have few shapes (how many levels, where a ``+`` is, whether ``#`` ends
    them); for each, every topic says which filter would match it, and that is looked up: an equi-join, whose cost
    grows with topics times shapes and not with topics times filters.
    """
    shaped = _shaped(filters.select("topic_filter").distinct())
    shapes = shaped.select("count", "open_ended", "plus").distinct()
    names = (
        topics.select("topic").distinct().where(f.col("topic") != "").withColumn("levels", f.split("topic", "/", -1))
    )
    fits = f.when(f.col("open_ended"), f.size("levels") >= f.col("count")).otherwise(f.size("levels") == f.col("count"))
    begins = f.array_contains("plus", 0) | (f.col("open_ended") & (f.col("count") == 0))
    asked = names.join(f.broadcast(shapes), fits & ~(f.col("topic").startswith("$") & begins))
    head = f.transform(
        f.slice("levels", 1, f.col("count")),
        lambda level, index: f.when(f.array_contains("plus", index), f.lit("+")).otherwise(level),
    )
    plain = (
        f.when(f.col("open_ended") & (f.col("count") == 0), f.lit("#"))
        .when(f.col("open_ended"), f.concat(f.concat_ws("/", head), f.lit("/#")))
        .otherwise(f.concat_ws("/", head))
    )
    asked = asked.select("topic", "count", "open_ended", "plus", plain.alias("plain"))
    return asked.join(shaped, ["count", "open_ended", "plus", "plain"]).select("topic", "topic_filter")


def _shaped(filters: DataFrame) -> DataFrame:
    """Valid filters, without ``$share/name/``, and their shapes."""
    whole = f.col("topic_filter")
    shared = (whole == "$share") | whole.startswith("$share/")
    parts = f.split(whole, "/", 3)
    share_name, rest = f.get(parts, f.lit(1)), f.get(parts, f.lit(2))
    share_valid = (f.coalesce(share_name, f.lit("")) != "") & ~share_name.rlike("[+#]")
    valid = (f.octet_length(whole) <= MAX_TOPIC_BYTES) & ~whole.contains("\0") & (~shared | share_valid)
    plain = f.when(shared, rest).otherwise(whole)
    levels = f.split("plain", "/", -1)
    misplaced = f.exists("fixed", lambda level: level.contains("#") | (level.contains("+") & (level != "+")))
    # `f.get` beyond the end is null, so that no filter fails the job.
    open_ended = f.element_at("levels", -1) == "#"
    numbered = f.transform("fixed", lambda level, index: f.when(level == "+", index))
    return (
        filters.where(valid)
        .withColumn("plain", plain)
        .where(f.coalesce(f.col("plain"), f.lit("")) != "")
        .withColumn("levels", levels)
        .withColumn("open_ended", open_ended)
        .withColumn("count", f.size("levels") - f.col("open_ended").cast("int"))
        .withColumn("fixed", f.slice("levels", 1, f.col("count")))
        .where(~misplaced)
        .withColumn("plus", f.filter(numbered, lambda index: index.isNotNull()))
        .select("topic_filter", "plain", "count", "open_ended", "plus")
    )


def subscriptions(packets: DataFrame) -> DataFrame:
    """What clients subscribed to: a row for each Topic Filter of each SUBSCRIBE.

    ``granted`` is the QoS or the reason code of its SUBACK, null where none was captured.  ``until_ns`` is the time of
    the next SUBSCRIBE or UNSUBSCRIBE of the filter on the connection, null where there is none.
    """
    kinds = packets.where(f.col("type").isin("subscribe", "suback", "unsubscribe"))
    exchange = Window.partitionBy("connection_id", "packet_identifier").orderBy("packet_in_connection")
    answered = kinds.withColumn("answer", f.lead(f.struct("type", "reason_codes")).over(exchange)).where(
        f.col("type") != "suback"
    )
    asked = answered.where(f.col("type") == "subscribe").select(
        *_HEAD, "answer", f.posexplode("subscriptions").alias("position", "asked")
    )
    codes = f.when(f.col("answer.type") == "suback", f.col("answer.reason_codes"))
    asked = asked.select(
        *_HEAD,
        "position",
        f.col("asked.topic_filter").alias("topic_filter"),
        f.col("asked.maximum_qos").alias("maximum_qos"),
        f.col("asked.retain_handling").alias("retain_handling"),
        f.get(codes, f.col("position")).alias("granted"),
    )
    ended = answered.where(f.col("type") == "unsubscribe").select(
        *_HEAD, f.posexplode("topic_filters").alias("position", "topic_filter")
    )
    follow = Window.partitionBy("connection_id", "topic_filter").orderBy("packet_in_connection", "position")
    both = asked.withColumn("begins", f.lit(True)).unionByName(
        ended.withColumn("begins", f.lit(False)), allowMissingColumns=True
    )
    return both.withColumn("until_ns", f.lead("timestamp_ns").over(follow)).where("begins").drop("begins", "position")


_HEAD = (
    "server", "client", "client_identifier", "connection_id", "capture", "frame", "timestamp_ns",
    "packet_in_connection",
)  # fmt: skip


def retained_intervals(messages: DataFrame) -> DataFrame:
    """When which retained message was held: of messages that clients published with RETAIN.

    A row has ``from_ns`` and ``until_ns`` (null where it is held to the end of what was captured), and ``ended``:
    ``replaced``, ``cleared`` (by an empty payload), ``expired``, or null.  A message that was refused sets nothing.
    What was retained before the first row of a topic is unknown, and wills are retained unseen.
    """
    taken = messages.where(
        (f.col("direction") == FROM_CLIENT)
        & f.col("retain")
        & f.col("topic").isNotNull()
        & (f.col("topic") != "")
        & (f.col("state") != "refused")
    )
    by_topic = Window.partitionBy("server", "topic").orderBy(*_ORDER)
    after = f.lead(f.struct("timestamp_ns", "payload_length")).over(by_topic)
    expires = f.try_add("timestamp_ns", f.col("message_expiry_interval") * SECOND_NS)
    next_ns = f.col("after.timestamp_ns")
    expired = expires.isNotNull() & (next_ns.isNull() | (expires < next_ns)) & (expires <= f.col("last_ns"))
    return (
        taken.select(*_KEPT)
        .withColumn("after", after)
        .crossJoin(f.broadcast(messages.agg(f.max("timestamp_ns").alias("last_ns"))))
        .where(f.col("payload_length") > 0)
        .withColumn("until_ns", f.when(expired, expires).otherwise(next_ns))
        .withColumn(
            "ended",
            f.when(expired, "expired")
            .when(f.col("after.payload_length") == 0, "cleared")
            .when(next_ns.isNotNull(), "replaced"),
        )
        .withColumnRenamed("timestamp_ns", "from_ns")
        .drop("after", "last_ns")
    )


_KEPT = (*_HEAD, "topic", "qos", "payload_length", "payload_sha256", "message_expiry_interval")


def deliveries(messages: DataFrame) -> DataFrame:
    """Messages that servers sent, each with the last one that a client had published with that topic and payload.

    ``published`` is a struct of that message, null where the capture has none; ``waited_ns`` the time from it to the
    delivery, both as captured; ``repeated`` whether the same content was published before that too, so that the
    delivery may be of an earlier one.  Messages of unknown topic, or with bytes missing, are with nobody.  One sort by
    topic and content; no join.
    """
    identified = messages.where(f.col("topic").isNotNull() & f.col("payload_sha256").isNotNull())
    own = f.col("direction") == FROM_CLIENT
    by_content = (
        Window.partitionBy("server", "topic", "payload_sha256")
        .orderBy("timestamp_ns", f.when(own, 0).otherwise(1), "capture", "frame", "packet_in_connection")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    source = f.struct(
        "timestamp_ns", "client", "client_identifier", "connection_id", "capture", "frame", "qos", "retain",
        "message_expiry_interval",
    )  # fmt: skip
    found = (
        identified.withColumn("published", f.last(f.when(own, source), ignorenulls=True).over(by_content))
        .withColumn("repeated", f.sum(own.cast("int")).over(by_content) > 1)
        .where(~own)
    )
    unknown = (
        messages.where(~own & (f.col("topic").isNull() | f.col("payload_sha256").isNull()))
        .withColumn("published", f.lit(None).cast(found.schema["published"].dataType))
        .withColumn("repeated", f.lit(False))
    )
    return found.unionByName(unknown).withColumn("waited_ns", f.try_subtract("timestamp_ns", "published.timestamp_ns"))


def message_expiry(delivered: DataFrame, packets: DataFrame, gaps: DataFrame) -> DataFrame:
    """How servers treat the Message Expiry Interval: `deliveries` of messages that were published with one.

    A message has waited in the server for certain (``stored_ns``) until the connection of the delivery was accepted,
    or, where it is retained, until a SUBSCRIBE asked for it; what came later may have waited in the network.
    ``verdict``: ``right``; ``not_reduced`` (the interval is larger than what was left), ``missing`` (no interval),
    ``expired`` (delivered although nothing was left), or null: it did not wait, or the capture cannot tell, since the
    same content came more than once or bytes of clients were lost meanwhile.
    """
    accepted = (
        packets.where(f.col("type") == "connack")
        .groupBy("connection_id")
        .agg(f.min("timestamp_ns").alias("accepted_ns"))
    )
    asking = subscriptions(packets)
    expiring = delivered.where(f.col("published.message_expiry_interval").isNotNull())
    pairs = matching(expiring.where("retain"), asking)
    asked = (
        pairs.join(asking, "topic_filter")
        .groupBy("connection_id", "topic")
        .agg(f.min("timestamp_ns").alias("asked_ns"))
    )
    known = (
        expiring.join(accepted, "connection_id", "left")
        .join(asked, ["connection_id", "topic"], "left")
        .join(_behind_gaps(expiring, gaps), list(_NAME), "left")
    )
    since = f.when(f.col("retain"), f.greatest("accepted_ns", "asked_ns")).otherwise(f.col("accepted_ns"))
    stored = f.greatest(f.lit(0), f.try_subtract(since, "published.timestamp_ns"))
    interval = f.col("published.message_expiry_interval")
    left = interval - f.col("stored_ns") / SECOND_NS
    told = f.col("message_expiry_interval")
    waited = f.col("stored_ns") > EXPIRY_TOLERANCE_S * SECOND_NS
    verdict = (
        f.when(~waited | f.col("stored_ns").isNull() | f.col("repeated") | f.col("dup") | f.col("behind_gap"), None)
        .when(left + EXPIRY_TOLERANCE_S < 0, "expired")
        .when(told.isNull(), "missing")
        .when(told > left + EXPIRY_TOLERANCE_S, "not_reduced")
        .otherwise("right")
    )
    return (
        known.withColumn("stored_ns", f.when(since.isNotNull(), stored))
        .withColumn("left_s", f.floor(left))
        .withColumn("verdict", verdict)
    )


_NAME = ("connection_id", "direction", "stream_offset")
"""What names a message."""


def _behind_gaps(delivered: DataFrame, gaps: DataFrame) -> DataFrame:
    """Of deliveries whether bytes of any client of the server were lost between publication and delivery.

    Gaps are counted up to both times, in one sort by server, since comparing times with times would be a join of all
    with all.
    """
    times = f.explode(f.array("published.timestamp_ns", "timestamp_ns"))
    points = delivered.select("server", *_NAME, times.alias("at_ns"), f.lit(0).alias("gap"))
    lost = gaps.where(f.col("direction") == FROM_CLIENT).select(
        "server", f.col("timestamp_ns").alias("at_ns"), f.lit(1).alias("gap")
    )
    so_far = Window.partitionBy("server").orderBy("at_ns", "gap").rowsBetween(Window.unboundedPreceding, 0)
    counted = points.unionByName(lost, allowMissingColumns=True).withColumn("gaps", f.sum("gap").over(so_far))
    return counted.where("gap = 0").groupBy(*_NAME).agg((f.max("gaps") > f.min("gaps")).alias("behind_gap"))
