"""Makes the list of columns that questions to a lake use (`mqttscope.analysis.columns`)."""

from __future__ import annotations

import json

import pyarrow as pa

from mqttscope.lake.schemas import TABLES

_TYPES = {
    pa.string(): "VARCHAR", pa.int64(): "BIGINT", pa.int32(): "INTEGER", pa.int16(): "SMALLINT", pa.bool_(): "BOOLEAN",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE", pa.binary(): "BLOB",
}  # fmt: skip


def columns() -> str:
    """Tables and their columns as JSON, a line for each column."""
    tables = []
    for table in TABLES.values():
        rows = ",\n".join(
            json.dumps([one.name, duck_type(one.type), one.meaning], ensure_ascii=False) for one in table.columns
        )
        tables.append(f"{json.dumps(table.name)}: [\n{rows}\n]")
    return "{\n" + ",\n".join(tables) + "\n}\n"


def duck_type(kind: pa.DataType) -> str:
    """A type of Arrow as DuckDB writes it."""
    if pa.types.is_list(kind):
        return f"{duck_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        fields = (kind.field(place) for place in range(kind.num_fields))
        told = ", ".join(f"{json.dumps(one.name)} {duck_type(one.type)}" for one in fields)
        return f"STRUCT({told})"
    return _TYPES[kind]
