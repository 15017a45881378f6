"""Running the command line: as a program of its own, or in this process where speed counts."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner

from mqttscope.cli.main import main
from tests import forked, tools
from tests.conftest import ROOT
from tests.forked import UNSET, Forked
from tests.forked import environment as environment

CAPTURES = sorted((ROOT / "captures").glob("*/capture.pcapng"))
FORMATS = ("text", "tree", "ladder", "jsonl", "csv")
Word = str | bytes | Path
BUSY = """if True:
    import sys
    from mqttscope.capture import live
    from mqttscope.cli import run
    from mqttscope.lint.engine import Linter

    marker = sys.argv.pop()

    def feed(self, event):
        open(marker, "w").close()
        while True:
            sum(range(1000))

    live.can_shorten_time_out = lambda: False
    Linter.feed = feed
    run()
"""
"""A script that runs the program with a rule that does not end; its last argument is a file that it makes then."""


@dataclass(slots=True)
class Done:
    """What a command left behind."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode()

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as one JSON document."""
        actual_document: dict[str, Any] = json.loads(self.out)
        return actual_document

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    def of(self, event: str) -> list[dict[str, Any]]:
        """The JSON lines of one event."""
        return [line for line in self.lines if line["event"] == event]

    @property
    def packets(self) -> list[dict[str, Any]]:
        """The JSON lines of packets."""
        return self.of("packet")


def capture(name: str) -> Path:
    """A capture of the project."""
    path = ROOT / "captures" / name / "capture.pcapng"
    assert path.is_file()
    return path


def command(*arguments: Word) -> list[str | bytes]:
    """The program with arguments."""
    return [sys.executable, "-m", "mqttscope", *(os.fspath(word) for word in arguments)]


def run(*arguments: Word, stdin: bytes = b"", env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Done:
    """Run the program as users do, but for its start."""
    done = forked.run(command(*arguments), stdin, env=environment(env), cwd=cwd)
    return Done(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


def python(script: str, *arguments: Word, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True, text=True, env=environment(env), cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip


@dataclass(slots=True)
class Started:
    """The program at work, and the pipes to it."""

    process: subprocess.Popen[bytes]
    input: IO[bytes]
    out: IO[bytes]
    err: IO[bytes]


@contextmanager
def started(*arguments: Word, stdin: bytes = b"") -> Iterator[Started]:
    """The program at work, whose input has begun and does not end."""
    process = Forked(
        command(*arguments), bufsize=0,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(stdin)
        try:
            yield Started(process, process.stdin, process.stdout, process.stderr)
        finally:
            process.kill()


def invoke(*arguments: str | Path, stdin: bytes = b"", env: Mapping[str, str | None] | None = None) -> Done:
    """Run the command line in this process; an error inside is raised.

    A command has garbage collected rarely, which would hold the memory of all later tests.
    """
    words = ["mqttscope", *map(str, arguments)]
    thresholds = gc.get_threshold()
    changes: dict[str, str | None] = {**dict.fromkeys(UNSET), "MQTTSCOPE_TRACEBACK": "1", **(env or {})}
    with CliRunner().isolation(input=stdin, env=changes) as streams, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words)
        try:
            with pytest.raises(SystemExit) as leave:
                main()
        finally:
            gc.set_threshold(*thresholds)
        assert isinstance(leave.value.code, int)
        sys.stdout.flush()
        sys.stderr.flush()
        assert streams[1] is not None
        return Done(leave.value.code, streams[0].getvalue(), streams[1].getvalue().decode())


def inspected(*arguments: str | Path, stdin: bytes = b"") -> Done:
    """``inspect --format jsonl`` in this process, which must end well."""
    done = invoke("inspect", "--format", "jsonl", *arguments, stdin=stdin)
    assert done.code == 0
    # How a capture was taken is said, and is no fault.
    assert all("captured twice" in line or "one direction only" in line for line in done.err.splitlines()), done.err
    return done


def without(line: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """A JSON line without some keys."""
    return {name: value for name, value in line.items() if name not in names}


def decoded(raw: str, *arguments: str, code: int = 0) -> dict[str, Any]:
    """The one JSON line of ``decode`` for bytes in hexadecimal."""
    done = invoke("decode", raw, "--format", "jsonl", *arguments)
    assert (done.code, done.err) == (code, "")
    lines: Sequence[dict[str, Any]] = done.lines
    assert len(lines) == 1
    return lines[0]


def as_nobody(*more: str) -> list[str]:
    """What is put before a command to run it as another user; the test is skipped where that cannot be."""
    setpriv = tools.program("setpriv")
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    words = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", *more]
    python = [*words, sys.executable, "-c", "import mqttscope"]
    if subprocess.run(python, capture_output=True, env=environment(), check=False).returncode:
        pytest.skip("somebody else cannot read this checkout")
    return words


def interrupt(patch: pytest.MonkeyPatch, kind: Any, count: int) -> None:
    """Let Ctrl-C come when an object of a class has been fed that many events."""
    feed, fed = kind.feed, 0

    def interrupted(self: object, event: object) -> None:
        nonlocal fed
        fed += 1
        if fed > count:
            raise KeyboardInterrupt
        feed(self, event)

    patch.setattr(kind, "feed", interrupted)
