"""Other programs merge files and delete rows: what is consistent is adopted, anything else refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from mqttscope.lake import adoption, delta
from mqttscope.lake.commit import lake_lock
from mqttscope.lake.manifest import LakeError, read_manifest
from mqttscope.lake.schemas import EVENT_TABLES, TABLES
from mqttscope.lake.writer import write_lake
from tests.lake.fleet import segments, written
from tests.lake.reading import CAPTURES, all_rows, options, rows_for_others, tables_of


def table_of(lake: Path, name: str) -> DeltaTable:
    return DeltaTable(str(lake / name))


def merge(lake: Path) -> None:
    for name in TABLES:
        table_of(lake, name).optimize.compact()


def delete(lake: Path, names: tuple[str, ...], condition: str) -> None:
    for name in names:
        if "connection_id" in TABLES[name].names:
            table_of(lake, name).delete(condition)


def connection(lake: Path, *, is_open: bool) -> str:
    """The identifier of a connection with packets."""
    rows = tables_of(lake)["connections"]
    return min(str(row["connection_id"]) for row in rows if (row["closed_how"] == "open") is is_open and row["packets"])


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return written(segments(6, 8), tmp_path / "parts", 4)


@pytest.fixture
def lake(tmp_path: Path, parts: list[Path]) -> Path:
    for part in parts[:3]:
        write_lake([part], tmp_path / "lake", options())
    return tmp_path / "lake"


@pytest.fixture
def whole(lake: Path, parts: list[Path]) -> Path:
    """A lake with connections that have ended."""
    write_lake(parts[3:], lake, options())
    return lake


@pytest.mark.parametrize("stops", ["", "before the tables", "before the manifest"])
def test_merged_files_are_adopted(
    stops: str, lake: Path, parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, files = all_rows(lake), {name: len(table_of(lake, name).file_uris()) for name in EVENT_TABLES}
    merge(lake)
    assert read_manifest(lake).open_files["connections"]
    if stops:
        with monkeypatch.context() as patched:
            owner, name = (delta, "replace_files") if "tables" in stops else (adoption, "write_manifest")
            patched.setattr(owner, name, lambda *_: exec("raise KeyboardInterrupt"))
            with pytest.raises(KeyboardInterrupt), lake_lock(lake):
                pass
        assert (all_rows(lake), read_manifest(lake).generation) == (before, 3)
    with lake_lock(lake):
        assert read_manifest(lake).generation == 4
    assert all_rows(lake) == before == rows_for_others(lake)
    assert len(table_of(lake, "packets").file_uris()) < files["packets"]
    with lake_lock(lake):
        assert read_manifest(lake).generation == 4
    write_lake(parts[3:], lake, options())
    write_lake(parts, tmp_path / "once", options())
    assert all_rows(lake) == rows_for_others(lake) == all_rows(tmp_path / "once")


def test_deleted_connections_are_adopted(whole: Path) -> None:
    lake = whole
    number = connection(lake, is_open=False)
    rows = tables_of(lake)
    delete(lake, EVENT_TABLES, f"connection_id = '{number}'")
    write_lake(CAPTURES[:1], lake, options())
    left = tables_of(lake)
    assert not [row for name in EVENT_TABLES for row in left[name] if row.get("connection_id") == number]
    assert sum(row["connections"] for row in left["clients"]) == len(
        [row for row in left["connections"] if row["client_identifier"]]
    )
    gone = sum(row["connection_id"] == number for row in rows["packets"])
    assert gone
    assert all_rows(lake) == rows_for_others(lake)


def test_a_vacuum_is_no_change(lake: Path, parts: list[Path]) -> None:
    for name in TABLES:
        table_of(lake, name).vacuum(0, dry_run=False, enforce_retention_duration=False)
    write_lake(parts[3:], lake, options())
    assert all_rows(lake) == rows_for_others(lake)
    assert read_manifest(lake).generation == 4


def halve(lake: Path) -> None:
    delete(lake, ("packets",), f"connection_id = '{connection(lake, is_open=False)}'")


def end(lake: Path) -> None:
    delete(lake, EVENT_TABLES, f"connection_id = '{connection(lake, is_open=True)}'")


def change(lake: Path) -> None:
    table_of(lake, "packets").update(updates={"topic": "'x'"}, predicate="topic is not null")


def double(lake: Path) -> None:
    write_deltalake(str(lake / "gaps"), table_of(lake, "gaps").to_pyarrow_table(), mode="append")
    write_deltalake(str(lake / "packets"), table_of(lake, "packets").to_pyarrow_table(), mode="append")
    merge(lake)


def vacuum(lake: Path) -> None:
    merge(lake)
    table_of(lake, "packets").vacuum(0, dry_run=False, enforce_retention_duration=False)


@pytest.mark.parametrize("work", [halve, end, change, double, vacuum])
def test_other_changes_are_refused(work: Callable[[Path], None], whole: Path) -> None:
    before, files = read_manifest(whole), set(whole.glob("*/0*.parquet"))
    work(whole)
    with pytest.raises(LakeError, match=r"cannot be adopted; restore its version|is missing"):
        write_lake(CAPTURES[:1], whole, options())
    assert read_manifest(whole) == before
    assert set(whole.glob("*/0*.parquet")) <= files
