"""The broker as a process: whether it lives, how much memory it has, and starting it again.

Memory of the broker over a whole run: what grows too slowly to show in one case.

On which TCP ports a process of this host listens, as far as Linux tells it.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from mqttscope.errors import MqttscopeError

_LISTEN = "0A"
"""The state in /proc/net/tcp."""


def listening_ports(pid: int) -> frozenset[int] | None:
    """The TCP ports on which a process listens itself; ``None`` where that cannot be told.

    It cannot for processes of other users, in other network namespaces (containers), and without Linux's /proc.
    """
    own = Path(f"/proc/{pid}")
    try:
        if Path("/proc/self/ns/net").readlink() != (own / "ns/net").readlink():
            return None
        sockets = _listening()
        # Whoever may look into the folder may read its links; those that are gone by then do not listen.
        held = [one.readlink() for one in (own / "fd").iterdir() if one.is_symlink()]
    except OSError:
        return None
    return frozenset(sockets[str(one)] for one in held if str(one) in sockets)


def _listening() -> dict[str, int]:
    """The port of every socket that listens, by the name that it has among a process's descriptors."""
    found: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        table = Path(f"/proc/self/net/{name}")
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            columns = line.split()
            if columns[3] == _LISTEN:
                found[f"socket:[{columns[9]}]"] = int(columns[1].rpartition(":")[2], 16)
    return found


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STOP_S = 5.0
"""How long a broker that is told to end may take."""


class StartError(MqttscopeError):
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


MIN_SAMPLES = 100
"""Fewer say nothing of a trend."""
MIN_BYTES = 16 * 1024 * 1024
"""Growth that is told of."""
MAX_SAMPLES = 4_096
"""Beyond that every second one is forgotten."""
PARTS = 4
"""In each of so many parts of the run it has to grow: a heap that fills and a cache that warms up come to an end."""


class MemoryTrend:
    """Looks at the memory after each case.  It says what it saw, and accuses of nothing."""

    def __init__(self, process: Process | None) -> None:
        self.process = process
        self._pid = 0
        self._samples: list[int] = []
        self._looks = 0
        self._every = 1

    def looked(self) -> None:
        """A case is over."""
        process = self.process
        if process is None or not process.alive():
            return
        if process.pid != self._pid:
            # Another one: what was started again begins again.
            self._pid, self._samples, self._looks, self._every = process.pid, [], 0, 1
        self._looks += 1
        if self._looks % self._every == 0 and (resident := process.memory()):
            self.add(resident)

    def add(self, resident: int) -> None:
        """So many bytes were resident."""
        self._samples.append(resident)
        if len(self._samples) >= MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._every *= 2

    def told(self) -> str:
        """A sentence about memory that grew all the time, empty where it did not."""
        size = len(self._samples) // PARTS
        if size * PARTS < MIN_SAMPLES:
            return ""
        marks = [self._samples[place * size] for place in range(PARTS)] + [self._samples[-1]]
        grown = marks[-1] - marks[0]
        if grown < MIN_BYTES or any(last - first < grown / (2 * PARTS) for first, last in pairwise(marks)):
            return ""
        times = len(self._samples) * self._every
        return (
            f"the broker's memory grew all the time, by {grown >> 20:,} MiB while cases were played {times:,} times "
            f"({grown // times >> 10:,} KiB for each): no proof of a leak, but worth a look"
        )
