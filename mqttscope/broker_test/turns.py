"""Long work in steps, with turns for timers, signals and connections in between."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


async def unhurried(steps: Generator[None, None, T]) -> T:
    """The outcome of work that pauses now and then."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)
