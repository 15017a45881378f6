"""DuckDB over rows that a test makes."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from mqttscope.analysis.dialects import DUCKDB, MACROS

WORDS = DUCKDB


def rows_of(query: str, **tables: pa.Table) -> list[dict[str, Any]]:
    """The rows of a query over tables, which it knows by their names."""
    with duckdb.connect() as connection:
        for macro in MACROS:
            connection.execute(f"create temp macro {macro}")
        for name, table in tables.items():
            connection.register(name, table)
        done = connection.execute(query)
        names = [one[0] for one in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]
