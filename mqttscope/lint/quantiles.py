"""How durations are spread: median and percentiles of any number of them in little memory."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Spread:
    """Durations in nanoseconds, counted in steps of an eighth of a power of two: at most 13 % off."""

    counts: dict[int, int] = field(default_factory=dict)
    """By step; there are at most a few hundred."""
    number: int = 0
    worst_ns: int = 0
    worst: int = 0
    """What the longest belongs to: a packet identifier, for example."""

    def add(self, duration_ns: int, owner: int = 0) -> None:
        """Count one duration; what is negative counts as none."""
        duration_ns = max(0, duration_ns)
        step = _step(duration_ns)
        self.counts[step] = self.counts.get(step, 0) + 1
        self.number += 1
        if duration_ns >= self.worst_ns:
            self.worst_ns, self.worst = duration_ns, owner

    def percentile(self, share: float) -> int:
        """The duration that this share of all stay below or reach; 0 when there are none."""
        left = share * self.number
        for step in sorted(self.counts):
            left -= self.counts[step]
            if left <= 0:
                return min(_end(step), self.worst_ns)
        return self.worst_ns


def _step(duration_ns: int) -> int:
    if duration_ns < 16:
        return duration_ns
    power = duration_ns.bit_length()
    return power << 3 | duration_ns >> (power - 4) & 7


def _end(step: int) -> int:
    """The longest duration of a step."""
    if step < 16:
        return step
    power, eighth = step >> 3, step & 7
    return ((8 + eighth + 1) << (power - 4)) - 1


def duration(nanoseconds: int) -> str:
    """A duration for people: ``40 ms``, ``4.2 s``, ``3 min 20 s``."""
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1_000:.3g} µs"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds / 1_000_000:.3g} ms"
    seconds = nanoseconds / 1_000_000_000
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def count(number: int, noun: str) -> str:
    """``1 message``, ``1,200 messages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
