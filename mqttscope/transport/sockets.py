"""What the kernel knows of a socket, where it tells: bytes under way, bytes unread; and how to close with a reset."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress

if sys.platform != "win32":
    import fcntl
    import termios

KEEPALIVE_IDLE_S = 60
KEEPALIVE_EVERY_S = 15
KEEPALIVE_PROBES = 4
"""A peer that vanished without a word is noticed after two minutes, as far as the system allows to set this."""

_ZERO = b"\0\0\0\0"


def under_way(descriptor: int) -> int:
    """Bytes that were given to the kernel and that the other side has not acknowledged; 0 where it does not tell."""
    return _asked(descriptor, "TIOCOUTQ") if sys.platform == "linux" else 0


def unread(descriptor: int) -> int:
    """Bytes that arrived and were not read yet; 0 where the kernel does not tell."""
    return _asked(descriptor, "FIONREAD")


def _asked(descriptor: int, name: str) -> int:
    if sys.platform == "win32" or descriptor < 0:
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, getattr(termios, name), _ZERO), sys.byteorder)
    except OSError:
        return 0


def prepare(transport: asyncio.BaseTransport) -> int:
    """Send small writes at once and watch for peers that vanish; returns the descriptor, -1 where there is none."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return -1
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
            ("TCP_KEEPINTVL", KEEPALIVE_EVERY_S),
            ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return int(sock.fileno())


def quick(transport: asyncio.BaseTransport) -> Callable[[], None] | None:
    """A call that makes the kernel acknowledge what comes next at once; ``None`` where it cannot be asked.

    A broker that leaves Nagle's algorithm on holds its next small packet back until the one before is acknowledged, and
    kernels take their time for that (40 ms on Linux).  The kernel forgets it by and by: call it for all that came.
    """
    sock = transport.get_extra_info("socket")
    option = getattr(socket, "TCP_QUICKACK", None)
    if sock is None or option is None:
        return None
    ask = sock.setsockopt

    def acknowledge() -> None:
        with suppress(OSError):
            ask(socket.IPPROTO_TCP, option, 1)

    return acknowledge


def reset(transport: asyncio.WriteTransport) -> None:
    """Close at once, so that the other side sees a reset."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
