"""Spark where modules are compiled: workers of this machine run the libraries, and tables are those of Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mqttscope import version_told
from tests.conftest import ROOT
from tests.spark.cluster import SMALL, Ingest, needs_spark, run_job, tables

CONFIGURATION = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": SMALL,
    "spark.sql.shuffle.partitions": "2",
}


def compiled_tree() -> Path | None:
    """This tree where it is compiled, or what ``make compiled`` has made of it; ``None`` for neither."""
    if version_told().endswith("(compiled)"):
        return ROOT
    found = ROOT / "build" / "compiled"
    return found if any(found.glob("*.so")) and (found / "tests" / "spark" / "cluster_job.py").exists() else None


@pytest.mark.long
def test_workers_run_what_is_compiled(tmp_path: Path) -> None:
    needs_spark()
    tree = compiled_tree()
    if tree is None:
        pytest.skip("make compiled makes the tree")
    from mqttscope.lake.writer import write_lake
    from tests.lake.reading import options

    captures = sorted(ROOT.glob("captures/v5-[rs]*/capture.pcapng"))
    expected = write_lake(captures, tmp_path / "expected", options())

    found = run_job(
        tmp_path, sys.executable, CONFIGURATION, [Ingest([*map(str, captures)], str(tmp_path / "lake"))], installed=tree
    )

    assert found["shipped"] == [False, False]
    (path,) = found["paths"]
    assert Path(path).parent == tree / "mqttscope" / "mqtt"
    assert path.endswith((".so", ".pyd"))
    assert found["rows"] == [expected.rows]
    assert tables(tmp_path / "lake") == tables(tmp_path / "expected")
