"""What commands share that ask a lake: errors with their exit codes, and progress."""

from __future__ import annotations

import pytest

from mqttscope.cli.pipeline.asking import BadQuestion, Failed, Steps, in_one_sentence
from mqttscope.lake.manifest import LakeError


def test_only_what_spark_says_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")
    from pyspark.errors import AnalysisException

    monkeypatch.delenv("MQTTSCOPE_TRACEBACK", raising=False)
    with pytest.raises(ZeroDivisionError), in_one_sentence():
        raise ZeroDivisionError
    with pytest.raises(Failed, match="no lake"), in_one_sentence():
        raise LakeError("no lake")
    with pytest.raises(Failed, match="broken"), in_one_sentence(question=True):
        raise AnalysisException("broken\n at")
    assert (Failed.exit_code, BadQuestion.exit_code) == (3, 2)


def test_steps_are_for_terminals(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps()
    steps(1, 6)
    steps.end()

    assert capsys.readouterr().err == ""
