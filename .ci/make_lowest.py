"""Makes an environment with the lowest versions that pyproject.toml allows: ``make_lowest.py DIRECTORY``.

All extras are in it but a Java, and what the tests need; of that, what the project itself does not need is as new as it
may be beside the rest. Needs uv, which finds lowest versions and is installed from PyPI into the environment.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from install_group import requirements

PROJECT = Path(__file__).resolve().parent.parent
EXTRAS = ("lake", "s3", "spark", "connect", "payloads", "browse")
NO_TESTS = ("ruff", "mypy", "import-linter", "click-man", "zensical", "nbclient", "ipykernel", "zizmor")
"""What style, types, generated pages, site and notebooks need, which are made with newest versions."""


def name_of(requirement: str) -> str:
    """The name of a package without extras and versions, in the form that resolvers write."""
    return re.split(r"[\[<>=~! ;@]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def main(directory: Path) -> None:
    """Make the environment, or bring it up to date."""
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"], check=True)
    with tempfile.TemporaryDirectory() as scratch:
        lowest = Path(scratch) / "lowest.txt"
        extras = [option for extra in EXTRAS for option in ("--extra", extra)]
        uv = [python, "-m", "uv", "pip"]
        compiled = ["--resolution", "lowest-direct", "--no-annotate", "--no-header", *extras, "--output-file", lowest]
        compile_ = [*uv, "compile", "--quiet", "--python", python, *compiled, PROJECT / "pyproject.toml"]
        if subprocess.run(compile_, check=False).returncode:
            sys.exit("there are no versions that pyproject.toml allows together")
        kept = {name_of(line) for line in lowest.read_text().splitlines()}
        tools = [wanted for wanted in requirements("dev") if name_of(wanted) not in {*kept, *NO_TESTS}]
        package = f"{PROJECT}[{','.join(EXTRAS)}]"
        into = ["install", "--quiet", "--python", python, "--constraint", lowest]
        if subprocess.run([*uv, *into, "--editable", package, *tools], check=False).returncode:
            sys.exit("the lowest versions do not go together, or cannot be installed")
        sys.stdout.write(lowest.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
