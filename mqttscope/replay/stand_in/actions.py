"""What a stand-in wants done, and how it is to behave."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mqttscope.replay.script import Entry

SECOND = 1_000_000_000


class Unexpected(StrEnum):
    """What becomes of what the recording does not have."""

    ANSWER = "answer"
    """It is answered as any conforming server might."""
    IGNORE = "ignore"
    """Nothing is said to it."""
    CLOSE = "close"
    """The connection is ended."""


@dataclass(slots=True)
class Manner:
    """How the recorded server is played."""

    speed: float | None = 1.0
    """Recorded seconds per second; ``None`` for as soon as possible."""
    unexpected: Unexpected = Unexpected.ANSWER
    patience_ns: int = 5 * SECOND
    """How much later than recorded a device may do what came before a delivery, until it is delivered without."""
    keep: bool = True
    """Keep the packets of the live connection, to compare them."""


@dataclass(slots=True)
class Send:
    """Send these bytes."""

    data: bytes
    entry: Entry
    """The packet as it is sent; its ``source`` is the recorded one."""


@dataclass(slots=True)
class Wait:
    """There is nothing to do before the device says something, or before this time."""

    until_ns: int | None = None
    place: int | None = None
    """What is next came at this place of the recording: it may be that others have to be waited for."""


@dataclass(slots=True)
class Close:
    """End the connection: ``fin`` in order, ``reset`` at once."""

    how: str
    why: str = ""
    """For people, where the recording does not end it."""


Action = Send | Wait | Close
