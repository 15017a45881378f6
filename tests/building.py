"""Building and installing this project without an index, with the build backend of this environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import ROOT

OFFLINE = ("--no-index", "--no-deps", "--disable-pip-version-check", "--quiet")
PACKAGED = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "mqttscope", "pyspark_mqttscope")
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
        shutil.copytree(ROOT / name, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    else:
        shutil.copy(ROOT / name, target)


def link_dependencies(folder: Path) -> None:
    """Fill a folder with everything that is installed here, without mqttscope."""
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.suffix != ".pth" and not path.name.startswith("mqttscope"):
            (folder / path.name).symlink_to(path)


def make_environment(folder: Path, dependencies: Path) -> Path:
    """Make an empty environment that finds pip and all dependencies in another folder; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    path = folder / "bin" / "python"
    (packages(path) / "dependencies.pth").write_text(f"{dependencies}\n", "utf-8")
    write_program(path.with_name("pip"), f'exec "{path}" -m pip "$@"')
    return path


def packages(python: Path) -> Path:
    """The folder that an environment installs into."""
    return next((python.parent.parent / "lib").glob("*/site-packages"))


def write_program(path: Path, script: str, shell: str = "/bin/sh") -> None:
    """Write a shell script that can be run."""
    path.write_text(f"#!{shell}\n{script}\n", "utf-8")
    path.chmod(0o755)
