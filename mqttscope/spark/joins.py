"""The joins of `mqttscope.analysis.joins` for data frames, and columns that have to do with them.

Data frames in, data frames out, in SQL alone: nothing runs before it is asked for, and no rows pass through Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from mqttscope.analysis import joins
from mqttscope.analysis.dialects import SPARK
from mqttscope.analysis.shapes import MARK, PATTERN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def _made(query: str, **frames: Any) -> DataFrame:
    """The rows of a query in which ``{name}`` stands for a data frame."""
    spark: SparkSession = next(iter(frames.values())).sparkSession
    return spark.sql(query, **frames)


def topic_matches(column: str, topic_filter: str) -> Column:
    """Whether one Topic Filter matches the Topic Names of a column, which is given by its name."""
    return f.expr(joins.topic_matches(SPARK, column, topic_filter))


def matching(topics: DataFrame, filters: DataFrame) -> DataFrame:
    """Pairs of ``topic`` and ``topic_filter`` that match, each once; a filter that is not valid matches nothing.

    ``topics`` has a column ``topic``, ``filters`` a column ``topic_filter``.  Its cost grows with topics times shapes
    of filters, and not with topics times filters.
    """
    return _made(joins.matching(SPARK, "{topics}", "{filters}"), topics=topics, filters=filters)


def subscriptions(packets: DataFrame) -> DataFrame:
    """What clients subscribed to: a row for each Topic Filter of each SUBSCRIBE.

    ``granted`` is the QoS or the reason code of its SUBACK, null where none was captured.  ``until_ns`` is the time of
    the next SUBSCRIBE or UNSUBSCRIBE of the filter on the connection, null where there is none.
    """
    return _made(joins.subscriptions(SPARK, "{packets}"), packets=packets)


def retained_intervals(messages: DataFrame) -> DataFrame:
    """When which retained message was held, and how that ``ended``: of messages that clients published with RETAIN."""
    return _made(joins.retained_intervals("{messages}"), messages=messages)


def deliveries(messages: DataFrame) -> DataFrame:
    """Messages that servers sent, each with the last one that a client had published with that topic and payload."""
    return _made(joins.deliveries(SPARK, "{messages}"), messages=messages)


def message_expiry(delivered: DataFrame, packets: DataFrame, gaps: DataFrame) -> DataFrame:
    """How servers treat the Message Expiry Interval: `deliveries` of messages that were published with one."""
    expiring = _made(joins.expiring("{delivered}"), delivered=delivered)
    asking = subscriptions(packets)
    pairs = matching(expiring.where("retain").select("topic"), asking)
    query = joins.message_expiry("{expiring}", "{packets}", "{gaps}", "{asking}", "{pairs}")
    return _made(query, expiring=expiring, packets=packets, gaps=gaps, asking=asking, pairs=pairs)


def shape_of(client_identifier: Column) -> Column:
    """`mqttscope.analysis.shapes.shape` of a column."""
    return f.regexp_replace(client_identifier, PATTERN, MARK)
