"""What commands share that ask a lake: exit codes, and progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.cli.pipeline.asking import SMALL, SMALL_BYTES, BadQuestionError, Steps, fitting, lake_of
from mqttscope.cli.spark_session import PipelineFailedError

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")


def test_a_folder_that_is_no_lake(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailedError, match="no lake"):
        lake_of(str(tmp_path))
    assert (PipelineFailedError.exit_code, BadQuestionError.exit_code) == (3, 2)


def test_small_lakes_are_asked_in_one_task_everywhere() -> None:
    assert fitting(None, SMALL_BYTES) == SMALL
    assert fitting(None, SMALL_BYTES + 1) == fitting("spark://a:7077", SMALL_BYTES + 1) == {}
    given = fitting("spark://a:7077", 1)
    assert given["spark.sql.shuffle.partitions"] == "1"
    assert not [name for name in given if "driver" in name]


def test_steps_are_for_terminals(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps()
    steps(1, 6)
    steps.end()

    assert capsys.readouterr().err == ""
