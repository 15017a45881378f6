"""A live MQTT peer at the other end of a link: cuts its bytes into packets, and takes turns with other peers.

A peer may send megabytes at once.  Parsing them would keep timers, signals and other connections waiting, so bytes
beyond one slice are held, and nothing more is read until they are parsed.  The end of the connection waits for them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqttscope.mqtt.stream import PacketStream

if TYPE_CHECKING:
    from mqttscope.transport.link import Link

MAX_SLICE_BYTES = 16 * 1024
"""Maximum number of bytes of a peer parsed before other connections, timers and signals get their turn."""


@dataclass(slots=True, eq=False, kw_only=True)
class LivePeer(ABC):
    """The listener of a link to a peer; subclasses process its packets."""

    link: Link | None = None
    """``None`` before the connection is made."""
    stream: PacketStream = field(default_factory=PacketStream)
    """Cuts the bytes into packets, and limits their length."""
    ended_by: str = ""
    """How the peer ended the connection: ``fin``, ``reset``, ``failed``; empty while it is open."""
    is_over: bool = False
    """Whether nothing more is processed."""
    unread: deque[bytes] = field(default_factory=deque)
    """Slices of received bytes that are not parsed yet; while there are any, nothing more is read."""
    _end: tuple[str, str] | None = None
    """How the peer ended the connection, while its last bytes are not parsed."""
    _is_reading: bool = True
    _is_woken: bool = False

    @abstractmethod
    def parse(self, data: bytes) -> None:
        """Process one slice of received bytes."""

    @property
    def has_room(self) -> bool:
        """Whether more may be read from the peer."""
        return True

    def received(self, data: bytes) -> None:
        """Parse received bytes, many of them in slices."""
        if not self.unread and len(data) <= MAX_SLICE_BYTES:
            self.parse(data)
            return
        if not self.unread:
            self.wait_for_turn()
        self.hold(data)
        self.listen()

    def ended(self, how: str, detail: str) -> None:
        """The peer ended the connection, or it broke; the bytes received before are parsed first."""
        if self.unread:
            self._end = how, detail
        else:
            self.on_end(how, detail)

    def on_end(self, how: str, detail: str) -> None:
        """Called after the last packet of the peer."""
        self.ended_by = how

    def hold(self, data: bytes) -> None:
        """Cut bytes into slices, to be parsed later."""
        self.unread.extend(data[at : at + MAX_SLICE_BYTES] for at in range(0, len(data), MAX_SLICE_BYTES))

    def listen(self) -> None:
        """Resume or pause reading."""
        on = not self.unread and self.has_room
        if self.link is not None and on is not self._is_reading:
            self._is_reading = on
            self.link.read(on)

    def wait_for_turn(self) -> None:
        """Arrange that `read_on` is called until it has parsed all bytes."""
        self.wake()

    def read_on(self) -> bool:
        """Parse one slice; returns whether there are more."""
        if self.unread:
            self.parse(self.unread.popleft())
            if not self.unread:
                self.listen()
                if self._end is not None:
                    self.on_end(*self._end)
        return bool(self.unread)

    def wake(self) -> None:
        """Call `pump` in the next turn of the event loop."""
        if not self._is_woken and not self.is_over:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self.pump)

    def pump(self) -> None:
        """Do what can be done now, for one turn."""
        self._is_woken = False
        if self.read_on():
            self.wake()
