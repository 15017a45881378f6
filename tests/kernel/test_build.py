"""The kernel is built where that is possible, left out silently elsewhere, and can be switched off."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import hatch_build
from mqttscope import kernel
from tests import building
from tests.conftest import ROOT

needs_compiler = pytest.mark.skipif(
    not hatch_build.is_supported() or hatch_build.compiler() is None, reason="there is no C compiler"
)
CAPTURE = next((ROOT / "captures" / "v5-qos").glob("capture.pcap*"))
HEADERS = "mqttscope/kernel/_native"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in building.PACKAGED:
        building.copy_path(name, folder / name)
    return folder


def names_in(wheel: Path | None) -> list[str]:
    assert wheel is not None
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if name.startswith(HEADERS) and name.endswith(".so")]


@needs_compiler
def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    command = hatch_build.compiler()
    assert command is not None
    words = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-cast-function-type", "-Werror", "-fsyntax-only"]
    include = sysconfig.get_path("include")
    sources = sorted((ROOT / "mqttscope" / "kernel").glob("*.c"))
    done = subprocess.run([*command, *words, f"-I{include}", *sources], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@needs_compiler
@pytest.mark.long
def test_a_wheel_with_the_kernel_names_its_system(source: Path, tmp_path: Path) -> None:
    wheel = building.build_wheel(source, tmp_path)
    assert len(names_in(wheel)) == 1
    assert wheel is not None
    assert not wheel.name.endswith("-any.whl")


@pytest.mark.parametrize("variable", ["CC", "MQTTSCOPE_KERNEL"])
def test_a_wheel_without_a_compiler_is_for_every_system(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    if variable == "CC":
        broken = tmp_path / "cc"
        building.write_program(broken, "exit 1")
        monkeypatch.setenv("CC", str(broken))
    else:
        monkeypatch.setenv(variable, "0")
    wheel = building.build_wheel(source, tmp_path)
    assert names_in(wheel) == []
    assert wheel is not None
    assert wheel.name.endswith("-py3-none-any.whl")


def test_without_a_compiler_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert hatch_build.build(ROOT, tmp_path) is None


def test_without_headers_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert hatch_build.build(ROOT, tmp_path) is None


def test_the_status_is_yes_or_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kernel.VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "mqttscope.kernel._native", None)
    monkeypatch.delattr(kernel, "_native", raising=False)
    assert kernel.status() == "kernel: not built (no C compiler: apt install gcc python3-dev)"
    monkeypatch.setenv(kernel.VARIABLE, "0")
    assert kernel.status() == "kernel: switched off"


@pytest.mark.skipif(kernel.native() is None, reason="the kernel is not built")
def test_a_module_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel.status() == "kernel: yes"
    monkeypatch.setattr(kernel, "INTERFACE", -1)
    assert kernel.native() is None


def test_the_command_gives_the_same_with_and_without() -> None:
    def lines(value: str) -> tuple[bytes, bytes]:
        command = [sys.executable, "-m", "mqttscope", "inspect", "--format", "jsonl", str(CAPTURE)]
        environment = {**os.environ, kernel.VARIABLE: value}
        done = subprocess.run(command, capture_output=True, check=True, timeout=60, env=environment)
        return done.stdout, done.stderr

    assert lines("0") == lines("1")
