"""A lake of all captures of the project, and a session that spends little on small questions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.lake.writer import write_lake
from tests.lake.reading import CAPTURES, options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "lake"
    write_lake(CAPTURES, folder, options())
    return folder


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of all tests, without compiling queries that run once."""
    before = {name: spark.conf.get(name) or "" for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
