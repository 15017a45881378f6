"""What one recorded connection says of its server: what it answered to what, and what it said by itself, and when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.script import Entry, Script

ACKNOWLEDGEMENTS = (packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp)
_IDLE = (*ACKNOWLEDGEMENTS, packets.Pingreq, packets.Disconnect)
"""What the device sends when it pleases, or because of what the server said: nothing waits for it."""
_ANSWERS = (packets.Suback, packets.Unsuback, packets.Pingresp, *ACKNOWLEDGEMENTS)
_OVER = 1 << 62


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
