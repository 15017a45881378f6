"""The recording as the server that is played reads it: whom a device plays, what its packets are, what is said to them.

`ConnectionMatcher` gives each device that connects a recorded connection.  `ServerScript` knows what that one says of
its server: what it answered to what, what it said by itself, and when.  `PacketMatcher` finds the recorded packet that
a packet of the device is: PUBLISH by topic and payload, then by topic, then in order; SUBSCRIBE and UNSUBSCRIBE by
their Topic Filters, then in order; everything else in order.  What was found for a packet that only resembles it is
given once more to one that is the same: a message that the recording does not have takes nothing away from those that
follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.script import Entry, Script

_IDLE = (packets.Acknowledgement, packets.Pingreq, packets.Disconnect)
"""What the device sends when it pleases, or because of what the server said: nothing waits for it."""
_ANSWERS = (packets.Suback, packets.Unsuback, packets.Pingresp, packets.Acknowledgement)
LATER = 1 << 62
"""A place after all others."""


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


@dataclass(slots=True)
class ConnectionMatcher:
    """Recorded connections, and which of them have been given away.

    A device gets the next one of its Client Identifier; with an identifier that the recording does not have, the next
    of all.
    """

    scripts: Sequence[Script]
    repeat: bool = False
    """Begin again with the connections of a client when all have been played."""
    _free: deque[Script] = field(default_factory=deque)
    _known: set[str | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._free.extend(self.scripts)
        self._known = {said_identifier(script) for script in self.scripts}

    @property
    def free(self) -> list[Script]:
        return list(self._free)

    def choose(self, first: ControlPacket | Malformed) -> Script | None:
        """The recorded connection for one that begins with this packet; ``None`` when there is none (left)."""
        name = identifier_of(first)
        if name in self._known:
            found = self._of(name, first)
            if found is None and self.repeat:
                self._free.extend(one for one in self.scripts if said_identifier(one) == name)
                found = self._of(name, first)
            return self._take(found)
        if not self._free and self.repeat:
            self._free.extend(self.scripts)
        return self._take(self._free[0] if self._free else None)

    def _of(self, name: str | None, first: ControlPacket | Malformed) -> Script | None:
        """The next of a client; of those whose CONNECT cannot be read, the one with the same bytes."""
        mine = (one for one in self._free if said_identifier(one) == name)
        return next((one for one in mine if name is not None or one.entries[0].raw == first.raw), None)

    def _take(self, found: Script | None) -> Script | None:
        if found is not None:
            self._free.remove(found)
        return found


def identifier_of(packet: ControlPacket | Malformed) -> str | None:
    """The Client Identifier in a CONNECT; ``None`` where it cannot be read."""
    inner = packet.packet if isinstance(packet, Malformed) else packet
    return inner.client_identifier if isinstance(inner, packets.Connect) else None


def said_identifier(script: Script) -> str | None:
    """The Client Identifier that a recorded client introduced itself with, which may be empty."""
    first = next((one for one in script.entries if one.from_client), None)
    return None if first is None else identifier_of(first.packet)


@dataclass(slots=True)
class ServerScript:
    """One script as its server goes by it."""

    script: Script
    answers: dict[Entry, list[Entry]] = field(default_factory=dict)
    """Of both sides, by the packet that they answer; to CONNECT and AUTH also those that carry no identifier."""
    steps: deque[Entry] = field(default_factory=deque)
    """What the server said without being asked: deliveries, DISCONNECT."""
    needed: list[Entry] = field(default_factory=list)
    """Packets of the client that the steps after them wait for."""
    done: set[Entry] = field(default_factory=set)
    """Those that the device has sent, or that nobody waits for any more."""
    own: set[Entry] = field(default_factory=set)
    """All packets of the client."""
    at: dict[Entry, int] = field(default_factory=dict)
    """Where each packet stands in the script."""
    _first: int = 0
    """All of ``needed`` before are done."""

    def __post_init__(self) -> None:
        asked: Entry | None = None
        for index, entry in enumerate(self.script.entries):
            packet, self.at[entry] = entry.packet, index
            if entry.from_client:
                self.own.add(entry)
                if not isinstance(packet, _IDLE):
                    self.needed.append(entry)
                damaged = asked is None and packet.packet_type == packets.Connect.packet_type
                if damaged or isinstance(packet, packets.Connect | packets.Auth):
                    asked = entry
            elif asked is not None and isinstance(packet, packets.Connack | packets.Auth):
                self.answers.setdefault(asked, []).append(entry)
                continue
            elif not isinstance(packet, _ANSWERS):
                self.steps.append(entry)
            if entry.answers is not None:
                self.answers.setdefault(entry.answers, []).append(entry)

    @property
    def frontier(self) -> int:
        """Place of the first packet that the device has not sent yet."""
        while self._first < len(self.needed) and self.needed[self._first] in self.done:
            self._first += 1
        return self.needed[self._first].place if self._first < len(self.needed) else LATER

    @property
    def next_needed(self) -> Entry | None:
        return self.needed[self._first] if self.frontier < LATER else None

    def give_up(self, place: int) -> list[Entry]:
        """Wait no longer for what came before a place; returns what it is."""
        late = [one for one in self.needed[self._first :] if one.place < place and one not in self.done]
        self.done.update(late)
        return late

    def answered(self, request: Entry, kinds: type[ControlPacket] | tuple[type[ControlPacket], ...]) -> Entry | None:
        found = self.answers.get(request, ())
        return next((one for one in found if not one.from_client and isinstance(one.packet, kinds)), None)

    def silent_to(self, request: Entry, kinds: type[ControlPacket] | tuple[type[ControlPacket], ...]) -> bool:
        """Whether the recorded server left a packet without an answer on purpose.

        It did when it said something later, or ended the connection itself; else the capture or the client may have
        ended before the answer.
        """
        script = self.script
        if script.lost or self.answered(request, kinds) is not None:
            return False
        later = any(not one.from_client and one.place > request.place for one in reversed(script.entries))
        return later or self.ends

    @property
    def ends(self) -> bool:
        """Whether the server ended the connection, and not because the client had said that it leaves."""
        script = self.script
        if script.ending.by != "server" or script.ending.how not in ("fin", "reset"):
            return False
        if script.first(packets.Disconnect, from_client=True) is not None:
            return False
        connack = script.connack
        return connack is None or not isinstance(connack.packet, packets.Connack) or not connack.packet.reason_code

    @property
    def ending_next(self) -> bool:
        """Whether the next that the server says by itself is the end of the connection."""
        return self.ends and (not self.steps or isinstance(self.steps[0].packet, packets.Disconnect))

    @property
    def silence_ns(self) -> int:
        """For how long the client had said nothing when the server ended a connection for its Keep Alive; else 0."""
        script, keep_alive = self.script, self.script.connection.keep_alive or 0
        last = next((one.timestamp_ns for one in reversed(script.entries) if one.from_client), script.opened_ns)
        silence = script.ending.timestamp_ns - last
        return silence if self.ends and 0 < keep_alive * 1_000_000_000 <= silence else 0


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

    def find(self, packet: ControlPacket | Malformed, topic: str | None, expected: Entry | None) -> Counterpart | None:
        """The recorded packet that this one is; ``None`` where the recording has none.

        ``topic``: of a PUBLISH, its alias resolved.  ``expected``: what the recorded client would send next; a packet
        that resembles nothing else is that one, if it is of its type.
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
