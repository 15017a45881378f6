"""A lake of all captures of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tools

tools.package("pyarrow", "duckdb")

from mqttscope.analysis.fleet import PARTS, fleet_report
from mqttscope.analysis.local import LocalEngine
from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionOpened
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.report.fleet.model import FleetReport, ReportQuery
from tests.lake.reading import CAPTURES, Tables, options


def of_their_own() -> list[Path]:
    """Captures without those made from the same conversation: their connections have the keys of others."""
    paths, known = [], set[tuple[str, str, int]]()
    for path in CAPTURES:
        opened = [event.connection for event in dissect(open_capture([path])) if isinstance(event, ConnectionOpened)]
        keys = {(connection.client, connection.server, connection.opened_ns) for connection in opened}
        if not keys & known:
            paths.append(path)
            known |= keys
    return paths


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "lake"
    write_lake(of_their_own(), folder, options())
    return folder


ALL = 10_000


@pytest.fixture(scope="session")
def tables(lake: Path) -> Tables:
    return {name: read_table(lake, name).to_pylist() for name in TABLES if name != "ingest_errors"}


@pytest.fixture(scope="session")
def report(lake: Path) -> FleetReport:
    """One report for all tests, with all rows of all lists."""
    pairs: list[tuple[int, int]] = []
    with LocalEngine(lake) as engine:
        asked = ReportQuery(top=ALL, group_by=["nothing", "Firmware"])
        actual_report = fleet_report(engine, asked, progress=lambda *numbers: pairs.append(numbers))
    assert pairs == [(number, len(PARTS)) for number in range(len(PARTS))]
    return actual_report
