"""Which rows a report is about: by time, client, server, topic and rule."""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from mqttscope.report.fleet.model import Asked
from mqttscope.spark.joins import topic_matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame


class Selection:
    """Conditions of what was asked for.

    A condition on what a table does not have holds for all of its rows: a connection has no topic.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def rows(self, frame: DataFrame) -> DataFrame:
        """Rows of packets, messages, findings or gaps, each of which has one time."""
        return self.clients(self.since(self.history(frame)))

    def history(self, frame: DataFrame) -> DataFrame:
        """The same without the beginning of the time, and of all clients: what an answer may depend on."""
        asked = self.asked
        conditions = [
            *_any(_like(f.col("server"), one) for one in asked.server),
            *(_any(topic_matches(f.col("topic"), one) for one in asked.topic) if "topic" in frame.columns else ()),
        ]
        if asked.until_ns is not None:
            conditions.append(f.col("timestamp_ns") < asked.until_ns)
        return _where(frame, conditions)

    def since(self, frame: DataFrame, column: str = "timestamp_ns") -> DataFrame:
        """Not before the time that was asked for."""
        since = self.asked.since_ns
        return frame if since is None else frame.where(f.col(column) >= since)

    def clients(self, frame: DataFrame, *columns: str) -> DataFrame:
        """Of the clients that were asked for, one of whom stands in one of the columns."""
        names = columns or ("client_identifier",)
        return _where(frame, _any(_like(f.col(name), one) for one in self.asked.client for name in names))

    def connections(self, frame: DataFrame) -> DataFrame:
        """Connections that were there in the time."""
        asked = self.asked
        conditions = _any(_like(f.col("server"), one) for one in asked.server)
        if asked.until_ns is not None:
            conditions.append(f.col("timestamp_ns") < asked.until_ns)
        if asked.since_ns is not None:
            conditions.append(f.coalesce(f.col("closed_ns"), f.lit(asked.since_ns)) >= asked.since_ns)
        return self.clients(_where(frame, conditions))

    def findings(self, frame: DataFrame) -> DataFrame:
        """Findings of the rules that were asked for."""
        rules = (f.col("rule").startswith(one.upper()) | (f.col("slug") == one.lower()) for one in self.asked.rule)
        return _where(self.rows(frame), _any(rules))


def _where(frame: DataFrame, conditions: Iterable[Column]) -> DataFrame:
    for one in conditions:
        frame = frame.where(one)
    return frame


def _any(conditions: Iterable[Column]) -> list[Column]:
    """One condition: that any of these holds; none where there are none."""
    found = [f.coalesce(one, f.lit(False)) for one in conditions]
    return [reduce(lambda one, other: one | other, found)] if found else []


def _like(column: Column, pattern: str) -> Column:
    """Whether a column fits a pattern in which ``*`` stands for any characters and ``?`` for one."""
    if not re.search(r"[*?]", pattern):
        return column == pattern
    return column.rlike(f"(?s)^{''.join(_JAVA.get(char) or _quoted(char) for char in pattern)}\\z")


_JAVA = {"*": ".*", "?": "."}


def _quoted(char: str) -> str:
    return char if char.isalnum() else f"\\x{{{ord(char):x}}}"
