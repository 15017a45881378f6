"""Kernel state of a socket: bytes in flight, bytes unread, and how much of the written data has arrived.

`DeliveryTracker` tracks the bytes written to one socket, and `AcknowledgmentPoller` polls all tracked connections.
Rules take acknowledgment numbers in a record as proof that a side had received the bytes it ignores.  So a record
never claims more than the kernel reports.
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
"""A peer that vanished silently is noticed after two minutes, if the system allows these settings."""


def prepare(transport: asyncio.BaseTransport) -> int:
    """Disable Nagle's algorithm and enable keepalive; returns the descriptor, or -1 without a socket."""
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
    """A function that makes the kernel acknowledge the next bytes at once; ``None`` if that is not supported.

    A broker with Nagle's algorithm enabled holds its next small packet back until the previous one is acknowledged, and
    kernels delay acknowledgments (40 ms on Linux).  The kernel drops the setting after a while: call it on each read.
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
    """Close at once with a reset."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


ACKNOWLEDGE_EVERY_S = 0.1
"""Interval for recording acknowledgments that no data segment carries."""


class DeliveryTracker:
    """How much of the data written to one socket its peer has certainly received.

    With TLS on ``transport``, bytes count as received only when nothing is in flight, because the kernel counts
    encrypted bytes.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.written = 0
        """Bytes written to the socket."""
        self.plain = transport.get_extra_info("sslcontext") is None
        self._transport = transport
        self._descriptor = prepare(transport)
        self._unaware = False
        """The next bytes to be read may have been sent before the peer received more than `_ceiling` bytes."""
        self._ceiling = 0
        self._proven = 0

    def writing(self, length: int) -> None:
        """Note that ``length`` bytes are about to be written."""
        if not self._unaware and bytes_unread(self._descriptor):
            # The peer sent the unread bytes before it received these, so they do not acknowledge them.
            self._unaware, self._ceiling = True, self.written
        self.written += length

    def read(self) -> int:
        """Note a read; returns how many of our bytes the peer had certainly received when it sent the bytes read."""
        delivered = self.delivered()
        self._unaware = self._unaware and bytes_unread(self._descriptor) > 0
        return delivered

    def delivered(self) -> int:
        """How many of our bytes the peer had certainly received when it sent the next bytes to be read."""
        transport = self._transport
        if self._proven < self.written and not transport.is_closing():
            waiting = transport.get_write_buffer_size() + bytes_under_way(self._descriptor)
            if not waiting:
                self._proven = self.written
            elif self.plain:
                self._proven = max(self._proven, self.written - waiting)
        return min(self._proven, self._ceiling) if self._unaware else self._proven


class AcknowledgmentSource(Protocol):
    """A connection with bytes in flight."""

    def acknowledge(self) -> bool:
        """Record new acknowledgments; returns whether bytes are still in flight."""


class AcknowledgmentPoller:
    """Polls connections with bytes in flight every `ACKNOWLEDGE_EVERY_S`, with one shared timer."""

    def __init__(self) -> None:
        self._dirty: set[AcknowledgmentSource] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def note(self, source: AcknowledgmentSource) -> None:
        """Poll a connection that has bytes in flight."""
        self._dirty.add(source)
        self._arrange()

    def forget(self, source: AcknowledgmentSource) -> None:
        self._dirty.discard(source)

    def close(self) -> None:
        """Poll once more, then stop."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._ask()

    def _ask(self) -> None:
        self._timer = None
        dirty, self._dirty = self._dirty, set()
        self._dirty |= {source for source in dirty if source.acknowledge()}
        if self._dirty:
            self._arrange()

    def _arrange(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(ACKNOWLEDGE_EVERY_S, self._ask)
