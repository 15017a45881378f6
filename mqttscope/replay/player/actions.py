"""What a player wants done, and what it has to say about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mqttscope.replay.script import Entry


class Until(StrEnum):
    """What a player waits for."""

    CONNACK = "CONNACK"
    AUTH = "AUTH of the server"
    RECEIVE_MAXIMUM = "room within the Receive Maximum"
    PACKET_IDENTIFIER = "a free packet identifier"
    CLOSE = "the end of the connection by the server"
    TAKEN = "the server to read what is sent"


@dataclass(slots=True)
class Send:
    """Send these bytes."""

    data: bytes
    entry: Entry
    """The packet as it is sent; its ``source`` is the recorded one."""


@dataclass(slots=True)
class Wait:
    """Nothing can be sent before this has happened."""

    until: Until


@dataclass(slots=True)
class Skip:
    """The step was not performed."""

    entry: Entry
    note: Note


@dataclass(slots=True)
class Close:
    """End the connection: ``fin`` in order, ``reset`` at once."""

    how: str


Action = Send | Wait | Skip | Close


class Kind(StrEnum):
    """Why a replay differs from the recorded bytes."""

    ADAPTED = "adapted"
    """A packet was changed to fit the live server."""
    SKIPPED = "skipped"
    """A recorded packet was not sent."""
    ADDED = "added"
    """A packet was sent that the recording does not have."""
    SESSION = "session"
    """The live session is another one than the recorded one."""
    ENDED = "ended"
    """The connection ended otherwise."""


@dataclass(slots=True, frozen=True)
class Note:
    """One kind of difference from the recorded bytes; reports count equal ones."""

    kind: Kind
    text: str
    """One sentence fragment: ``QoS lowered to the server's Maximum QoS``."""
