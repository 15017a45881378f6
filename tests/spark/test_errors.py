"""What Spark raises, in one line."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from pyspark.errors import PySparkException, PythonException

from mqttscope.spark.errors import SPARK_ERRORS, cause

_PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
ZeroDivisionError: division by zero

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/x/fold_tasks.py", line 3, in named
    raise FoldFailed(where) from error
{raised}

SQLSTATE: 38000
"""


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (
            "mqttscope.spark.fold_tasks.FoldFailed: a.pcap, from frame 3 on: KeyError: 'x'",
            "a.pcap, from frame 3 on: KeyError: 'x'",
        ),
        ("mqttscope.spark.scan.ScanFailed: a: b\nmore lines", "a: b"),
        ("ValueError: decoder exploded", "ValueError: decoder exploded"),
    ],
)
def test_the_error_of_an_executor(raised: str, told: str) -> None:
    error = PythonException(_PYTHON.format(raised=raised))

    assert isinstance(error, SPARK_ERRORS)
    assert cause(error) == told


def test_other_errors_of_spark() -> None:
    assert cause(PySparkException("Job aborted.\n\tat org.apache")) == "PySparkException: Job aborted."
    assert cause(PySparkException("")) == "PySparkException"
