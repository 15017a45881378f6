"""Times of a capture whose clock was set.

Everything that measures a duration subtracts two times.  If the clock of the capture was set between them, the
difference says nothing.  So `dissect.clock_watch` takes each step out of all times that come after it, before anything
else reads them.  Such a time is a `CaptureTime`: a number that can be compared with all others and subtracted from
them, and that knows what the capture itself says.  Before the first step times are plain numbers, and cost nothing.

Whatever shows a time to people or programs shows `captured`: it has to be found in Wireshark.
"""

from __future__ import annotations

from typing import Final, TypeVar

T = TypeVar("T", int, int | None)
LAST_NS: Final = (1 << 63) - 1
"""Last time that 64 bits hold, in 2262; the first one is ``-LAST_NS - 1``.  Steps between absurd times of a damaged
capture may exceed both."""


class CaptureTime(int):
    """Nanoseconds since the Unix epoch as the clock of the capture would count them if nobody had set it."""

    captured_ns: int
    """The time that the capture has."""

    def __new__(cls, steady_ns: int, captured_ns: int) -> CaptureTime:
        """Make a time from what is measured with, as far as 64 bits hold it, and what is shown."""
        time = int.__new__(cls, max(-LAST_NS - 1, min(LAST_NS, steady_ns)))
        time.captured_ns = captured_ns
        return time

    def __reduce__(self) -> tuple[type[CaptureTime], tuple[int, int]]:
        """What makes the time again in another process."""
        return CaptureTime, (int(self), self.captured_ns)


def captured(timestamp_ns: T) -> T:
    """The time that the capture has."""
    return timestamp_ns.captured_ns if type(timestamp_ns) is CaptureTime else timestamp_ns


def shift_of(timestamp_ns: int) -> int:
    """How far the clock of the capture had been set forward in all when it showed this time."""
    return captured(timestamp_ns) - int(timestamp_ns)


def shifted(timestamp_ns: int, shift_ns: int) -> int:
    """A time that was computed, with what the capture would have shown; ``shift_ns`` is that of a time beside it."""
    return CaptureTime(timestamp_ns, timestamp_ns + shift_ns) if shift_ns else timestamp_ns
