"""Drops while they happen: what the kernel counts on dumpcap's sockets.

dumpcap says at its end how many frames were dropped.  Whoever may look into the process (root, on Linux) can ask the
kernel before: this program takes a copy of dumpcap's packet sockets (``pidfd_getfd``) and reads their counters.
Reading sets them to zero, so that what was read here is missing in dumpcap's own sum, and both have to be added.

On the loopback interface a packet socket sees every frame twice, when it leaves and when it arrives, and libpcap throws
the leaving one away, after it took its place in the ring.  Whoever has a copy of the socket can tell the kernel not to
put it there (``PACKET_IGNORE_OUTGOING``).  A capture filter (``inbound and ...``) is no way to: libpcap 1.10 applies
the filter itself to the first block of frames, does not know there which way a frame goes, and loses them all.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

_PIDFD_GETFD = 438  # the same on every architecture
_SOL_PACKET, _STATISTICS, _IGNORE_OUTGOING = 263, 6, 23
_STATISTICS_BYTES = 12
_LOOPBACK = 772
"""What the kernel calls the kind of an interface that leads back (``ARPHRD_LOOPBACK``)."""


class DropCounter:
    """The packet sockets of a process; none where they cannot be had.

    Those of loopback get each frame once from now on.
    """

    def __init__(self, pid: int) -> None:
        self._sockets: list[socket.socket] = []
        with suppress(OSError, AttributeError, ValueError):
            self._sockets = _copies(pid)
        for one in self._sockets:
            # Linux before 4.20 does not know this; frames then count twice, as they do where there are no copies.
            with suppress(OSError):
                if one.getsockname()[3] == _LOOPBACK:
                    one.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)

    def __len__(self) -> int:
        return len(self._sockets)

    def read(self) -> tuple[int, int]:
        """Frames that came, and those of them that were dropped, since the last time."""
        received = dropped = 0
        for one in self._sockets:
            with suppress(OSError, struct.error):
                counts = struct.unpack_from("=II", one.getsockopt(_SOL_PACKET, _STATISTICS, _STATISTICS_BYTES))
                received += counts[0]
                dropped += counts[1]
        return received, dropped

    def close(self) -> None:
        """Give the sockets back: while somebody has one, the kernel keeps its frames."""
        for one in self._sockets:
            one.close()
        self._sockets = []


def _copies(pid: int) -> list[socket.socket]:
    table = Path("/proc/net/packet").read_text().splitlines()[1:]
    inodes = {f"socket:[{line.split()[-1]}]" for line in table if line.strip()}
    folder = f"/proc/{pid}/fd"
    numbers = [int(name) for name in os.listdir(folder) if os.readlink(f"{folder}/{name}") in inodes]
    call = ctypes.CDLL(None, use_errno=True).syscall
    process = os.pidfd_open(pid)
    try:
        found = [int(call(_PIDFD_GETFD, process, number, 0)) for number in numbers]
    finally:
        os.close(process)
    return [socket.socket(fileno=number) for number in found if number >= 0]
