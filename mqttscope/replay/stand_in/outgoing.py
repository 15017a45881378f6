"""What goes to the device: answers when they are due, and the end of the connection behind them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.player import reactions
from mqttscope.replay.player.actions import Kind
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.stand_in import answers, judge
from mqttscope.replay.stand_in.actions import Close, Manner, Send
from mqttscope.replay.stand_in.live import Live
from mqttscope.replay.stand_in.part import Part

_IN_CONNACK = (judge.MALFORMED, judge.PROTOCOL_ERROR, judge.PACKET_TOO_LARGE)
"""Reason Codes of `judge.violation` that a CONNACK may have."""


@dataclass(slots=True, order=True)
class Answer:
    """An answer that is to be sent."""

    due_ns: int
    turn: int
    packet: ControlPacket = field(compare=False)
    source: Entry | None = field(compare=False)
    """The recorded answer."""


@dataclass(slots=True, kw_only=True)
class Outgoing(Live):
    """The sending half of a stand-in."""

    script: Script
    """The recording; one without entries where there is none."""
    manner: Manner
    end: Close | None = None
    """How the connection is to end, behind what is queued."""
    over: bool = False
    """Nothing more will be sent."""
    queue: list[Answer] = field(default_factory=list)
    happened: dict[Entry, int] = field(default_factory=dict)
    """When recorded packets had their counterpart."""
    last_ns: int = 0
    """When something last happened that the recording has."""
    last_recorded_ns: int = 0
    """The latest recorded time of what has happened."""
    part: Part = field(init=False)
    _turn: int = 0
    _queued: dict[type, int] = field(default_factory=dict)
    """When the latest answer of a type is due: acknowledgements keep their order (5.0 4.6)."""
    _floor_ns: int = 0
    """Nothing is sent before the CONNACK."""

    def __post_init__(self) -> None:
        self.part = Part(self.script)
        self.last_ns, self.last_recorded_ns = self.live.opened_ns, self.script.opened_ns

    def send(self, packet: ControlPacket, source: Entry | None, now_ns: int) -> Send:
        """Send a packet, as the device can take it."""
        kept = source is not None and source.packet is packet and self.version == self.script.version
        packet, raw = answers.encoded(packet, self.connection, self.connect)
        if kept and source is not None and source.packet is packet:
            raw = source.raw or raw
        if not raw:
            self.note(Kind.SKIPPED, f"{reactions.word(packet)} longer than the device's Maximum Packet Size")
            return Send(b"", Entry(False, packet, None, now_ns, 0, source=source))
        return self.sent_as(packet, raw, source, now_ns)

    def sent_as(
        self, packet: ControlPacket | Malformed, raw: bytes, source: Entry | None, now_ns: int, topic: str | None = None
    ) -> Send:
        """Send these bytes."""
        if source is not None:
            self.mark(source, now_ns)
        send = self.sent(packet, raw, source, now_ns, topic)
        if isinstance(packet, packets.Connack):
            self._floor_ns = 0
            if packet.reason_code:
                self.end = Close("fin")
        return send

    def answer(self, now_ns: int) -> Send | None:
        """The next answer, if one is due."""
        if not self.queue or (self.queue[0].due_ns > now_ns and self.end is None):
            return None
        one = heapq.heappop(self.queue)
        return self.send(one.packet, one.source, now_ns)

    def enqueue(self, packet: ControlPacket, source: Entry | None, delay_ns: int, now_ns: int) -> None:
        """Have an answer sent so long after its request."""
        speed = self.manner.speed
        due_ns = now_ns if speed is None else now_ns + int(max(0, delay_ns) / speed)
        due_ns = max(due_ns, self._floor_ns, self._queued.get(type(packet), 0))
        self._queued[type(packet)] = due_ns
        if isinstance(packet, packets.Connack):
            self._floor_ns = due_ns
        self._turn += 1
        heapq.heappush(self.queue, Answer(due_ns, self._turn, packet, source))

    def respond(self, packet: ControlPacket, source: Entry | None, request: Entry | None, now_ns: int) -> None:
        """Queue an answer with the recorded delay behind its recorded request."""
        delay_ns = 0 if source is None or request is None else source.timestamp_ns - request.timestamp_ns
        self.enqueue(packet, source, delay_ns, now_ns)

    def end_with(self, code: int, why: str, now_ns: int) -> None:
        """End the connection with a Reason Code, where the version has a packet for it (5.0 4.13)."""
        self.queue.clear()
        if self.version >= 5 and self.accepted:
            self.enqueue(packets.Disconnect(code), None, 0, now_ns)
        elif self.version >= 5 and self.connect is not None and code in _IN_CONNACK:
            self.enqueue(packets.Connack(reason_code=code), None, 0, now_ns)
        self.end = Close("fin", why)

    def mark(self, recorded: Entry, now_ns: int) -> None:
        """A recorded packet has its counterpart."""
        self.happened.setdefault(recorded, now_ns)
        self.last_ns = now_ns
        self.last_recorded_ns = max(self.last_recorded_ns, recorded.timestamp_ns)
