"""The words of SQL that engines write differently; all else of a question is in what they have in common.

Functions of one value that lack a name in DuckDB get Spark's as macros (`MACROS`).  What a macro cannot be is a method
here: aggregates, functions with functions in them, literals.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MACROS = (
    "size(entries) as len(entries)",
    "get(entries, place) as entries[place + 1]",
    "slice(entries, start, number) as entries[start:start + number - 1]",
    "octet_length(value) as strlen(value)",
    "try_add(one, other) as try_cast(cast(one as hugeint) + cast(other as hugeint) as bigint)",
    "try_subtract(one, other) as try_cast(cast(one as hugeint) - cast(other as hugeint) as bigint)",
)
"""Functions of Spark, made of those of DuckDB."""
PERCENTILES = (0.5, 0.9, 0.99)
ACCURACY = 10_000
"""With Spark percentiles are exact to this part of the number of values; with DuckDB they are exact."""
_HARMLESS = re.compile(r"[\w .,:;/+#*$%!?@()<>=|-]*", re.ASCII)


@dataclass(slots=True, frozen=True)
class Words:
    """The words of one engine."""

    spark: bool
    """Those of Spark, else of DuckDB."""

    def text(self, value: str) -> str:
        """A text as a literal, whatever is in it."""
        if _HARMLESS.fullmatch(value):
            return f"'{value}'"
        digits = value.encode("utf-8", "replace").hex()
        return f"decode(unhex('{digits}'), 'UTF-8')" if self.spark else f"decode(unhex('{digits}'))"

    def struct(self, *columns: str) -> str:
        if self.spark:
            return f"struct({', '.join(columns)})"
        return "{" + ", ".join(f"'{name}': {name}" for name in columns) + "}"

    def last(self, value: str) -> str:
        """The last value of a window that is not null; ``over`` follows."""
        return f"last_value({value}) ignore nulls" if self.spark else f"last_value({value} ignore nulls)"

    def distinct(self, *columns: str) -> str:
        """How many combinations there are; those with a null do not count."""
        if self.spark:
            return f"count(distinct {', '.join(columns)})"
        known = " and ".join(f"{name} is not null" for name in columns)
        return f"count(distinct case when {known} then {self.struct(*columns)} end)"

    def percentiles(self, value: str) -> str:
        """A list of `PERCENTILES`, each a value that is there; null where none is."""
        if self.spark:
            return f"percentile_approx({value}, array({', '.join(f'{one}D' for one in PERCENTILES)}), {ACCURACY})"
        return f"quantile_disc({value}, {list(PERCENTILES)})"

    def names(self, value: str, most: int) -> str:
        """The first different values of an order by name; null or empty where there are none."""
        if self.spark:
            return f"slice(array_sort(collect_set({value})), 1, {most})"
        return f"list_sort(list(distinct {value}) filter (where {value} is not null))[1:{most}]"

    def unnested(self, listed: str, value: str, place: str) -> str:
        """What follows the one relation of a FROM to get a row for each entry of a list, and its place from 0."""
        if self.spark:
            return f"lateral view posexplode({listed}) unnested as {place}, {value}"
        return f"cross join lateral (select unnest({listed}) as {value}, unnest(range(len({listed}))) as {place})"

    def mapped(self, listed: str, made: Callable[[str, str], str]) -> str:
        """A list of what is made of each entry of a list and its place from 0."""
        if self.spark:
            return f"transform({listed}, (entry, place) -> {made('entry', 'place')})"
        return f"list_transform({listed}, lambda entry, place: {made('entry', '(place - 1)')})"

    def chosen(self, listed: str, condition: Callable[[str], str]) -> str:
        """The entries of a list for which a condition holds."""
        if self.spark:
            return f"filter({listed}, entry -> {condition('entry')})"
        return f"list_filter({listed}, lambda entry: {condition('entry')})"

    def joined(self, listed: str) -> str:
        return f"array_join({listed}, '/')" if self.spark else f"array_to_string({listed}, '/')"

    def whole(self, value: str, divisor: int) -> str:
        """A quotient without its fraction, of integers that have more digits than a double."""
        return f"({value} div {divisor}L)" if self.spark else f"({value} // {divisor})"


DUCKDB = Words(spark=False)
SPARK = Words(spark=True)
