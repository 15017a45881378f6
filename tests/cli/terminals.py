"""Programs in a terminal of their own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cli.running import Word, command, environment

SECONDS = 60


class Terminal:
    """A program at work in a terminal."""

    def __init__(self, words: Sequence[Word], size: tuple[int, int], env: Mapping[str, str], cwd: Path | None) -> None:
        self.screen, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd,
            env=environment({"TERM": "xterm", **env}), preexec_fn=_own,
        )  # fmt: skip
        os.close(theirs)
        self._shown = b""

    @property
    def shown(self) -> str:
        """All that was written so far."""
        return self._shown.decode("utf-8", "replace").replace("\r\n", "\n")

    def press(self, keys: bytes) -> None:
        os.write(self.screen, keys)

    def until(self, text: str) -> None:
        """Wait until a text was shown."""
        assert self._read_until(text), self.shown

    def _read_until(self, text: str) -> bool:
        deadline = time.monotonic() + SECONDS
        while text not in self.shown and time.monotonic() < deadline:
            if not select.select([self.screen], [], [], 0.1)[0]:
                continue
            try:
                self._shown += os.read(self.screen, 1 << 16)
            except OSError:  # the program has closed it
                break
        return text in self.shown

    def ended(self) -> int:
        """Wait for the end; returns the exit code."""
        self._read_until("\0no such text")
        return self.process.wait(SECONDS)

    def mode(self) -> int:
        """Whether lines are edited and keys are echoed."""
        return int(termios.tcgetattr(self.screen)[3]) & (termios.ICANON | termios.ECHO)


def _own() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def in_terminal(
    words: Sequence[Word],
    *,
    size: tuple[int, int] = (24, 80),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[Terminal]:
    """A program in a terminal; it is ended with the test."""
    terminal = Terminal(words, size, env or {}, cwd)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.screen)


def on_terminal(
    *arguments: Word, env: Mapping[str, str] | None = None, size: tuple[int, int] = (40, 100), cwd: Path | None = None
) -> tuple[str, int]:
    """What mqttscope writes to a terminal, and its exit code."""
    with in_terminal(command(*arguments), size=size, env=env, cwd=cwd) as terminal:
        code = terminal.ended()
        return terminal.shown, code
