"""The proxy inside a running event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self

from mqttscope.lint.finding import Finding
from mqttscope.proxy.service import Proxy, Seen


class AsyncProxy:
    """`Proxy` for programs with an event loop: an asynchronous context manager whose questions are awaited.

    The proxy has a thread and a loop of its own, so that it does not wait for the caller's.  The arguments are those of
    `Proxy`, and so are the errors.
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
        """Where clients connect: ``127.0.0.1:41234``; `InvalidStateError` before the start."""
        return self._proxy.address

    @property
    def port(self) -> int:
        """The port of it; `InvalidStateError` before the start."""
        return self._proxy.port

    @property
    def url(self) -> str:
        """Where clients connect, as a URL; `InvalidStateError` before the start."""
        return self._proxy.url

    @property
    def notes(self) -> list[str]:
        """What went wrong with connections and rules, in words."""
        return self._proxy.notes

    async def packets(self) -> list[Seen]:
        """What has passed, oldest first."""
        return await asyncio.to_thread(self._proxy.packets)

    async def findings(self) -> list[Finding]:
        """What the linter has found."""
        return await asyncio.to_thread(self._proxy.findings)

    async def failed(self) -> dict[str, str]:
        """As `Proxy.failed`."""
        return await asyncio.to_thread(self._proxy.failed)

    async def report(self, **counting: Any) -> str:
        """As `Proxy.report`."""
        return await asyncio.to_thread(self._proxy.report, **counting)

    async def assert_conformant(self, **counting: Any) -> None:
        """As `Proxy.assert_conformant`."""
        __tracebackhide__ = True
        await asyncio.to_thread(self._proxy.assert_conformant, **counting)

    async def write(self, path: str | Path) -> None:
        """Write what has passed so far as a pcapng file."""
        await asyncio.to_thread(self._proxy.write, path)

    async def close(self) -> None:
        """End the proxy and its connections; what it has seen stays."""
        await asyncio.to_thread(self._proxy.close)
