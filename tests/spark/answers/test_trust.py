"""What a lake lacks, where it lacks nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.writer import write_lake
from mqttscope.report.fleet.model import Asked, FleetReport
from mqttscope.spark.answers.frames import Frames
from mqttscope.spark.answers.selection import Selection
from mqttscope.spark.answers.trust import add_overview
from tests.lake.reading import CAPTURES, options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_captures_that_lack_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (whole,) = (path for path in CAPTURES if path.parent.name == "v311-qos")
    write_lake([whole], tmp_path, options())
    report = FleetReport(str(tmp_path), Asked())
    add_overview(report, Frames(spark, tmp_path, read_manifest(tmp_path), Selection(Asked())))
    trust = report.trust
    assert report.overview.captures == 1
    assert (trust.gaps, trust.gap_bytes, trust.unparsed, trust.unparsed_bytes) == (0, 0, 0, 0)
    assert (trust.dropped, trust.errors) == (0, 0)
    assert trust.captures.rows == []
