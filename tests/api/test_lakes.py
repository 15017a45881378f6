"""Lakes as a program reads them: tables, views and answers, of one generation."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import tools

tools.package("pyarrow", "duckdb")

import pyarrow as pa
from deltalake import DeltaTable

import mqttscope
from mqttscope.analysis.views import VIEWS
from mqttscope.installation import extra_command, package_command
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table, write_lake
from tests.cli.running import capture
from tests.each import each
from tests.lake.reading import options

FIRST, SECOND, THIRD = capture("v5-qos"), capture("v311-retained"), capture("v5-topic-alias-client")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "lake"
    for single_path in (FIRST, SECOND):
        write_lake([single_path], path, options())
    return path


def test_each_table(folder: Path) -> None:
    with mqttscope.lake.open(folder) as lake:
        assert lake.tables == list(TABLES)
        for name in lake.tables:
            wanted = read_table(folder, name)
            relation = getattr(lake, name)
            assert relation.columns == wanted.column_names
            assert relation.to_arrow().equals(wanted)
            assert len(relation) == len(list(relation)) == wanted.num_rows
        connects = lake["packets"].to_duckdb().filter("type = 'connect'").fetchall()
        assert len(connects) == sum(packet.type == "connect" for packet in decoded()) > 0


def decoded() -> list[mqttscope.Packet]:
    """What the captures hold by the account of the decoder alone."""
    return [packet for path in (FIRST, SECOND) for packet in mqttscope.open(path)]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_tables_and_views_as_frames_of_other_packages(package: str, folder: Path) -> None:
    tools.package(package)
    with mqttscope.lake.open(folder) as lake:

        def frame(relation: Any, *columns: object) -> Any:
            return getattr(relation, f"to_{package}")(*columns)

        kinds = frame(lake.packets, ["type", "frame"])
        assert list(kinds.columns) == ["type", "frame"]
        assert sorted(kinds["type"]) == sorted(str(packet.type) for packet in decoded())
        assert sorted(kinds["frame"]) == sorted(int(packet.frame or 0) for packet in decoded())
        for name in lake.views:
            assert len(frame(lake[name])) == len(lake[name])
        with pytest.raises(mqttscope.ArgumentError, match=r"columns are a list, as \['frame'\]"):
            frame(lake.packets, "frame")


def test_each_view(folder: Path) -> None:
    with mqttscope.lake.open(folder) as lake:
        assert lake.views == list(VIEWS)
        for name in lake.views:
            relation = getattr(lake, name)
            assert relation.columns == list(VIEWS[name].columns)
            assert len(relation) == relation.to_arrow().num_rows
        (held,) = (row for row in lake.retained_messages if row["topic"] == "home/mode")
        sent = [packet for packet in mqttscope.open(SECOND) if packet.topic == "home/mode"]
        last = [packet for packet in sent if packet.direction == "client_to_server"][-1]
        assert held["state"] == "held"
        assert (held["frame"], held["payload"], held["since_ns"]) == (last.frame, last.payload, last.timestamp_ns)
        result = lake.deliveries.to_arrow(["waited_ns", "topic"])
        assert result.column_names == ["waited_ns", "topic"]
        assert all(each > 0 for each in result["waited_ns"].to_pylist() if each is not None)


def test_questions_in_sql(folder: Path) -> None:
    with mqttscope.lake.open(folder) as lake:
        answer = lake.sql("select type, count(*) as number from packets group by type order by type")
        assert answer.columns == ["type", "number"]
        packets = [packet for path in (FIRST, SECOND) for packet in mqttscope.open(path)]
        assert {row["type"]: row["number"] for row in answer} == Counter(packet.type for packet in packets)
        # The connection joins with what a program has.
        lake.duckdb.register("mine", pa.table({"topic": ["home/setpoint"]}))
        joined = lake.duckdb.sql("select count(*) from messages join mine using (topic)").fetchall()
        assert joined == [(sum(packet.topic == "home/setpoint" for packet in packets),)]


@each("query, expected", [
    ("drop table packets", "the statement is not a query"),
    ("select nothing from packets", 'Referenced column "nothing" not found'),
    ("selec 1", 'syntax error at or near "selec"'),
    ("select 1; select 2", "only one statement is answered"),
    ("select * from '/etc/passwd.csv'", "read only the tables of the lake"),
    ("select * from read_csv('/etc/passwd')", "read only the tables of the lake"),
])  # fmt: skip
def test_wrong_questions(query: str, expected: str, folder: Path) -> None:
    with mqttscope.lake.open(folder) as lake, pytest.raises(mqttscope.ArgumentError, match=expected):
        lake.sql(query)


def test_wrong_names(folder: Path) -> None:
    with mqttscope.lake.open(folder) as lake:
        with pytest.raises(mqttscope.ArgumentError, match="table or view 'packet' does not exist; use packets, "):
            _ = lake["packet"]
        for relation in (lake.packets, lake.top_talkers):
            with pytest.raises(mqttscope.ArgumentError, match="column 'x' does not exist; the columns are "):
                relation.to_arrow(["x"])
            with pytest.raises(mqttscope.ArgumentError, match=r"columns are a list, as \['frame'\]"):
                relation.to_arrow("frame")
    with pytest.raises(AttributeError, match=r"'mqttscope\.lake' has no attribute 'opne'"):
        _ = mqttscope.lake.opne  # type: ignore[attr-defined]
    for path, text in ((folder / "no", "does not exist"), (folder.parent, "is not a lake")):
        with pytest.raises(mqttscope.lake.LakeError, match=text):
            mqttscope.lake.open(path)


def test_it_is_one_generation_whatever_is_committed(tmp_path: Path) -> None:
    write_lake([FIRST], tmp_path / "lake", options())
    first = {name: read_table(tmp_path / "lake", name).num_rows for name in TABLES}
    with mqttscope.lake.open(tmp_path / "lake") as early, mqttscope.lake.open(tmp_path / "lake") as late:
        early.topics.to_arrow()
        write_lake([SECOND], tmp_path / "lake", options())
        write_lake([THIRD], tmp_path / "lake", options())
        for lake in (early, late):
            assert {name: len(lake[name]) for name in TABLES} == first
            assert {name: lake[name].to_arrow().num_rows for name in TABLES} == first
            assert len(lake.payload_sizes) == len(list(lake.topics))
            assert lake.generation == 1
    with mqttscope.lake.open(tmp_path / "lake") as now:
        assert now.generation == 3
        assert len(now.packets) == read_table(tmp_path / "lake", "packets").num_rows > first["packets"]


def test_several_lakes(folder: Path, tmp_path: Path) -> None:
    write_lake([FIRST], tmp_path / "site-b", options())
    with mqttscope.lake.open(folder) as single, mqttscope.lake.open([folder, tmp_path / "site-b"]) as lakes:
        assert lakes.packets.columns == ["lake", *single.packets.columns]
        assert len(lakes.packets) == len(single.packets) + read_table(tmp_path / "site-b", "packets").num_rows
        counted = {row["lake"] for row in lakes.sql("select lake, count(*) from devices group by lake")}
        assert counted == {folder.name, "site-b"}
        assert lakes.path == f"{folder}, {tmp_path / 'site-b'}"
    for paths, generation in (([], None), ([folder, folder], None), ([folder, tmp_path / "site-b"], 1)):
        with pytest.raises(mqttscope.ArgumentError):
            mqttscope.lake.open(paths, generation=generation)


def test_earlier_generations(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    wanted = {}
    for number, path in enumerate((FIRST, SECOND, THIRD), 1):
        write_lake([path], folder, options())
        wanted[number] = {name: read_table(folder, name).to_pylist() for name in TABLES}
    for number, tables in wanted.items():
        with mqttscope.lake.open(folder, generation=number) as lake:
            assert lake.generation == number
            for name, rows in tables.items():
                assert sorted(map(str, lake[name])) == sorted(map(str, rows))
                assert len(lake[name]) == len(rows)
    for number in (0, -1, 4):
        with pytest.raises(mqttscope.lake.LakeError, match=f"has no generation {number}: 3 is the last one"):
            mqttscope.lake.open(folder, generation=number)
    table = DeltaTable(str(folder / "topics"))
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(mqttscope.lake.LakeError, match="no longer has generation 2"):
        mqttscope.lake.open(folder, generation=2)
    (folder / "gaps" / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(mqttscope.lake.LakeError, match="no longer has generation 1"):
        mqttscope.lake.open(folder, generation=1)
    (folder / "gaps" / "_delta_log" / f"{0:020}.json").write_text("[]")
    with pytest.raises(mqttscope.lake.LakeError, match=r"the log of .*gaps cannot be read: the lake is damaged"):
        mqttscope.lake.open(folder, generation=1)


@each("package, command, ask", [
    ("pandas", package_command("pandas"), "opened.packets.to_pandas()"),
    ("polars", package_command("polars"), "opened.packets.to_polars()"),
    ("pyarrow", extra_command("lake"), "opened.packets.to_arrow()"),
    ("duckdb", extra_command("lake"), "opened.deliveries.to_duckdb()"),
    ("duckdb", extra_command("lake"), "opened.sql('select 1')"),
])  # fmt: skip
def test_a_package_that_is_missing_is_named(
    package: str, command: str, ask: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqttscope.lake.open(folder) as opened:
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(mqttscope.MissingPackageError, match=re.escape(f"{package} is not installed: {command}")):
            eval(ask, {"opened": opened})


def test_a_lake_that_is_closed_says_so(folder: Path) -> None:
    lake = mqttscope.lake.open(folder)
    packets, talkers = lake.packets, lake.top_talkers
    scratch = Path(lake._asked().scratch)
    lake.close()
    lake.close()
    assert not scratch.exists()
    for call in (packets.to_arrow, talkers.to_arrow, packets.to_duckdb, lambda: lake.sql("select 1")):
        with pytest.raises(mqttscope.lake.LakeError, match="is closed: open it again"):
            call()
