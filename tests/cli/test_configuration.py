"""Finding and reading the configuration file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from mqttscope.api.payloads import GROUP
from mqttscope.cli.configuration import find_configuration
from mqttscope.cli.linting_settings import read_configuration
from mqttscope.lint.config import Config
from mqttscope.secrets.names import VARIABLE, set_words
from tests import tools
from tests.cli.made import Publish, client, opened, write_capture
from tests.cli.running import inspected, invoke


def test_the_nearest_file_wins_and_ours_before_the_shared_one(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for path, text in (
        (tmp_path / "pyproject.toml", "[tool.mqttscope.lint]\n"),
        (tmp_path / "mqttscope.toml", ""),
        (tmp_path / "a" / "mqttscope.toml", ""),
    ):
        path.write_text(text, "utf-8")
        assert find_configuration(inner) == path
    # That of something else is passed over.
    (inner / "pyproject.toml").write_text('[project]\nname = "other"\n', "utf-8")
    assert find_configuration(inner) == path


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("mqttscope.toml", "[", "not TOML"),
        ("mqttscope.toml", "[lint]\nselct = []", "did you mean select"),
        ("mqttscope.toml", "\xff", "not TOML"),
        ("mqttscope.toml", "a=" + "[" * 100_000, "nested"),
        ("pyproject.toml", "[tool]\nmqttscope = 1", "not a table"),
        ("missing.toml", None, "No such file"),
    ],
    ids=["no TOML", "wrong key", "no UTF-8", "nested", "no table", "missing"],
)
def test_what_cannot_be_read_is_named_with_its_file(name: str, text: str | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(click.UsageError, match=why) as refused:
        read_configuration(path)

    assert str(path) in refused.value.message


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "mqttscope.toml").mkdir()

    with pytest.raises(click.UsageError, match=r"mqttscope\.toml is a folder, but the configuration must be a file"):
        find_configuration(tmp_path)


@pytest.mark.parametrize("text", ["tool = 1", 'tool = "mqttscope"', "[tool]", "[[tool]]"])
def test_the_pyproject_may_hold_anything_else(text: str, tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(text, "utf-8")

    assert find_configuration(tmp_path) != path
    assert read_configuration(path) == read_configuration(None) == Config()


PAYLOADS = """
[[payload]]
topic = "c/#"
format = "cbor"

[[payload]]
topic = "fleet/#"
format = "protobuf"
descriptor = "fleet.binpb"
message = "fleet.Report"

[[payload]]
topic = "own"
decoder = "acme"
"""


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A capture beside a configuration with payloads, in the working directory."""
    tools.package("cbor2")
    import cbor2

    from tests.payloads.samples import REPORT, descriptors

    (tmp_path / "mqttscope.toml").write_text(PAYLOADS, "utf-8")
    (tmp_path / "fleet.binpb").write_bytes(descriptors())
    messages = (("c/1", cbor2.dumps({"t": 41})), ("fleet/1", REPORT), ("own", b"xyz"), ("j", b'{"t": 42}'))
    steps = (client(Publish(topic_name=topic, payload=payload)) for topic, payload in messages)
    monkeypatch.chdir(tmp_path)
    return write_capture(tmp_path / "a.pcapng", *opened(), *steps)


def test_payloads_are_decoded_by_topic(configured: Path) -> None:
    assert read_configuration(Path("mqttscope.toml")) == Config(), "lint goes by it"
    text = invoke("inspect", configured).text
    assert 'c/1  cbor: {"t":41}' in text
    assert 'fleet/1  protobuf fleet.Report: {"vehicle":"truck-1"' in text
    assert "not shown as acme: no installed package has a decoder acme" in text
    document: dict[str, Any] = {
        line["topic"]: line.get("payload") for line in inspected(configured).packets if line["type"] == "publish"
    }
    assert document["c/1"] == {"format": "cbor", "value": {"t": 41}}
    assert document["fleet/1"]["value"]["speed"] == 42
    assert set(document["own"]) == {"format", "error"}
    assert document["j"] is None
    tree = invoke("inspect", configured, "--format", "tree", "-f", "topic == 'c/1'").text
    assert "payload as cbor" in tree
    assert "topic_name" in tree


def test_filters_ask_for_decoded_fields_in_every_command(configured: Path) -> None:
    def topics(expression: str, *more: str) -> list[str]:
        return [line["topic"] for line in inspected(configured, "-f", expression, *more).packets]

    assert topics("payload.t > 40") == ["c/1", "j"]
    assert topics("payload.speed == 42") == ["fleet/1"]
    assert topics("payload.t > 40", "--no-config") == ["j"]
    assert "1 packet of" in invoke("stats", configured, "-f", "payload.speed == 42").text


def test_another_configuration_or_none(configured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, ours = tmp_path / "other.toml", ("--config", str(tmp_path / "mqttscope.toml"))
    other.write_text('[[payload]]\ntopic = "j"\nformat = "text"\n', "utf-8")
    monkeypatch.setenv("MQTTSCOPE_CONFIG", str(other))
    assert 'j  {"t": 42}' in invoke("inspect", configured).text
    # With --payload, another view was asked for.
    for words, shown in (((), False), (ours, True), (("--no-config",), False), ((*ours, "--payload", "hex"), False)):
        assert ("cbor:" in invoke("inspect", configured, *words).text) == shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('payload = "json"', "write [[payload]]"),
        ("[", "not TOML"),
        ('[[payload]]\ntopic = "#"\ndecoder = "json"', "[[payload]] number 1: decoder is 'json', which is a format"),
        ('[[payloads]]\ntopic = "#"', "payloads is an unknown key; did you mean payload? The tables are [lint]"),
    ],
)
def test_every_command_says_the_same_of_a_configuration(
    text: str, expected: str, configured: Path, tmp_path: Path
) -> None:
    (tmp_path / "mqttscope.toml").write_text(text, "utf-8")
    for command in ("inspect", "lint", "browse"):
        done = invoke(command, configured)
        assert (done.code, expected in done.err, "mqttscope.toml" in done.err) == (2, True, True), command
    # Commands that use nothing of it say it as well.
    for command in ("stats", "explain", "triage"):
        done = invoke(command, configured)
        assert (done.code, done.err.count(expected), "mqttscope.toml" in done.err) == (0, 1, True), command
        assert done.text
    done = invoke("stats", configured, "-f", "payload.t > 40")
    assert (done.code, expected in done.err) == (2, True)
    assert invoke("inspect", configured, "--no-config").code == 0


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("def decode(topic, payload):\n    return {'n': len(payload), 'topic': topic}", {"n": 3, "topic": "own"}),
        ("def decode(topic, payload):\n    raise ValueError('no frame')", "ValueError: no frame"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("decode = 7", "it is not a function of a topic and a payload"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
    ],
)
def test_decoders_of_packages(
    module: str, expected: object, configured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"acme_payloads_{abs(hash(module))}"
    (tmp_path / f"{name}.py").write_text(module, "utf-8")
    about = tmp_path / "acme-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n", "utf-8")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nacme = {name}:decode\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    line = inspected(configured, "-f", "topic == 'own'").packets[0]["payload"]
    assert line["format"] == "acme"
    if isinstance(expected, str):
        assert expected in line["error"]
    else:
        assert line["value"] == expected


@pytest.fixture
def no_words(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(VARIABLE, "")
    yield
    set_words(())


@pytest.mark.usefixtures("no_words")
def test_names_of_secrets_are_those_of_the_configuration_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    packet = Publish(topic_name="a", payload=b'{"imei":"490154203237518","token":"a1b2"}')
    capture = str(write_capture(tmp_path / "a.pcapng", *opened(), client(packet)))
    shown = invoke("inspect", capture, "--format", "jsonl").text
    assert "490154203237518" in shown
    assert "a1b2" not in shown

    (tmp_path / "mqttscope.toml").write_text('[secrets]\nwords = ["imei"]\n', "utf-8")
    for command in (("inspect", "--format", "jsonl"), ("inspect", "--format", "tree"), ("stats", "--format", "json")):
        hidden = invoke(command[0], capture, *command[1:])
        assert hidden.code == 0, command
        assert "490154203237518" not in hidden.text, command
    set_words(())
    assert "490154203237518" in invoke("inspect", capture, "--format", "jsonl", "--no-config").text


@pytest.mark.parametrize(
    "table", ["secrets = 1", "[secrets]\nnames = []", '[secrets]\nwords = "imei"', '[secrets]\nwords = ["id"]']
)
def test_a_table_of_secrets_that_is_wrong_stops_every_command(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mqttscope.toml").write_text(table, "utf-8")
    for words in (("decode", "c000"), ("rules",), ("stats", "a.pcapng")):
        done = invoke(*words)
        assert done.code == 2, words
        assert "[secrets] has one key, words" in done.err
