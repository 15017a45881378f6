"""The proxy inside a running event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self

from mqttscope.lint.finding import Finding
from mqttscope.proxy.service import Proxy, Seen


class AsyncProxy:
    """`Proxy` for programs with an event loop: an asynchronous context manager with asynchronous methods.

    The proxy runs its own loop in a separate thread, so the caller's loop cannot block it.  Arguments and errors are
    described at `Proxy`.
    """

    def __init__(self, upstream: str, listen: str = "127.0.0.1:0", **options: Any) -> None:
        self._proxy = Proxy(upstream, listen, **options)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._proxy.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """Address for clients: ``127.0.0.1:41234``; `InvalidStateError` before the start."""
        return self._proxy.address

    @property
    def port(self) -> int:
        """Port for clients; `InvalidStateError` before the start."""
        return self._proxy.port

    @property
    def url(self) -> str:
        """URL for clients; `InvalidStateError` before the start."""
        return self._proxy.url

    @property
    def notes(self) -> list[str]:
        """Problems with connections and rules, as sentences."""
        return self._proxy.notes

    async def packets(self) -> list[Seen]:
        """Packets that have passed, oldest first."""
        return await asyncio.to_thread(self._proxy.packets)

    async def findings(self) -> list[Finding]:
        """Findings of the linter up to now."""
        return await asyncio.to_thread(self._proxy.findings)

    async def failed(self) -> dict[str, str]:
        """Like `Proxy.failed`."""
        return await asyncio.to_thread(self._proxy.failed)

    async def report(self, **counting: Any) -> str:
        """Like `Proxy.report`."""
        return await asyncio.to_thread(self._proxy.report, **counting)

    async def assert_conformant(self, **counting: Any) -> None:
        """Like `Proxy.assert_conformant`."""
        __tracebackhide__ = True
        await asyncio.to_thread(self._proxy.assert_conformant, **counting)

    async def write(self, path: str | Path) -> None:
        """Write the traffic up to now as a pcapng file."""
        await asyncio.to_thread(self._proxy.write, path)

    async def close(self) -> None:
        """End the proxy and its connections; packets and findings stay available."""
        await asyncio.to_thread(self._proxy.close)
