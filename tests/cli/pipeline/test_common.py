"""Options that the commands of the pipeline share."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from mqttscope.cli.pipeline.common import LAKE_SETTINGS, Failed, lake_options, lake_settings, pairs, session, size

CONTEXT, PARAMETER = click.Context(click.Command("ingest")), click.Option(["--conf"])


@pytest.mark.parametrize(
    ("word", "number"), [("1", 1), ("64m", 64 << 20), ("8KB", 8192), ("2g", 2 << 30), (None, None)]
)
def test_sizes(word: str | None, number: int | None) -> None:
    assert size(CONTEXT, PARAMETER, word) == number


@pytest.mark.parametrize("word", ["", "0", "m", "1.5m", "-1", "64x", "\u0663"])
def test_what_is_no_size(word: str) -> None:
    with pytest.raises(click.BadParameter, match="not a number of bytes"):
        size(CONTEXT, PARAMETER, word)


def test_pairs() -> None:
    assert pairs(CONTEXT, PARAMETER, ("a.b=c=d", "e=")) == {"a.b": "c=d", "e": ""}
    for word in ("a", "=b"):
        with pytest.raises(click.BadParameter, match="KEY=VALUE"):
            pairs(CONTEXT, PARAMETER, (word,))


def test_options_of_a_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mqttscope.toml").write_text('[lint]\nignore = ["PUB"]\nport = ["1884"]\n')
    seen = {}

    @click.command()
    @lake_settings
    def command(**given: object) -> None:
        seen.update(given)

    def made(*words: str) -> object:
        command.main(list(words), standalone_mode=False)
        return lake_options(seen)

    plain = made()
    assert set(seen) == set(LAKE_SETTINGS)
    assert plain.dissect.ports == {1884: "mqtt"}  # type: ignore[attr-defined]
    assert "PUB101" not in {rule.code for rule in plain.rules}  # type: ignore[attr-defined]
    own = made("--no-config", "--select", "PUB101,SEC104", "--group", "a", "--payload-limit", "9", "--port", "99:ws")
    assert [rule.code for rule in own.rules] == ["PUB101", "SEC104"]  # type: ignore[attr-defined]
    assert (own.group, own.payload_limit, own.dissect.ports) == ("a", 9, {99: "ws"})  # type: ignore[attr-defined]


def test_a_session_that_cannot_be_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("JAVA_HOME", os.devnull)

    with pytest.raises(Failed, match="Spark needs Java, and JAVA_HOME"), session("local[1]", {}):
        pass
