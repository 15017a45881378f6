"""Install a dependency group of pyproject.toml into this environment, with any version of pip."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PIP = [sys.executable, "-m", "pip"]
OPTIONS = ["--quiet", "--disable-pip-version-check"]
BUILT = "pyspark"
"""It is published as source alone, nearly all of it compressed already: packing it takes a minute, and is done
while the other packages are installed."""
PLAIN = "--config-settings=--build-option=--compression=stored"


def main(group: str) -> int:
    """Install the requirements of ``group``; returns pip's exit code."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    wanted: list[str] = project["dependency-groups"][group]
    built = [one for one in wanted if re.split(r"[^\w.-]", one)[0] == BUILT]
    # Of some of these packages, nearly no module is ever imported: those that are get compiled then.
    install = [*PIP, "install", *OPTIONS, "--no-compile"]
    with tempfile.TemporaryDirectory() as folder:
        packing = [subprocess.Popen([*PIP, "wheel", *OPTIONS, "--no-deps", PLAIN, "-w", folder, one]) for one in built]
        code = subprocess.call([*install, *(one for one in wanted if one not in built)])
        # Where it could not be packed, installing it says why.
        codes = [one.wait() for one in packing]
        if built and not code:
            code = subprocess.call([*install, *([] if any(codes) else ["--find-links", folder]), *built])
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
