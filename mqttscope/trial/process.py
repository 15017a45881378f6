"""The broker as a process: whether it lives, how much memory it has, and starting it again."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STOP_S = 5.0
"""How long a broker that is told to end may take."""


class StartError(Exception):
    """The broker could not be started; the text says why."""


@dataclass(slots=True)
class Process:
    """A broker of which the process is known: one that runs already, or one that is started here."""

    pid: int = 0
    command: str = ""
    """How to start it, as for a shell; empty for one that runs already."""
    starts: int = 0
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it, where it is ours to start and does not run; in a session of its own.

        What is typed at the terminal is for us: a broker that ended by Ctrl-C would look like one that has crashed.
        """
        if not self.command or self.alive():
            return
        words = shlex.split(self.command)
        try:
            self._child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise StartError(f"cannot start {words[0]}: {getattr(error, 'strerror', None) or error}") from None
        self.pid = self._child.pid
        self.starts += 1

    def alive(self) -> bool:
        """Whether it runs; a process that has ended and was not collected yet does not."""
        if self._child is not None:
            return self._child.poll() is None
        try:
            state = Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            return False
        return state not in (b"Z", b"X")

    @property
    def ending(self) -> str:
        """How a process that we started ended, for people; empty where that is not known."""
        code = None if self._child is None else self._child.poll()
        if code is None:
            return ""
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def memory(self) -> int:
        """Resident bytes; 0 where that is not known."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1]) * PAGE_BYTES
        except (OSError, IndexError, ValueError):
            return 0

    def stop(self, seconds: float = STOP_S) -> None:
        """End one that was started here, with all that it has started; at once when it does not end within so long."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        self._signal(child.pid, signal.SIGTERM)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._signal(child.pid, signal.SIGKILL)
            child.wait()

    @staticmethod
    def _signal(group: int, number: signal.Signals) -> None:
        """Its session is its process group as well: a shell in between would keep the signal for itself."""
        with suppress(ProcessLookupError):
            os.killpg(group, number)
