"""SQL that DuckDB and Spark write differently; the rest of a query is common to both.

Spark's scalar functions that DuckDB lacks are macros (`MACROS`).  Methods here write what a macro cannot: aggregates,
functions that take functions, literals.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MACROS = (
    "size(entries) as len(entries)",
    "get(entries, place) as entries[place + 1]",
    "slice(entries, start, number) as entries[start:start + number - 1]",
    "try_add(one, other) as try_cast(cast(one as hugeint) + cast(other as hugeint) as bigint)",
    "try_subtract(one, other) as try_cast(cast(one as hugeint) - cast(other as hugeint) as bigint)",
)
"""Spark's functions, written with DuckDB's; a user's query does not get them."""
PERCENTILES = (0.5, 0.9, 0.99)
ACCURACY = 10_000
"""Accuracy of Spark's percentiles: a rank is off by at most one in this many values.  DuckDB's are exact."""
_HARMLESS = re.compile(r"[\w .,:;/+#*$%!?@()<>=|-]*", re.ASCII)


@dataclass(slots=True, frozen=True)
class Dialect:
    """How one engine writes SQL."""

    spark: bool
    """Spark's SQL; else DuckDB's."""

    def text(self, value: str) -> str:
        """A text as an SQL literal, whatever its characters."""
        if _HARMLESS.fullmatch(value):
            return f"'{value}'"
        digits = value.encode("utf-8", "replace").hex()
        return f"decode(unhex('{digits}'), 'UTF-8')" if self.spark else f"decode(unhex('{digits}'))"

    def octets(self, text: str) -> str:
        """Number of bytes of a text."""
        return f"octet_length({text})" if self.spark else f"strlen({text})"

    def at(self, listed: str, place: str) -> str:
        """List element at an index from 0; null beyond the end."""
        return f"get({listed}, {place})" if self.spark else f"({listed})[{place} + 1]"

    def struct(self, *columns: str) -> str:
        if self.spark:
            return f"struct({', '.join(columns)})"
        return "{" + ", ".join(f"'{name}': {name}" for name in columns) + "}"

    def last(self, value: str) -> str:
        """SQL for the last value of a window that is not null; an ``over`` clause follows."""
        return f"last_value({value}) ignore nulls" if self.spark else f"last_value({value} ignore nulls)"

    def distinct(self, *columns: str) -> str:
        """Number of distinct combinations without a null."""
        if self.spark:
            return f"count(distinct {', '.join(columns)})"
        known = " and ".join(f"{name} is not null" for name in columns)
        return f"count(distinct case when {known} then {self.struct(*columns)} end)"

    def percentiles(self, value: str) -> str:
        """List of `PERCENTILES`, each one of the values; null without values."""
        if self.spark:
            return f"percentile_approx({value}, array({', '.join(f'{part}D' for part in PERCENTILES)}), {ACCURACY})"
        return f"quantile_disc({value}, {list(PERCENTILES)})"

    def names(self, value: str, most: int) -> str:
        """Up to ``most`` distinct values in order; null or empty without values."""
        if self.spark:
            return f"slice(array_sort(collect_set({value})), 1, {most})"
        return f"list_sort(list(distinct {value}) filter (where {value} is not null))[1:{most}]"

    def unnested(self, listed: str, value: str, place: str) -> str:
        """Suffix of a FROM that gives one row per list element, with its index from 0."""
        if self.spark:
            return f"lateral view posexplode({listed}) unnested as {place}, {value}"
        return f"cross join lateral (select unnest({listed}) as {value}, unnest(range(len({listed}))) as {place})"

    def mapped(self, listed: str, expression: Callable[[str, str], str]) -> str:
        """List of an expression of each list element and its index from 0."""
        if self.spark:
            return f"transform({listed}, (entry, place) -> {expression('entry', 'place')})"
        return f"list_transform({listed}, lambda entry, place: {expression('entry', '(place - 1)')})"

    def chosen(self, listed: str, condition: Callable[[str], str]) -> str:
        """List elements that satisfy a condition."""
        if self.spark:
            return f"filter({listed}, entry -> {condition('entry')})"
        return f"list_filter({listed}, lambda entry: {condition('entry')})"

    def joined(self, listed: str) -> str:
        return f"array_join({listed}, '/')" if self.spark else f"array_to_string({listed}, '/')"

    def whole(self, value: str, divisor: int) -> str:
        """Integer quotient; the integers may have more digits than a double."""
        return f"({value} div {divisor}L)" if self.spark else f"({value} // {divisor})"


DUCKDB = Dialect(spark=False)
SPARK = Dialect(spark=True)
