"""A fleet that talks to its broker, and its capture cut into parts: each segment holds whole packets."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from mqttscope.net.segment import Segment
from tests.dissect.secure import as_frame
from tests.dissect.talk import Talk, Tape
from tests.lake.parts import write_parts
from tests.lake.reading import Row
from tests.mqtt.octets import framed, string

START_NS = 1_767_225_600_000_000_000
LONGEST_PAUSE_S = 0.2


def _conversation(name: str, version: int, messages: int) -> Iterator[tuple[str, bytes]]:
    """What one client and its broker say: who and what."""
    five = b"\0" if version == 5 else b""
    yield "client", framed(0x10, string("MQTT"), bytes((version, 2, 0, 60)), five, string(name))
    yield "server", framed(0x20, b"\0\0", five)
    yield "client", framed(0x82, b"\0\1", five, string(f"to/{name}"), b"\1")
    yield "server", framed(0x90, b"\0\1", five, b"\1")
    for number in range(2, 2 + messages):
        identifier = number.to_bytes(2, "big")
        yield "client", framed(0x32, string(f"from/{name}/{number}"), identifier, five, b"payload %d" % number)
        yield "server", framed(0x40, identifier)
        yield "server", framed(0x30, string(f"to/{name}/{number}"), five, b"answer %d" % number)
        if number % 5 == 0:
            yield "client", b"\xc0\0"
            yield "server", b"\xd0\0"


def segments(clients: int, messages: int, *, seed: int = 1) -> list[Segment]:
    """All segments in the order of time; every third client ends, with FIN on both sides."""
    chance = random.Random(seed)
    new_segments: list[Segment] = []
    for number in range(clients):
        tape = Tape(start_ns=START_NS + chance.randrange(2_000_000_000))
        talk = Talk(tape, client_port=40_000 + number, client=f"10.0.{number >> 8}.{number & 0xFF}")
        talk.position = {who: chance.getrandbits(32) for who in talk.position}
        talk.handshake()
        for who, data in _conversation(f"c{number}", 5 if number % 2 else 4, messages):
            tape.wait(chance.uniform(0, LONGEST_PAUSE_S))
            (talk.client if who == "client" else talk.server)(data)
            if chance.random() < 0.5:
                tape.wait(chance.uniform(0, LONGEST_PAUSE_S))
                talk.ack("server" if who == "client" else "client")
        if number % 3 == 0:
            talk.client(b"\xe0\0")
            talk.close()
        new_segments += tape.segments
    return sorted(new_segments, key=lambda segment: segment.timestamp_ns)


def written(actual_segments: Sequence[Segment], folder: Path, parts: int, *, seed: int = 1) -> list[Path]:
    """The segments as captures, cut at random places."""
    return write_parts([*map(as_frame, actual_segments)], folder, parts, seed)


def content(row: Row) -> tuple[object, ...]:
    """What a packet is, whatever connection its row belongs to; after a hole its time is when that was given up."""
    names = ("client", "server", "direction", "event", "type", "length", "packet_identifier", "topic")
    return tuple(row[name] for name in names)
