"""How far what was written to a socket has certainly arrived, and when that is looked at.

Rules take acknowledgment numbers in a record as proof that a side had received what it ignores, so a record says no
more than the kernel does.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from mqttscope.transport import sockets

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
        self._descriptor = sockets.prepare(transport)
        self._unaware = False
        """What is read from it next may have been sent before `_ceiling` was passed."""
        self._ceiling = 0
        self._proven = 0

    def writing(self, length: int) -> None:
        """So many bytes are written to it now."""
        if not self._unaware and sockets.unread(self._descriptor):
            # It has said something already, which is read later than these bytes are sent.
            self._unaware, self._ceiling = True, self.written
        self.written += length

    def read(self) -> int:
        """Bytes were read from it: how far its peer had certainly received ours when it sent them."""
        known = self.known()
        self._unaware = self._unaware and sockets.unread(self._descriptor) > 0
        return known

    def known(self) -> int:
        """How far its peer had certainly received ours when it sent what is read from it next."""
        transport = self._transport
        if self._proven < self.written and not transport.is_closing():
            waiting = transport.get_write_buffer_size() + sockets.under_way(self._descriptor)
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
        """It is gone."""
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
