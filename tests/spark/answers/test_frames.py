"""Times have more digits than doubles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.spark.answers.frames import units_since_1970

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_NS = 86_400 * 10**9


def test_days_begin_at_their_first_nanosecond(spark: SparkSession) -> None:
    times = [day * DAY_NS + more for day in (-1, 0, 20_000) for more in (-1, 0, 1, DAY_NS - 150)]

    found = spark.createDataFrame([(one,) for one in times], "timestamp_ns bigint")
    days = [row[0] for row in found.select(units_since_1970(DAY_NS)).collect()]

    assert days == [one // DAY_NS for one in times]
