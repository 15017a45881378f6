"""What a client remembers between its connections: the client's part of the session (5.0 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

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
