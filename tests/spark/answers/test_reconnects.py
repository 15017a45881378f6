"""Bursts of CONNECT packets, and the time that is plotted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

import pyarrow as pa

from mqttscope.spark.answers.reconnects import MINUTE_NS, _timeline, bursts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
