"""What Spark says of failures."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.spark.answers.errors import is_of_query, is_of_spark, sentence

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
        ("", "Spark failed without a word"),
    ],
)
def test_one_sentence(told: str, expected: str) -> None:
    assert sentence(told) == expected


def test_whose_errors_they_are() -> None:
    from pyspark.errors import AnalysisException

    assert not is_of_spark(ValueError())
    assert is_of_spark(AnalysisException("x"))
    assert not is_of_query(AnalysisException("x"))  # Spark gives those of queries a state
