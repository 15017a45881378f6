"""The part of captures that findings are wanted of: by a filter, by connections, by clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar

from mqttscope.events import ConnectionClosed, Event
from mqttscope.lint.quality import is_whole_packet
from mqttscope.mqtt.view import utf8

MAX_WAITING = 10_000
"""Findings that wait for the Client Identifier of their connection; further ones are left out, and counted."""

Found = TypeVar("Found")


@dataclass(slots=True)
class _Waiting(Generic[Found]):
    """What was found in a connection whose client is not known yet."""

    findings: list[Found] = field(default_factory=list)
    events: int = 0
    packets: int = 0
    captures: set[str] = field(default_factory=set)

    def add(self, event: Event, found: list[Found]) -> None:
        self.findings += found
        self.events += 1
        if is_whole_packet(event):
            self.packets += 1
            self.captures.add(event.capture)


@dataclass(slots=True)
class Selection(Generic[Found]):
    """The part of the captures that findings are wanted of; rules see all of it.  Plain data."""

    wanted: Any = None
    """A filter."""
    connections: tuple[int, ...] = ()
    clients: tuple[str, ...] = ()
    """Patterns of Client Identifiers."""
    most: int = 0
    """Findings that may wait, where that is not `MAX_WAITING`."""
    events: int = 0
    """Events that are in it."""
    packets: int = 0
    """Packets among them."""
    spoken: set[str] = field(default_factory=set)
    """Captures that hold them."""
    left_out: int = 0
    """Findings beyond `MAX_WAITING`."""
    _waiting: dict[int, _Waiting[Found]] = field(default_factory=dict)
    """By the number of the connection."""
    _count: int = 0

    def take(self, event: Event, found: list[Found]) -> list[Found]:
        """The findings that are in it, of an event, or of earlier ones whose client is known by now."""
        connection = getattr(event, "connection", None)
        if connection is None or (self.connections and connection.number not in self.connections):
            return []
        matches = self.wanted is None or self.wanted.matches(event)
        name, number = connection.client_identifier, connection.number
        if self.clients and not name and not isinstance(event, ConnectionClosed):
            if matches:
                room = (self.most or MAX_WAITING) - self._count
                self.left_out += max(0, len(found) - room)
                self._count += len(found[:room])
                self._waiting.setdefault(number, _Waiting()).add(event, found[:room])
            return []
        passed = self._waiting.pop(number, None) or _Waiting()
        self._count -= len(passed.findings)
        if self.clients and not any(fnmatchcase(name or "", one) for one in self.clients):
            return []
        if matches:
            passed.add(event, found)
        self.events += passed.events
        self.packets += passed.packets
        self.spoken |= passed.captures
        return passed.findings

    def missing(self, connections: int) -> str:
        """What to say where no packet is in it."""
        absent = [number for number in self.connections if number >= connections]
        if absent:
            last = "the only one is number 0" if connections == 1 else f"numbers go from 0 to {connections - 1}"
            return f"there is no connection {', '.join(map(str, absent))}: {last}"
        if self.clients and self.wanted is None:
            names = ", ".join(repr(utf8(one)) for one in self.clients)
            return f"no packet of {'a client' if len(self.clients) == 1 else 'clients'} {names}"
        return "no packet matches what was selected"
