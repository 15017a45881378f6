"""The image: what the Containerfile copies is enough to build the package, with pip alone and without an index."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from mqttscope import __version__
from tests.building import OFFLINE, build_wheel, copy_path, pip
from tests.conftest import ROOT
from tests.each import some

FAILING = ROOT / "captures" / "failing-device" / "capture.pcapng"


def stages() -> list[list[str]]:
    """The instructions of each stage, one a line, without comments."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Containerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = [line.strip() for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("FROM ")]
    return [lines[start:end] for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


BUILD, IMAGE = stages()
COPIED = [line.split()[1:] for line in BUILD if line.startswith("COPY ")]
"""Sources and destination of each COPY of the first stage."""
SOURCES = [source for *sources, _ in COPIED for source in sources]
(INSTALL,) = (shlex.split(line.partition(" && ")[2]) for line in BUILD if "pip install" in line)
"""The words of the command that installs the package."""


def copy_sources(folder: Path, without: str = "") -> None:
    """Do what COPY does: a folder's content into the destination, files by their names."""
    for *sources, destination in COPIED:
        for source in sources:
            if source == without:
                continue
            target = folder / destination
            copy_path(source, target / source if destination.endswith("/") else target)


def content(wheel: Path) -> set[str]:
    """The files of a wheel, without manual pages and completions: an image has no use for them."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".data/data/share/" not in name}


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of a wheel that is built from everything."""
    wheel = build_wheel(ROOT, tmp_path_factory.mktemp("complete"))
    assert wheel is not None
    return content(wheel)


@pytest.mark.slow
def test_the_copied_files_install_and_run(complete: set[str], tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    copy_sources(source)
    wheel = build_wheel(source, tmp_path)

    assert wheel is not None
    assert content(wheel) == complete
    installed = pip("install", *OFFLINE, "--target", target, wheel, folder=tmp_path)
    assert installed.returncode == 0, installed.stderr
    version = start(target, "--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout.startswith(f"mqttscope {__version__}")
    findings = start(target, "lint", str(FAILING), "--format", "concise")
    assert findings.returncode == 1, findings.stderr
    assert "PUB103" in findings.stdout


def start(target: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program that was installed, with dependencies of this environment."""
    return subprocess.run(
        [target / "bin" / "mqttscope", *arguments],
        cwd=target, env={**os.environ, "PYTHONPATH": str(target)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("missing", some(SOURCES))
def test_every_copied_file_is_needed(missing: str, complete: set[str], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    copy_sources(source, without=missing)
    wheel = build_wheel(source, tmp_path)

    assert wheel is None or content(wheel) < complete


def test_the_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = re.fullmatch(r"\.\[([\w,]+)\]", INSTALL[-1])

    assert INSTALL[:2] == ["/opt/mqttscope/bin/pip", "install"]
    assert named is not None
    assert set(named[1].split(",")) <= extras.keys()


def test_the_image_starts_what_was_installed_as_a_user_without_privileges() -> None:
    (copied,) = (line.split() for line in IMAGE if line.startswith("COPY "))

    assert copied == ["COPY", "--from=build", "/opt/mqttscope", "/opt/mqttscope"]
    assert "ENV PATH=/opt/mqttscope/bin:$PATH" in IMAGE
    assert 'ENTRYPOINT ["mqttscope"]' in IMAGE
    assert [line for line in IMAGE if line.startswith("USER ")] == ["USER mqttscope"]
