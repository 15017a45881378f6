"""What comes in on a link, and waiting for it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import PacketStream
from mqttscope.transport.link import Link

MAX_RECEIVED_BYTES = 16 * 1024 * 1024
"""A broker that sends more than this on one connection is not listened to any longer."""
MAX_RECEIVED_PACKETS = 140_000
"""The same in packets: the longest cases have 65,535 exchanges."""
MAX_SLICE_BYTES = 8 * 1024
"""So much is looked at before timers, signals and other connections get their turn."""


class Inbox:
    """Listener of a link that gathers packets; subclasses say what is to be done with them."""

    def __init__(self, version: ProtocolVersion) -> None:
        self.stream = PacketStream()
        self.stream.version = version
        self.stream.max_packet_bytes = MAX_RECEIVED_BYTES
        self.packets: list[ControlPacket | Malformed] = []
        self.link: Link | None = None
        self.how = ""
        """How the other side ended: ``fin``, ``reset``, ``failed``; empty while it has not."""
        self.bytes = 0
        self.count = 0
        """Packets."""
        self.most = MAX_RECEIVED_PACKETS
        """Packets that are listened to."""
        self.flooded = False
        """More came than is listened to."""
        self._changed = asyncio.Event()
        self._deaf = False
        self._unread: deque[bytes] = deque()
        self._end = ""

    def received(self, data: bytes) -> None:
        """Bytes came."""
        if self.flooded or self._deaf:
            return
        self.bytes += len(data)
        if self.link is None or (not self._unread and len(data) <= MAX_SLICE_BYTES):
            self._look_at(data)
            return
        if not self._unread:
            self.link.read(False)
            asyncio.get_running_loop().call_soon(self._read_on)
        self._unread.extend(data[at : at + MAX_SLICE_BYTES] for at in range(0, len(data), MAX_SLICE_BYTES))

    def _read_on(self) -> None:
        """Look at a part of what has come; the rest gets its turn later."""
        if not self._unread:
            return
        self._look_at(self._unread.popleft())
        if self._unread:
            asyncio.get_running_loop().call_soon(self._read_on)
            return
        if self.link is not None and not self._deaf and not self.flooded:
            self.link.read(True)
        if self._end:
            self.ended(self._end, "")

    def _look_at(self, data: bytes) -> None:
        for item in self.stream.feed(data):
            if isinstance(item, ControlPacket | Malformed):
                self.count += 1
                self.packets.append(item)
                self.took(item)
        self._changed.set()
        if not self.flooded and (self.bytes > MAX_RECEIVED_BYTES or self.count > self.most):
            self.flooded = True
            self._unread.clear()
            self.drowned()

    def drowned(self) -> None:
        """More came than is listened to: nothing more is read."""
        if self.link is not None:
            self.link.read(False)

    def stop_reading(self) -> None:
        """Read nothing any more."""
        self._deaf = True
        if self.link is not None:
            self.link.read(False)

    def took(self, packet: ControlPacket | Malformed) -> None:
        """A packet came."""

    def ended(self, how: str, detail: str) -> None:
        """The other side has ended."""
        if self._unread:
            # First what it said before.
            self._end = how
            return
        self.how = how
        self._changed.set()

    def writable(self, on: bool) -> None:
        """Nothing here sends so much that it would have to wait."""

    async def until(self, happened: Callable[[], object], seconds: float) -> bool:
        """Wait until something is true, the other side ends, or the time is over; whether it is true."""
        deadline = time.monotonic() + seconds
        while not happened():
            left = deadline - time.monotonic()
            if self.how or left <= 0:
                return False
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return bool(happened())
        return True

    async def until_quiet(self, happened: Callable[[], object], seconds: float, longest_s: float) -> bool:
        """As `until`, but for who still sends: until nothing comes for ``seconds``, or ``longest_s`` passed."""
        deadline = time.monotonic() + longest_s
        while True:
            before = self.bytes
            if await self.until(happened, seconds):
                return True
            if self.how or self.bytes == before or self.flooded or time.monotonic() > deadline:
                return False

    async def until_ended(self, seconds: float) -> bool:
        """Wait until the other side has ended."""
        await self.until(lambda: False, seconds)
        return bool(self.how)
