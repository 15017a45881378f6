"""Which recorded connection an incoming one plays.

What the server remembers of a client between its connections: the server's part of the session (5.0 4.1).

What one recorded connection says of its server: what it answered to what, and what it said by itself, and when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.topics import matches
from mqttscope.replay.script import Entry, Script

ACKNOWLEDGEMENTS = (packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp)
_IDLE = (*ACKNOWLEDGEMENTS, packets.Pingreq, packets.Disconnect)
"""What the device sends when it pleases, or because of what the server said: nothing waits for it."""
_ANSWERS = (packets.Suback, packets.Unsuback, packets.Pingresp, *ACKNOWLEDGEMENTS)
_OVER = 1 << 62


@dataclass(slots=True)
class Part:
    """The server's part of a script."""

    script: Script
    answers: dict[Entry, list[Entry]] = field(default_factory=dict)
    """Of both sides, by the packet that they answer; to CONNECT and AUTH also those that carry no identifier."""
    steps: deque[Entry] = field(default_factory=deque)
    """What the server said without being asked: deliveries, DISCONNECT."""
    needed: list[Entry] = field(default_factory=list)
    """Packets of the client that the steps behind them wait for."""
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
                if isinstance(packet, packets.Connect | packets.Auth) or (asked is None and _is_connect(packet)):
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
        return self.needed[self._first].place if self._first < len(self.needed) else _OVER

    @property
    def next_needed(self) -> Entry | None:
        """The same as a packet."""
        return self.needed[self._first] if self.frontier < _OVER else None

    def give_up(self, place: int) -> list[Entry]:
        """Wait no longer for what came before a place; returns what it is."""
        late = [one for one in self.needed[self._first :] if one.place < place and one not in self.done]
        self.done.update(late)
        return late

    def answered(self, request: Entry, kinds: type[ControlPacket] | tuple[type[ControlPacket], ...]) -> Entry | None:
        """The server's recorded answer of a type."""
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
        if any(one.from_client and isinstance(one.packet, packets.Disconnect) for one in script.entries):
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


def _is_connect(packet: ControlPacket | Malformed) -> bool:
    return isinstance(packet, Malformed) and packet.packet_type == packets.Connect.packet_type


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
class Unfinished:
    """A delivery that the device has not acknowledged in full."""

    entry: Entry
    """The PUBLISH as it was sent."""
    released: bool = False
    """Whether its PUBREC came, so that PUBREL is what has to be sent again."""


@dataclass(slots=True)
class Session:
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
class Sessions:
    """All clients of a run."""

    known: dict[str, Session] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    """Client Identifiers that were given to clients without one."""

    def of(self, client_identifier: str) -> Session:
        """The session of a client; a new one where there is none."""
        found = self.known.get(client_identifier)
        if found is None:
            if len(self.known) >= MAX_SESSIONS:
                self._make_room()
            found = self.known[client_identifier] = Session()
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


class Match(StrEnum):
    """By what a recorded connection is found."""

    AUTO = "auto"
    """By Client Identifier; for one that the recording does not have, in order."""
    CLIENT = "client"
    ORDER = "order"


@dataclass(slots=True)
class Casting:
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
