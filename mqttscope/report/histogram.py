"""Latencies in bounded memory: a histogram whose buckets grow by a constant factor.

Bucket ``i`` holds values above ``FACTOR ** (i - 1)`` up to ``FACTOR ** i`` nanoseconds and stands for the value that is
equally far, in proportion, from both ends.  Whatever the distribution, a percentile is at most
``(FACTOR - 1) / (FACTOR + 1)`` off, which is less than 1 %, besides the rounding to whole nanoseconds, and there
are no more than `MAX_BUCKETS` buckets.  (The scheme is DDSketch's, Masson, Rim and Lee, 2019.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, log

FACTOR = 1.02
MAX_VALUE_NS = 1 << 63
"""Longer ones, which no capture can hold, are counted as this long."""
_LOG_FACTOR = log(FACTOR)
MAX_BUCKETS = ceil(log(MAX_VALUE_NS) / _LOG_FACTOR) + 2
"""One of them for the value 0."""

_ZERO = -1


@dataclass(slots=True)
class Histogram:
    """Counts of values in nanoseconds; plain data."""

    count: int = 0
    minimum: int = 0
    """Exact, like ``maximum`` and ``total``."""
    maximum: int = 0
    total: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, value: int) -> None:
        """Count a value in nanoseconds.  Negative ones, from a capture whose clock was set back, count as 0."""
        if value <= 0:
            value, bucket = 0, _ZERO
        else:
            value = min(value, MAX_VALUE_NS)
            bucket = ceil(log(value) / _LOG_FACTOR)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        if value > self.maximum:
            self.maximum = value
        if value < self.minimum or not self.count:
            self.minimum = value
        self.count += 1
        self.total += value

    def merge(self, other: Histogram) -> None:
        """Add the values that another histogram counted."""
        if not other.count:
            return
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.minimum = min(self.minimum, other.minimum) if self.count else other.minimum
        self.maximum = max(self.maximum, other.maximum)
        self.count += other.count
        self.total += other.total

    def percentile(self, percent: float) -> int:
        """The smallest value that at least ``percent`` of all values do not exceed, at most 1 % off; 0 without values.

        The lowest and the highest value are exact.
        """
        rank = max(1, ceil(self.count * percent / 100))
        if rank >= self.count:
            return self.maximum
        if rank == 1:
            return self.minimum
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= rank:
                break
        if bucket == _ZERO:
            return 0
        value = round(2 * FACTOR**bucket / (FACTOR + 1))
        return max(self.minimum, min(self.maximum, value))
