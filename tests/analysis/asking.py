"""DuckDB over rows that a test makes."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from mqttscope.analysis import joins
from mqttscope.analysis.dialects import DUCKDB, MACROS
from mqttscope.lake.schemas import TABLES
from tests.lake.reading import Row

WORDS = DUCKDB


def rows_of(query: str, **tables: pa.Table) -> list[dict[str, Any]]:
    """The rows of a query over tables, which it knows by their names."""
    with duckdb.connect() as connection:
        for macro in MACROS:
            connection.execute(f"create temp macro {macro}")
        for name, table in tables.items():
            connection.register(name, table)
        done = connection.execute(query)
        names = [row[0] for row in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]


def table_of(name: str, rows: list[Row]) -> pa.Table:
    """A table of a lake with these rows."""
    return pa.Table.from_pylist(rows, schema=TABLES[name].arrow())


def expiry() -> str:
    """The query of `joins.message_expiry` and all that it needs."""
    pairs = joins.matching(WORDS, "(select topic from expiring where retain)", "asking")
    return f"""
    with delivered as ({joins.deliveries(WORDS, "messages")}),
    expiring as ({joins.expiring("delivered")}),
    asking as ({joins.subscriptions(WORDS, "packets")}),
    pairs as ({pairs})
    select * from ({joins.message_expiry("expiring", "packets", "gaps", "asking", "pairs")})
    """
