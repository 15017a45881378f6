"""Spark gives the answers that DuckDB gives in process, to every question, over all captures; and Spark SQL."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mqttscope.analysis.answer import QueryAnswer, UnknownQueryError
from mqttscope.analysis.dialects import SPARK
from mqttscope.analysis.fleet import PARTS, add_overview
from mqttscope.analysis.joins import topic_matches
from mqttscope.analysis.local import LocalEngine
from mqttscope.analysis.questions import Engine, ReportSource, RowSelection
from mqttscope.analysis.talk import add_talk
from mqttscope.analysis.views import VIEWS
from mqttscope.lake.manifest import open_lake
from mqttscope.lake.writer import read_table
from mqttscope.mqtt.topics import matches
from mqttscope.report.fleet.model import PROPERTIES, FleetReport, ReportQuery
from mqttscope.spark.engine import SparkEngine, ask
from tests.analysis.asking import WORDS, rows_of
from tests.analysis.conftest import ALL
from tests.analysis.conftest import lake as lake
from tests.analysis.test_dialects import HOSTILE
from tests.analysis.test_joins import FIXED
from tests.analysis.test_question_page import check_answers, questions
from tests.analysis.test_question_page import fleet as fleet
from tests.analysis.test_questions import CASES, NAMES, ROWS
from tests.analysis.test_sparkplug import check_answers as sparkplug_answers
from tests.analysis.test_sparkplug import plant as plant
from tests.analysis.test_sparkplug import queries as sparkplug_queries
from tests.each import some

SINCE_NS, UNTIL_NS = 1_795_532_613_000_000_000, 1_795_534_904_000_000_000
ASKED = {
    "everything": ReportQuery(top=ALL, group_by=["nothing", "Firmware"]),
    "a part": ReportQuery(
        SINCE_NS, UNTIL_NS, client=["*e*", "it's \\ {x}"], topic=["#", "$SYS/+"], server=["127.0.0.?:*"],
        rule=["OPS", "ACK", "delivery-qos-wrong"], top=3, group_by=list(PROPERTIES),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def local(lake: Path) -> Any:
    with LocalEngine(lake) as engine:
        yield engine


@pytest.fixture(scope="module")
def engine(spark: SparkSession, lake: Path) -> SparkEngine:
    return SparkEngine(spark, lake)


def asked_of(engine: Engine, add: Any, asked: ReportQuery) -> dict[str, Any]:
    """What one part fills in."""
    report = FleetReport("", asked)
    # How long the parts of the time are depends on the overview.
    report.overview.first_ns, report.overview.last_ns = 0, 10**12
    add(report, ReportSource(engine, asked))
    return asdict(report)


@pytest.mark.long
@pytest.mark.parametrize(
    ("asked", "add"),
    [
        *(pytest.param(ASKED["everything"], part, id=f"everything, {part.__name__}") for part in PARTS),
        # Those with conditions of their own, beside those of `RowSelection`.
        *(pytest.param(ASKED["a part"], each, id=f"a part, {each.__name__}") for each in (add_overview, add_talk)),
    ],
)
def test_both_engines_give_the_same_answers(
    local: LocalEngine, engine: SparkEngine, add: Any, asked: ReportQuery
) -> None:
    expected = asked_of(local, add, asked)

    assert asked_of(engine, add, asked) == expected
    assert expected != asdict(FleetReport("", asked))


@pytest.mark.long
def test_views_have_the_rows_that_they_have_in_process(spark: SparkSession, lake: Path) -> None:
    def rows(answer: QueryAnswer) -> list[str]:
        """Percentiles of Spark may lie beside those of DuckDB; everything else is the same."""
        names = [name for name, _ in answer.columns]
        return sorted(
            str([each for name, each in zip(names, row, strict=True) if name[0] != "p"]) for row in answer.rows
        )

    with LocalEngine(lake) as engine:
        for name, ready in VIEWS.items():
            answer, expected = ask(spark, lake, f"select * from {name}"), engine.ask(f"select * from {name}")
            assert answer.columns == expected.columns
            assert [text for text, _ in answer.columns] == list(ready.columns)
            assert rows(answer) == rows(expected)
    described = {row[0]: row[2] for row in ask(spark, lake, "describe deliveries").rows}
    assert {name: result or "" for name, result in described.items()} == dict(VIEWS["deliveries"].columns)
    for name in VIEWS:
        spark.catalog.dropTempView(name)


@pytest.mark.long
def test_questions_of_the_page(spark: SparkSession, fleet: Path) -> None:
    check_answers({number: list(ask(spark, fleet, query).rows) for number, query in questions("spark").items()})
    for name in VIEWS:
        spark.catalog.dropTempView(name)


@pytest.mark.long
def test_queries_about_sparkplug(spark: SparkSession, plant: Path) -> None:
    sparkplug_answers([list(ask(spark, plant, query).rows) for query in sparkplug_queries()])
    for name in VIEWS:
        spark.catalog.dropTempView(name)


def test_several_lakes(spark: SparkSession, fleet: Path, tmp_path: Path) -> None:
    shutil.copytree(fleet, tmp_path / "b")
    lakes = [(str(path), open_lake(path)) for path in (fleet, tmp_path / "b")]
    engine = SparkEngine(spark, *lakes[0], lakes[1:])

    rows = list(engine.ask("select lake, count(*) from pings group by lake order by lake").rows)

    assert rows == [["b", 4], ["lake", 4]]
    servers = spark.sql(f"select distinct server from {engine.table('packets')} order by 1").collect()
    assert [row[0] for row in servers] == ["b: 10.0.0.2:1883", "lake: 10.0.0.2:1883"]
    engine.forget()


def test_topics_match_filters_as_in_process(spark: SparkSession) -> None:
    query = " union all ".join(
        f"select {SPARK.text(topic)} as topic, {SPARK.text(text)} as topic_filter"
        for topic in ("a", "a/b", "$SYS/a", "/", "a/b/c", "$share/a") for text in FIXED if len(text) < 100
    )  # fmt: skip
    condition = topic_matches(SPARK, "topic", "topic_filter")

    rows = spark.sql(f"select *, {condition} as is_match from ({query})").collect()

    assert [row for row in rows if row["is_match"] != matches(row["topic_filter"], row["topic"])] == []
    assert any(row["is_match"] for row in rows)


@pytest.mark.long
def test_a_session_is_left_as_it_was(spark: SparkSession, engine: SparkEngine) -> None:
    """It may be the user's, with views of these names."""
    spark.range(3).createOrReplaceTempView("packets")
    before = spark.sql("show tables").collect()
    try:
        asked_of(engine, PARTS[-1], ASKED["everything"])
        assert spark.table("packets").count() == 3
        assert spark.sql("show tables").collect() == before
    finally:
        spark.catalog.dropTempView("packets")


def test_literals(spark: SparkSession) -> None:
    row = spark.sql(
        f"select {', '.join(f'{SPARK.text(text)} as a{place}' for place, text in enumerate(HOSTILE))}"
    ).first()

    assert list(row or ()) == HOSTILE


def test_selections(spark: SparkSession) -> None:
    """All cases in one job."""
    table = pa.table(dict(zip(NAMES, zip(*ROWS, strict=True), strict=True)))
    spark.createDataFrame(table).createOrReplaceTempView("found")
    words = SparkEngine.words
    asked = [
        f"select {place} as place, timestamp_ns from {RowSelection(words, ReportQuery(**case)).findings('found')}"
        for place, (case, _) in enumerate(CASES)
    ]
    numberses: list[list[int]] = [[] for _ in CASES]
    for place, time in spark.sql(" union all ".join(asked)).collect():
        numberses[place].append(time)
    spark.catalog.dropTempView("found")

    for (case, expected), times in zip(CASES, numberses, strict=True):
        assert sorted(times) == expected, case
    counted = f"select count(*) as n from {RowSelection(WORDS, ReportQuery()).findings('found')}"
    assert rows_of(counted, found=table)[0]["n"] == 4


def test_values_of_any_kind_come_back(spark: SparkSession, engine: SparkEngine) -> None:
    document = {"text": 'a\n\u00fc"', "flag": True, "many": [1, None], "pair": {"x": 1}, "big": 2**62 + 1, "none": None}
    frame = spark.createDataFrame(
        [document], "text string, flag boolean, many array<int>, pair struct<x:int>, big bigint, none int"
    )
    frame.createOrReplaceTempView("one")
    text = engine.view("select id from range(20)", cached=True)
    answers = engine.answer(
        {
            "one": "select * from one", "none": f"select * from {text} where id < 0",
            "highest": f"select id as `a b.c` from {text} order by id desc limit 3",
        }
    )  # fmt: skip
    spark.catalog.dropTempView("one")

    assert answers == {"one": [document], "none": [], "highest": [{"a b.c": number} for number in (19, 18, 17)]}


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

    document = dict(zip((name for name, _ in answer.columns), row, strict=True))
    assert document == {
        "i": 1, "l": 2**63 - 1, "d": 1.5, "nan": None, "dec": "1.50", "big": 12_345_678_901_234_567_890, "s": "ä",
        "n": None, "b": True, "bytes": {"length": 2, "hex": "00ff"}, "ts": "2026-01-31T12:00:00.000001Z",
        "ntz": "2026-01-31T12:00:00", "day": "2026-01-31", "list": [1, None],
        "m": {"k": {"length": 1, "hex": "01"}}, "st": {"a": 1, "b": None}, "iv": "0:00:03",
    }  # fmt: skip
    assert answer.columns[0] == ("i", "int")


def test_tables(spark: SparkSession, lake: Path) -> None:
    answer = ask(spark, lake, "select type, count(*) as number from packets group by type")
    assert sum(row[1] for row in answer.rows) == read_table(lake, "packets").num_rows
    assert len(list(ask(spark, lake, "select * from findings", 3).rows)) == 3


@pytest.mark.parametrize(
    ("sql", "expected"),
    some(
        [
            ("from topics insert into t select topic", "is not a query"),
            (
                "with a as (select 1) insert overwrite directory '{out}' using parquet select * from a",
                "is not a query",
            ),
            ("select java_method('java.lang.Math', 'abs', 1)", "java_method runs a program"),
            ("explain select `Reflect` /* a */ ('java.lang.Math', 'abs', 1)", "reflect runs a program"),
            ("select transform(topic) using 'cat' as (a) from topics", "using runs a program"),
            ("select 'insert' a\nfrm topics", "line 2, pos 0"),
            ("selct 1", "selct"),
            ("reset", "is not a query"),
            ("query", "is not a query"),
            ("{execute}", "is not a query"),
            ("explain {execute}", "is not a query"),
            ("explain extended /* a */ {execute}", "is not a query"),
            ("/* /* */ show */ {insert}", "is not a query"),
            ("/* /* */ explain */ {insert}", "is not a query"),
            ("--\\\nshow\n{insert}", "is not a query"),
            ("/* show */ -- desc\n {insert}", "is not a query"),
            ("begin {insert}; end", "is not a query"),
            ("select 1; {insert}", "is not a query"),
        ],
        9,
        several=True,
    ),
)
def test_statements_that_do_more_than_ask(
    spark: SparkSession, lake: Path, sql: str, expected: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    insert = f"insert overwrite directory '{out}' using csv select 1"
    execute = f'execute immediate "{insert}"'

    with pytest.raises(UnknownQueryError, match=expected):
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
