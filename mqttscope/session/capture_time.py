"""Times of a capture with clock steps.

Every duration is the difference of two times.  If the clock of the capture was set between them, the difference is
wrong.  So `dissect.clock_watch` removes each step from all later times before they are used.  Such a time is a
`CaptureTime`: a number that can be compared with and subtracted from other times, and that also has the original time
of the capture.  Before the first step, times are plain numbers and cost nothing.

Everything that shows a time to people or programs shows `captured`: it must be found in Wireshark.
"""

from __future__ import annotations

from typing import Final, TypeVar

T = TypeVar("T", int, int | None)
LAST_NS: Final = (1 << 63) - 1
"""Latest time that fits into 64 bits, in 2262; the earliest is ``-LAST_NS - 1``.  Steps between absurd times of a
damaged capture may exceed both."""


class CaptureTime(int):
    """Nanoseconds since the Unix epoch as the clock of the capture would count them without any step."""

    captured_ns: int
    """The time in the capture."""

    def __new__(cls, steady_ns: int, captured_ns: int) -> CaptureTime:
        """Make a time from the corrected time, limited to 64 bits, and the time in the capture."""
        time = int.__new__(cls, max(-LAST_NS - 1, min(LAST_NS, steady_ns)))
        time.captured_ns = captured_ns
        return time

    def __reduce__(self) -> tuple[type[CaptureTime], tuple[int, int]]:
        """Constructor call for another process."""
        return CaptureTime, (int(self), self.captured_ns)


def captured(timestamp_ns: T) -> T:
    """The time in the capture."""
    return timestamp_ns.captured_ns if type(timestamp_ns) is CaptureTime else timestamp_ns


def shift_of(timestamp_ns: int) -> int:
    """Sum of all clock steps of the capture up to this time."""
    return captured(timestamp_ns) - int(timestamp_ns)


def shifted(timestamp_ns: int, shift_ns: int) -> int:
    """A computed time with the time that the capture would show; ``shift_ns`` is taken from a nearby time."""
    return CaptureTime(timestamp_ns, timestamp_ns + shift_ns) if shift_ns else timestamp_ns
