"""Tables that others read: the same rows in every engine, and a clear word where others have changed them."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from mqttscope.installation import extra_command
from mqttscope.lake import delta
from mqttscope.lake.commit import commit
from mqttscope.lake.files import LakeFiles
from mqttscope.lake.manifest import LakeError, Manifest, read_manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table, write_lake
from tests.conftest import ROOT
from tests.lake.parts import cut
from tests.lake.reading import options, tables_of
from tests.lake.test_writer import SEVERAL, same_as_once
from tests.spark.collection import CUT, DAMAGED, collection, usual_options, wide

READERS = {"pyarrow", "duckdb", "duckdb, by files", "polars", "polars, lazily"}


def ordered(rows: list[dict[str, object]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two ingests, with errors of captures and connections that are open."""
    folder = tmp_path_factory.mktemp("delta")
    text, two, three = collection(folder / "captures", [CUT, DAMAGED, "planted-violations"])
    begun, _ = wide(folder / "wide", 3)
    for some in ([text], [two, three, begun]):
        write_lake(some, folder / "lake", usual_options())
    return folder / "lake"


def test_strangers_read_what_mqttscope_reads(lake: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-W", "error", str(ROOT / "tests" / "lake" / "strangers.py"), str(lake), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")

    assert read_manifest(lake).open_files["connections"]
    for name in TABLES:
        expected = ordered(read_table(lake, name).to_pylist())
        files = sorted(tmp_path.glob(f"{name}.*.arrow"))
        assert {path.name.split(".")[1] for path in files} == READERS - (set() if expected else {"duckdb, by files"})
        for path in files:
            with pa.OSFile(str(path)) as file:
                assert ordered(pa.ipc.open_file(file).read_all().to_pylist()) == expected, path.name


def test_what_the_log_says_of_a_table(lake: Path) -> None:
    manifest = read_manifest(lake)
    for name, schema in TABLES.items():
        table = DeltaTable(str(lake / name))
        assert (table.version(), table.metadata().name) == (manifest.versions[name], name)
        assert table.metadata().description == schema.meaning
        document = {field.name: field.metadata.get("comment", "") for field in table.schema().fields}
        assert document == {column.name: column.meaning for column in schema.columns}
        files = {f"{name}/{path}" for path in table.get_add_actions(flatten=True).column("path").to_pylist()}
        assert files == {*manifest.files.get(name, ()), *manifest.open_files.get(name, ())}
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (lake / name / "_delta_log").iterdir())
    rows = read_table(lake, "packets")["timestamp_ns"].to_pylist()
    added = DeltaTable(str(lake / "packets")).get_add_actions(flatten=True)
    assert sum(added.column("num_records").to_pylist()) == len(rows)
    assert min(added.column("min.timestamp_ns").to_pylist()) == min(rows)
    assert max(added.column("max.timestamp_ns").to_pylist()) == max(rows)


def test_a_version_of_each_table_belongs_to_an_ingest(tmp_path: Path) -> None:
    """Who goes by the versions of the manifest sees whole ingests; a table that has nothing new keeps its version."""
    parts, before = cut(SEVERAL[0], tmp_path, 2), []
    for part in parts:
        write_lake([part], tmp_path / "lake", options())
        before.append((read_manifest(tmp_path / "lake").versions, tables_of(tmp_path / "lake")))
    assert before[0][0] == dict.fromkeys(TABLES, 0)
    assert before[1][0]["ingest_errors"] == 0
    for versions, rows in before:
        for name, version in versions.items():
            table = DeltaTable(str(tmp_path / "lake" / name), version=version)
            assert ordered(table.to_pyarrow_table().to_pylist()) == ordered(rows[name])


def test_tables_that_another_program_has_changed(tmp_path: Path) -> None:
    lake, parts = tmp_path / "lake", cut(SEVERAL[0], tmp_path, 3)
    for part in parts[:2]:
        write_lake([part], lake, options())
    rows, version = tables_of(lake), read_manifest(lake).versions["packets"]

    DeltaTable(str(lake / "packets")).delete("frame > 0")
    # Readers go by the manifest.
    assert tables_of(lake) == rows
    with pytest.raises(LakeError, match=rf"packets is not what was written: .* restore its version {version}"):
        write_lake(parts[2:], lake, options())
    DeltaTable(str(lake / "packets")).restore(version)
    write_lake(parts[2:], lake, options())
    same_as_once(lake, parts)
    result = DeltaTable(str(lake / "packets")).to_pyarrow_table().to_pylist()
    assert ordered(result) == ordered(read_table(lake, "packets").to_pylist())


def test_a_log_that_is_damaged_is_named(tmp_path: Path) -> None:
    lake, parts = tmp_path / "lake", cut(SEVERAL[0], tmp_path, 2)
    write_lake(parts[:1], lake, options())
    entry = lake / "packets" / "_delta_log" / f"{0:020d}.json"
    whole = entry.read_bytes()
    for damage in (whole[:50], b"{"):
        entry.write_bytes(damage)
        with pytest.raises(LakeError, match=f"^{entry} is damaged, so that the table cannot be read$"):
            write_lake(parts[1:], lake, options())
    entry.unlink()
    with pytest.raises(LakeError, match=f"^{lake / 'packets'} is not what was written"):
        write_lake(parts[1:], lake, options())
    entry.write_bytes(whole)
    write_lake(parts[1:], lake, options())


def test_parts_of_batches_are_written_whole(tmp_path: Path) -> None:
    """Some writers abort on a part of a table with nested columns."""
    source = read_of(SEVERAL[0], tmp_path / "source").combine_chunks()
    with LakeFiles(tmp_path, 1) as files:
        for start in range(0, source.num_rows, 3):
            files.write("packets", source.slice(start, 3).to_batches()[0])
    commit(tmp_path, Manifest(), Manifest(1, files=files.names))

    assert DeltaTable(str(tmp_path / "packets")).to_pyarrow_table().to_pylist() == source.to_pylist()


def read_of(capture: Path, lake: Path) -> pa.Table:
    write_lake([capture], lake, options())
    return read_table(lake, "packets")


def test_what_no_reader_needs_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "PROPERTIES", {"delta.deletedFileRetentionDuration": "interval 0 days"})
    lake, parts = tmp_path / "lake", cut(SEVERAL[0], tmp_path, 2)
    for part in parts:
        write_lake([part], lake, options())
    rows = tables_of(lake)
    named = read_manifest(lake).all_files()
    there = {path.relative_to(lake).as_posix() for path in lake.glob("*/*.parquet")}
    assert there > named

    delta.vacuum(lake)
    assert {path.relative_to(lake).as_posix() for path in lake.glob("*/*.parquet")} == named
    assert tables_of(lake) == rows
    # What vacuum writes into the log is no change of the rows.
    write_lake([SEVERAL[1]], lake, options())
    assert json.loads((lake / "manifest.json").read_text())["versions"]["packets"] > 3


@pytest.mark.parametrize("name", ["back\\slash", "new\nline", "a%20b"], ids=repr)
def test_paths_that_no_delta_table_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=f"^{re.escape(str(tmp_path / name))}: no Delta table can be there: "):
        write_lake([SEVERAL[0]], tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_paths_that_a_delta_table_can_have(tmp_path: Path) -> None:
    # Where the locale is not UTF-8, such a path is refused (cli/pipeline).
    letter = "ä" if sys.getfilesystemencoding() == "utf-8" else "a"
    lake = tmp_path / f"it's 100% [a] {{lake}} #1 *{letter}? ~"
    for part in cut(SEVERAL[0], tmp_path, 2):
        write_lake([part], lake, options())
    result = DeltaTable(str(lake / "packets")).to_pyarrow_table().to_pylist()
    assert ordered(result) == ordered(read_table(lake, "packets").to_pylist())


def test_a_table_of_an_earlier_release_gets_the_columns_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, parts = tmp_path / "lake", cut(SEVERAL[0], tmp_path, 2)
    with monkeypatch.context() as patched:
        fewer = {name: Schema.from_arrow(pa.schema(list(schema.arrow())[:-2])) for name, schema in TABLES.items()}
        patched.setattr(delta, "schema_of", fewer.__getitem__)
        write_lake(parts[:1], lake, options())
    assert len(DeltaTable(str(lake / "packets")).schema().fields) == len(TABLES["packets"].columns) - 2

    write_lake(parts[1:], lake, options())
    table = DeltaTable(str(lake / "packets"))
    assert [field.name for field in table.schema().fields] == list(TABLES["packets"].names)
    assert table.version() == read_manifest(lake).versions["packets"]
    assert ordered(table.to_pyarrow_table().to_pylist()) == ordered(read_table(lake, "packets").to_pylist())


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(LakeError, match="needs what is not installed .*: " + re.escape(extra_command("lake"))):
        write_lake([SEVERAL[0]], tmp_path / "lake")
