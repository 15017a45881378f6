"""Memory of the broker over a whole run: what grows too slowly to show in one case."""

from __future__ import annotations

from itertools import pairwise

from mqttscope.trial.process import Process

MIN_SAMPLES = 100
"""Fewer say nothing of a trend."""
MIN_BYTES = 16 * 1024 * 1024
"""Growth that is told of."""
MAX_SAMPLES = 4_096
"""Beyond that every second one is forgotten."""
PARTS = 4
"""In each of so many parts of the run it has to grow: a heap that fills and a cache that warms up come to an end."""


class Growth:
    """Looks at the memory behind each case.  It says what it saw, and accuses of nothing."""

    def __init__(self, process: Process | None) -> None:
        self.process = process
        self._pid = 0
        self._samples: list[int] = []
        self._looks = 0
        self._every = 1

    def looked(self) -> None:
        """A case is over."""
        process = self.process
        if process is None or not process.alive():
            return
        if process.pid != self._pid:
            # Another one: what was started again begins anew.
            self._pid, self._samples, self._looks, self._every = process.pid, [], 0, 1
        self._looks += 1
        if self._looks % self._every == 0 and (resident := process.memory()):
            self.add(resident)

    def add(self, resident: int) -> None:
        """So many bytes were resident."""
        self._samples.append(resident)
        if len(self._samples) >= MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._every *= 2

    def told(self) -> str:
        """A sentence about memory that grew all the time, empty where it did not."""
        size = len(self._samples) // PARTS
        if size * PARTS < MIN_SAMPLES:
            return ""
        marks = [self._samples[place * size] for place in range(PARTS)] + [self._samples[-1]]
        grown = marks[-1] - marks[0]
        if grown < MIN_BYTES or any(last - first < grown / (2 * PARTS) for first, last in pairwise(marks)):
            return ""
        times = len(self._samples) * self._every
        return (
            f"the broker's memory grew all the time, by {grown >> 20:,} MiB while cases were played {times:,} times "
            f"({grown // times >> 10:,} KiB for each): no proof of a leak, but worth a look"
        )
