"""Asks the kernel about a socket: bytes in flight, bytes unread, and how much of what was written has arrived.

A `Delivery` follows what was written to one socket, and `Rounds` looks at all of them at intervals.  Rules take
acknowledgment numbers in a record as proof that a side had received what it ignores, so a record claims no more than
the kernel reports.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from mqttscope.system import bytes_under_way, bytes_unread

KEEPALIVE_IDLE_S = 60
KEEPALIVE_EVERY_S = 15
KEEPALIVE_PROBES = 4
"""A peer that vanished without a word is noticed after two minutes, as far as the system allows to set this."""


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


ACKNOWLEDGE_EVERY_S = 0.1
"""How often it is recorded what has arrived, where no data say it."""


class Delivery:
    """One socket: what was written to it, and how much of that its peer has certainly received.

    ``transport`` is that of the connection; with TLS nothing is known while anything is under way, because what the
    kernel counts there are not our bytes.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.written = 0
        """Bytes that were written to it."""
        self.plain = transport.get_extra_info("sslcontext") is None
        self._transport = transport
        self._descriptor = prepare(transport)
        self._unaware = False
        """What is read from it next may have been sent before `_ceiling` was passed."""
        self._ceiling = 0
        self._proven = 0

    def writing(self, length: int) -> None:
        """So many bytes are written to it now."""
        if not self._unaware and bytes_unread(self._descriptor):
            # It has said something already, which is read later than these bytes are sent.
            self._unaware, self._ceiling = True, self.written
        self.written += length

    def read(self) -> int:
        """Bytes were read from it: how far its peer had certainly received ours when it sent them."""
        known = self.known()
        self._unaware = self._unaware and bytes_unread(self._descriptor) > 0
        return known

    def known(self) -> int:
        """How far its peer had certainly received ours when it sent what is read from it next."""
        transport = self._transport
        if self._proven < self.written and not transport.is_closing():
            waiting = transport.get_write_buffer_size() + bytes_under_way(self._descriptor)
            if not waiting:
                self._proven = self.written
            elif self.plain:
                self._proven = max(self._proven, self.written - waiting)
        return min(self._proven, self._ceiling) if self._unaware else self._proven


class Acknowledging(Protocol):
    """Something with bytes under way."""

    def acknowledge(self) -> bool:
        """Record what has arrived meanwhile; returns whether something is still under way."""


class Rounds:
    """Asks those with bytes under way every `ACKNOWLEDGE_EVERY_S`, with one timer for all of them."""

    def __init__(self) -> None:
        self._dirty: set[Acknowledging] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def note(self, one: Acknowledging) -> None:
        """It has bytes under way."""
        self._dirty.add(one)
        self._arrange()

    def forget(self, one: Acknowledging) -> None:
        self._dirty.discard(one)

    def close(self) -> None:
        """Ask once more, and never again."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._ask()

    def _ask(self) -> None:
        self._timer = None
        dirty, self._dirty = self._dirty, set()
        self._dirty |= {one for one in dirty if one.acknowledge()}
        if self._dirty:
            self._arrange()

    def _arrange(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(ACKNOWLEDGE_EVERY_S, self._ask)
