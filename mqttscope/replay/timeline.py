"""When recorded steps are due: recorded time, perhaps faster, with long silences cut short."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class Timeline:
    """Recorded times to nanoseconds from the start of the replay.

    ``speed``: how many recorded seconds pass in one; ``None`` for as soon as possible.  ``max_gap_ns``: the longest
    silence, in recorded time, in which no connection takes a step; longer ones are cut to it.
    """

    times: Iterable[int]
    """Of all steps, in nanoseconds since 1970."""
    speed: float | None = 1.0
    max_gap_ns: int | None = None
    _starts: list[int] = field(default_factory=list)
    """From here on ..."""
    _cuts: list[int] = field(default_factory=list)
    """... so much is left out."""
    cut_ns: int = 0
    """How much of the recorded time is left out in all."""
    first_ns: int = 0
    last_ns: int = 0

    def __post_init__(self) -> None:
        times = sorted(self.times)
        self.times = ()
        if not times:
            return
        self.first_ns, self.last_ns = times[0], times[-1]
        self._starts, self._cuts = [times[0]], [0]
        if self.max_gap_ns is None:
            return
        for before, after in pairwise(times):
            if after - before > self.max_gap_ns:
                self.cut_ns += after - before - self.max_gap_ns
                self._starts.append(after)
                self._cuts.append(self.cut_ns)

    def due_ns(self, timestamp_ns: int) -> int:
        """When a step is due, counted from the start; 0 for what is as soon as possible."""
        if self.speed is None or not self._starts:
            return 0
        cut = self._cuts[max(0, bisect_right(self._starts, timestamp_ns) - 1)]
        return max(0, int((timestamp_ns - self.first_ns - cut) / self.speed))

    @property
    def length_ns(self) -> int:
        """How long a replay takes at least."""
        return self.due_ns(self.last_ns)
