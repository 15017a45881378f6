"""Questions in SQL, and values of all types as those of JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.lake.writer import read_table
from mqttscope.spark.answers.query import ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = """select 1 as i, 9223372036854775807 as l, 1.5D as d, double('NaN') as nan, 1.50 as dec,
 12345678901234567890 as big, 'ä' as s, null as n, true as b, x'00ff' as bytes,
 timestamp'2026-01-31 12:00:00.000001' as ts, timestamp_ntz'2026-01-31 12:00:00' as ntz, date'2026-01-31' as day,
 array(1, null) as list, map('k', x'01') as m, named_struct('a', 1, 'b', null) as st, interval 3 seconds as iv"""


def test_values(quick: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        answer = ask(quick, lake, VALUES, 10)
        (row,) = answer.rows
    finally:
        monkeypatch.undo()
        time.tzset()

    found = dict(zip((name for name, _ in answer.columns), row, strict=True))
    assert found == {
        "i": 1, "l": 2**63 - 1, "d": 1.5, "nan": None, "dec": "1.50", "big": 12_345_678_901_234_567_890, "s": "ä",
        "n": None, "b": True, "bytes": {"length": 2, "hex": "00ff"}, "ts": "2026-01-31T12:00:00.000001Z",
        "ntz": "2026-01-31T12:00:00", "day": "2026-01-31", "list": [1, None],
        "m": {"k": {"length": 1, "hex": "01"}}, "st": {"a": 1, "b": None}, "iv": "0:00:03",
    }  # fmt: skip
    assert answer.columns[0] == ("i", "int")


def test_tables(quick: SparkSession, lake: Path) -> None:
    found = ask(quick, lake, "select type, count(*) as number from packets group by type")
    assert sum(row[1] for row in found.rows) == read_table(lake, "packets").num_rows
    assert len(list(ask(quick, lake, "select * from findings", 3).rows)) == 3
