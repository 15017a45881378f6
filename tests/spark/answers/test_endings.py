"""How connections ended: equal to what plain Python counts in the same table."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.writer import read_table
from mqttscope.report.fleet.model import Asked, FleetReport
from mqttscope.spark.answers.endings import add_endings
from mqttscope.spark.answers.frames import Frames
from mqttscope.spark.answers.selection import Selection
from tests.lake.reading import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ended(row: Row) -> tuple[str, str | None]:
    """A DISCONNECT goes before what TCP did after it."""
    if row["disconnect_by"] is not None:
        return "disconnect", row["disconnect_by"]
    if row["closed_how"] in ("open", "capture_end"):
        return "open", None
    return row["closed_how"], row["closed_by"]


def test_endings(spark: SparkSession, lake: Path) -> None:
    asked = Asked(top=10_000, group_by=[])
    report = FleetReport(str(lake), asked)
    add_endings(report, Frames(spark, lake, read_manifest(lake), Selection(asked)))
    connections = read_table(lake, "connections").to_pylist()
    assert {(row.how, row.by): row.connections for row in report.endings.ways} == Counter(map(ended, connections))
    assert {how for how, _ in map(ended, connections)} >= {"disconnect", "fin", "reset"}

    by_client: dict[tuple[str, str], list[tuple[str, str | None]]] = defaultdict(list)
    for row in connections:
        if row["client_identifier"]:
            by_client[row["server"], row["client_identifier"]].append(ended(row))
    troubled = {
        key: ways for key, ways in by_client.items()
        if len(ways) > 1 or any(how not in ("open", "disconnect") for how, _ in ways)
    }  # fmt: skip
    found = {(row.server, row.client): row for row in report.endings.clients.rows}
    assert found.keys() == troubled.keys()
    assert report.endings.clients.total == len(troubled)
    for key, ways in troubled.items():
        row = found[key]
        assert (row.connections, row.reconnects) == (len(ways), len(ways) - 1)
        assert row.disconnects == sum(how == "disconnect" for how, _ in ways)
        assert (row.by_client, row.by_server) == (ways.count(("fin", "client")), ways.count(("fin", "server")))
        assert row.resets == sum(how == "reset" for how, _ in ways)
        assert row.timeouts == sum(how in ("idle", "port_reused", "evicted") for how, _ in ways)
