"""Where captures say that frames were dropped: from there on rules are less sure of what they find in them.

A notice belongs to no flow, and whoever reads one flow alone does not come past it.  So its place is known before, and
each event is asked whether it comes out behind it.
"""

from __future__ import annotations

from typing import NamedTuple

from mqttscope.lake.scopes import AT_THE_END


class Drop(NamedTuple):
    """The first notice of a capture that frames were dropped."""

    file: int
    """Place of the capture in the order of reading, from 0."""
    frame: int
    """How many frames of the capture come before."""
    timestamp_ns: int | None = None
    """Time of the latest segment before it; ``None`` where there is none."""

    def is_before(self, place: tuple[int, int, int]) -> bool:
        """Whether it comes before an event with this place (`lake.scopes.Emitted.place`)."""
        now_ns, file, frame = place
        if now_ns >= AT_THE_END:
            return True
        if frame > 0:
            return (self.file, self.frame) < (file, frame)
        # A time-out comes out at the first segment of its time.
        return self.timestamp_ns is None or self.timestamp_ns < now_ns
