"""Files that version 1.0.0 wrote are read, and those of later versions are refused with what to do.

``tests/data/1.0.0`` was written by the code of that version; tests/data/README.md says how.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mqttscope.errors import schema_fault
from mqttscope.lake.manifest import ALL_DIGITS, DIGEST_DIGITS
from tests import tools
from tests.cli.running import capture, invoke
from tests.conftest import ROOT
from tests.each import each

FILES = ROOT / "tests" / "data" / "1.0.0"
INGEST = ("--no-config", "--payload-limit", "64", "--select", "ACK202,FLW201,PUB103,SES304", "--group", "site")
"""The options of the ingest that wrote the lake."""
HALF = 27
"""Frames of the capture that are in the lake."""


def test_the_baseline_knows_all_findings() -> None:
    paths = [capture("failing-device"), capture("planted-violations")]
    before = invoke("lint", *paths, "--no-config", "--format", "json")
    done = invoke("lint", *paths, "--no-config", "--format", "json", "--baseline", FILES / "baseline.json")

    assert (before.code, done.code, done.err) == (1, 0, "")
    assert json.loads(done.text)["findings"] == []
    assert json.loads(done.text)["summary"]["fixed"] == []


def test_every_key_of_the_configuration_is_read(tmp_path: Path) -> None:
    for name in ("mqttscope.toml", "baseline.json"):
        shutil.copy(FILES / name, tmp_path)
    path = tmp_path / "mqttscope.toml"
    document = tomllib.loads(path.read_text("utf-8"))
    done = invoke("lint", "--config", path, "--show-settings", "--format", "json")

    assert done.code == 0, done.err
    settings = json.loads(done.text)
    lint = document["lint"]
    for name in ("fail-on", "fail-confidence", "min-confidence", "min-severity", "require-packets", "exit-zero"):
        assert settings[name.replace("-", "_")] == lint[name], name
    assert (settings["complete"], settings["mqtt_version"]) == (lint["complete"], lint["mqtt-version"])
    assert settings["ports"] == {"1884": "mqtt", "8080": "ws"}
    assert settings["baseline"] == str(tmp_path / "baseline.json")
    written = [row["written"] for row in settings["suppressed"]]
    assert written == [
        'lint.per-client-ignores."legacy-*"',
        'lint.per-topic-ignores."debug/#"',
        "lint.suppress, entry 1 (KAL201)",
    ]
    codes = {rule["rule"] for rule in settings["rules"]}
    assert {"KAL201", "PUB101", "TOP105"} <= codes
    assert "TOP104" not in codes


def test_the_script_is_played() -> None:
    done = invoke("replay", FILES / "script.json", "--broker", "mqtt://127.0.0.1:9", "--dry-run")

    assert done.code == 0, done.err
    assert "thermostat-7" in done.text


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    tools.package("deltalake")
    with tarfile.open(FILES / "lake.tar.gz") as archive:
        # Debian 12 has a Python 3.11 that knows no filters.
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **safe)
    return tmp_path / "lake"


def halves(folder: Path) -> tuple[Path, Path]:
    """The capture of the lake as the two files of which the lake holds the first."""
    from mqttscope.capture import PcapngWriter, open_capture
    from mqttscope.net.frame import Frame

    frames = [event for event in open_capture([capture("v5-qos")]) if isinstance(event, Frame)]
    paths = folder / "first.pcapng", folder / "second.pcapng"
    for path, part in zip(paths, (frames[:HALF], frames[HALF:]), strict=True):
        with PcapngWriter(path) as out:
            for frame in part:
                out.write(frame)
    return paths


def rows(lake: Path) -> dict[str, list[dict[str, Any]]]:
    from tests.lake.reading import ordered
    from tests.lake.test_writer import tables_of

    tables = tables_of(lake)
    for row in tables["connections"]:
        # It had the counters of TCP once more.
        row["details"] = None
        # It did not have messages without an acknowledgment.
        row["unacknowledged"] = None
    for row in (*tables["packets"], *tables["messages"]):
        # It had all digits.
        row["payload_sha256"] = row["payload_sha256"] and row["payload_sha256"][:DIGEST_DIGITS]
    ordered_rows: dict[str, list[dict[str, Any]]] = ordered(tables, places=False)
    return ordered_rows


def digits(lake: Path) -> set[int]:
    """How many digits the digests of payloads have."""
    from mqttscope.lake.writer import read_table

    names = ("packets", "messages")
    columns = [read_table(lake, name, ["payload_sha256"]).column("payload_sha256").to_pylist() for name in names]
    return {len(digest) for column in columns for digest in column if digest is not None}


def test_the_lake_is_read(lake: Path, tmp_path: Path) -> None:
    first, _ = halves(tmp_path)
    assert invoke("pipeline", "ingest", first, "--lake", tmp_path / "today", *INGEST).code == 0

    assert rows(lake) == rows(tmp_path / "today")
    report = invoke("pipeline", "report", "--lake", lake, "--format", "json")
    assert (report.code, report.err) == (0, "")
    answer = invoke("pipeline", "sql", "select count(*) as packets from packets", "--lake", lake, "--format", "json")
    assert json.loads(answer.text)["rows"] == [{"packets": 12}]


def test_the_lake_is_continued_without_its_memories(lake: Path, tmp_path: Path) -> None:
    before = rows(lake)
    assert [row["closed_how"] for row in before["connections"]] == ["open", "open"]
    _, second = halves(tmp_path)
    done = invoke("pipeline", "ingest", second, "--lake", lake, *INGEST)

    assert done.code == 0
    assert done.err.startswith(
        "mqttscope: another version of mqttscope wrote the memories of this lake: 2 open connections ended with the "
        "captures up to now; 'mqttscope pipeline rebuild' reads all captures again\n"
    )
    after = rows(lake)
    ended = [row | {"closed_how": "open"} for row in after["connections"] if row["closed_how"] == "capture_end"]
    assert ended == before["connections"]
    assert [row for row in after["packets"] if row in before["packets"]] == before["packets"]
    assert len(after["connections"]) > len(before["connections"])
    assert digits(lake) == {ALL_DIGITS}
    # The next ingest has memories of this version.
    done = invoke("pipeline", "ingest", capture("failing-device"), "--lake", lake, *INGEST)
    assert (done.code, "another version" in done.err) == (0, False)


def test_the_lake_is_rebuilt_from_its_captures(lake: Path, tmp_path: Path) -> None:
    first, second = halves(tmp_path)
    assert invoke("pipeline", "ingest", first, second, "--lake", tmp_path / "today", *INGEST).code == 0
    done = invoke("pipeline", "rebuild", first, second, "--lake", lake, *INGEST)
    assert done.code == 0, done.err
    assert digits(lake) == digits(tmp_path / "today") == {DIGEST_DIGITS}
    assert rows(lake) == rows(tmp_path / "today")


def test_clients_of_the_lake_are_forgotten(lake: Path, tmp_path: Path) -> None:
    """Memories of another version are changed, although they cannot be continued."""
    from mqttscope.lake.forget import forget
    from tests.lake.proof import places

    name = rows(lake)["connections"][0]["client_identifier"]
    assert places(lake, name)
    assert forget(lake, [name], key_file=str(tmp_path / "key"), everywhere=True).rows["connections"] == 1
    assert places(lake, name) == []


@each("change, why", [
    ({"format": 4}, "(format 4, this version reads 3)"),
    ({"schema": 3}, "(schema of its tables 3, this version reads 2)"),
    ({"retention": 3}, "(it has retention)"),
])  # fmt: skip
def test_a_lake_of_a_later_version_is_refused(change: dict[str, int], why: str, lake: Path) -> None:
    from mqttscope.lake.manifest import _checksum

    path = lake / "manifest.json"
    written = path.read_bytes()
    manifest = {**json.loads(written), **change}
    del manifest["checksum"]
    content = {name: value for name, value in manifest.items() if name != "format"}
    path.write_text(json.dumps({**manifest, "checksum": _checksum(content)}), "utf-8")

    for words in (("report",), ("sql", "select 1"), ("ingest", capture("v5-qos"), *INGEST)):
        done = invoke("pipeline", *words, "--lake", lake)
        assert (done.code, done.err) == (
            3, f"mqttscope: {path}: a later version of mqttscope wrote it {why}: update mqttscope\n",
        )  # fmt: skip
    path.write_bytes(written)


def test_baselines_and_scripts_of_a_later_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text('{"schema": 2, "tool": "mqttscope", "known": []}', "utf-8")
    done = invoke("lint", capture("failing-device"), "--no-config", "--baseline", path)
    assert done.code == 2
    assert done.err.splitlines()[-1] == (
        f"Error: baseline {path}: a later version of mqttscope wrote it (schema 2, this version reads 1): "
        "update mqttscope, or remove the file and write it again with --update-baseline"
    )

    script = json.loads((FILES / "script.json").read_text("utf-8"))
    path.write_text(json.dumps({**script, "schema": 2}), "utf-8")
    done = invoke("replay", path, "--broker", "mqtt://127.0.0.1:9", "--dry-run")
    assert done.code in (2, 3)
    assert 'a later version of mqttscope wrote it ("schema" 2, this version reads 1): update mqttscope' in done.err


@each("written, fault", [
    (1, ""),
    (2, "a later version of mqttscope wrote it (schema 2, this version reads 1): update mqttscope"),
    (0, "schema is not 1"),
    (True, "schema is not 1"),
    ("1", "schema is not 1"),
    (None, "schema is not 1"),
])  # fmt: skip
def test_schemas(written: object, fault: str) -> None:
    assert schema_fault(written, 1) == fault
