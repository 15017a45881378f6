"""Questions in Spark SQL, and values of all types as those of JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.analysis.answer import UnknownQueryError
from mqttscope.lake.writer import read_table
from mqttscope.spark.query import ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = """select 1 as i, 9223372036854775807 as l, 1.5D as d, double('NaN') as nan, 1.50 as dec,
 12345678901234567890 as big, 'ä' as s, null as n, true as b, x'00ff' as bytes,
 timestamp'2026-01-31 12:00:00.000001' as ts, timestamp_ntz'2026-01-31 12:00:00' as ntz, date'2026-01-31' as day,
 array(1, null) as list, map('k', x'01') as m, named_struct('a', 1, 'b', null) as st, interval 3 seconds as iv"""


def test_values(spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        answer = ask(spark, lake, VALUES, 10)
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


def test_tables(spark: SparkSession, lake: Path) -> None:
    found = ask(spark, lake, "select type, count(*) as number from packets group by type")
    assert sum(row[1] for row in found.rows) == read_table(lake, "packets").num_rows
    assert len(list(ask(spark, lake, "select * from findings", 3).rows)) == 3


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("from topics insert into t select topic", "does more than ask"),
        ("with a as (select 1) insert overwrite directory '{out}' using parquet select * from a", "does more than ask"),
        ("select java_method('java.lang.Math', 'abs', 1)", "java_method runs a program"),
        ("explain select `Reflect` /* a */ ('java.lang.Math', 'abs', 1)", "reflect runs a program"),
        ("select transform(topic) using 'cat' as (a) from topics", "using runs a program"),
        ("select 'insert' a\nfrm topics", "line 2, pos 0"),
        ("selct 1", "selct"),
        ("reset", "does more than ask"),
        ("query", "does more than ask"),
        ("{execute}", "does more than ask"),
        ("explain {execute}", "does more than ask"),
        ("explain extended /* a */ {execute}", "does more than ask"),
        ("/* /* */ show */ {insert}", "does more than ask"),
        ("/* /* */ explain */ {insert}", "does more than ask"),
        ("--\\\nshow\n{insert}", "does more than ask"),
        ("/* show */ -- desc\n {insert}", "does more than ask"),
        ("begin {insert}; end", "does more than ask"),
        ("select 1; {insert}", "does more than ask"),
    ],
)
def test_statements_that_do_more_than_ask(spark: SparkSession, lake: Path, sql: str, told: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    insert = f"insert overwrite directory '{out}' using csv select 1"
    execute = f'execute immediate "{insert}"'

    with pytest.raises(UnknownQueryError, match=told):
        ask(spark, lake, sql.format(out=out, insert=insert, execute=execute))
    assert not out.exists()


def test_what_is_shown_and_explained(spark: SparkSession, lake: Path) -> None:
    for sql in (
        "show tables",
        "/* a */ describe topics",
        "explain -- b\n extended select 1",
        "explain select /*+ merge(topics) */ 1",
    ):
        assert list(ask(spark, lake, sql).rows)


def test_what_only_looks_like_more(spark: SparkSession, lake: Path) -> None:
    for sql in (
        "/* insert */ with reflect as (select 'insert' as a) select * from reflect;",
        "from (select 1 as a) select transform(array(a), x -> x)",
        "(select a from (select 1 as a) join (select 1 as a) using (a))",
    ):
        assert len(list(ask(spark, lake, sql).rows)) == 1
