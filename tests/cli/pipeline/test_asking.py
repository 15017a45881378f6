"""Errors of Spark in one sentence, and sessions that suit the lake."""

from __future__ import annotations

import pytest

from mqttscope.cli.pipeline.asking import BadQuestion, Failed, Steps, in_one_sentence, sentence
from mqttscope.lake.manifest import LakeError

UNKNOWN = """[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found. SQLSTATE: 42P01; line 1 pos 14;
'Project [*]
+- 'UnresolvedRelation [x]
"""
SYNTAX = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'form'. SQLSTATE: 42601 (line 1, pos 9)

== SQL ==
select * form packets
---------^^^
"""


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (UNKNOWN, "The table or view `x` cannot be found. (line 1 pos 14)"),
        (SYNTAX, "Syntax error at or near 'form'. (line 1, pos 9)"),
        ("Job aborted\n\tat org.apache", "Job aborted"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("", "Spark failed without a word"),
    ],
)
def test_one_sentence(told: str, expected: str) -> None:
    assert sentence(told) == expected


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
