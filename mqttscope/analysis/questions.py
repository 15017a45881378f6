"""Questions of one part of a report, which an engine answers together; which rows are meant; what several need.

`Selection` chooses by time, client, server, topic and rule.  A condition on what a table does not have holds for all of
its rows: a connection has no topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from mqttscope.analysis.dialects import PERCENTILES, Words
from mqttscope.analysis.joins import topic_matches
from mqttscope.report.fleet.model import Asked, Percentiles, Ranked

Row = dict[str, Any]
R = TypeVar("R")


class Engine(Protocol):
    """What answers questions about one lake."""

    @property
    def lake(self) -> str: ...

    @property
    def words(self) -> Words: ...

    def table(self, name: str) -> str:
        """The relation that has the rows of a table of the lake."""
        ...

    def view(self, query: str, *, kept: bool = False) -> str:
        """A relation for the rows of a query; ``kept``: it is computed once."""
        ...

    def shapes(self, relation: str) -> str:
        """A relation of each different ``client_identifier`` of a relation, and its ``shape`` (`analysis.shapes`)."""
        ...

    def answer(self, questions: Mapping[str, str]) -> dict[str, list[Row]]:
        """The rows of queries by their names, in the order of each query; forgets all views."""
        ...


_TOPICS = ("messages", "findings")
"""Tables whose rows are chosen by their topic: a packet that has none may be about any."""


class Selection:
    """Conditions of what was asked for, in the words of an engine; all results can stand in a FROM."""

    def __init__(self, words: Words, asked: Asked) -> None:
        self.words = words
        self.asked = asked

    def rows(self, relation: str, table: str) -> str:
        """Rows of packets, messages, findings or gaps, each of which has one time."""
        return _where(relation, [*self._before(table), *self._since(), *self._clients()])

    def history(self, relation: str, table: str) -> str:
        """The same without the beginning of the time, and of all clients: what an answer may depend on."""
        return _where(relation, self._before(table))

    def since(self, relation: str) -> str:
        return _where(relation, self._since())

    def clients(self, relation: str, *columns: str) -> str:
        """Of the clients that were asked for, one of whom stands in one of the columns."""
        return _where(relation, self._clients(*columns))

    def connections(self, relation: str) -> str:
        """Connections that were there in the time."""
        asked = self.asked
        conditions = self._servers()
        if asked.until_ns is not None:
            conditions.append(f"timestamp_ns < {asked.until_ns}")
        if asked.since_ns is not None:
            conditions.append(f"coalesce(closed_ns, {asked.since_ns}) >= {asked.since_ns}")
        return _where(relation, [*conditions, *self._clients()])

    def findings(self, relation: str) -> str:
        """Findings of the rules that were asked for."""
        text = self.words.text
        rules = [
            f"left(rule, {len(one)}) = {text(one.upper())} or slug = {text(one.lower())}" for one in self.asked.rule
        ]
        return _where(self.rows(relation, "findings"), _any(rules))

    def _since(self) -> list[str]:
        return [] if self.asked.since_ns is None else [f"timestamp_ns >= {self.asked.since_ns}"]

    def _before(self, table: str) -> list[str]:
        asked = self.asked
        conditions = self._servers()
        if table in _TOPICS:
            conditions += _any([topic_matches(self.words, "topic", one) for one in asked.topic])
        if asked.until_ns is not None:
            conditions.append(f"timestamp_ns < {asked.until_ns}")
        return conditions

    def _servers(self) -> list[str]:
        return _any([like(self.words, "server", one) for one in self.asked.server])

    def _clients(self, *columns: str) -> list[str]:
        names = columns or ("client_identifier",)
        return _any([like(self.words, name, one) for one in self.asked.client for name in names])


def _where(relation: str, conditions: Iterable[str]) -> str:
    told = " and ".join(f"({one})" for one in conditions)
    return f"(select * from {relation} where {told})" if told else relation


def _any(conditions: Sequence[str]) -> list[str]:
    """One condition: that any of these holds; none where there are none."""
    return [" or ".join(f"coalesce({one}, false)" for one in conditions)] if conditions else []


def like(words: Words, column: str, pattern: str) -> str:
    """Whether a column fits a pattern in which ``*`` stands for any characters and ``?`` for one."""
    if not re.search(r"[*?]", pattern):
        return f"{column} = {words.text(pattern)}"
    told = re.sub(r"[!%_]", r"!\g<0>", pattern).replace("*", "%").replace("?", "_")
    return f"{column} like {words.text(told)} escape '!'"


class Questions:
    """Questions that are asked together, and their answers."""

    def __init__(self, engine: Engine, asked: Asked) -> None:
        self.engine = engine
        self.words = engine.words
        self.selection = Selection(engine.words, asked)
        self.asked = asked
        self._queries: dict[str, str] = {}
        self._answers: dict[str, list[Row]] = {}

    def table(self, name: str) -> str:
        return self.engine.table(name)

    def view(self, query: str) -> str:
        return self.engine.view(query)

    def keep(self, query: str) -> str:
        """The same for one that several questions are asked of: it is computed once."""
        return self.engine.view(query, kept=True)

    def add(self, name: str, query: str) -> None:
        """Ask for all rows of a query, which are few."""
        self._queries[name] = query

    def top(self, name: str, relation: str, order: str) -> None:
        """Ask for the first rows of an order, and how many rows there are."""
        self.add(name, f"select * from {relation} order by {order} limit {self.asked.top}")
        self.add(f"{name}, all", f"select count(*) as total from {relation}")

    def collect(self) -> None:
        self._answers = self.engine.answer(self._queries)

    def rows(self, name: str) -> list[Row]:
        return self._answers[name]

    def row(self, name: str) -> Row:
        (found,) = self._answers[name]
        return found

    def ranked(self, name: str, make: Callable[[Row], R]) -> Ranked[R]:
        """An answer to `top`."""
        return Ranked([make(row) for row in self.rows(name)], self.row(f"{name}, all")["total"])


@dataclass(slots=True)
class Lake:
    """One lake, and what is asked of it."""

    engine: Engine
    asked: Asked

    def questions(self) -> Questions:
        return Questions(self.engine, self.asked)


def spread(words: Words, value: str) -> str:
    """The columns that `percentiles` makes percentiles of."""
    return f"count({value}) as measured, {words.percentiles(value)} as percentiles, max({value}) as maximum"


def percentiles(row: Row) -> Percentiles:
    """Percentiles of a row that has the columns of `spread`."""
    p50, p90, p99 = row["percentiles"] or [None] * len(PERCENTILES)
    return Percentiles(row["measured"], p50, p90, p99, row["maximum"])


def units_since_1970(words: Words, unit_ns: int) -> str:
    """How many full units lie between 1970 and ``timestamp_ns``, which has more digits than a double."""
    whole = words.whole("timestamp_ns", unit_ns)
    return f"{whole} - case when timestamp_ns % {unit_ns} < 0 then 1 else 0 end"
