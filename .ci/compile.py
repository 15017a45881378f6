"""Compiles the hot path with mypyc, from the same Python: ``compile.py DIRECTORY`` makes a tree of its own.

The modules are those of ``[tool.hatch.build.hooks.custom]`` in pyproject.toml.  Files of the package are copied to the
directory, and libraries are built beside the copies.  Building a wheel with MQTTSCOPE_COMPILED=1 does the same and
packs the libraries too; without it a wheel is pure Python.  Compiling needs mypy, setuptools and a C compiler.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # hatchling loads this file by its path
from constructors import known_of, written_out

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # who fills a directory needs no hatchling
    BuildHookInterface = object

PROJECT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
NEEDED = ["mypy>=2.4", "setuptools>=65", "msgspec>=0.19", "orjson>=3.10", "zstandard>=0.25"]
"""Among them what the compiled modules import that has types: mypyc looks at these."""
FLAGS = ["-fvisibility=hidden", "-fno-semantic-interposition", "-include", str(HERE / "cold.h")]
"""For compilers that take them: modules call each other directly, since nobody else can call into the library, and what
runs for each packet stands apart from what handles errors."""
SETTINGS = "mypy.toml"
"""A copy of pyproject.toml, of which setuptools would read its own part."""


def build(directory: Path) -> list[Path]:
    """Copy the package to a directory and compile it there; returns the libraries."""
    # Libraries of an earlier build would be imported in the place of what is pure Python now.
    shutil.rmtree(directory / "mqttscope", ignore_errors=True)
    for library in _libraries(directory):
        library.unlink()
    shutil.copytree(PROJECT / "mqttscope", directory / "mqttscope", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", directory / SETTINGS)
    _write_constructors(directory)
    # Tests that were run in this tree want a link to it there, of which setuptools would read its own part.
    (directory / "pyproject.toml").unlink(missing_ok=True)
    subprocess.run([sys.executable, __file__, "--here"], cwd=directory, check=True)
    # What lies beside the libraries is the source as it is: executors of Spark may run it.
    for path in _compiled(directory):
        shutil.copy(PROJECT / path.relative_to(directory), path)
    return _libraries(directory)


def _libraries(directory: Path) -> list[Path]:
    return [*directory.glob("*.so"), *directory.glob("*.pyd"), *directory.glob("mqttscope/**/*.so"),
            *directory.glob("mqttscope/**/*.pyd")]  # fmt: skip


def _compiled(directory: Path) -> list[Path]:
    """The modules that are compiled."""
    with (directory / SETTINGS).open("rb") as file:
        patterns = tomllib.load(file)["tool"]["hatch"]["build"]["hooks"]["custom"]["compiled"]
    return sorted({path for pattern in patterns for path in directory.glob(pattern)})


def _write_constructors(directory: Path) -> None:
    """Let the copies of dataclasses have the constructors that the decorator would write for them."""
    trees = {str(path): ast.parse(path.read_bytes()) for path in (directory / "mqttscope").rglob("*.py")}
    known = known_of(trees)
    for path in _compiled(directory):
        path.write_text(written_out(str(path), path.read_text("utf-8"), known), "utf-8")


def build_here() -> None:
    """Compile what the current directory holds, in place."""
    from mypyc.build import mypycify
    from setuptools import setup

    paths = [str(path) for path in _compiled(Path())]
    extensions = mypycify(
        [f"--config-file={SETTINGS}", "--follow-imports=silent", *paths],
        opt_level=os.environ.get("MQTTSCOPE_OPTIMIZE", "2"),
        debug_level="0",
        multi_file=True,
        group_name="mqttscope_compiled",
    )
    if sys.platform != "win32":
        for extension in extensions:
            extension.extra_compile_args = [*extension.extra_compile_args, *FLAGS]
    setup(name="mqttscope", packages=[], ext_modules=extensions, script_args=["--quiet", "build_ext", "--inplace"])


class CompiledWheel(BuildHookInterface):  # type: ignore[misc]
    """Puts the libraries into a wheel that is asked for."""

    def _is_asked_for(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("MQTTSCOPE_COMPILED") == "1"

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling."""
        return NEEDED if self._is_asked_for() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the wheel is an editable one, whose modules are those of the folder."""
        if not self._is_asked_for() or version == "editable":
            return
        # A folder for each Python, so that several can compile at once.
        directory = Path(self.root) / "build" / f"wheel-{sys.implementation.cache_tag}"
        for path in build(directory):
            build_data["force_include"][str(path)] = str(path.relative_to(directory))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


if __name__ == "__main__":
    if sys.argv[1] == "--here":
        build_here()
    else:
        build(Path(sys.argv[1]).resolve())
