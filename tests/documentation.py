"""The commands and outputs in README.md and docs: run, and written again with ``python -m tests.documentation``,
or of some pages with ``python -m tests.documentation docs/tour.md``.

A ``console`` block holds command lines, each with ``$`` before it and its output after it.  A ``sh`` block holds
command lines, of which those with mqttscope are looked at: run when they name captures of the project or need none,
else only parsed.  A comment ``<!-- not run: why -->`` before a block keeps it from being run.  A line ``...`` in an
output stands for any lines.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import forked
from tests.conftest import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guides").glob("*.md")))
COLUMNS = "100"
_PLAIN = re.compile(r"""mqttscope( ([\w./:=,+@%-]|'[^']*'|"[^"$`\\]*")+)+""")
"""A command line that needs no shell."""
_BLOCK = re.compile(r"(<!-- not run: (?P<why>.+?) -->\n)?^```(?P<kind>console|sh)\n(?P<body>.*?)^```$", re.M | re.S)


@dataclass(slots=True)
class Shown:
    """One command line of a page."""

    page: Path
    command: str
    output: str | None
    """``None`` where the page shows no output."""
    not_run: str | None
    """Why it is not run."""

    @property
    def name(self) -> str:
        """For test reports."""
        return f"{self.page.name}: {self.command}"


def shown() -> Iterator[Shown]:
    """Every command line of every page."""
    for page in PAGES:
        for block in _BLOCK.finditer(page.read_text("utf-8")):
            if block["kind"] == "console":
                for part in re.split(r"^\$ ", block["body"], flags=re.M)[1:]:
                    command, _, output = part.partition("\n")
                    yield Shown(page, command, output, block["why"])
            else:
                for line in block["body"].splitlines():
                    if re.search(r"\bmqttscope ", line):
                        elsewhere = (
                            None if "captures/" in line or " decode " in line else "names captures of the reader"
                        )
                        yield Shown(page, line, None, block["why"] or elsewhere)


def run(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command line as a reader would, in a terminal of 100 columns; standard error goes with the output."""
    with tempfile.TemporaryDirectory() as directory:
        # What a command writes goes there too, beside the captures that it names.
        (Path(directory) / "captures").symlink_to(ROOT / "captures")
        if _PLAIN.fullmatch(command.strip()):
            words = [sys.executable, "-m", "mqttscope", *shlex.split(command)[1:]]
            surroundings = forked.environment({"COLUMNS": COLUMNS, "TMPDIR": directory})
            done: subprocess.CompletedProcess[str] = forked.run(
                words, env=surroundings, cwd=directory, timeout=60, text=True, encoding="utf-8",
                stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
            )  # fmt: skip
            return done
        program = Path(directory) / "mqttscope"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mqttscope "$@"\n')
        program.chmod(0o755)
        path = f"{directory}:/usr/local/bin:/usr/bin:/bin"
        return subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            cwd=directory,
            env={"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": COLUMNS, "LANG": "C.UTF-8", "TMPDIR": directory},
            timeout=60,
            check=False,
        )


def matches(shown: str, real: str) -> bool:
    """Whether an output is the one shown, in which ``...`` stands for any lines."""
    pattern = "".join(r"(.*\n)*?" if line == "...\n" else re.escape(line) for line in shown.splitlines(keepends=True))
    return re.fullmatch(pattern, real) is not None


def main() -> None:
    """Write every output again that is not the real one."""
    if shutil.which("jq") is None:
        sys.exit("jq is needed")
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        text = page.read_text("utf-8")

        def fresh(block: re.Match[str]) -> str:
            if block["kind"] == "sh" or block["why"]:
                return block[0]
            body = ""
            for part in re.split(r"^\$ ", block["body"], flags=re.M)[1:]:
                command, _, output = part.partition("\n")
                real = run(command).stdout
                body += f"$ {command}\n" + (output if matches(output, real) else real)
            return f"```console\n{body}```"

        new_text = _BLOCK.sub(fresh, text)
        if new_text != text:
            page.write_text(new_text, "utf-8")
            sys.stdout.write(f"wrote {page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
