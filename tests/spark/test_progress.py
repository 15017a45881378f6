"""How far Spark is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests import tools

tools.package("pyspark")

from mqttscope.spark import session as module
from mqttscope.spark.session import cancel, followed, is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tasks_that_are_done(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.02)
    shown: list[tuple[int, int]] = []

    def slowly(batches: Any) -> Any:
        import time

        time.sleep(0.2)
        yield from batches

    with followed(spark, lambda done, total: shown.append((done, total))):
        assert spark.range(0, 4, 1, 4).mapInArrow(slowly, "id bigint").count() == 4

    assert not is_connect(spark)
    assert {total for _, total in shown} >= {4}
    assert all(done <= total for done, total in shown)
    cancel(spark)
