"""Conversations of two TCP stacks, segment by segment: what each sends once more, with which numbers and which clock.

`Stack` is a host with a sequence number, an acknowledgment number and a clock that counts milliseconds.  `Conversation`
writes what they send to a tape, and counts the packets that were new: the truth to compare with.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mqttscope.mqtt import (
    ControlPacket,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN, Segment
from tests.dissect.talk import CONNACK, SECOND, START, Talk, Tape, connect, wire

CLIENT, SERVER = "client", "server"
NAMES = ("", "connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp", "subscribe", "suback",
         "unsubscribe", "unsuback", "pingreq", "pingresp", "disconnect", "auth")  # fmt: skip


@dataclass
class Stack:
    """One side of a connection."""

    next: int
    """Sequence number of the next byte."""
    clock: int | None
    """Time stamp at the beginning of the tape; ``None``: the stack does not use the option."""


@dataclass
class Sent:
    """A segment with data, to be sent again."""

    who: str
    sequence: int
    payload: bytes


def packets_of(data: bytes) -> Counter[str]:
    """The types of the packets that data consists of."""
    types: Counter[str] = Counter()
    at = 0
    while at < len(data):
        length, shift, body = 0, 0, at + 1
        while True:
            length |= (data[body] & 0x7F) << shift
            shift += 7
            body += 1
            if data[body - 1] < 0x80:
                break
        types[NAMES[data[at] >> 4]] += 1
        at = body + length
    return types


@dataclass
class Conversation:
    """One connection between a client and a server, written to a tape."""

    tape: Tape = field(default_factory=Tape)
    numbers: tuple[int, int] = (1000, 5000)
    clocks: tuple[int | None, int | None] = (100_000, 7_000_000)
    packets: Counter[str] = field(default_factory=Counter)
    client: str = "192.0.2.4"
    rate: int = 1000
    """Ticks of both clocks in a second."""

    def __post_init__(self) -> None:
        self.stacks = {CLIENT: Stack(self.numbers[0], self.clocks[0]), SERVER: Stack(self.numbers[1], self.clocks[1])}
        self.keys = Talk(client=self.client).keys

    def put(
        self,
        who: str,
        flags: int,
        payload: bytes = b"",
        *,
        sequence: int | None = None,
        acknowledges: int | None = None,
        stamp: int | None = None,
    ) -> Sent:
        """Write one segment, with the numbers and the clock of its sender unless others are given."""
        own, other = self.stacks[who], self.stacks[SERVER if who == CLIENT else CLIENT]
        sequence = own.next if sequence is None else sequence
        acknowledges = other.next if acknowledges is None else acknowledges
        self.tape.add(self.keys[who], sequence, acknowledges if flags & ACK else 0, flags, payload, 0)
        segment = self.tape.segments[-1]
        if own.clock is not None:
            ticks = own.clock + (segment.timestamp_ns - START) * self.rate // SECOND if stamp is None else stamp
            option = b"\x08\x0a" + (ticks % 2**32).to_bytes(4, "big") + bytes(4)
            segment.options = (b"\x04\x02" if flags & SYN else b"\x01\x01") + option
        return Sent(who, sequence, payload)

    def open(self) -> Conversation:
        """The handshake."""
        self.syn()
        self.syn_ack()
        return self.ack(CLIENT)

    def join(self) -> Conversation:
        """The handshake, of which nothing is captured."""
        for stack in self.stacks.values():
            stack.next += 1
        return self

    def syn(self, data: bytes = b"") -> Sent:
        """The SYN of the client, with early data (TCP Fast Open)."""
        sent = self.put(CLIENT, SYN, data)
        self.stacks[CLIENT].next += 1 + len(data)
        self.packets += packets_of(data)
        return sent

    def syn_ack(self) -> Sent:
        """The SYN-ACK of the server."""
        sent = self.put(SERVER, SYN | ACK)
        self.stacks[SERVER].next += 1
        return sent

    def ack(self, who: str) -> Conversation:
        """A bare acknowledgment."""
        self.put(who, ACK)
        return self

    def say(
        self, who: str, *packets: bytes | ControlPacket, acknowledges: int | None = None, mss: int = 1400
    ) -> list[Sent]:
        """New data, in one segment or several."""
        data = wire(*packets)
        self.packets += packets_of(data)
        sent = []
        for at in range(0, len(data), mss):
            sent.append(self.put(who, PSH | ACK, data[at : at + mss], acknowledges=acknowledges))
            self.stacks[who].next += len(sent[-1].payload)
        return sent

    def repeat(self, sent: Sent, *, acknowledges: int | None = None, stamp: int | None = None) -> None:
        """Data that was sent before, with the clock and the acknowledgment of now."""
        self.put(sent.who, PSH | ACK, sent.payload, sequence=sent.sequence, acknowledges=acknowledges, stamp=stamp)

    def begin(self, connect_packet: ControlPacket | None = None) -> Sent:
        """CONNECT, acknowledged by the server."""
        (sent,) = self.say(CLIENT, connect_packet or connect())
        self.ack(SERVER)
        return sent

    def live(self, topic: str = "a/1") -> Conversation:
        """A subscription, a message and a ping."""
        self.say(CLIENT, Subscribe(1, subscriptions=[Subscription("cmd/#", 0)]))
        self.say(SERVER, Suback(1, reason_codes=[0]))
        self.say(CLIENT, Publish(topic_name=topic, payload=b"21.5", qos=1, packet_identifier=2))
        self.say(SERVER, Puback(2))
        self.say(CLIENT, Pingreq())
        self.say(SERVER, Pingresp())
        return self

    def whole(self, topic: str = "a/1") -> Conversation:
        """All that a client sends after its handshake, without an end."""
        self.begin()
        self.say(SERVER, CONNACK)
        return self.live(topic)

    def finish(self) -> Conversation:
        """DISCONNECT, and both sides close."""
        self.say(CLIENT, Disconnect())
        self.fin(CLIENT)
        self.fin(SERVER)
        return self.ack(CLIENT)

    def fin(self, who: str) -> None:
        """One side closes."""
        self.put(who, FIN | ACK)
        self.stacks[who].next += 1

    def reset(self, who: str) -> None:
        """One side resets the connection."""
        self.put(who, RST | ACK)

    def wait(self, seconds: float) -> Conversation:
        """Let time pass."""
        self.tape.wait(seconds)
        return self

    def set_capture_clock(self, seconds: float) -> Conversation:
        """Set the clock of the capture, while those of the stacks continue."""
        for stack in self.stacks.values():
            if stack.clock is not None:
                stack.clock -= round(seconds * self.rate)
        return self.wait(seconds)


def numbered(segments: list[Segment]) -> list[Segment]:
    """Segments with the numbers of frames."""
    for number, segment in enumerate(segments, 1):
        segment.frame = number
    return segments
