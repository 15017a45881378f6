"""Build hook: compiles the native kernel (`mqttscope/kernel/*.c`) into the wheel, if there is a C compiler.

Without one, or if anything fails, the wheel is pure Python and works too; installation never fails because of the
kernel.  ``MQTTSCOPE_KERNEL=0`` leaves it out.  An editable install has the module in the source folder.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("mqttscope") / "kernel"
TIMEOUT_S = 120
"""Maximum time of the compiler."""


def compiler() -> list[str] | None:
    """Command of the C compiler: of the environment, of Python's build, or the usual ones; ``None`` without one."""
    for words in (os.environ.get("CC", ""), str(sysconfig.get_config_var("CC") or ""), "cc", "gcc", "clang"):
        command = shlex.split(words)
        if command and shutil.which(command[0]):
            return command
    return None


def is_supported() -> bool:
    """Whether the kernel is for this Python and this system."""
    if os.environ.get("MQTTSCOPE_KERNEL") == "0" or os.name != "posix":
        return False
    # A free-threaded Python would take its lock back for the module.
    return sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


def build(root: Path, folder: Path) -> Path | None:
    """Compile the kernel of a source folder into another folder; ``None`` if that is impossible."""
    command, headers = compiler(), Path(sysconfig.get_path("include"))
    sources = sorted((root / FOLDER).glob("*.c"))
    if not is_supported() or command is None or not sources or not (headers / "Python.h").is_file():
        return None
    target = folder / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    how = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    words: list[str | Path] = [*command, "-O2", "-fPIC", "-fvisibility=hidden", *how, f"-I{headers}", *sources]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / target.name
        try:
            subprocess.run([*words, "-o", made, "-lm"], check=True, capture_output=True, timeout=TIMEOUT_S)
            # Replaced, not written: a running program may have the old one loaded.
            os.replace(made, target)
        except (OSError, subprocess.SubprocessError):
            return None
    return target


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the kernel to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernel; the tag of the wheel names the system only if that worked."""
        root = Path(self.root)
        if version == "editable":
            for old in (root / FOLDER).glob("_native.*.so"):
                old.unlink()
            self._folder = None
            built = build(root, root / FOLDER)
        else:
            self._folder = tempfile.mkdtemp()
            built = build(root, Path(self._folder))
            if built is not None:
                build_data["force_include"][str(built)] = (FOLDER / built.name).as_posix()
        if built is not None:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiled module."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
