"""A server of Spark Connect on this machine, whose Python has the package only because it is sent there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.spark.cluster import Ingest, check_job, connect_server, needs_spark, run_job


@pytest.mark.long
def test_a_server_of_spark_connect(tmp_path: Path) -> None:
    """Gives the tables that one process gives."""
    needs_spark("grpc")
    from mqttscope.lake.writer import write_lake
    from tests.lake.reading import all_rows, options

    captures = sorted(ROOT.glob("captures/v5-[rs]*/capture.pcapng"))
    write_lake(captures, tmp_path / "expected", options())

    with connect_server(tmp_path) as (address, python):
        ingest = Ingest([*map(str, captures)], str(tmp_path / "lake"))
        document = run_job(tmp_path, python, {"spark.master": address}, [ingest])

    check_job(document, python)
    assert all_rows(tmp_path / "lake") == all_rows(tmp_path / "expected")
