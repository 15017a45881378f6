"""Settings of the browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mqttscope.browse.building import IndexFiller
from mqttscope.report.base import View


class WriteFrames(Protocol):
    """Writes the frames of packets to a pcapng file."""

    def __call__(self, packets: Sequence[int], path: str) -> int:
        """Write the frames of the packets with these numbers; returns the number of frames."""


@dataclass(slots=True)
class BrowserSettings:
    """Data to browse, and options of the screens."""

    title: str
    builder: IndexFiller
    view: View
    write_frames: WriteFrames | None = None
    """``None`` without frames to write."""
    no_frames: str = "frames cannot be written"
    """Reason why frames cannot be written."""
    live: bool = False
    wanted: str = ""
    """Initial filter."""
    connection: int | None = None
    size: int = 0
    """Number of bytes to read, or rows of a lake."""
    messages: list[str] = field(default_factory=list)
    """Messages shown at the start."""
    overview: bool = False
    """Whether the overview is shown first."""
    seconds: float | None = None
    """Time until the browser ends; ``None`` without limit."""
