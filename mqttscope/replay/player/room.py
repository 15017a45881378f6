"""How much is kept of what a live broker sends beyond the recording: it may send without end."""

from __future__ import annotations

from dataclasses import dataclass

MAX_BEYOND_BYTES = 32 * 1024 * 1024
"""Kept of one live connection beyond what was recorded of it."""
MAX_BEYOND_BYTES_OF_ALL = 256 * 1024 * 1024
"""Kept of all live connections of a replay together."""
PACKET_BYTES = 512
"""What a packet takes beside its own bytes."""


@dataclass(slots=True)
class Room:
    """What may still be kept for all connections of a replay."""

    left: int = MAX_BEYOND_BYTES_OF_ALL

    def take(self, taken: int, raw: bytes) -> int:
        """Room for a packet of a connection that has taken so much; returns what it takes, 0 where there is none."""
        cost = len(raw) + PACKET_BYTES
        if cost > self.left or taken + cost > MAX_BEYOND_BYTES:
            return 0
        self.left -= cost
        return cost
