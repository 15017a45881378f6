"""Bursts of CONNECT packets, and the time that is plotted."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.writer import read_table
from mqttscope.report.fleet.model import Asked, FleetReport
from mqttscope.spark.answers.frames import Frames, Selection
from mqttscope.spark.answers.reconnects import MINUTE_NS, _timeline, add_endings, bursts
from tests.lake.reading import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")


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


pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")


def test_bursts(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    # Two a minute are usual; minutes without any do not count.  Minutes 100 and 101, and 103, stand out.
    usual = [("s", f"c{index}", minute) for minute in (*range(1, 40, 3), 99, 102) for index in range(2)]
    storm = [("s", f"d{index % 7}", minute) for minute in (100, 101, 103) for index in range(12)]
    frame = spark.createDataFrame(
        pa.table(dict(zip(("server", "who", "minute"), zip(*usual, *storm, strict=True), strict=True)))
    )

    of_servers = bursts(frame, ["server"], f.greatest(f.lit(10), f.col("usual") * 3))
    of_clients = bursts(frame, ["server", "who"], f.lit(2))

    names = ("usual", "from_minute", "last_minute", "connects", "peak", "clients")
    assert sorted(of_servers.select(*names).collect()) == [(2.0, 100, 101, 24, 12, 7), (2.0, 103, 103, 12, 12, 7)]
    found = sorted(of_clients.where("who = 'd0'").select("who", *names).collect())
    assert found == [("d0", 2.0, 100, 101, 4, 2, 1), ("d0", 2.0, 103, 103, 2, 2, 1)]


def test_the_time_has_no_holes() -> None:
    parts = [
        {"first": 100, "last": 110, "each": 5, "part": 0, "connects": 3},
        {"first": 100, "last": 110, "each": 5, "part": 2, "connects": 1},
    ]

    assert _timeline(parts) == [(100 * MINUTE_NS, 3), (105 * MINUTE_NS, 0), (110 * MINUTE_NS, 1)]
    assert _timeline([]) == []
