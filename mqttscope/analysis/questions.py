"""Queries of one part of a report, which an engine answers together, and the selection of their rows.

`RowSelection` selects by time, client, server, topic and rule.  A condition on a column that a table lacks holds for
all its rows: a connection has no topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from mqttscope.analysis.dialects import PERCENTILES, Dialect
from mqttscope.analysis.joins import topic_matches
from mqttscope.report.fleet.model import Percentiles, RankedRows, ReportQuery

Row = dict[str, Any]
R = TypeVar("R")


class Engine(Protocol):
    """An engine that answers queries about one lake."""

    @property
    def lake(self) -> str: ...

    @property
    def words(self) -> Dialect: ...

    def table(self, name: str) -> str:
        """Relation with the rows of a table of the lake."""
        ...

    def view(self, query: str, *, cached: bool = False) -> str:
        """Relation with the rows of a query; with ``cached`` it is computed once."""
        ...

    def shapes(self, relation: str) -> str:
        """Relation of each distinct ``client_identifier`` and its ``shape`` (`analysis.shapes`)."""
        ...

    def answer(self, questions: Mapping[str, str]) -> dict[str, list[Row]]:
        """Rows of each query, by its name; discards all views."""
        ...


_TOPICS = ("messages", "findings")
"""Tables selected by topic.  Packets are not: a packet without a topic may concern any topic."""


OF_LAKE = ("server", "connection_id", "capture")
"""Columns with the name of the lake in front of their values, in a report of several lakes."""


def labels(lakes: Sequence[str]) -> list[str]:
    """Names of lakes: the last parts of their paths if these differ, else the paths."""
    names = [lake.rstrip("/").rpartition("/")[2] for lake in lakes]
    return names if len(set(names)) == len(names) else list(lakes)


class RowSelection:
    """Conditions of a report query, in an engine's SQL; each result can follow FROM."""

    def __init__(self, words: Dialect, asked: ReportQuery) -> None:
        self.words = words
        self.asked = asked

    def rows(self, relation: str, table: str) -> str:
        """Selected rows of packets, messages, findings or gaps, which have one time each."""
        return _where(relation, [*self._before(table), *self._since(), *self._clients()])

    def history(self, relation: str, table: str) -> str:
        """Rows that an answer may depend on: from the beginning up to the end of the time, of all clients."""
        return _where(relation, self._before(table))

    def since(self, relation: str) -> str:
        return _where(relation, self._since())

    def clients(self, relation: str, *columns: str) -> str:
        """Rows with one of the selected clients in one of the columns."""
        return _where(relation, self._clients(*columns))

    def connections(self, relation: str) -> str:
        """Connections that were open within the time."""
        asked = self.asked
        conditions = self._servers()
        if asked.until_ns is not None:
            conditions.append(f"timestamp_ns < {asked.until_ns}")
        if asked.since_ns is not None:
            conditions.append(f"coalesce(closed_ns, {asked.since_ns}) >= {asked.since_ns}")
        return _where(relation, [*conditions, *self._clients()])

    def findings(self, relation: str) -> str:
        """Findings of the selected rules."""
        text = self.words.text
        rules = [
            f"left(rule, {len(name)}) = {text(name.upper())} or slug = {text(name.lower())}" for name in self.asked.rule
        ]
        return _where(self.rows(relation, "findings"), _any(rules))

    def _since(self) -> list[str]:
        return [] if self.asked.since_ns is None else [f"timestamp_ns >= {self.asked.since_ns}"]

    def _before(self, table: str) -> list[str]:
        asked = self.asked
        conditions = self._servers()
        if table in _TOPICS:
            conditions += _any([topic_matches(self.words, "topic", self.words.text(each)) for each in asked.topic])
        if asked.until_ns is not None:
            conditions.append(f"timestamp_ns < {asked.until_ns}")
        return conditions

    def _servers(self) -> list[str]:
        # In a report of several lakes, the name of the lake is in front of the endpoint.
        patterns = [each for pattern in self.asked.server for each in (pattern, f"*: {pattern}")]
        return _any([like(self.words, "server", pattern) for pattern in patterns])

    def _clients(self, *columns: str) -> list[str]:
        names = columns or ("client_identifier",)
        return _any([like(self.words, name, pattern) for pattern in self.asked.client for name in names])


def _where(relation: str, conditions: Iterable[str]) -> str:
    clause = " and ".join(f"({condition})" for condition in conditions)
    return f"(select * from {relation} where {clause})" if clause else relation


def _any(conditions: Sequence[str]) -> list[str]:
    """The alternative of these conditions as a list of one, or an empty list."""
    return [" or ".join(f"coalesce({condition}, false)" for condition in conditions)] if conditions else []


def like(words: Dialect, column: str, pattern: str) -> str:
    """Condition: a column matches a pattern with ``*`` for any characters and ``?`` for one."""
    if not re.search(r"[*?]", pattern):
        return f"{column} = {words.text(pattern)}"
    escaped = re.sub(r"[!%_]", r"!\g<0>", pattern).replace("*", "%").replace("?", "_")
    return f"{column} like {words.text(escaped)} escape '!'"


class Questions:
    """Queries that an engine answers together, and their answers."""

    def __init__(self, engine: Engine, asked: ReportQuery) -> None:
        self.engine = engine
        self.words = engine.words
        self.selection = RowSelection(engine.words, asked)
        self.asked = asked
        self._queries: dict[str, str] = {}
        self._answers: dict[str, list[Row]] = {}

    def table(self, name: str) -> str:
        return self.engine.table(name)

    def view(self, query: str) -> str:
        return self.engine.view(query)

    def keep(self, query: str) -> str:
        """Store the rows of a query that several queries read; returns the name of their relation."""
        return self.engine.view(query, cached=True)

    def add(self, name: str, query: str) -> None:
        """Add a query with few rows."""
        self._queries[name] = query

    def top(self, name: str, relation: str, order: str) -> None:
        """Add a query for the first rows of an order, and one for the number of rows."""
        self.add(name, f"select * from {relation} order by {order} limit {self.asked.top}")
        self.add(f"{name}, all", f"select count(*) as total from {relation}")

    def names(self) -> Iterable[str]:
        """Names of the queries."""
        return self._queries

    def collect(self) -> None:
        self._answers = self.engine.answer(self._queries)

    def rows(self, name: str) -> list[Row]:
        return self._answers[name]

    def row(self, name: str) -> Row:
        (row,) = self._answers[name]
        return row

    def ranked(self, name: str, make: Callable[[Row], R]) -> RankedRows[R]:
        """The answer to `top`."""
        return RankedRows([make(row) for row in self.rows(name)], self.row(f"{name}, all")["total"])


@dataclass(slots=True)
class ReportSource:
    """Engine of one lake, and the selection of its report."""

    engine: Engine
    asked: ReportQuery

    def questions(self) -> Questions:
        return Questions(self.engine, self.asked)


def spread(words: Dialect, value: str) -> str:
    """Columns that `percentiles` reads."""
    return f"count({value}) as measured, {words.percentiles(value)} as percentiles, max({value}) as maximum"


def percentiles(row: Row) -> Percentiles:
    """Percentiles of a row with the columns of `spread`."""
    p50, p90, p99 = row["percentiles"] or [None] * len(PERCENTILES)
    return Percentiles(row["measured"], p50, p90, p99, row["maximum"])


def units_since_1970(words: Dialect, unit_ns: int) -> str:
    """Number of whole units between 1970 and ``timestamp_ns``, which has more digits than a double."""
    whole = words.whole("timestamp_ns", unit_ns)
    return f"{whole} - case when timestamp_ns % {unit_ns} < 0 then 1 else 0 end"
