"""Building and installing this project without an index, with the build backend of this environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import ROOT

OFFLINE = ("--no-index", "--no-deps", "--disable-pip-version-check", "--quiet")
PACKAGED = ("pyproject.toml", "README.md", "LICENSE", "mqttscope", "pyspark_mqttscope")
"""Files and folders that a build needs."""


def pip(
    *words: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run pip of this environment in a folder."""
    command = [sys.executable, "-m", "pip", *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def build_wheel(source: Path, folder: Path) -> Path | None:
    """The wheel of a source folder; nothing if the build fails."""
    pip("wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", folder, ".", folder=source)
    return next(folder.glob("*.whl"), None)


def copy_path(name: str, target: Path) -> None:
    """Copy a file or a folder of the project, without compiled modules."""
    if (ROOT / name).is_dir():
        shutil.copytree(ROOT / name, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(ROOT / name, target)
