"""The recording as the played server uses it: connections for devices, and answers to their packets.

`ConnectionMatcher` gives each connecting device a recorded connection.  `ServerScript` contains the recorded
server's answers, its packets without a request, and their times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.script import Script, ScriptEntry

_IDLE = (packets.Acknowledgement, packets.Pingreq, packets.Disconnect)
"""Packets that no step waits for: the device sends them at any time, or in reaction to the server."""
_ANSWERS = (packets.Suback, packets.Unsuback, packets.Pingresp, packets.Acknowledgement)
LATER = 1 << 62
"""Place after all recorded packets."""


def takers_over(script: Script, scripts: Iterable[Script]) -> list[Script]:
    """Recorded connections of the same client that were opened while this one was open (5.0 MQTT-3.1.4-3)."""
    name = script.connection.client_identifier
    return [
        other
        for other in scripts
        if name
        and other is not script
        and other.connection.client_identifier == name
        and script.opened_place < other.opened_place <= script.ended_place
        and other.opened_ns < script.ending.timestamp_ns
    ]


@dataclass(slots=True)
class ConnectionMatcher:
    """Recorded connections, and which of them are already given to devices.

    A device gets the next connection of its Client Identifier; with an unknown identifier, the next of all connections.
    """

    scripts: Sequence[Script]
    repeat: bool = False
    """Whether to start over with a client's connections when all have been played."""
    _free: deque[Script] = field(default_factory=deque)
    _known: set[str | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._free.extend(self.scripts)
        self._known = {recorded_identifier(script) for script in self.scripts}

    @property
    def free(self) -> list[Script]:
        return list(self._free)

    def choose(self, first: ControlPacket | Malformed) -> Script | None:
        """The recorded connection for a live one that begins with this packet; ``None`` if no connection is left."""
        name = identifier_of(first)
        is_known = name in self._known
        for repeat in (self.repeat, False):
            for script in self._free:
                is_client = recorded_identifier(script) == name
                # If the CONNECT cannot be read, its bytes count.
                if not is_known or (is_client and (name is not None or script.entries[0].raw == first.raw)):
                    self._free.remove(script)
                    return script
            if repeat:
                self._free.extend(other for other in self.scripts if not is_known or recorded_identifier(other) == name)
        return None


def identifier_of(packet: ControlPacket | Malformed) -> str | None:
    """The Client Identifier in a CONNECT; ``None`` if it cannot be read."""
    inner = packet.packet if isinstance(packet, Malformed) else packet
    return inner.client_identifier if isinstance(inner, packets.Connect) else None


def recorded_identifier(script: Script) -> str | None:
    """The Client Identifier in a recorded client's CONNECT, which may be empty."""
    first = next((entry for entry in script.entries if entry.from_client), None)
    return None if first is None else identifier_of(first.packet)


@dataclass(slots=True)
class ServerScript:
    """One script as its server uses it."""

    script: Script
    answers: dict[ScriptEntry, list[ScriptEntry]] = field(default_factory=dict)
    """Answers of both sides, by the packet that they answer; for CONNECT and AUTH also CONNACK and AUTH."""
    steps: deque[ScriptEntry] = field(default_factory=deque)
    """Packets that the server sent without a request: deliveries, DISCONNECT."""
    needed: list[ScriptEntry] = field(default_factory=list)
    """Packets of the client that later steps wait for."""
    done: set[ScriptEntry] = field(default_factory=set)
    """Packets in ``needed`` that the device has sent, or that are given up."""
    own: set[ScriptEntry] = field(default_factory=set)
    """All packets of the client."""
    at: dict[ScriptEntry, int] = field(default_factory=dict)
    """Index of each packet in the script."""
    _first: int = 0
    """Index in ``needed``: all packets before it are done."""

    def __post_init__(self) -> None:
        request: ScriptEntry | None = None
        for index, entry in enumerate(self.script.entries):
            packet, self.at[entry] = entry.packet, index
            if entry.from_client:
                self.own.add(entry)
                if not isinstance(packet, _IDLE):
                    self.needed.append(entry)
                damaged = request is None and packet.packet_type == packets.Connect.packet_type
                if damaged or isinstance(packet, packets.Connect | packets.Auth):
                    request = entry
            elif request is not None and isinstance(packet, packets.Connack | packets.Auth):
                self.answers.setdefault(request, []).append(entry)
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
    def next_needed(self) -> ScriptEntry | None:
        return self.needed[self._first] if self.frontier < LATER else None

    def give_up(self, place: int) -> list[ScriptEntry]:
        """Stop waiting for packets before a place; returns them."""
        late = [entry for entry in self.needed[self._first :] if entry.place < place and entry not in self.done]
        self.done.update(late)
        return late

    def answered(
        self, request: ScriptEntry, kinds: type[ControlPacket] | tuple[type[ControlPacket], ...]
    ) -> ScriptEntry | None:
        answers = self.answers.get(request, ())
        return next((answer for answer in answers if not answer.from_client and isinstance(answer.packet, kinds)), None)

    def silent_to(self, request: ScriptEntry, kinds: type[ControlPacket] | tuple[type[ControlPacket], ...]) -> bool:
        """Whether the recorded server left a packet unanswered on purpose.

        It did if it sent something later, or ended the connection itself; otherwise the capture or the client may have
        ended before the answer.
        """
        script = self.script
        if script.lost or self.answered(request, kinds) is not None:
            return False
        later = any(not entry.from_client and entry.place > request.place for entry in reversed(script.entries))
        return later or self.ends

    @property
    def ends(self) -> bool:
        """Whether the server ended the connection of its own accord: not after a DISCONNECT, nor after its refusal."""
        script = self.script
        if script.ending.by != "server" or script.ending.how not in ("fin", "reset"):
            return False
        if script.first(packets.Disconnect, from_client=True) is not None:
            return False
        connack = script.connack
        return connack is None or not isinstance(connack.packet, packets.Connack) or not connack.packet.reason_code

    @property
    def ending_next(self) -> bool:
        """Whether the end of the connection is the next step of the server."""
        return self.ends and (not self.steps or isinstance(self.steps[0].packet, packets.Disconnect))

    @property
    def silence_ns(self) -> int:
        """Silence of the client before the server ended the connection for its Keep Alive; 0 if it ended otherwise."""
        script, keep_alive = self.script, self.script.connection.keep_alive or 0
        last = next((entry.timestamp_ns for entry in reversed(script.entries) if entry.from_client), script.opened_ns)
        silence = script.ending.timestamp_ns - last
        return silence if self.ends and 0 < keep_alive * 1_000_000_000 <= silence else 0
