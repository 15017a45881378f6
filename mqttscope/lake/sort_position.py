"""Where an event has its place among those of other flows, for whoever reads one flow after the other.

A notice that frames were dropped belongs to no flow, and whoever reads one flow alone does not come past it.  So its
place is known before, and each event is asked whether it comes after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

AT_THE_END = (1 << 63) - 1
"""When flows that are still open end: after all segments, in the order in which they began."""

BEFORE_ALL = 1 << 62
"""Taken from the number of a frame where events come out before all segments of their time."""


@dataclass(slots=True)
class SortPosition:
    """The segment at which events come out, which need not be the one they belong to."""

    now_ns: int = 0
    file: int = 0
    frame: int = 0
    ends: tuple[int, ...] = ()
    """Times of the last segments of all captures, which are read one after the other in this order; empty where they
    are read together.  A time-out has its place in the capture that is read when its time has come."""
    read: int = 0
    """The capture of the last segment."""

    def set(self, now_ns: int, file: int, frame: int) -> None:
        """Continue with another one."""
        self.now_ns, self.file, self.frame = now_ns, file, frame

    def segment(self, now_ns: int, file: int, frame: int) -> None:
        """Continue with the segment that is read now."""
        self.set(now_ns, file, frame)
        self.read = file

    def time_out(self, due_ns: int, last_frame: int) -> None:
        """Continue with a time-out, which counts before the segments of its time; the earlier flow's comes first.

        ``last_frame``: the last one of the flow.
        """
        # A capture may end at the end of all times that there are.
        self.set(min(due_ns, AT_THE_END), self._capture_at(due_ns), last_frame - BEFORE_ALL)

    def place(self) -> tuple[int, int, int]:
        """The place of events that come out now: time, capture, frame."""
        return self.now_ns, self.file, self.frame

    def _capture_at(self, now_ns: int) -> int:
        count = len(self.ends)
        return next((file for file in range(self.read, count) if self.ends[file] >= now_ns), count)


class Drop(NamedTuple):
    """The first notice of a capture that frames were dropped."""

    file: int
    """Place of the capture in the order of reading, from 0."""
    frame: int
    """How many frames of the capture come before."""
    timestamp_ns: int | None = None
    """Time of the latest segment before it; ``None`` where there is none."""

    def is_before(self, place: tuple[int, int, int]) -> bool:
        """Whether it comes before an event with this place."""
        now_ns, file, frame = place
        if now_ns >= AT_THE_END:
            return True
        if frame > 0:
            return (self.file, self.frame) < (file, frame)
        # A time-out comes out at the first segment of its time.
        return self.timestamp_ns is None or self.timestamp_ns < now_ns
