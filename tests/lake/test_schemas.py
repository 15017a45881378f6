"""The tables as they are declared."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from mqttscope.lake.schemas import (
    EVENT_TABLES,
    INTERNAL,
    SCOPE_STATE,
    STATE,
    TABLES,
    VERSION,
    ScopeStateRow,
    StateRow,
    TableSchema,
    event_schema,
)
from tests.conftest import ROOT

each_table = pytest.mark.parametrize("table", [*TABLES.values(), *INTERNAL], ids=lambda table: table.name)


def types(kind: pa.DataType) -> set[str]:
    if pa.types.is_struct(kind):
        return {name for each in kind for name in types(each.type)}
    return types(kind.value_type) if pa.types.is_list(kind) else {str(kind)}


def names(kind: pa.DataType) -> set[str]:
    if pa.types.is_struct(kind):
        return {each.name for each in kind} | {name for each in kind for name in names(each.type)}
    return names(kind.value_type) if pa.types.is_list(kind) else set()


@each_table
def test_columns_are_once_there_and_of_types_that_spark_has(table: TableSchema) -> None:
    assert len(set(table.names)) == len(table.names)
    for column in table.columns:
        assert types(column.type) <= {
            "string", "int16", "int32", "int64", "double", "bool", "binary", "timestamp[us, tz=UTC]",
        }  # fmt: skip
        assert {
            name for name in {column.name} | names(column.type) if not re.fullmatch(r"[a-z][a-z0-9_]*", name)
        } == set()


@each_table
def test_keys_are_columns_and_tables_say_what_they_are(table: TableSchema) -> None:
    assert set(table.key) <= set(table.names)
    assert table.meaning
    schema = table.arrow()
    assert schema.metadata == {b"mqttscope.table": table.name.encode(), b"mqttscope.schema": str(VERSION).encode()}
    assert [each.type for each in schema] == [each.type for each in table.struct()]


@each_table
def test_passwords_have_no_column(table: TableSchema) -> None:
    texts = {name for column in table.columns for name in {column.name} | names(column.type)}
    assert {name for name in texts if "password" in name or "authentication_data" in name} <= {
        "password_length", "authentication_data_length",
    }  # fmt: skip


def test_rows_of_memories_have_the_columns_of_their_tables() -> None:
    assert (StateRow._fields, ScopeStateRow._fields) == (STATE.names, SCOPE_STATE.names)


def test_event_rows_have_a_struct_for_each_table() -> None:
    assert event_schema().names == ["kind", *EVENT_TABLES, "state", "flow_keys", "scope_state"]
    assert event_schema(("packets",)).names == ["kind", "packets"]
    assert set(EVENT_TABLES) < set(TABLES)


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_the_page_has_every_column(table: TableSchema) -> None:
    page = (ROOT / "docs" / "lake.md").read_text("utf-8")
    section = page.partition(f"\n## {table.name}\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(table.names)
