"""One session of Spark for all tests that need one; they are skipped where it cannot be had."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import tools
from tests.lake.conftest import NeedyModule
from tests.lake.conftest import lake as lake
from tests.spark.cluster import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Queries that run once are not compiled.  Tests of commands, clusters and servers do as Spark does by itself."""


PACKAGES = {
    "test_plan.py": ("pyarrow",), "test_rows.py": ("pyarrow",), "test_scan.py": ("pyarrow",),
    # They say by themselves what they need.
    "test_cluster.py": (), "test_connect.py": (), "test_java.py": (),
}  # fmt: skip
"""What modules need that do without PySpark."""


class SparkModule(NeedyModule):
    """A module that needs PySpark, unless less is known to do."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Skip the module if a package is missing."""
        self.packages = PACKAGES.get(self.path.name, ("pyspark", "pyarrow", "msgspec"))
        return super().collect()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Look for the packages of a module."""
    return SparkModule.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two cores with a small heap, started in a directory that is not the source tree."""
    tools.java()
    from mqttscope.spark.session import spark_session

    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    try:
        session = spark_session(
            configuration={
                "spark.master": "local[2]",
                "spark.driver.memory": "700m",
                "spark.sql.shuffle.partitions": "2",
                **QUICK,
                "spark.driver.extraJavaOptions": SMALL,
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            }
        )
    finally:
        os.chdir(before)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield session
        session.stop()
