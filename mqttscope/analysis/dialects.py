"""The words of SQL that engines write differently; all else of a question is in what they have in common.

Functions of one value that lack a name in DuckDB get Spark's as macros (`MACROS`).  What a macro cannot be has a method
here: aggregates, functions with functions in them, literals.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable

PERCENTILES = (0.5, 0.9, 0.99)
ACCURACY = 10_000
"""With Spark percentiles are exact to this part of the number of values; with DuckDB they are exact."""
_HARMLESS = re.compile(r"[\w .,:;/+#*$%!?@()<>=|-]*", re.ASCII)


class Words(ABC):
    """The words of one engine."""

    def text(self, value: str) -> str:
        """A text as a literal, whatever is in it."""
        if _HARMLESS.fullmatch(value):
            return f"'{value}'"
        return self.decoded(value.encode("utf-8", "replace").hex())

    @abstractmethod
    def decoded(self, digits: str) -> str:
        """The text that these hexadecimal digits stand for."""

    @abstractmethod
    def struct(self, *columns: str) -> str:
        """Columns as one value, by their names."""

    @abstractmethod
    def last(self, value: str) -> str:
        """The last value of a window that is not null; ``over`` follows."""

    @abstractmethod
    def distinct(self, *columns: str) -> str:
        """How many combinations there are; those with a null do not count."""

    @abstractmethod
    def percentiles(self, value: str) -> str:
        """A list of `PERCENTILES`, each a value that is there; null where none is."""

    @abstractmethod
    def names(self, value: str, most: int) -> str:
        """The first different values of an order by name."""

    @abstractmethod
    def unnested(self, listed: str, value: str, place: str) -> str:
        """What follows the one relation of a FROM to get a row for each entry of a list, and its place from 0."""

    @abstractmethod
    def mapped(self, listed: str, made: Callable[[str, str], str]) -> str:
        """A list of what is made of each entry of a list and its place from 0."""

    @abstractmethod
    def chosen(self, listed: str, condition: Callable[[str], str]) -> str:
        """The entries of a list for which a condition holds."""

    @abstractmethod
    def whole(self, value: str, divisor: int) -> str:
        """A quotient without its fraction, of integers that have more digits than a double."""


class DuckWords(Words):
    """DuckDB."""

    def decoded(self, digits: str) -> str:  # noqa: D102 - see `Words`
        return f"decode(unhex('{digits}'))"

    def struct(self, *columns: str) -> str:  # noqa: D102 - see `Words`
        return "{" + ", ".join(f"'{name}': {name}" for name in columns) + "}"

    def last(self, value: str) -> str:  # noqa: D102 - see `Words`
        return f"last_value({value} ignore nulls)"

    def distinct(self, *columns: str) -> str:  # noqa: D102 - see `Words`
        known = " and ".join(f"{name} is not null" for name in columns)
        return f"count(distinct case when {known} then {self.struct(*columns)} end)"

    def percentiles(self, value: str) -> str:  # noqa: D102 - see `Words`
        return f"quantile_disc({value}, {list(PERCENTILES)})"

    def names(self, value: str, most: int) -> str:  # noqa: D102 - see `Words`
        return f"list_sort(list(distinct {value}) filter (where {value} is not null))[1:{most}]"

    def unnested(self, listed: str, value: str, place: str) -> str:  # noqa: D102 - see `Words`
        return f"cross join lateral (select unnest({listed}) as {value}, unnest(range(len({listed}))) as {place})"

    def mapped(self, listed: str, made: Callable[[str, str], str]) -> str:  # noqa: D102 - see `Words`
        return f"list_transform({listed}, lambda entry, place: {made('entry', '(place - 1)')})"

    def chosen(self, listed: str, condition: Callable[[str], str]) -> str:  # noqa: D102 - see `Words`
        return f"list_filter({listed}, lambda entry: {condition('entry')})"

    def whole(self, value: str, divisor: int) -> str:  # noqa: D102 - see `Words`
        return f"({value} // {divisor})"


MACROS = (
    "size(entries) as len(entries)",
    "get(entries, place) as entries[place + 1]",
    "slice(entries, start, number) as entries[start:start + number - 1]",
    "array_join(entries, between) as array_to_string(entries, between)",
    "octet_length(value) as strlen(value)",
    "try_add(one, other) as try_cast(cast(one as hugeint) + cast(other as hugeint) as bigint)",
    "try_subtract(one, other) as try_cast(cast(one as hugeint) - cast(other as hugeint) as bigint)",
)
"""Functions of Spark, made of those of DuckDB."""


class SparkWords(Words):
    """Spark, without pyspark: these are only texts."""

    def decoded(self, digits: str) -> str:  # noqa: D102 - see `Words`
        return f"decode(unhex('{digits}'), 'UTF-8')"

    def struct(self, *columns: str) -> str:  # noqa: D102 - see `Words`
        return f"struct({', '.join(columns)})"

    def last(self, value: str) -> str:  # noqa: D102 - see `Words`
        return f"last_value({value}) ignore nulls"

    def distinct(self, *columns: str) -> str:  # noqa: D102 - see `Words`
        return f"count(distinct {', '.join(columns)})"

    def percentiles(self, value: str) -> str:  # noqa: D102 - see `Words`
        return f"percentile_approx({value}, array({', '.join(f'{one}D' for one in PERCENTILES)}), {ACCURACY})"

    def names(self, value: str, most: int) -> str:  # noqa: D102 - see `Words`
        return f"slice(array_sort(collect_set({value})), 1, {most})"

    def unnested(self, listed: str, value: str, place: str) -> str:  # noqa: D102 - see `Words`
        return f"lateral view posexplode({listed}) unnested as {place}, {value}"

    def mapped(self, listed: str, made: Callable[[str, str], str]) -> str:  # noqa: D102 - see `Words`
        return f"transform({listed}, (entry, place) -> {made('entry', 'place')})"

    def chosen(self, listed: str, condition: Callable[[str], str]) -> str:  # noqa: D102 - see `Words`
        return f"filter({listed}, entry -> {condition('entry')})"

    def whole(self, value: str, divisor: int) -> str:  # noqa: D102 - see `Words`
        return f"({value} div {divisor}L)"
