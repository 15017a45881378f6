"""Tables of a lake as frames: by the manifest, with all columns, open rows included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import mqttscope.spark as package
from mqttscope.lake import schemas
from mqttscope.lake.manifest import LakeError, open_lake, read_manifest
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.spark import tables
from tests.conftest import ROOT
from tests.lake.parts import cut
from tests.lake.reading import options


def test_all_tables_are_there() -> None:
    assert set(schemas.TABLES) <= set(dir(package))
    for name in schemas.TABLES:
        assert (getattr(package, name).func, getattr(package, name).keywords) == (tables.table, {"name": name})
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_the_package_is_light() -> None:
    code = "import sys, mqttscope.spark; print({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "set()\n"


def test_what_is_no_lake(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is not a lake"):
        tables.table(spark, tmp_path, "packets")
    with pytest.raises(LakeError, match="none does not exist"):
        tables.table(spark, tmp_path / "none", "packets")
    with pytest.raises(LakeError, match="table 'nothing' does not exist; tables: packets, "):
        tables.schema("nothing")


def test_rows_are_those_of_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever its name is, and with connections that are still open."""
    lake = tmp_path / "a [lake] {of} *ä% ?"
    first = cut(ROOT / "captures" / "session-taken-over" / "capture.pcapng", tmp_path, 2)[0]
    write_lake([first], lake, options())
    assert read_manifest(lake).open_files
    (lake / "packets" / "stray.parquet").write_bytes(b"of an ingest that broke off")
    # A session of Spark that knows nothing of mqttscope: the files that the logs of the tables name.
    for name in ("packets", "messages", "connections", "topics"):
        files = [unquote(file_uri).translate(tables._GLOB) for file_uri in DeltaTable(str(lake / name)).file_uris()]
        rows = spark.read.parquet(*files).toArrow().to_pylist() if files else []
        assert sorted(map(repr, rows)) == sorted(map(repr, read_table(lake, name).to_pylist()))

    for name in ("packets", "connections", "findings", "ingest_errors"):
        result = getattr(package, name)(spark, lake)
        whole = read_table(lake, name) if name != "ingest_errors" else schemas.TABLES[name].arrow().empty_table()
        assert result.columns == whole.column_names
        assert result.schema == tables.schema(name)
        assert result.toArrow().to_pylist() == whole.to_pylist(), name


def test_views(spark: SparkSession, tmp_path: Path) -> None:
    write_lake([ROOT / "captures" / "v5-qos" / "capture.pcapng"], tmp_path)

    tables.make_views(spark, tmp_path, open_lake(tmp_path))

    (row,) = spark.sql("select (select count(*) from messages), (select count(*) from gaps)").collect()
    assert row[:] == (read_table(tmp_path, "messages").num_rows, 0)
