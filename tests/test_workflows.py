"""The workflows, the action and what they call: what can be said of them without GitHub."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mqttscope import __version__
from tests.conftest import ROOT
from tests.test_structure import POSIX_MODULES

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS: dict[str, dict[Any, Any]] = {
    path.name: yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.yml"))
}
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
TEST, RELEASE = WORKFLOWS["test.yml"], WORKFLOWS["release.yml"]
PORTABLE = (ROOT / ".ci" / "portable.txt").read_text("utf-8").splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, workflow in WORKFLOWS.items():
        for job, definition in workflow["jobs"].items():
            yield f"{name}: {job}", definition


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in jobs():
        yield from ((name, step) for step in job.get("steps", ()))
    yield from (("action.yml", step) for step in ACTION["runs"]["steps"])


def on(workflow: dict[Any, Any]) -> dict[str, Any]:
    """Events of a workflow; the key is a truth value of YAML 1.1."""
    events: dict[str, Any] = workflow[True]
    return events


def test_actions_are_pinned_by_commit_and_named_by_version() -> None:
    text = "".join(path.read_text("utf-8") for path in (*FOLDER.glob("*.yml"), ROOT / "action.yml"))
    used = re.findall(r"uses: (\S+)(.*)", text)
    pins: dict[str, set[tuple[str, str]]] = {}
    for name, comment in used:
        if not name.startswith("./"):
            action, _, commit = name.partition("@")
            assert re.fullmatch(r"[0-9a-f]{40}", commit), name
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), name
            pins.setdefault(action, set()).add((commit, comment))

    assert used
    assert {action: len(pin) for action, pin in pins.items()} == dict.fromkeys(pins, 1)


def test_no_job_may_do_more_than_it_needs() -> None:
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        assert workflow["concurrency"]["group"].startswith(f"{workflow['name']}-"), name
    rights = {name: job["permissions"] for name, job in jobs() if "permissions" in job}
    assert rights == {"release.yml: publish": {"id-token": "write", "attestations": "write"}}
    for name, step in steps():
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, name


def test_every_job_has_a_timeout() -> None:
    assert [name for name, job in jobs() if "uses" not in job and not 0 < job.get("timeout-minutes", 0) <= 360] == []


def test_pushes_pull_requests_and_releases_run_the_same_jobs() -> None:
    assert set(on(TEST)) == {"push", "pull_request", "workflow_call"}
    assert list(on(RELEASE)) == ["push"]
    reused = RELEASE["jobs"]["test"]["uses"]
    assert (ROOT / reused).resolve() == FOLDER / "test.yml"
    assert set(RELEASE["jobs"]["test"]["with"]) == set(on(TEST)["workflow_call"]["inputs"])
    assert set(RELEASE["jobs"]["publish"]["needs"]) == {"test", "build"}


def test_every_supported_python_is_tested() -> None:
    names = (name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if "Python :: 3." in name)
    versions = sorted(names)

    assert TEST["jobs"]["linux"]["strategy"]["matrix"]["python"] == versions
    assert TEST["jobs"]["portable"]["strategy"]["matrix"]["python"] == [versions[0], versions[-1]]
    (setup,) = (step for step in RELEASE["jobs"]["build"]["steps"] if "setup-python" in step.get("uses", ""))
    assert sorted(setup["with"]["python-version"].split()) == versions


def test_a_missing_tool_is_an_error_where_tools_are_installed() -> None:
    asking = [name for name, job in jobs() if job.get("env") == {"MQTTSCOPE_REQUIRE_TOOLS": "1"}]
    # Other systems have none of the tools, and tests that need them are not selected there.
    assert asking == ["release.yml: build", "test.yml: linux", "test.yml: long"]
    assert not [name for name, workflow in WORKFLOWS.items() if "env" in workflow]
    for name in ("linux", "long"):
        commands = [step["run"] for step in TEST["jobs"][name]["steps"] if "run" in step]
        assert commands[0] == "sudo --preserve-env=MQTTSCOPE_REQUIRE_TOOLS make tools"
        assert commands[1].startswith("make test")


def test_commands_are_targets_of_make_and_paths_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    commands = [step["run"] for name, step in steps() if "run" in step and name != "action.yml"]
    named = {target for command in commands for target in re.findall(r"\bmake ([a-z-]+)", command)}
    words = {word for command in commands for word in re.findall(r"@?[\w./-]+", command)}
    paths = {word.lstrip("@") for word in words if word.startswith((".ci/", "@.ci/", "mqttscope/", "Containerfile"))}

    assert named == {"style", "tools", "test", "test-long", "release"}
    assert named <= targets
    assert paths == {".ci/install_group.py", ".ci/portable.txt", "mqttscope/__init__.py", "Containerfile"}
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert {word for command in commands for word in re.findall(r"install_group\.py (\w+)", command)} <= set(
        PROJECT["dependency-groups"]
    )


@pytest.mark.parametrize(("tag", "code"), [(f"v{__version__}", 0), ("v0.0.1", 1), (__version__[:-1], 1)])
def test_the_tag_of_a_release_is_its_version(tag: str, code: int) -> None:
    (script,) = (step["run"] for step in RELEASE["jobs"]["build"]["steps"] if "tag" in step.get("name", ""))
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=ROOT, env={"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"},
        capture_output=True, timeout=20, check=False,
    )  # fmt: skip

    assert done.returncode == code


@pytest.mark.slow
def test_a_release_needs_every_python(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "release.py", tmp_path / "dist", tmp_path / "lists"],
        env={"PATH": str(Path(sys.executable).parent), "MQTTSCOPE_REQUIRE_TOOLS": "1"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert "on the path" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_what_make_release_writes_is_uploaded_and_published() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\nrelease: ")[2]
    target, lists = re.findall(r"release\.py (\S+) (\S+)", recipe)[0]
    build, publish = (RELEASE["jobs"][name]["steps"] for name in ("build", "publish"))
    uploaded = {
        step["with"]["name"]: step["with"]["path"] for step in build if "upload-artifact" in step.get("uses", "")
    }
    fetched = {step["with"]["name"]: step["with"]["path"] for step in publish if "download" in step.get("uses", "")}

    assert uploaded == {"packages": f"{target}/", "lists": f"{lists}/"}
    # The action that publishes takes everything in dist.
    assert fetched == {"packages": "dist", "lists": "lists"}


@pytest.mark.slow
def test_the_workflows_have_no_finding_of_a_linter() -> None:
    zizmor = shutil.which("zizmor", path=str(Path(sys.executable).parent))
    assert zizmor is not None, "the group dev has it"
    done = subprocess.run(
        [zizmor, "--offline", "--no-progress", "--persona", "pedantic", "."],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout


def portable_files() -> list[Path]:
    """The test modules of the selection that every system runs, with what they import of the tests."""
    chosen = [ROOT / word for word in PORTABLE[2:]]
    files = {file for path in chosen for file in ([path] if path.suffix else path.rglob("*.py"))}
    pending = list(files)
    while pending:
        for node in ast.walk(ast.parse(pending.pop().read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
                path = ROOT.joinpath(*str(node.module).split(".")).with_suffix(".py")
                if path.exists() and path not in files:
                    files.add(path)
                    pending.append(path)
    return sorted(files)


def test_the_portable_tests_are_a_selection_of_pytest() -> None:
    assert PORTABLE[:2] == ["-m", "not slow and not long and not tshark and not broker"]
    assert [word for word in PORTABLE[2:] if not (ROOT / word).exists()] == []
    parts = {word.split("/")[1] for word in PORTABLE[2:]}
    assert parts >= {"mqtt", "net", "session", "dissect", "capture", "lint", "report", "stats", "filter", "payloads"}


def test_the_portable_tests_import_nothing_that_posix_alone_has() -> None:
    imported: dict[str, set[str]] = {}
    for path in portable_files():
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            if texts := POSIX_MODULES & set(names):
                imported[path.relative_to(ROOT).as_posix()] = texts

    assert imported == {}
