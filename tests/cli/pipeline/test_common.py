"""Options that the commands of the pipeline share."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from mqttscope.cli.command import make_command
from mqttscope.cli.pipeline.common import RowOptions, byte_count, pairs, read_time
from mqttscope.lake.options import LakeOptions
from tests import tools

CONTEXT, PARAMETER = click.Context(click.Command("ingest")), click.Option(["--conf"])


@pytest.mark.parametrize(
    ("word", "number"), [("1", 1), ("64m", 64 << 20), ("8KB", 8192), ("2g", 2 << 30), (None, None)]
)
def test_sizes(word: str | None, number: int | None) -> None:
    assert byte_count(CONTEXT, PARAMETER, word) == number


@pytest.mark.parametrize("word", ["", "0", "m", "1.5m", "-1", "64x", "\u0663"])
def test_what_is_no_size(word: str) -> None:
    with pytest.raises(click.BadParameter, match="not a number of bytes"):
        byte_count(CONTEXT, PARAMETER, word)


def test_pairs() -> None:
    assert pairs(CONTEXT, PARAMETER, ("a.b=c=d", "e=")) == {"a.b": "c=d", "e": ""}
    for word in ("a", "=b"):
        with pytest.raises(click.BadParameter, match="KEY=VALUE"):
            pairs(CONTEXT, PARAMETER, (word,))


def test_options_of_a_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.package("pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mqttscope.toml").write_text('[lint]\nignore = ["PUB"]\nport = ["1884"]\n')
    seen: list[LakeOptions] = []

    @make_command(RowOptions)
    def command(row_options: RowOptions) -> int:
        seen.append(row_options.lake())
        return 0

    def result(*words: str) -> LakeOptions:
        command.main(list(words), standalone_mode=False)
        return seen.pop()

    plain = result()
    assert (plain.group, plain.payload_limit) == ("", 0)
    assert plain.dissect.ports == {1884: "mqtt"}
    assert "PUB101" not in {rule.code for rule in plain.rules}
    own = result("--no-config", "--select", "PUB101,SEC104", "--group", "a", "--payload-limit", "9", "--port", "99:ws")
    assert [rule.code for rule in own.rules] == ["PUB101", "SEC104"]
    assert (own.group, own.payload_limit, own.dissect.ports) == ("a", 9, {99: "ws"})


DAY = 86_400 * 10**9
LAST = 1_767_323_045_123_456_789


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02", DAY),
        ("1970-01-02T00:00Z", DAY),
        ("1970-01-02 01:00:00.000001+01:00", DAY + 1_000),
        ("24h", LAST - DAY),
        ("7d", LAST - 7 * DAY),
        ("1w", LAST - 7 * DAY),
        ("90s", LAST - 90 * 10**9),
        ("999999999d", 0),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert read_time(text, LAST) == expected


@pytest.mark.parametrize("expected", ["yesterday", "", "24", "h", "2026-13-01", "-1h", "1.5h"])
def test_what_is_no_time(expected: str) -> None:
    with pytest.raises(ValueError, match="is not a time: 2026-01-31"):
        read_time(expected, LAST)


def test_there_is_no_end_to_count_from() -> None:
    with pytest.raises(ValueError, match="the lake contains no captures"):
        read_time("24h", None)
