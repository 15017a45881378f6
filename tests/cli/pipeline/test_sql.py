"""``mqttscope pipeline sql``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.lake.writer import read_table
from tests.cli.running import Done, invoke


def ask(lake: Path, query: str, *words: str) -> Done:
    return invoke("pipeline", "sql", query, "--lake", lake, *words, env={"MQTTSCOPE_TRACEBACK": None})


@pytest.mark.parametrize("query", ["drop table packets", "", "/* select */ insert into packets values (1)", "selec 1"])
def test_only_questions(lake: Path, query: str) -> None:
    done = ask(lake, query)

    assert (done.code, done.out) == (2, b"")
    assert "a question begins with select, with, from" in done.err


@pytest.mark.usefixtures("spark")
def test_answers(lake: Path) -> None:
    text = ask(lake, "select rule, count(*) as found from findings group by rule order by 2 desc, 1", "--limit", "2")
    assert (text.code, text.text.splitlines()[0]) == (0, "rule    found")
    counts = Counter(row["rule"] for row in read_table(lake, "findings").to_pylist())
    most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:2]
    assert [tuple(line.split()) for line in text.text.splitlines()[2:]] == [(rule, str(n)) for rule, n in most]
    assert text.err == "mqttscope: there are more than 2 rows: --limit N shows N\n"

    made = json.loads(ask(lake, "select topic, payload from packets where type = 'publish'", "--format", "json").out)
    assert made["columns"] == [{"name": "topic", "type": "string"}, {"name": "payload", "type": "binary"}]
    expected = [row for row in read_table(lake, "packets").to_pylist() if row["type"] == "publish"]
    assert sorted(row["payload"]["hex"] for row in made["rows"] if row["payload"]) == sorted(
        row["payload"].hex() for row in expected if row["payload"] is not None
    )
    table = ask(lake, "/* all */ describe messages", "--format", "csv")
    head, first = table.text.splitlines()[:2]
    assert head == "col_name,data_type,comment"
    assert first.startswith("connection_id,string,the connection")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select nix from packets", "with name `nix` cannot be resolved"),
        ("select * from nix", "The table or view `nix` cannot be found"),
        ("select * form packets", "Syntax error at or near"),
        ("select 1 as a, 2 as a", "2 columns of the answer are called 'a': give them names with AS"),
        ("select 1 / 0", "Division by zero"),
    ],
)
def test_errors_in_one_sentence(lake: Path, query: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = ask(lake, query)

    assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
    assert message in done.err
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("spark")
def test_a_file_that_is_gone(lake: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(lake, tmp_path / "lake")
    for path in (tmp_path / "lake" / "gaps").iterdir():
        path.write_bytes(b"no Parquet")

    done = ask(tmp_path / "lake", "select * from gaps")

    assert (done.code, done.err.count("\n")) == (3, 1)
