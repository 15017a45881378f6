"""How far a run of ``mutate`` is: cases of how many, deviations, and how long the rest will take."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable

from mqttscope.mqtt.wire import counted

COUNTED_S = 0.002
"""Cases are counted while they are played, with so much time between two of them for the broker."""
SURE_AFTER = 5
"""Cases that are played before a time is told."""


class Progress:
    """A line on standard error; nothing where that is no terminal."""

    def __init__(self, limit: int | None = None, seconds: float | None = None) -> None:
        self.shown = sys.stderr is not None and sys.stderr.isatty()
        self.total: int | None = None
        """Cases in all, where that is known already."""
        self._limit = limit
        self._until = None if seconds is None else time.monotonic() + seconds
        self._began = time.monotonic()
        self._counting: asyncio.Task[None] | None = None

    def count(self, cases: Iterable[object]) -> None:
        """Count in the background; with a limit of time there is no number."""
        if self.shown and self._limit is not None:
            self.total = self._limit
        elif self.shown and self._until is None:
            self._counting = asyncio.create_task(self._count(cases))

    async def _count(self, cases: Iterable[object]) -> None:
        number = 0
        for number, _ in enumerate(cases, 1):  # noqa: B007
            await asyncio.sleep(COUNTED_S)
        self.total = number

    def tell(self, played: int, deviations: int) -> None:
        """After each case."""
        if self.shown:
            sys.stderr.write(f"\r{self.line(played, deviations)}\x1b[K")
            sys.stderr.flush()

    def reducing(self, tries: int) -> None:
        """While a case is reduced."""
        if self.shown:
            sys.stderr.write(f"\rreducing a case, {tries:,} tries\x1b[K")
            sys.stderr.flush()

    def end(self) -> None:
        """Leave no trace."""
        if self._counting is not None:
            self._counting.cancel()
        if self.shown:
            sys.stderr.write("\r\x1b[K")

    def line(self, played: int, deviations: int) -> str:
        """``12 of 2,447 cases, 1 deviation, about 25 min left``."""
        total = self.total
        done = f"{played:,} of {total:,} cases" if total is not None else f"{played:,} case{'' if played == 1 else 's'}"
        words = [done, counted(deviations, "deviation")]
        left = self._left(played)
        if left is not None:
            words.append(f"about {rough(left)} left")
        return ", ".join(words)

    def _left(self, played: int) -> float | None:
        now = time.monotonic()
        ends = [] if self._until is None else [self._until - now]
        if self.total is not None and played >= min(SURE_AFTER, self.total):
            ends.append((now - self._began) / max(1, played) * (self.total - played))
        return max(0.0, min(ends)) if ends else None


def rough(seconds: float) -> str:
    """``40 s``, ``25 min``, ``3 h 10 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
