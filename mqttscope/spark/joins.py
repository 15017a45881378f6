"""The joins of `mqttscope.analysis.joins` for data frames, and related columns.

Data frames in, data frames out, in SQL alone: nothing runs before it is requested, and no rows pass through Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from mqttscope.analysis import joins
from mqttscope.analysis.dialects import SPARK
from mqttscope.analysis.shapes import MARK, PATTERN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def _query(query: str, **frames: Any) -> DataFrame:
    """The rows of a query with ``{name}`` for each data frame."""
    spark: SparkSession = next(iter(frames.values())).sparkSession
    return spark.sql(query, **frames)


def topic_matches(column: str, topic_filter: str) -> Column:
    """Condition: one Topic Filter matches the Topic Names of a column."""
    return f.expr(joins.topic_matches(SPARK, column, SPARK.text(topic_filter)))


def matching(topics: DataFrame, filters: DataFrame) -> DataFrame:
    """Pairs of ``topic`` and ``topic_filter`` that match, each once; a filter that is not valid matches nothing.

    ``topics`` has a column ``topic``, ``filters`` a column ``topic_filter``.  The cost grows with topics times shapes
    of filters, not with topics times filters.
    """
    return _query(joins.matching(SPARK, "{topics}", "{filters}"), topics=topics, filters=filters)


def subscriptions(packets: DataFrame) -> DataFrame:
    """Subscriptions of clients: one row for each Topic Filter of each SUBSCRIBE.

    ``granted`` is the QoS or the reason code of its SUBACK, null if no SUBACK was captured.  ``until_ns`` is the time
    of the next SUBSCRIBE or UNSUBSCRIBE of the filter on the connection, or null.
    """
    return _query(joins.subscriptions(SPARK, "{packets}"), packets=packets)


def retained_intervals(messages: DataFrame) -> DataFrame:
    """The times when a server held retained messages of clients, and how each ``ended``."""
    return _query(joins.retained_intervals("{messages}"), messages=messages)


def deliveries(messages: DataFrame) -> DataFrame:
    """Messages that servers sent, each with the last message that a client published with its topic and payload."""
    return _query(joins.deliveries(SPARK, "{messages}"), messages=messages)


def message_expiry(delivered: DataFrame, packets: DataFrame, gaps: DataFrame) -> DataFrame:
    """How servers treat the Message Expiry Interval: `deliveries` of messages that were published with an interval."""
    expiring = _query(joins.expiring("{delivered}"), delivered=delivered)
    asking = subscriptions(packets)
    pairs = matching(expiring.where("retain").select("topic"), asking)
    query = joins.message_expiry("{expiring}", "{packets}", "{gaps}", "{asking}", "{pairs}")
    return _query(query, expiring=expiring, packets=packets, gaps=gaps, asking=asking, pairs=pairs)


def shape_of(client_identifier: Column) -> Column:
    """`mqttscope.analysis.shapes.shape` of a column."""
    return f.regexp_replace(client_identifier, PATTERN, MARK)
