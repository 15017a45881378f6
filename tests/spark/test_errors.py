"""What Spark raises, in one line."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException, PythonException

from mqttscope.spark.errors import SPARK_ERRORS, cause, is_query_error, sentence

_PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
ZeroDivisionError: division by zero

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/x/fold_tasks.py", line 3, in named
    raise IngestFailedError(where) from error
{raised}

SQLSTATE: 38000
"""


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (
            "mqttscope.spark.ingest_tasks.IngestFailedError: a.pcap, from frame 3 on: KeyError: 'x'",
            "a.pcap, from frame 3 on: KeyError: 'x'",
        ),
        ("mqttscope.spark.scan.ScanFailedError: a: b\nmore lines", "a: b"),
        ("ValueError: decoder exploded", "ValueError: decoder exploded"),
    ],
)
def test_the_error_of_an_executor(raised: str, expected: str) -> None:
    error = PythonException(_PYTHON.format(raised=raised))

    assert isinstance(error, SPARK_ERRORS)
    assert cause(error) == expected


def test_other_errors_of_spark() -> None:
    assert cause(PySparkException("Job aborted.\n\tat org.apache")) == "Job aborted."
    assert cause(PySparkException("")) == "Spark failed without a message"


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
    ("text", "expected"),
    [
        (UNKNOWN, "The table or view `x` cannot be found. (line 1 pos 14)"),
        (SYNTAX, "Syntax error at or near 'form'. (line 1, pos 9)"),
        ("Job aborted\n\tat org.apache", "Job aborted"),
        ("", "Spark failed without a message"),
    ],
)
def test_one_sentence(text: str, expected: str) -> None:
    assert sentence(text) == expected


def test_whether_the_query_is_wrong() -> None:
    assert not is_query_error(ValueError())
    assert not is_query_error(AnalysisException("x"))  # Spark gives those of queries a state


def test_a_setting_that_would_help_is_named_as_the_command_line_takes_it() -> None:
    text = (
        '[DIVIDE_BY_ZERO] Division by zero. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error.'
    )

    assert sentence(text).endswith("If necessary take --conf spark.sql.ansi.enabled=false to bypass this error.")
