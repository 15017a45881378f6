"""What a reader remembers of a capture that is not at its end, so that it can go on later, in another process too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Interface:
    """What an Interface Description Block says, and what was lost on the interface."""

    link_type: int
    snap_length: int
    multiplier: int
    divisor: int
    offset_ns: int
    received: int = 0
    """As told by Interface Statistics Blocks; counts up from the start of the capture, like ``dropped``."""
    dropped: int = 0
    dropped_between: int = 0
    """Sum of the drops that the packet blocks carry."""

    def time(self, ticks: int) -> int:
        """Nanoseconds since the epoch; what is finer than a nanosecond is cut off."""
        return ticks * self.multiplier // self.divisor + self.offset_ns


@dataclass(slots=True)
class Memory:
    """How far a capture was read, and what of it has a say in what follows.  Plain data.

    A reader that is given one begins where it says, and at the end of the bytes leaves in it where the next one begins:
    the end of the bytes is not the end of the capture then.
    """

    position: int = 0
    """Offset of the first record that was not read."""
    frames: int = 0
    """How many frames were read."""
    timestamp_ns: int = 0
    """Time of the last frame; in a pcap file left to whoever takes the frames."""
    link_types: list[int] = field(default_factory=list)
    """Link types that the frames had; left to whoever takes the frames."""
    beyond: int = 0
    """Frames with a time out of bounds."""
    damaged: bool = False
    """There is nothing to be read any more: the record at ``position`` contradicts itself."""
    order: str = "<"
    """Byte order of the section of a pcapng file."""
    interfaces: list[Interface] = field(default_factory=list)
    """Interfaces of that section."""

    def written(self) -> list[Any]:
        """As numbers, texts and lists, for JSON."""
        interfaces = [
            [one.link_type, one.snap_length, one.multiplier, one.divisor, one.offset_ns, one.received, one.dropped,
             one.dropped_between] for one in self.interfaces
        ]  # fmt: skip
        return [
            self.position, self.frames, self.timestamp_ns, list(self.link_types), self.beyond, self.damaged, self.order,
            interfaces,
        ]  # fmt: skip

    @classmethod
    def of(cls, values: Sequence[Any]) -> Memory:
        """What `written` wrote."""
        made = cls(*values[:7])
        made.interfaces = [Interface(*one) for one in values[7]]
        return made

    def copy(self) -> Memory:
        """Another one that says the same."""
        return Memory.of(self.written())
