"""Runs of ``pipeline ingest``: in one process, or in two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import tools

tools.package("pyarrow")

from mqttscope.cli.pipeline import ingesting
from mqttscope.lake.writer import write_lake
from tests.cli.running import invoke
from tests.spark.collection import collection, tables

NAMES = ("planted-violations", "v5-topic-alias-client")
KEPT = ("--payload-limit", "64", "--no-config")


def test_two_processes_are_asked_for_or_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captures = collection(tmp_path / "captures", NAMES)
    used: list[bool] = []

    def write(*arguments: Any, second_process: Any = None, **more: Any) -> Any:
        used.append(second_process is not None)
        return write_lake(*arguments, second_process=second_process, **more)

    monkeypatch.setattr("mqttscope.lake.writer.write_lake", write)
    monkeypatch.setattr(ingesting, "processors", lambda: 2)
    for number, words in enumerate(((), ("--jobs", "1"), ("--jobs", "2"), ("--jobs", "7", "--engine", "local"))):
        lake = tmp_path / str(number)
        assert invoke("pipeline", "ingest", *captures, "--lake", lake, *KEPT, *words).code == 0
        assert tables(lake) == tables(tmp_path / "0")
    monkeypatch.setattr(ingesting, "LARGE_BYTES", 100)
    ways: tuple[dict[str, Any], ...] = ({}, {"can_fork": lambda: False}, {"processors": lambda: 1})
    for number, patched in enumerate(ways):
        with monkeypatch.context() as patch:
            for name, value in patched.items():
                patch.setattr(ingesting, name, value)
            invoke("pipeline", "ingest", *captures, "--lake", tmp_path / f"large-{number}", *KEPT)

    assert used == [False, False, True, True, True, False, False]
