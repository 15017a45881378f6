"""What a player wants done, and what it has to say about it.

What a client remembers between its connections: the client's part of the session (5.0 4.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from mqttscope.replay.script import Entry


@dataclass(slots=True)
class Unfinished:
    """A message of the client that the live server has not acknowledged in full."""

    entry: Entry
    """The PUBLISH as it was sent."""
    released: bool = False
    """Whether its PUBREC came, so that PUBREL is what has to be sent again."""


@dataclass(slots=True)
class Session:
    """One client at the live server."""

    unfinished: dict[int, Unfinished] = field(default_factory=dict)
    """By live packet identifier, in the order in which they were sent."""
    receiving: dict[int, Entry | None] = field(default_factory=dict)
    """QoS 2 messages of the server that it has not released, by live packet identifier, with the recorded delivery."""

    def forget(self, identifiers: Iterable[int]) -> None:
        """The server has no session: of the client's messages these are forgotten, and all of its own."""
        for identifier in identifiers:
            self.unfinished.pop(identifier, None)
        self.receiving.clear()

    def clear(self) -> None:
        """The session has ended, or the server has none."""
        self.unfinished.clear()
        self.receiving.clear()


@dataclass(slots=True)
class Sessions:
    """All clients of a replay."""

    known: dict[str, Session] = field(default_factory=dict)
    assigned: dict[str, str] = field(default_factory=dict)
    """Client Identifiers that the recorded server assigned, and what the live one assigned in their place."""

    def of(self, client_identifier: str) -> Session:
        """The session of a client; a new one for an empty identifier, which the server will replace."""
        if not client_identifier:
            return Session()
        return self.known.setdefault(client_identifier, Session())


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
