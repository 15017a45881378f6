"""One limit for all that is unfinished and kept in memory, over all connections together.

Bytes are unfinished while they wait for others: segments after a hole, and the beginning of a packet.  Whoever keeps
them counts them here, and gives up what came last if there are too many.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

UNFINISHED_BYTES: Final = 64 * 1024 * 1024
VARIABLE: Final = "MQTTSCOPE_UNFINISHED_BYTES"
"""The environment variable that sets another limit."""


def unfinished_bytes() -> int:
    """The limit of this process."""
    given = os.environ.get(VARIABLE, "")
    return int(given) if given.isascii() and given.isdigit() and int(given) > 0 else UNFINISHED_BYTES


@dataclass(slots=True)
class Budget:
    """Bytes that are kept, and how many may be."""

    limit: int = field(default_factory=unfinished_bytes)
    used: int = 0
    most: int = 0
    """The most that was ever used, since a reader reset it."""

    def take(self, size: int) -> None:
        """Count bytes that are kept from now on, or, if negative, no more."""
        self.used += size
        self.most = max(self.most, self.used)

    @property
    def is_exceeded(self) -> bool:
        """Whether somebody has to give up what came last."""
        return self.used > self.limit
