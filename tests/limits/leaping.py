"""An event loop whose clock leaps to the next timer when nothing is left to do, so that time-outs take no time."""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

P = ParamSpec("P")
T = TypeVar("T")
DELIVERY_S = 0.000_5
"""Real time that the system has to deliver what was sent on loopback, before the clock leaps."""


class _Selector(selectors.DefaultSelector):
    """Lets the clock leap in place of waiting."""

    loop: Leaping

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        ready = super().select(timeout if timeout is None else DELIVERY_S)
        if not ready and timeout is not None:
            self.loop.seconds += timeout
        return ready


class Leaping(asyncio.SelectorEventLoop):
    """Its time counts from 0."""

    def __init__(self) -> None:
        self.seconds = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.seconds

    async def getaddrinfo(self, host: Any, port: Any, **more: Any) -> Any:
        """Without a thread, for which the clock would not wait."""
        return socket.getaddrinfo(host, port, **more)


def leaping(scene: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Run a coroutine function in such a loop, with its clock as that of the process."""

    @wraps(scene)
    def run(*words: P.args, **more: P.kwargs) -> T:
        loop = Leaping()
        ns = patch("time.monotonic_ns", lambda: int(loop.seconds * 1e9))
        with patch("time.monotonic", loop.time), ns, asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(ended(scene(*words, **more)))

    return run


async def ended(scene: Coroutine[Any, Any, T]) -> T:
    """The result of a scene, once its connections are closed."""
    result = await scene
    await asyncio.sleep(1)
    return result


def now() -> float:
    """Seconds since the scene began, without the rounding of their sum."""
    return round(asyncio.get_running_loop().time(), 6)
