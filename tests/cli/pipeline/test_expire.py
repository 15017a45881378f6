"""``mqttscope pipeline expire``: times, and what is erased."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tools

tools.package("pyarrow")

from mqttscope.lake.manifest import read_manifest
from tests.cli.running import capture, invoke


def test_old_rows_are_erased(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert invoke("pipeline", "ingest", capture("failing-device"), "--lake", lake).code == 0
    done = invoke("pipeline", "expire", "--lake", lake, "--before", "2001-01-01")
    assert (done.code, done.text) == (0, f"{lake}: 0 rows erased\n")
    assert read_manifest(lake).expired_ns == 978_307_200_000_000_000
    done = invoke("pipeline", "expire", "--lake", lake, "--before", "2099-01-01T00:00:00Z")
    assert done.text.startswith(f"{lake}: ")
    assert invoke("pipeline", "sql", "select count(*) from packets", "--lake", lake).text.split()[-1] == "0"
    assert invoke("pipeline", "expire", "--lake", lake, "--keep", "90d").text == f"{lake}: 0 rows erased\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "either --before DATE or --keep LENGTH"),
        (("--keep", "90d", "--before", "2026-01-01"), "either --before DATE or --keep LENGTH"),
        (("--keep", "2026-01-01"), "--keep: '2026-01-01' is not a length such as 90d"),
        (("--before", "90d"), "--before: '90d' is not a date"),
        (("--before", "2026-13-01"), "--before: '2026-13-01' is not a time"),
    ],
)
def test_times_that_are_none(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    done = invoke("pipeline", "expire", "--lake", tmp_path, *words)
    assert (done.code, why in done.err) == (2, True), done.err
