"""``mqttscope pipeline forget``: erased rows, texts, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tools

tools.package("pyarrow")

from tests.cli.running import capture, invoke


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake with a few clients; the key is beside it."""
    monkeypatch.setenv("MQTTSCOPE_KEY_FILE", str(tmp_path / "key"))
    done = invoke(
        "pipeline", "ingest", capture("failing-device"), capture("broker-restarts"), "--lake", tmp_path / "lake"
    )
    assert done.code == 0, done.err
    return tmp_path / "lake"


def test_rows_are_shown_then_erased(lake: Path) -> None:
    done = invoke("pipeline", "forget", "--lake", lake, "--client", "pump-2", "--client", "nobody", "--dry-run")
    table = "  packets                      5\n  connections                  2\n  findings                     2\n"
    assert done.err == "mqttscope: nobody: the lake has no connection with this name\n"
    elsewhere = (
        "values of other clients with these names; --everywhere replaces the names by asterisks:\n"
        "  scope_state                              1\n"
    )
    assert done.text == f"{lake}: 9 rows would be erased\n{table}{elsewhere}"
    assert not (lake.parent / "key").exists()
    done = invoke("pipeline", "forget", "--lake", lake, "--client", "pump-2", "--everywhere")
    assert (done.code, done.text, done.err) == (0, f"{lake}: 9 rows erased\n{table}", "")
    done = invoke("pipeline", "forget", "--lake", lake, "--lift")
    assert done.text == f"{lake}: 1 tombstone removed\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name what to forget: --client ID or --user NAME"),
        (("--client", ""), "the name is empty"),
        (("--lift", "--dry-run"), "--lift cannot be combined with --everywhere or --dry-run"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    done = invoke("pipeline", "forget", "--lake", tmp_path, *words)
    assert (done.code, why in done.err) == (2, True)


def test_without_a_lake_or_a_key(lake: Path) -> None:
    done = invoke("pipeline", "forget", "--lake", lake.parent / "nothing", "--client", "x")
    assert (done.code, done.err) == (3, f"mqttscope: {lake.parent / 'nothing'} is not a lake\n")
    assert invoke("pipeline", "forget", "--lake", lake, "--client", "pump-2").code == 0
    done = invoke("pipeline", "ingest", capture("v5-qos"), "--lake", lake, "--key-file", lake.parent / "other")
    assert done.code == 3
    assert "the lake has 1 tombstone of forgotten names" in done.err
