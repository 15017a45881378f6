"""The list of columns: that of the schemas, and what views of a lake have."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.analysis.columns import columns_of, table_names
from mqttscope.analysis.local import LocalEngine
from mqttscope.lake.manifest import LakeError, write_manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table
from tests.analysis.test_local import changed


def types_of(engine: LocalEngine, name: str) -> list[tuple[str, str]]:
    rows = engine.connection.execute(f"describe {engine.table(name)}").fetchall()
    return [(row[0], row[1]) for row in rows]


def normal(engine: LocalEngine, kind: str) -> str:
    return str(engine.connection.sqltype(kind))


def test_all_columns_are_there_whatever_files_there_are(lake: Path, tmp_path: Path) -> None:
    empty, manifest = changed(lake, tmp_path / "empty")
    manifest.files, manifest.open_files = {}, {}
    write_manifest(empty, manifest)
    for folder in (lake, empty):
        with LocalEngine(folder) as engine:
            for name in TABLES:
                expected = [(column.name, normal(engine, column.type)) for column in columns_of(name)]
                assert [(text, normal(engine, kind)) for text, kind in types_of(engine, name)] == expected
                number = engine.connection.execute(f"select count(*) from {name}").fetchall()
                assert number == [(read_table(lake, name).num_rows if folder == lake else 0,)]
    assert table_names() == list(TABLES)


def test_the_columns_are_those_of_the_schemas() -> None:
    for name, table in TABLES.items():
        assert [(column.name, column.meaning) for column in columns_of(name)] == [
            (column.name, column.meaning) for column in table.columns
        ]
    with pytest.raises(LakeError, match="table 'nix' does not exist; tables: packets, "):
        columns_of("nix")
