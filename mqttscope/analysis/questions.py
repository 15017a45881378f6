"""Questions of one part of a report, which an engine answers together, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from mqttscope.analysis.dialects import PERCENTILES, Words
from mqttscope.analysis.selection import Selection
from mqttscope.report.fleet.model import Asked, Percentiles, Ranked

Row = dict[str, Any]
R = TypeVar("R")


class Engine(Protocol):
    """What answers questions about one lake."""

    @property
    def lake(self) -> str:
        """The folder of the lake."""
        ...

    @property
    def words(self) -> Words:
        """How it writes SQL."""
        ...

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
        """All rows of a table."""
        return self.engine.table(name)

    def view(self, query: str) -> str:
        """A relation for the rows of a query."""
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
        """Have all of them answered."""
        self._answers = self.engine.answer(self._queries)

    def rows(self, name: str) -> list[Row]:
        """The rows of an answer, in their order."""
        return self._answers[name]

    def row(self, name: str) -> Row:
        """The one row of an answer."""
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
        """Questions of one part of the report."""
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
