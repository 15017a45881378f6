"""What the server remembers of a client between its connections: the server's part of the session (5.0 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.mqtt.packets import Connect
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.topics import matches
from mqttscope.replay.live import Unfinished
from mqttscope.replay.script import Entry

MAX_SESSIONS = 100_000
"""Sessions that are remembered; of more, those without anything in them are forgotten first, then the oldest."""
MAX_SUBSCRIPTIONS = 10_000
"""Of one session; a device that asks for more is disconnected."""


@dataclass(slots=True)
class Subscribed:
    """A subscription of the device."""

    options: Subscription
    """As the device asked for it."""
    qos: int
    """Granted."""
    identifier: int | None = None
    """Subscription Identifier."""


@dataclass(slots=True)
class ServerSessionState:
    """One client."""

    subscriptions: dict[str, Subscribed] = field(default_factory=dict)
    """By Topic Filter."""
    unfinished: dict[int, Unfinished] = field(default_factory=dict)
    """By packet identifier, in the order in which they were sent."""
    arrived: dict[int, Entry] = field(default_factory=dict)
    """Messages of the device whose handshake is not complete, by packet identifier."""
    arrived_bytes: int = 0
    """How many bytes these have."""

    def arrive(self, identifier: int, entry: Entry) -> None:
        """Remember a message of the device."""
        self.complete(identifier)
        self.arrived[identifier] = entry
        self.arrived_bytes += len(entry.raw)

    def complete(self, identifier: int | None) -> None:
        """The handshake of a message is complete."""
        gone = None if identifier is None else self.arrived.pop(identifier, None)
        if gone is not None:
            self.arrived_bytes -= len(gone.raw)

    def clear(self) -> None:
        """The session has ended."""
        self.subscriptions.clear()
        self.unfinished.clear()
        self.arrived.clear()
        self.arrived_bytes = 0

    @property
    def empty(self) -> bool:
        """Whether nothing is remembered."""
        return not (self.subscriptions or self.unfinished or self.arrived)

    def covering(self, topic: str, *, shared: bool = True) -> Iterator[Subscribed]:
        """Subscriptions that a topic belongs to."""
        return (one for name, one in self.subscriptions.items() if matches(name, topic, shared=shared))


@dataclass(slots=True)
class ServerSessions:
    """All clients of a run."""

    known: dict[str, ServerSessionState] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    """Client Identifiers that were given to clients without one."""

    def of(self, client_identifier: str) -> ServerSessionState:
        """The session of a client; a new one where there is none."""
        found = self.known.get(client_identifier)
        if found is None:
            if len(self.known) >= MAX_SESSIONS:
                self._make_room()
            found = self.known[client_identifier] = ServerSessionState()
        return found

    def _make_room(self) -> None:
        self.known = {name: one for name, one in self.known.items() if not one.empty}
        for name in list(self.known)[: len(self.known) - MAX_SESSIONS // 2]:
            del self.known[name]

    def assign(self, wanted: str | None) -> str:
        """A Client Identifier that nobody has; the recorded one where that is free (5.0 3.1.3.1)."""
        base = wanted or "mqttscope"
        number, name = 1, base if wanted else f"{base}-1"
        while name in self.assigned or name in self.known:
            number += 1
            name = f"{base}-{number}"
        self.assigned.add(name)
        return name

    def resumed(self, connect: Connect) -> bool:
        """Whether a client asks for a session that there is."""
        found = self.known.get(connect.client_identifier)
        return not connect.clean_start and found is not None and not found.empty
