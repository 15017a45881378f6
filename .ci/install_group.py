"""Install a dependency group of pyproject.toml into this environment, with any version of pip."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path


def main(group: str) -> int:
    """Install the requirements of ``group``; returns pip's exit code."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    wanted = project["dependency-groups"][group]
    # Of some of these packages, nearly no module is ever imported: those that are get compiled then.
    options = ["--quiet", "--disable-pip-version-check", "--no-compile"]
    return subprocess.call([sys.executable, "-m", "pip", "install", *options, *wanted])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
