"""Which recorded connection an incoming one plays, and which recorded packet of the client a packet of the device is.

PUBLISH by topic and payload, then by topic, then in order; SUBSCRIBE and UNSUBSCRIBE by their Topic Filters, then in
order; everything else in order.  What was found for a packet that only resembles it is given once more to one that is
the same: a message that the recording does not have takes nothing away from those that follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect
from mqttscope.replay.script import Entry, Script


def takers_over(script: Script, scripts: Iterable[Script]) -> list[Script]:
    """Recorded connections of the same client that were opened while this one was open (5.0 MQTT-3.1.4-3)."""
    name = script.connection.client_identifier
    return [
        one
        for one in scripts
        if name
        and one is not script
        and one.connection.client_identifier == name
        and script.opened_place < one.opened_place <= script.ended_place
        and one.opened_ns < script.ending.timestamp_ns
    ]


class Match(StrEnum):
    """By what a recorded connection is found."""

    AUTO = "auto"
    """By Client Identifier; for one that the recording does not have, in order."""
    CLIENT = "client"
    ORDER = "order"


@dataclass(slots=True)
class ConnectionMatcher:
    """Recorded connections, and which of them have been given away."""

    scripts: Sequence[Script]
    match: Match = Match.AUTO
    repeat: bool = False
    """Begin again with the connections of a client when all have been played."""
    _free: deque[Script] = field(default_factory=deque)
    _known: set[str | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._free.extend(self.scripts)
        self._known = {said_identifier(script) for script in self.scripts}

    @property
    def free(self) -> list[Script]:
        """Connections that nobody has played yet."""
        return list(self._free)

    def choose(self, first: ControlPacket | Malformed) -> Script | None:
        """The recorded connection for one that begins with this packet; ``None`` when there is none (left)."""
        name = identifier_of(first)
        if self.match is not Match.ORDER and name in self._known:
            found = self._of(name, first)
            if found is None and self.repeat:
                self._free.extend(one for one in self.scripts if said_identifier(one) == name)
                found = self._of(name, first)
            return self._take(found)
        if self.match is Match.CLIENT:
            return None
        if not self._free and self.repeat:
            self._free.extend(self.scripts)
        return self._take(self._free[0] if self._free else None)

    def _of(self, name: str | None, first: ControlPacket | Malformed) -> Script | None:
        """The next of a client; of those whose CONNECT cannot be read, the one with the same bytes."""
        mine = [one for one in self._free if said_identifier(one) == name]
        return next((one for one in mine if one.entries[0].raw == first.raw), None) if name is None else _first(mine)

    def _take(self, found: Script | None) -> Script | None:
        if found is not None:
            self._free.remove(found)
        return found


def _first(scripts: list[Script]) -> Script | None:
    return scripts[0] if scripts else None


def identifier_of(packet: ControlPacket | Malformed) -> str | None:
    """The Client Identifier in a CONNECT; ``None`` where it cannot be read."""
    if isinstance(packet, Malformed):
        inner = packet.packet
        return inner.client_identifier if isinstance(inner, Connect) else None
    return packet.client_identifier if isinstance(packet, Connect) else None


def said_identifier(script: Script) -> str | None:
    """The Client Identifier that a recorded client introduced itself with, which may be empty."""
    first = next((one for one in script.entries if one.from_client), None)
    return None if first is None else identifier_of(first.packet)


@dataclass(slots=True)
class Counterpart:
    """A recorded packet."""

    entry: Entry
    same: bool
    """Whether both say the same, as far as they are recognised by it."""
    alike: bool
    """Whether they are about the same: a message to the same topic, or the very same kind of request."""


@dataclass(slots=True)
class PacketMatcher:
    """The packets of a recorded client that have not come yet."""

    entries: Iterable[Entry]
    _same: dict[Hashable, deque[Entry]] = field(default_factory=dict)
    _alike: dict[Hashable, deque[Entry]] = field(default_factory=dict)
    _kinds: dict[type, deque[Entry]] = field(default_factory=dict)
    _taken: set[Entry] = field(default_factory=set)
    _lent: set[Entry] = field(default_factory=set)
    """Given to packets that only resemble them."""

    def __post_init__(self) -> None:
        for entry in self.entries:
            if entry.from_client:
                same, alike = _keys(entry.packet, entry.topic)
                self._same.setdefault(same, deque()).append(entry)
                self._alike.setdefault(alike, deque()).append(entry)
                self._kinds.setdefault(type(entry.packet), deque()).append(entry)

    def find(
        self, packet: ControlPacket | Malformed, topic: str | None, expected: Entry | None, *, in_order: bool = True
    ) -> Counterpart | None:
        """The recorded packet that this one is; ``None`` where the recording has none.

        ``topic``: of a PUBLISH, its alias resolved.  ``expected``: what the recorded client would send next; a packet
        that resembles nothing else is that one, if it is of its type and ``in_order`` allows it.
        """
        same, alike = _keys(packet, topic)
        found = self._next(self._same.get(same), lent=True)
        if found is not None:
            self._taken.add(found)
            return Counterpart(found, same=True, alike=True)
        found = self._next(self._alike.get(alike), lent=False)
        if found is not None:
            self._lent.add(found)
            return Counterpart(found, same=False, alike=True)
        if not in_order:
            return None
        if isinstance(packet, packets.Publish):
            # A match further on would be given to what has nothing to do with it.
            found = expected if expected is not None and isinstance(expected.packet, packets.Publish) else None
            if found in self._taken or found in self._lent:
                return None
        else:
            found = self._next(self._kinds.get(type(packet)), lent=False)
        if found is None:
            return None
        self._lent.add(found)
        return Counterpart(found, same=False, alike=False)

    def _next(self, candidates: deque[Entry] | None, *, lent: bool) -> Entry | None:
        """The first that is still there."""
        while candidates:
            found = candidates[0]
            if found not in self._taken and (lent or found not in self._lent):
                return found
            candidates.popleft()
        return None


def _keys(packet: ControlPacket | Malformed, topic: str | None) -> tuple[Hashable, Hashable]:
    """By what a packet is recognised as the same, and as one that is about the same."""
    kind = type(packet).__name__
    if isinstance(packet, packets.Publish):
        return (kind, topic, packet.payload), (kind, topic)
    if isinstance(packet, packets.Subscribe):
        filters = tuple(one.topic_filter for one in packet.subscriptions)
        return (kind, filters), (kind, frozenset(filters))
    if isinstance(packet, packets.Unsubscribe):
        return (kind, tuple(packet.topic_filters)), (kind, frozenset(packet.topic_filters))
    if isinstance(packet, Malformed):
        return (kind, packet.raw), (kind, packet.raw)
    return kind, kind
