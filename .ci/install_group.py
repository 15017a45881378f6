"""Install a dependency group of pyproject.toml into this environment: with uv, or with pip where uv does not serve.

Of the two minutes that pip takes for some two hundred packages, uv leaves a few seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

PIP = [sys.executable, "-m", "pip"]
OPTIONS = ["--quiet", "--disable-pip-version-check"]
BUILT = "pyspark"
"""It is published as source alone, nearly all of it compressed already: packing it takes a minute, and is done
while the other packages are installed."""
PLAIN = "--config-settings=--build-option=--compression=stored"

SETTINGS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraints",
    "trusted-host": "--allow-insecure-host",
    "no-index": "--no-index",
}
"""Where packages come from, in the words of pip's configuration and of uv, which does not read that one."""
PATIENCE = "180"
"""Seconds for an answer of an index."""


def main(group: str) -> int:
    """Install the requirements of ``group``; returns the exit code of pip where that installed them."""
    wanted = requirements(group)
    return 0 if by_uv(wanted) else by_pip(wanted)


def requirements(group: str) -> list[str]:
    """The requirements of a group, those of groups that it includes first."""
    groups = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    return [
        requirement
        for entry in groups[group]
        for requirement in (requirements(entry["include-group"]) if isinstance(entry, dict) else [entry])
    ]


def by_uv(wanted: list[str]) -> bool:
    """Install ``wanted`` with uv; returns whether that worked. What fails is said by pip afterwards."""
    if subprocess.call([*PIP, "install", *OPTIONS, "uv>=0.5"], stderr=subprocess.DEVNULL):
        return False
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    # The highest version of all indices is taken, as by pip.
    command += ["--index-strategy", "unsafe-best-match", PLAIN, *configured()]
    environment = {"UV_HTTP_TIMEOUT": PATIENCE, **os.environ}
    if certificates := dict(settings()).get("cert"):
        environment.setdefault("SSL_CERT_FILE", certificates)
    return not subprocess.call([*command, *wanted], env=environment, stderr=subprocess.DEVNULL)


def configured() -> Iterator[str]:
    """The options of uv that say what pip's configuration says of indices."""
    for name, value in settings():
        if name == "no-index":
            yield from [SETTINGS[name]] * (value.lower() in ("1", "true", "yes", "on"))
        elif name in SETTINGS:
            for one in value.split():
                yield from (SETTINGS[name], one)


def settings() -> Iterator[tuple[str, str]]:
    """What pip's files and the environment set, as names without sections and values."""
    said = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    for name, value in re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", said, re.MULTILINE):
        yield name, value.replace("\\n", " ")


def by_pip(wanted: list[str]) -> int:
    """Install ``wanted`` with pip of any version; returns its exit code."""
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
