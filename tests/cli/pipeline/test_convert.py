"""``mqttscope pipeline convert``: one line, or one sentence."""

from __future__ import annotations

from pathlib import Path

from tests import tools

tools.package("pyarrow")

from mqttscope.lake.writer import write_lake
from tests.cli.running import invoke
from tests.lake.earlier import make_earlier
from tests.lake.test_writer import SEVERAL, tables_of


def test_a_lake_of_an_earlier_release(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_lake([SEVERAL[0]], lake)
    rows = tables_of(lake)
    make_earlier(lake)

    done = invoke("pipeline", "ingest", SEVERAL[1], "--lake", lake)
    assert (done.code, done.out) == (3, b"")
    assert f"'mqttscope pipeline convert --lake {lake}'" in done.err
    assert invoke("pipeline", "sql", "select count(*) from packets", "--lake", lake).code == 0

    done = invoke("pipeline", "convert", "--lake", lake)
    assert (done.code, done.text, done.err) == (0, f"{lake} now has Delta tables\n", "")
    assert tables_of(lake) == rows
    assert invoke("pipeline", "convert", "--lake", lake).text == f"{lake} already has Delta tables\n"


def test_what_is_no_lake(tmp_path: Path) -> None:
    done = invoke("pipeline", "convert", "--lake", tmp_path / "none")
    assert (done.code, done.out, done.err) == (3, b"", f"mqttscope: {tmp_path / 'none'} does not exist\n")
    assert list(tmp_path.iterdir()) == []
