"""What comes in on a link, and waiting for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import PacketStream


class Inbox:
    """Listener of a link that gathers packets; subclasses say what is to be done with them."""

    def __init__(self, version: ProtocolVersion) -> None:
        self.stream = PacketStream()
        self.stream.version = version
        self.packets: list[ControlPacket | Malformed] = []
        self.how = ""
        """How the other side ended: ``fin``, ``reset``, ``failed``; empty while it has not."""
        self.bytes = 0
        self._changed = asyncio.Event()

    def received(self, data: bytes) -> None:
        """Bytes came."""
        self.bytes += len(data)
        for item in self.stream.feed(data):
            if isinstance(item, ControlPacket | Malformed):
                self.packets.append(item)
                self.took(item)
        self._changed.set()

    def took(self, packet: ControlPacket | Malformed) -> None:
        """A packet came."""

    def ended(self, how: str, detail: str) -> None:
        """The other side has ended."""
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
            if self.how or self.bytes == before or time.monotonic() > deadline:
                return False

    async def until_ended(self, seconds: float) -> bool:
        """Wait until the other side has ended."""
        await self.until(lambda: False, seconds)
        return bool(self.how)
