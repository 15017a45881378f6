"""Finding and reading the configuration file."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from mqttscope.cli.linting_settings import find_configuration, read_configuration
from mqttscope.lint.config import Config


def test_the_nearest_file_wins_and_ours_before_the_shared_one(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.mqttscope.lint]\n", "utf-8")
    assert find_configuration(inner) == tmp_path / "pyproject.toml"

    (tmp_path / "mqttscope.toml").write_text("", "utf-8")
    assert find_configuration(inner) == tmp_path / "mqttscope.toml"

    (tmp_path / "a" / "mqttscope.toml").write_text("", "utf-8")
    assert find_configuration(inner) == tmp_path / "a" / "mqttscope.toml"


def test_the_pyproject_of_something_else_is_passed_over(tmp_path: Path) -> None:
    inner = tmp_path / "a"
    inner.mkdir()
    (tmp_path / "mqttscope.toml").write_text("", "utf-8")
    (inner / "pyproject.toml").write_text('[project]\nname = "other"\n', "utf-8")

    assert find_configuration(inner) == tmp_path / "mqttscope.toml"


def test_no_file_says_nothing() -> None:
    assert read_configuration(None) == Config()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "not TOML"),
        ("[lint]\nselct = []", "did you mean select"),
        ("\xff", "not TOML"),
        ("a=" + "[" * 100_000, "nested"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_file(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "mqttscope.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(click.UsageError, match=why) as refused:
        read_configuration(path)

    assert str(path) in refused.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="No such file"):
        read_configuration(tmp_path / "missing.toml")


@pytest.mark.parametrize("text", ["tool = 1", 'tool = "mqttscope"', "[tool]", "[[tool]]"])
def test_the_pyproject_may_hold_anything_else(text: str, tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(text, "utf-8")

    assert find_configuration(tmp_path) != path
    assert read_configuration(path) == Config()


def test_our_table_in_the_pyproject_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool]\nmqttscope = 1", "utf-8")
    with pytest.raises(click.UsageError, match="not a table"):
        read_configuration(path)
