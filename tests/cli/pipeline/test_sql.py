"""``mqttscope pipeline sql``."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqttscope.lake.writer import read_table
from tests.cli.running import Done, command, environment, invoke
from tests.dev.schemas import fits
from tests.proxy.rig import processor_seconds, until


def ask(lake: Path, query: str, *words: str) -> Done:
    return invoke("pipeline", "sql", query, "--lake", lake, *words, env={"MQTTSCOPE_TRACEBACK": None})


@contextmanager
def asking(lake: Path, temporary: Path, query: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A question under way, in a process of its own."""
    line = command("pipeline", "sql", query, "--lake", lake, *words)
    env = environment({"TMPDIR": str(temporary)})
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        yield process
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("query", ["drop table packets", "", "/* select */ insert into packets values (1)", "selec 1"])
def test_only_questions(lake: Path, query: str) -> None:
    done = ask(lake, query)

    assert (done.code, done.out) == (2, b"")
    assert "a query starts with select, with, from" in done.err


def test_answers(lake: Path) -> None:
    text = ask(lake, "select rule, count(*) as found from findings group by rule order by 2 desc, 1", "--limit", "2")
    assert (text.code, text.text.splitlines()[0]) == (0, "rule    found")
    counts = Counter(row["rule"] for row in read_table(lake, "findings").to_pylist())
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:2]
    assert [tuple(line.split()) for line in text.text.splitlines()[2:]] == [(rule, str(n)) for rule, n in most]
    assert text.err == "mqttscope: the result has more than 2 rows: --limit N shows N\n"

    document = json.loads(
        ask(lake, "select topic, payload from packets where type = 'publish'", "--format", "json").out
    )
    assert document["columns"] == [{"name": "topic", "type": "string"}, {"name": "payload", "type": "binary"}]
    expected = [row for row in read_table(lake, "packets").to_pylist() if row["type"] == "publish"]
    assert sorted(row["payload"]["hex"] for row in document["rows"] if row["payload"]) == sorted(
        row["payload"].hex() for row in expected if row["payload"] is not None
    )
    table = ask(lake, "/* all */ describe messages", "--format", "csv")
    head, first = table.text.splitlines()[:2]
    assert head == "col_name,data_type,comment"
    assert first.startswith("connection_id,string,the connection")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select nix from packets", 'Referenced column "nix" not found in FROM clause (line 1; candidate bindings: '),
        ("select 1 as a, 2 as a", "2 columns of the result are named 'a': rename them with AS"),
        ("select error('\x1b[31m' || chr(10) || 'b')", "\\x1b[31m"),
        ("select 1 as \udcff", "the question is not UTF-8"),
        ("with a as (select 1) insert into topics select * from a", "only queries are answered"),
        ("select * from '/etc/x.csv'", "a query can read only the tables of the lake"),
    ],
)
def test_errors_in_one_sentence(lake: Path, query: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = ask(lake, query)

    assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
    assert message in done.err
    assert capfd.readouterr().err == ""


def test_too_little_memory(lake: Path) -> None:
    done = ask(lake, "select list(a) from range(30000000) t(a)", "--memory", "16m", "--format", "csv")

    assert (done.code, done.out, done.err.count("\n")) == (3, b"", 1)
    assert done.err.endswith("; raise it with --memory\n")


LONG = "select sum(a.range * b.range % 7) from range(1000000) a, range(1000000) b"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_question_that_takes_too_long_is_stopped(lake: Path, tmp_path: Path, number: int, code: int) -> None:
    with asking(lake, tmp_path, LONG) as process:
        until(lambda: list(tmp_path.iterdir()), "the start of the engine")
        begun = processor_seconds(process.pid)
        until(lambda: processor_seconds(process.pid) > begun + 0.5, "the question at work")
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, b"")
    assert err.count(b"\n") <= 1
    assert b"Traceback" not in err


def test_whoever_reads_may_stop(lake: Path, tmp_path: Path) -> None:
    with asking(lake, tmp_path, "select range as a from range(3000000)", "--format", "csv") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a\r\n"
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_file_that_is_no_parquet(lake: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(lake, tmp_path / "lake")
    for path in (tmp_path / "lake" / "gaps").glob("*.parquet"):
        path.write_bytes(b"no Parquet")

    done = ask(tmp_path / "lake", "select * from gaps")

    assert (done.code, done.err.count("\n")) == (3, 1)


@pytest.mark.usefixtures("spark")
def test_spark_answers_in_its_own_sql(lake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    counted = ask(lake, "select try_divide(count(*), 1) as n from `packets`", "--engine", "spark", "--format", "json")
    described, here = (
        ask(lake, "describe messages", "--format", "csv", "--engine", engine) for engine in ("spark", "local")
    )

    assert fits("answer", [json.loads(counted.out)]) == 1
    assert json.loads(counted.out)["rows"] == [{"n": float(read_table(lake, "packets").num_rows)}]
    assert [line.split(",")[0] for line in described.text.splitlines()] == [
        line.split(",")[0] for line in here.text.splitlines()
    ]
    for query, message in (
        ("select nix from packets", "with name `nix` cannot be resolved"),
        ("select * form packets", "Syntax error at or near"),
        ("select 1 / 0", "Division by zero"),
        ("with a as (select 1) insert into packets select 1", "only queries are answered"),
    ):
        done = ask(lake, query, "--engine", "spark")
        assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
        assert message in done.err
    assert capfd.readouterr().err == ""
