"""Questions in SQL, values of all types as those of JSON, and what goes wrong in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from mqttscope.analysis.answer import UnknownQueryError
from mqttscope.analysis.local import LocalEngine
from mqttscope.analysis.query import ask, is_query_error, sentence
from mqttscope.analysis.views import VIEWS
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table


@pytest.fixture(scope="module")
def engine(lake: Path) -> Iterator[LocalEngine]:
    with LocalEngine(lake) as local_engine:
        yield local_engine


VALUES = """select 1 as i, 9223372036854775807 as l, 1.5::double as d, 'nan'::double as nan, 1.50 as dec,
 12345678901234567890 as big, 'ä' as s, null as n, true as b, '\\x00\\xff'::blob as bytes,
 timestamptz '2026-01-31 12:00:00.000001' as ts, timestamp '2026-01-31 12:00:00' as ntz, date '2026-01-31' as day,
 [1, null] as list, map(['k'], ['\\x01'::blob]) as m, {'a': 1, 'b': null} as st, interval 3 seconds as iv"""


def test_values(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        answer = ask(engine, VALUES, 10)
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
    kinds = dict(answer.columns)
    assert (kinds["i"], kinds["s"], kinds["bytes"], kinds["ts"]) == ("int", "string", "binary", "timestamp")
    assert (kinds["list"], kinds["m"], kinds["dec"]) == ("array<int>", "map<string,binary>", "decimal(3,2)")


def test_tables(engine: LocalEngine, lake: Path) -> None:
    answer = ask(engine, "select type, count(*) as number from packets group by type")
    assert sum(row[1] for row in answer.rows) == read_table(lake, "packets").num_rows
    assert len(list(ask(engine, "select * from findings", 3).rows)) == 3
    assert [row[0] for row in ask(engine, "show tables").rows] == sorted((*TABLES, *VIEWS))


def test_tables_are_described_with_their_meanings(engine: LocalEngine) -> None:
    for words in ("describe messages", "/* all */ desc table Messages;"):
        answer = ask(engine, words)
        rows = list(answer.rows)
        assert [name for name, _ in answer.columns] == ["col_name", "data_type", "comment"]
        assert [row[0] for row in rows] == list(TABLES["messages"].names)
        assert rows[0][:2] == ["connection_id", "string"]
        assert rows[0][2].startswith("the connection")
    assert len(list(ask(engine, "describe packets", 2).rows)) == 2


def test_plans_are_lines(engine: LocalEngine) -> None:
    for words in ("explain select 1", "-- why\nexplain (analyze, format json) select 1", "explain (select 1)"):
        rows = list(ask(engine, words).rows)
        assert len(rows) > 1
        assert all("\n" not in row[0] for row in rows)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", "the query is empty"),
        ("select 1; select 2", "only one statement"),
        ("select 1; {copy}", "only one statement"),
        ("{copy}", "is not a query"),
        ("explain {copy}", "is not a query"),
        ("explain analyze {copy}", "is not a query"),
        ("explain (analyze) {copy}", "is not a query"),
        ("/* /* */ select */ explain analyze /* a */ {copy}", "is not a query"),
        ("create table a as select 1", "is not a query"),
        ("with a as (select 1) insert into topics select * from a", "is not a query"),
        ("set threads = 1", "is not a query"),
        ("attach '{out}'", "is not a query"),
        ("install httpfs", "is not a query"),
        ("load httpfs", "is not a query"),
        ("prepare a as select 1", "is not a query"),
        ("export database '{out}'", "is not a query"),
    ],
)
def test_statements_that_do_more_than_ask(engine: LocalEngine, sql: str, expected: str, tmp_path: Path) -> None:
    out = tmp_path / "out"

    with pytest.raises(UnknownQueryError, match=expected):
        ask(engine, sql.format(out=out, copy=f"copy (select 1) to '{out}'"))
    assert not out.exists()


@pytest.mark.parametrize(
    "sql",
    [
        "select * from '{file}'",
        "select * from read_csv('{file}')",
        "select * from read_text('{file}')",
        "select * from glob('{folder}/*')",
        "select * from read_parquet('{folder}/*.parquet')",
    ],
)
def test_what_is_no_table_of_the_lake_is_not_read(engine: LocalEngine, sql: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a,b\n1,2\n")

    with pytest.raises(duckdb.Error) as error:
        list(ask(engine, sql.format(file=file, folder=tmp_path)).rows)
    assert is_query_error(error.value)
    assert sentence(error.value).startswith("a query can read only the tables of the lake")


def test_it_cannot_be_let_out(engine: LocalEngine) -> None:
    # Names of tables are no variables of the program.
    secret = read_table(engine.lake, "topics")
    assert secret.num_rows
    with pytest.raises(duckdb.Error, match="secret does not exist"):
        ask(engine, "select * from secret")
    for setting in ("enable_external_access = true", "lock_configuration = false"):
        with pytest.raises(duckdb.Error, match=r"locked|Cannot"):
            engine.connection.execute(f"set {setting}")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select nix from packets", 'Referenced column "nix" not found in FROM clause (line 1; candidate bindings: '),
        ("select *\nfrom nix", "Table with name nix does not exist (line 2; did you mean "),
        ("select * form packets", 'syntax error at or near "packets" (line 1)'),
        ("select 'a'::int", "Could not convert string 'a' to INT32 (line 1)"),
        ("select 9223372036854775807 + 1::bigint", "Overflow in addition of INT64"),
    ],
)
def test_errors_are_sentences(engine: LocalEngine, sql: str, expected: str) -> None:
    with pytest.raises(duckdb.Error) as error:
        list(ask(engine, sql).rows)
    assert is_query_error(error.value)
    assert sentence(error.value).startswith(expected)
    assert "\n" not in sentence(error.value)
