"""The examples for continuous integration: every command line in them runs, and writes what the platforms read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from mqttscope.capture.files import is_named_like_capture
from mqttscope.cli.output import CAPTURE_NAMES
from tests import tools
from tests.building import write_program
from tests.conftest import ROOT
from tests.each import some

PAGE = ROOT / "docs" / "ci.md"
ACTION = ROOT / "action.yml"
FAILING = ROOT / "captures" / "failing-device" / "capture.pcapng"
PLANTED = ROOT / "captures" / "planted-violations" / "capture.pcapng"
CLEAN = ROOT / "captures" / "v311-qos" / "capture.pcapng"


def blocks(kind: str, text: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)


def commands(text: str) -> list[str]:
    """Command lines of mqttscope lint, continuation lines joined; not those that a hook completes with files."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = (line.strip().removeprefix("- ").removeprefix("run: ") for line in joined.splitlines())
    return [line for line in lines if line.startswith("mqttscope lint ")]


YAML = [
    line for kind in ("yaml", "groovy") for block in blocks(kind, PAGE.read_text("utf-8")) for line in commands(block)
]
COMPONENT = ROOT / "templates" / "lint.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder as a job has it: the recording, and mqttscope on the path."""
    (tmp_path / "device.pcap").write_bytes(FAILING.read_bytes())
    (tmp_path / "bin").mkdir()
    write_program(tmp_path / "bin" / "mqttscope", f'exec "{sys.executable}" -m mqttscope "$@"')
    return tmp_path


def run(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder}/bin:{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", **variables}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_there_are_examples() -> None:
    assert len(YAML) >= 2


@pytest.mark.parametrize("command", some(YAML))
def test_a_command_of_the_page_fails_on_the_failing_device(command: str, workspace: Path) -> None:
    done = run(command, workspace)

    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert "PUB103" in done.stdout
    for name in re.findall(r"--output \w+=([\w.-]+)", command):
        assert (workspace / name).stat().st_size > 0


def test_github_gets_annotations_and_sarif(workspace: Path) -> None:
    command = next(line for line in YAML if "--format github" in line)
    done = run(command, workspace)

    assert all(line.startswith("::") for line in done.stdout.splitlines())
    assert any(line.startswith("::error file=device.pcap") for line in done.stdout.splitlines())
    assert json.loads((workspace / "lint.sarif").read_text("utf-8"))["runs"][0]["results"]


def test_gitlab_gets_code_quality_and_test_reports(workspace: Path) -> None:
    command = next(line for line in YAML if "gitlab=" in line)
    run(command, workspace)
    rows = json.loads((workspace / "gl-code-quality-report.json").read_text("utf-8"))

    assert {"description", "check_name", "fingerprint", "severity", "location"} <= set(rows[0])
    assert len({row["fingerprint"] for row in rows}) == len(rows)
    assert ElementTree.fromstring((workspace / "lint.xml").read_bytes()).tag == "testsuites"


def act(workspace: Path, captures: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the last step of the action, as GitHub runs it."""
    script = tools.package("yaml").safe_load(ACTION.read_text("utf-8"))["runs"]["steps"][-1]["run"]
    temporary = workspace / "runner temp"
    temporary.mkdir(exist_ok=True)
    variables = {"ARGUMENTS": "", "SARIF": "", "RUNNER_TEMP": str(temporary), **inputs, "CAPTURES": captures}
    return run(f"set -eo pipefail\n{script}", workspace, GITHUB_STEP_SUMMARY=str(workspace / "summary.md"), **variables)


@pytest.mark.parametrize("sarif", some(["lint.sarif", ""]))
def test_the_action_lints_and_fails_with_the_findings(sarif: str, workspace: Path) -> None:
    done = act(workspace, "device.pcap", ARGUMENTS="--extend-select SEC", SARIF=sarif)

    assert done.returncode == 1, done.stderr
    assert "PUB103" in done.stdout
    assert "SEC102" in (workspace / "summary.md").read_text("utf-8")
    assert (workspace / "lint.sarif").exists() is bool(sarif)


def test_the_action_appends_to_the_summary(workspace: Path) -> None:
    summary = workspace / "summary.md"
    summary.write_text("# Build\n", "utf-8")
    (workspace / "second.pcap").write_bytes(CLEAN.read_bytes())

    assert act(workspace, "device.pcap").returncode == 1
    first = summary.read_text("utf-8")
    assert act(workspace, "second.pcap").returncode == 0
    both = summary.read_text("utf-8")
    assert act(workspace, "device.pcap", ARGUMENTS="--no-such-option").returncode == 2

    assert first.startswith("# Build\n")
    assert "PUB103" in first
    assert both.startswith(first)
    assert len(both) > len(first)
    assert summary.read_text("utf-8") == both


@pytest.mark.parametrize(
    ("lines", "linted"),
    [
        ("a first.pcap\n  b.pcap  \r\n\n", ["a first.pcap", "b.pcap"]),
        ("*.pcap", ["a first.pcap", "b.pcap"]),
        ("a f*.pcap", ["a first.pcap"]),
        ("folder of captures", ["folder of captures/-c.pcap"]),
        ("-c.pcap", ["-c.pcap"]),
        ("$(touch ran).pcap\n`touch ran`.pcap", ["$(touch ran).pcap", "`touch ran`.pcap"]),
    ],
)
def test_the_action_takes_one_capture_a_line(lines: str, linted: list[str], workspace: Path) -> None:
    (workspace / "device.pcap").unlink()
    # Captures with the same findings would share an annotation.
    for name, capture in zip(linted, (FAILING, PLANTED), strict=False):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_bytes(capture.read_bytes())
    done = act(workspace, lines)

    assert done.returncode == 1, done.stderr
    assert {unquote(name) for name in re.findall(r"^::error file=([^,]+),", done.stdout, re.M)} == set(linted)
    assert not (workspace / "ran").exists()


def test_the_action_leaves_patterns_of_arguments_to_mqttscope(workspace: Path) -> None:
    (workspace / "thermostat-x").touch()

    assert act(workspace, "device.pcap", ARGUMENTS="--client thermostat-*").returncode == 1


def test_the_component_of_gitlab_lints_and_writes_what_it_names(workspace: Path) -> None:
    yaml = tools.package("yaml")

    spec, job = yaml.safe_load_all(COMPONENT.read_text("utf-8"))
    inputs = spec["spec"]["inputs"]
    (workspace / "second device.pcap").write_bytes(CLEAN.read_bytes())
    values = {"captures": "device.pcap 'second device.pcap'", "arguments": "--extend-select SEC"}
    used = set(re.findall(r"\$\[\[ inputs\.(\w+) \]\]", COMPONENT.read_text("utf-8")))
    script = job["mqttscope-lint"]["script"][1]

    done = run(re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda name: values[name[1]], script), workspace)

    assert used == set(inputs)
    assert [name for name, each in inputs.items() if "default" not in each] == ["captures", "source"]
    assert done.returncode == 1, done.stderr
    reports = job["mqttscope-lint"]["artifacts"]["reports"]
    rows = json.loads((workspace / reports["codequality"]).read_text("utf-8"))
    result = {row["check_name"].partition(" ")[0] for row in rows}
    assert {"PUB103", "SEC102"} <= result
    assert ElementTree.fromstring((workspace / reports["junit"]).read_bytes()).tag == "testsuites"


def test_the_hook_takes_captures_and_nothing_else(workspace: Path) -> None:
    yaml = tools.package("yaml")

    (hook,) = yaml.safe_load(HOOKS.read_text("utf-8"))
    # It runs once for all captures.
    assert (hook["require_serial"], hook["args"], hook.get("pass_filenames", True)) == (True, ["--"], True)
    endings = [
        ending for name in (*CAPTURE_NAMES, ".ntar") for ending in (name, name.upper(), f"{name}.gz", f"{name}1")
    ]
    names = [
        *(f"a/b{ending}" for ending in endings),
        "a.pcapng.zst", "a.pcap.zstd", "a.pcap.lz4", "a.pcap_00001", "a.pcap.gz.1", "a_00001_20260102030405.pcap",
    ]  # fmt: skip
    others = [
        "pcap.txt",
        "a.pcapx",
        "a.caption",
        "acap",
        "a.pcap.bz2",
        "a.pcap.zip",
        "a.pcap.txt",
        "a.pcap~",
        "a.dmp.md",
    ]

    assert [name for name in (*names, *others) if re.search(hook["files"], name)] == names
    assert all(is_named_like_capture(name) for name in names if not re.search(r"\.(cap|dmp)", name, re.I))
    done = run(f"{hook['entry']} device.pcap", workspace)
    assert done.returncode == 1, done.stderr
    assert "PUB103" in done.stdout


def test_every_input_of_the_action_is_used() -> None:
    text = ACTION.read_text("utf-8")
    inputs = re.findall(r"^  ([a-z-]+):$", text.partition("\nruns:")[0].partition("inputs:")[2], re.M)

    assert inputs
    assert [name for name in inputs if f"inputs.{name}" not in text] == []
