"""The columns of all tables, with their types in DuckDB's notation; reading them does not load pyarrow.

``columns.json`` is made from `mqttscope.lake.schemas` by ``python -m mqttscope.dev.generate``; loading that takes three
times as long as a small question.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mqttscope.lake.manifest import LakeError

FILE = Path(__file__).with_name("columns.json")


@dataclass(slots=True, frozen=True)
class TableColumn:
    """One column of a table."""

    name: str
    type: str
    """``BIGINT``, ``STRUCT("reason" VARCHAR)[]``."""
    meaning: str


@cache
def _tables() -> dict[str, list[TableColumn]]:
    tables = json.loads(FILE.read_bytes())
    return {table: [TableColumn(*column) for column in columns] for table, columns in tables.items()}


def table_names() -> list[str]:
    return list(_tables())


def columns_of(table: str) -> list[TableColumn]:
    """The columns of a table; `LakeError` if the table does not exist."""
    try:
        return _tables()[table]
    except KeyError:
        raise LakeError(f"table {table!r} does not exist; tables: {', '.join(_tables())}") from None
