"""Conversations of two TCP stacks, segment by segment: what each sends once more, with which numbers and which clock.

`Stack` is a host with a sequence number, an acknowledgment number and a clock that counts milliseconds.  `Conversation`
writes what they send to a tape, and counts the packets that were new: the truth to compare with.  `played` reads
conversations from steps in words:

    open; begin; < connack; +0.2; again connack; new 2000 9000 clocks=none; join; whole; finish
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mqttscope.mqtt import ControlPacket, Disconnect
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN, Segment
from tests.dissect.talk import CONNACK, PINGREQ, PINGRESP, SECOND, START, V3_1_1, Talk, Tape, connect, wire
from tests.packets import told
from tests.tables import steps

CLIENT, SERVER = "client", "server"
NAMES = ("", "connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp", "subscribe", "suback",
         "unsubscribe", "unsuback", "pingreq", "pingresp", "disconnect", "auth")  # fmt: skip
OPTIONS = ("acknowledges=", "stamp=", "last=")
"""Words of a step that name an argument."""


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
    sent: dict[str, list[Sent]] = field(default_factory=dict)
    """The latest segments with data, by the type of their first packet."""

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
        """A handshake that is not captured."""
        self.skip(CLIENT)
        return self.skip(SERVER)

    def skip(self, who: str, count: float = 1) -> Conversation:
        """Traffic that is not captured: only the numbers advance."""
        self.stacks[who].next += int(count)
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

    def ack(self, who: str, *, acknowledges: int | None = None) -> Conversation:
        """A bare acknowledgment."""
        self.put(who, ACK, acknowledges=acknowledges)
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
        self.sent[next(iter(packets_of(data)))] = sent
        return sent

    def repeat(self, sent: Sent, *, acknowledges: int | None = None, stamp: int | None = None) -> None:
        """Data that was sent before, with the clock and the acknowledgment of now."""
        self.put(sent.who, PSH | ACK, sent.payload, sequence=sent.sequence, acknowledges=acknowledges, stamp=stamp)

    def again(self, kind: str, *, last: object = "", acknowledges: int | None = None, stamp: int | None = None) -> None:
        """The latest packet of this type again, with another ``last`` byte."""
        for segment in self.sent[kind]:
            payload = segment.payload[:-1] + str(last).encode() if last else segment.payload
            self.repeat(Sent(segment.who, segment.sequence, payload), acknowledges=acknowledges, stamp=stamp)

    def back_off(self, seconds: float, times: float) -> None:
        """CONNECT again and again, each time after twice as long."""
        for number in range(int(times)):
            self.wait(seconds * 2**number).again("connect")
            self.ack(SERVER)

    def begin(self, connect_packet: ControlPacket | None = None) -> Sent:
        """CONNECT, acknowledged by the server."""
        (sent,) = self.say(CLIENT, connect_packet or connect())
        self.ack(SERVER)
        return sent

    def live(self, topic: str = "a/1") -> Conversation:
        """A subscription, a message and a ping."""
        self.play(f"> subscribe 1 cmd/#; < suback 1 0; > publish {topic} 21.5 qos=1 id=2; < puback 2")
        return self.ping()

    def ping(self) -> Conversation:
        """A ping and its answer."""
        self.say(CLIENT, PINGREQ)
        self.say(SERVER, PINGRESP)
        return self

    def quiet(self, pings: float = 1) -> Conversation:
        """A connection of several seconds, so that the rates of its clocks are known."""
        self.open().whole()
        for _ in range(int(pings)):
            self.wait(5).ping()
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

    def fin(self, who: str, *, acknowledges: int | None = None) -> None:
        """One side closes."""
        self.put(who, FIN | ACK, acknowledges=acknowledges)
        self.skip(who)

    def reset(self, who: str) -> None:
        """One side resets the connection."""
        self.put(who, RST | ACK)

    def wait(self, seconds: float) -> Conversation:
        """Let time pass."""
        self.tape.wait(seconds)
        return self

    def set_capture_clock(self, seconds: float) -> Conversation:
        """Set the clock of the capture; the clocks of the stacks continue."""
        self.set_back(CLIENT, seconds)
        self.set_back(SERVER, seconds)
        return self.wait(seconds)

    def set_back(self, who: str, seconds: float) -> None:
        """Set the clock of a stack back."""
        stack = self.stacks[who]
        if stack.clock is not None:
            stack.clock -= round(seconds * self.rate)

    def play(self, text: str) -> Conversation:
        """Steps in words: ``+SECONDS``, a packet of a side (``> pingreq``), or a method with its arguments."""
        for name, *words in map(str.split, steps(text)):
            named = [word.split("=") for word in words if word.startswith(OPTIONS)]
            options = {key: number(value) for key, value in named}
            plain = [word for word in words if not word.startswith(OPTIONS)]
            if name[0] == "+":
                self.wait(float(name))
            elif name in "<>":
                ((side, packets),) = told(f"{name} {' '.join(plain)}", V3_1_1, client_identifier="dev", keep_alive=0)
                self.say(side, *packets, **options)
            else:
                getattr(self, name)(*map(number, plain), **options)
        return self


def number(word: str) -> Any:
    """A number, or the word itself if it is not a number."""
    for read in (int, float):
        with suppress(ValueError):
            return read(word)
    return word


def begun(tape: Tape, words: list[str]) -> Conversation:
    """A conversation with the first numbers of both stacks, ``clocks=``, ``rate=`` and ``client=``, unless usual."""
    options = dict(word.split("=") for word in words if "=" in word)
    first, second = [int(word) for word in words if "=" not in word] or (1000, 5000)
    clocks = options.pop("clocks", "100000,7000000").replace("none", "none,none").split(",")
    client, server = (None if clock == "none" else int(clock) for clock in clocks)
    others = {name: number(value) for name, value in options.items()}
    return Conversation(tape, (first, second), (client, server), **others)


def played(text: str) -> list[Conversation]:
    """Conversations on one tape, played in words.

    ``new`` begins one, also at the beginning where it is unusual, and ``stranger`` one that is not given back.
    ``resume`` is one that goes on with the numbers of the one before, and ``at 0`` goes back to the first one.
    """
    tape = Tape()
    talks, strangers = list[Conversation](), list[Conversation]()
    for step in steps(text):
        name, *words = step.split()
        if name in ("new", "stranger", "resume") or not talks:
            talks.append(begun(tape, words if name in ("new", "stranger") else []))
            talk = talks[-1]
        if name == "stranger":
            strangers.append(talk)
        elif name == "resume":
            talk.stacks = talks[-2].stacks
        elif name == "at":
            talk = talks[int(words[0])]
        elif name != "new":
            talk.play(step)
    return [talk for talk in talks if talk not in strangers]


def numbered(segments: list[Segment]) -> list[Segment]:
    """Segments with the numbers of frames."""
    for number, segment in enumerate(segments, 1):
        segment.frame = number
    return segments
