"""Which recorded packet of the client a packet of the device is.

PUBLISH by topic and payload, then by topic, then in order; SUBSCRIBE and UNSUBSCRIBE by their Topic Filters, then in
order; everything else in order.  What was found for a packet that only resembles it is given once more to one that is
the same: a message that the recording does not have takes nothing away from those that follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.script import Entry


@dataclass(slots=True)
class Counterpart:
    """A recorded packet."""

    entry: Entry
    same: bool
    """Whether both say the same, as far as they are recognised by it."""
    alike: bool
    """Whether they are about the same: a message to the same topic, or the very same kind of request."""


@dataclass(slots=True)
class Counterparts:
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
            # Further behind it would be given to what has nothing to do with it.
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
