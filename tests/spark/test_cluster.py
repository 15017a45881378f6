"""A standalone cluster on this machine, whose executors have the package only because it is sent to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.spark.cluster import SMALL, Ingest, check_job, needs_spark, run_job, standalone

CONFIGURATION = {
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": SMALL,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": SMALL,
    "spark.sql.shuffle.partitions": "2",
}


@pytest.mark.long
def test_a_standalone_cluster(tmp_path: Path, bucket: tuple[Any, dict[str, str]]) -> None:
    """Files and a store give the tables that one process gives."""
    needs_spark()
    from mqttscope.lake.writer import write_lake
    from tests.lake.reading import all_rows, options

    captures = sorted(ROOT.glob("captures/v5-[rs]*/capture.pcapng"))
    client, settings = bucket
    for path in captures:
        client.upload_file(str(path), "captures", f"cluster/{path.parent.name}.pcapng")
    write_lake(captures, tmp_path / "expected", options())

    with standalone(tmp_path) as (address, python):
        document = run_job(
            tmp_path,
            python,
            {**CONFIGURATION, "spark.master": address},
            [
                Ingest([*map(str, captures)], str(tmp_path / "files")),
                Ingest(["s3a://test:test@captures/cluster/*"], str(tmp_path / "store"), settings),
            ],
        )

    check_job(document, python)
    assert all_rows(tmp_path / "files") == all_rows(tmp_path / "expected")
    assert all_rows(tmp_path / "store", places=False) == all_rows(tmp_path / "expected", places=False)
