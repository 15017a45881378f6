"""The fleet report of a lake."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mqttscope.report.fleet.model import PROPERTIES, Asked, FleetReport
from mqttscope.spark.answers.frames import Frames
from mqttscope.spark.answers.reconnects import add_endings, add_reconnects
from mqttscope.spark.answers.rules import add_rules
from mqttscope.spark.answers.selection import Selection
from mqttscope.spark.answers.talk import add_latency, add_retained, add_talk
from mqttscope.spark.answers.trust import add_overview
from mqttscope.spark.tables import open_lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PARTS = (add_overview, add_rules, add_latency, add_talk, add_retained, add_endings, add_reconnects)
"""What fills in a report; each runs one job."""


def fleet_report(
    spark: SparkSession,
    lake: str | os.PathLike[str],
    asked: Asked | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> FleetReport:
    """Ask a lake for the health of its fleet; `LakeError` where there is no lake.

    ``progress`` is told how many parts are done, and of how many.
    """
    asked = asked or Asked(group_by=list(PROPERTIES))
    report = FleetReport(os.fspath(lake), asked)
    frames = Frames(spark, lake, open_lake(lake), Selection(asked))
    for number, add in enumerate(PARTS):
        if progress is not None:
            progress(number, len(PARTS))
        add(report, frames)
    return report
