"""What an ingest did, read from the lake."""

from __future__ import annotations

from pathlib import Path

from mqttscope.lake.manifest import Manifest, read_manifest
from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.summary import summarize
from mqttscope.lake.writer import read_table, write_lake
from tests.spark.collection import CUT, DAMAGED, collection, usual_options, wide


def test_only_what_is_new_counts(tmp_path: Path, lake: Path) -> None:
    text, two, three = collection(tmp_path / "captures", [CUT, DAMAGED, "planted-violations"])
    begun, _ = wide(tmp_path / "wide", 3)
    first = summarize(lake, Manifest(), write_lake([text], lake, usual_options()))
    before = read_manifest(lake)
    second = summarize(lake, before, write_lake([two, three, begun], lake, usual_options()))

    assert (first.generation, second.generation) == (1, 2)
    result = read_table(lake, "findings").to_pylist()
    assert sum(first.findings.values()) + sum(second.findings.values()) == len(result)
    assert {Path(error.capture).stem for error in (*first.errors, *second.errors)} == {CUT, DAMAGED}
    assert second.sums["clients"] == read_table(lake, "clients").num_rows
    assert second.rows == {name: rows for name in EVENT_TABLES if (rows := read_table(lake, name).num_rows)}
    opened = sum(row["closed_how"] == "open" for row in read_table(lake, "connections").to_pylist())
    assert second.open_connections == second.open_rows["connections"] == opened > 0

    again = summarize(lake, read_manifest(lake), write_lake([text], lake, usual_options()))
    assert (again.findings, again.errors, again.generation) == ({}, [], 2)
