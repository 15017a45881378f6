"""Literals: whatever a user asks for is text to both engines (tests/spark/test_engine.py has Spark)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mqttscope.analysis.dialects import DUCKDB
from mqttscope.analysis.questions import RowSelection
from mqttscope.report.fleet.model import ReportQuery
from tests.analysis.asking import WORDS, rows_of

HOSTILE = ["it's", 'a "b"', "\\", "\0", "ä\n{x}", "'; drop table x; --", "%_!", "`", "${x}"]


@pytest.mark.parametrize("value", HOSTILE)
def test_literals(value: str) -> None:
    assert rows_of(f"select {DUCKDB.text(value)} as value") == [{"value": value}]


@pytest.mark.parametrize("value", HOSTILE)
def test_what_was_asked_for_is_no_sql(value: str) -> None:
    texts = pa.table({"server": [value, "other"], "client_identifier": ["x", value], "timestamp_ns": [1, 2]})
    for asked, expected in ((ReportQuery(server=[value]), [1]), (ReportQuery(client=[f"{value}*"]), [2])):
        rows = rows_of(f"select * from {RowSelection(WORDS, asked).rows('texts', 'packets')}", texts=texts)
        assert [row["timestamp_ns"] for row in rows] == expected
