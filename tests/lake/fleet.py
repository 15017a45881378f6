"""A fleet that talks to its broker, and its capture cut into parts: each segment holds whole packets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from mqttscope.capture import PcapngWriter
from mqttscope.net.segment import ACK, FIN, PSH, SYN, Segment, direction_key
from tests.dissect.secure import as_frame
from tests.lake.reading import Row

START_NS = 1_767_225_600_000_000_000
SERVER = bytes((198, 51, 100, 1))
Said = tuple[bool, bytes]


def _text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first, len(body))) + body


def _conversation(name: str, version: int, messages: int, ends: bool) -> list[Said]:
    """What one client and its broker say: who (the client is True) and what."""
    five = b"\0" if version == 5 else b""
    said = [(True, _packet(0x10, _text("MQTT") + bytes((version, 2, 0, 60)) + five + _text(name)))]
    said += [
        (False, _packet(0x20, b"\0\0" + five)),
        (True, _packet(0x82, b"\0\1" + five + _text(f"to/{name}") + b"\1")),
    ]
    said += [(False, _packet(0x90, b"\0\1" + five + b"\1"))]
    for number in range(2, 2 + messages):
        identifier = number.to_bytes(2, "big")
        said += [(True, _packet(0x32, _text(f"from/{name}/{number}") + identifier + five + b"payload %d" % number))]
        said += [(False, _packet(0x40, identifier))]
        said += [(False, _packet(0x30, _text(f"to/{name}/{number}") + five + b"answer %d" % number))]
        said += [(True, b"\xc0\0"), (False, b"\xd0\0")] if number % 5 == 0 else []
    return said + ([(True, b"\xe0\0")] if ends else [])


def segments(clients: int, messages: int, *, seed: int = 1) -> list[Segment]:
    """All segments in the order of time; every third client ends, with FIN on both sides."""
    chance = random.Random(seed)
    made: list[Segment] = []
    for number in range(clients):
        ends = number % 3 == 0
        address = bytes((10, 0, number >> 8, number & 0xFF))
        ports = (40_000 + number, 1883)
        keys = [
            direction_key(one + other, b"".join(port.to_bytes(2, "big") for port in order))
            for one, other, order in ((address, SERVER, ports), (SERVER, address, ports[::-1]))
        ]
        sequences = [chance.getrandbits(32), chance.getrandbits(32)]
        now = START_NS + chance.randrange(2_000_000_000)

        def add(side: int, flags: int, payload: bytes = b"") -> None:
            nonlocal now
            now += chance.randrange(1_000, 200_000_000)
            acknowledged = 0 if flags == SYN else sequences[1 - side]  # noqa: B023
            made.append(
                Segment(keys[side], sequences[side], acknowledged, flags, 8_192, payload, 0, 0, now, "")  # noqa: B023
            )
            sequences[side] = (sequences[side] + len(payload) + bool(flags & (SYN | FIN))) & 0xFFFFFFFF  # noqa: B023

        add(0, SYN)
        add(1, SYN | ACK)
        add(0, ACK)
        for from_client, data in _conversation(f"c{number}", 5 if number % 2 else 4, messages, ends):
            add(0 if from_client else 1, PSH | ACK, data)
            if chance.random() < 0.5:
                add(1 if from_client else 0, ACK)
        if ends:
            add(0, FIN | ACK)
            add(1, FIN | ACK)
            add(0, ACK)
    return sorted(made, key=lambda one: one.timestamp_ns)


def written(found: Sequence[Segment], folder: Path, parts: int, *, seed: int = 1) -> list[Path]:
    """The segments as captures, cut at random places."""
    edges = sorted(random.Random(seed).sample(range(1, len(found)), parts - 1))
    paths = []
    folder.mkdir(parents=True, exist_ok=True)
    for number, (start, stop) in enumerate(zip([0, *edges], [*edges, len(found)], strict=True)):
        paths.append(folder / f"{number:02d}.pcapng")
        with paths[-1].open("wb") as file:
            out = PcapngWriter(file)
            for one in found[start:stop]:
                out.write(as_frame(one))
    return paths


def content(row: Row) -> tuple[object, ...]:
    """What a packet is, whatever connection its row belongs to; after a hole its time is when that was given up."""
    names = ("client", "server", "direction", "event", "type", "length", "packet_identifier", "topic")
    return tuple(row[name] for name in names)
