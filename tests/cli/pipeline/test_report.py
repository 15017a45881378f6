"""``mqttscope pipeline report``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqttscope.lake.writer import read_table
from tests.cli.running import invoke
from tests.dev.schemas import fits

CLIENTS = ("office", "desk")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--since", "yesterday"], "--since: 'yesterday' is not a time"),
        (["--since", "2026-01-02", "--until", "2026-01-01"], "--since is not before --until"),
        (["--topic", "a/#/b"], "--topic: 'a/#/b' is not a Topic Filter: # must be the last level"),
        (["--rule", "NIX"], "--rule: no rule has the slug 'NIX' or a code that begins with it"),
        (["--conf", "driver=1"], "Spark settings have names such as spark.driver.memory"),
        (["--client", ""], "--client: an empty pattern matches nothing"),
        (["--client", "a\udcff"], "--client: a\\xff is not UTF-8, or the locale is not"),
        (["--group-by", "\ud800"], "is not UTF-8"),
        (["--top", "0"], "0 is not in the range"),
    ],
)
def test_usage(lake: Path, words: list[str], message: str) -> None:
    done = invoke("pipeline", "report", "--lake", lake, *words)

    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert done.out == b""


def test_what_is_no_lake(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    for folder, message in ((tmp_path / "none", "does not exist"), (tmp_path, "cannot be read")):
        done = invoke("pipeline", "report", "--lake", folder)
        assert (done.code, done.out, done.err.count("\n")) == (3, b"", 1)
        assert message in done.err


def test_a_part_of_the_fleet(lake: Path, tmp_path: Path) -> None:
    """JSON, restricted, in a file whose name says what it is to be."""
    target = tmp_path / "part.json"
    only = ["--client", "office", "--client", "des?", "--topic", "#", "--rule", "OPS,ACK", "--since", "999d"]

    done = invoke("pipeline", "report", "--lake", lake, *only, "--top", "2", "--output", target)

    assert (done.code, done.out, done.err) == (0, b"", "")
    document = json.loads(target.read_bytes())
    assert fits("fleet-report", [document]) == 1
    assert document["schema"] == 1
    assert document["asked"]["rule"] == ["OPS", "ACK"]
    of_both = [row for row in read_table(lake, "connections").to_pylist() if row["client_identifier"] in CLIENTS]
    assert (document["overview"]["clients"], document["overview"]["connections"]) == (2, len(of_both))
    assert {row["rule"][:3] for row in document["rules"]["rows"]} <= {"OPS", "ACK"}
    messages = [row for row in read_table(lake, "messages").to_pylist() if row["client_identifier"] in CLIENTS]
    topics = {(row["server"], row["topic"]) for row in messages if row["topic"] and row["topic"][0] != "$"}
    assert document["talk"]["topics"]["total"] == len(topics) > len(document["talk"]["topics"]["rows"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["part.json"]
