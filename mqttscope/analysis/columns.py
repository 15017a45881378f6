"""The columns of all tables, with their types as DuckDB writes them: what is asked of a lake needs no pyarrow.

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
class Column:
    """One column of a table."""

    name: str
    type: str
    """``BIGINT``, ``STRUCT("reason" VARCHAR)[]``."""
    meaning: str


@cache
def _tables() -> dict[str, list[Column]]:
    found = json.loads(FILE.read_bytes())
    return {table: [Column(*one) for one in columns] for table, columns in found.items()}


def table_names() -> list[str]:
    return list(_tables())


def columns_of(table: str) -> list[Column]:
    """The columns of a table; `LakeError` where there is no such table."""
    try:
        return _tables()[table]
    except KeyError:
        raise LakeError(f"there is no table {table!r}; there are {', '.join(_tables())}") from None
