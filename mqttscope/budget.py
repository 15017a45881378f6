"""A common limit for the unfinished bytes of all connections in memory.

Bytes are unfinished while they wait for others: segments after a gap, and the start of a packet.  Each buffer counts
its bytes here, and discards its latest bytes when the limit is exceeded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

UNFINISHED_BYTES: Final = 64 * 1024 * 1024
VARIABLE: Final = "MQTTSCOPE_UNFINISHED_BYTES"
"""Environment variable for another limit."""


def unfinished_bytes() -> int:
    """Limit of this process."""
    limit = os.environ.get(VARIABLE, "")
    return int(limit) if limit.isascii() and limit.isdigit() and int(limit) > 0 else UNFINISHED_BYTES


@dataclass(slots=True)
class Budget:
    """Number of unfinished bytes in memory, and their limit."""

    limit: int = field(default_factory=unfinished_bytes)
    used: int = 0

    def take(self, size: int) -> None:
        """Add bytes to the count, or remove them if negative."""
        self.used += size

    @property
    def is_exceeded(self) -> bool:
        """Whether a buffer has to discard its latest bytes."""
        return self.used > self.limit
