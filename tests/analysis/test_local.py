"""DuckDB over a lake: all columns whatever files there are, damage is noticed, and nothing is left lying about."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from mqttscope.analysis.local import LocalEngine
from mqttscope.lake.manifest import LakeError, Manifest, read_manifest, write_manifest
from mqttscope.lake.writer import read_table, write_lake
from tests.lake.reading import CAPTURES, options


def changed(lake: Path, folder: Path) -> tuple[Path, Manifest]:
    """A copy of a lake without checksums, whose files a test may write again."""
    shutil.copytree(lake, folder)
    manifest = read_manifest(folder)
    manifest.checksums, manifest.sizes = {}, {}
    return folder, manifest


def test_columns_that_earlier_releases_did_not_write_are_null(lake: Path, tmp_path: Path) -> None:
    folder, manifest = changed(lake, tmp_path / "lake")
    (name,) = manifest.files["messages"]
    pq.write_table(pq.read_table(folder / name).drop_columns(["latency_ns"]), folder / name)
    write_manifest(folder, manifest)

    with LocalEngine(folder) as engine:
        documents = engine.rows(f"select count(*) as rows, count(latency_ns) as known from {engine.table('messages')}")
    assert documents == [{"rows": read_table(lake, "messages").num_rows, "known": 0}]


def test_columns_of_version_1_have_the_names_of_today(tmp_path: Path) -> None:
    lake = tmp_path / "whole"
    write_lake([path for path in CAPTURES if path.parent.name in ("kept-open", "v5-qos")], lake, options())
    folder, manifest = changed(lake, tmp_path / "lake")
    manifest.schema = 1
    for name in (*manifest.files["connections"], *manifest.open_files["connections"]):
        old = pq.read_table(folder / name)
        names = [
            {"closed_how": "how", "closed_by": "by"}.get(column_name, column_name) for column_name in old.column_names
        ]
        pq.write_table(old.rename_columns(names), folder / name)
    write_manifest(folder, manifest)

    query = "select closed_how, closed_by, count(*) as number from connections group by all order by all"
    documentses = []
    for path in (lake, folder):
        with LocalEngine(path) as engine:
            engine.make_views()
            documentses.append(engine.rows(query))
    assert documentses[0] == documentses[1] != []


def test_files_that_no_commit_names_do_not_count(lake: Path, tmp_path: Path) -> None:
    folder = tmp_path / "it's a lake [*]"
    shutil.copytree(lake, folder)
    (path,) = (folder / "topics").glob("*.parquet")
    shutil.copy(path, path.with_name("stray.parquet"))

    with LocalEngine(folder) as engine:
        (row,) = engine.rows(f"select count(*) as number from {engine.table('topics')}")
    assert row["number"] == read_table(lake, "topics").num_rows


def test_damage_is_noticed(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    (path,) = (tmp_path / "lake" / "gaps").glob("*.parquet")
    content = bytearray(path.read_bytes())
    content[10] ^= 1  # of the data: with a damaged footer no table could be opened
    path.write_bytes(content)

    with pytest.raises(LakeError, match=r"gaps.*checksum differs"):
        LocalEngine(tmp_path / "lake")
    # Large lakes are not read as a whole when they are opened.
    monkeypatch.setattr("mqttscope.analysis.local.CHECKED_BYTES", 0)
    manifest = read_manifest(tmp_path / "lake")
    with LocalEngine(tmp_path / "lake", manifest) as engine:
        assert list(engine.ask("select * from topics", 1).rows)
        with pytest.raises(LakeError, match=r"gaps.*checksum differs"):
            engine.ask("select count(*) from Gaps")
        with pytest.raises(LakeError, match=r"gaps.*checksum differs"):
            engine.table("gaps")
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(LakeError):
            LocalEngine(folder)


def test_what_does_not_fit_into_memory_lies_in_a_folder_that_goes_away(lake: Path) -> None:
    with LocalEngine(lake, memory=64 << 20) as engine:
        sorted_rows = engine.connection.execute("select a, hash(a) as b from range(8000000) t(a) order by b")
        assert sorted_rows.fetchone()
        assert list(Path(engine.scratch).iterdir())
    assert not Path(engine.scratch).exists()

    with LocalEngine(lake, memory=16 << 20) as engine, pytest.raises(duckdb.OutOfMemoryException):
        engine.rows("select list(a) from range(30000000) t(a)")
    assert not Path(engine.scratch).exists()


def test_the_manifest_is_all_that_says_what_is_read(lake: Path) -> None:
    with LocalEngine(lake) as engine:
        (row,) = engine.rows("select current_setting('allowed_paths') as paths")
        known = {str((lake / name).resolve()) for name in json.loads((lake / "manifest.json").read_bytes())["sizes"]}
        assert {each.rstrip("/") for each in row["paths"]} <= known


def test_several_lakes_do_not_mix(lake: Path, tmp_path: Path) -> None:
    """Each view is computed lake by lake: sites may use the same addresses."""
    shutil.copytree(lake, tmp_path / "b")
    with LocalEngine(lake) as engine, LocalEngine(lake, others=[(tmp_path / "b", None)]) as both:
        for name in ("deliveries", "subscriptions", "captures", "packets"):
            engine.make_views([name])
            both.make_views([name])
            (row,) = engine.rows(f"select count(*) as number from {name}")
            rows = both.rows(f"select lake, count(*) as number from {name} group by lake order by lake")
            assert rows == [{"lake": label, **row} for label in sorted((lake.name, "b"))]
        assert next(iter(both.ask("describe packets").rows)) == ["lake", "string", "name of the lake"]
        servers = both.rows(f"select distinct server from {both.table('connections')}")
        assert {row["server"].partition(": ")[0] for row in servers} == {lake.name, "b"}
