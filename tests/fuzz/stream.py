"""No matter how a stream is cut into chunks and what it lost, its packets are the same and no byte is left out.

Nor does it matter whether the stream is written down between two chunks and taken up again.  The input: a byte of
flags, a seed for places and lengths of gaps and chunks, then the bytes of the stream.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from random import Random

from mqttscope.mqtt import PacketStream, ProtocolVersion
from mqttscope.mqtt.stream import MAX_SEARCH_BYTES, StreamItem
from tests.fuzz.material import streams
from tests.fuzz.target import Input, cuts
from tests.mqtt.checks import facts, run
from tests.mqtt.conversation import conversation

MAX_LENGTH = 4_000
MAX_SINGLE = 400
"""Streams up to this length are also fed byte by byte."""
WRITTEN_DOWN = 0.3
"""Share of the inputs whose stream is also written down and read back, which takes long."""
GAPS = (1, 2, 3, 5, 9, 40, 300, 70_000)
LIMITS = (2, 5, 14, 40)


def check(data: bytes) -> None:
    """The law for one stream with its gaps."""
    source = Input(data)
    flags, random = source.number(), Random(source.number())
    raw = source.rest()
    parts = _parts(raw, random, gaps=flags >> 4 & 3)
    whole = _made(flags)
    expected = facts(run(parts, whole))
    for chunks in (_recut(parts, random, 4), _recut(parts, random, 1) if len(raw) <= MAX_SINGLE else parts):
        stream = _made(flags)
        assert facts(run(chunks, stream)) == expected
        assert (stream.version, stream.version_source) == (whole.version, whole.version_source)
    if random.random() < WRITTEN_DOWN:
        assert facts(_written_down(_recut(parts, random, 4), _made(flags))) == expected


def _made(flags: int) -> PacketStream:
    """A stream as the flags want it."""
    version = tuple(ProtocolVersion)[flags % 3]
    stream = PacketStream(version, "" if flags & 4 else "given")
    if flags & 0x80:
        stream.max_packet_bytes = LIMITS[flags >> 4 & 3]
    if flags & 8:
        stream.lose_framing()
    return stream


def _parts(raw: bytes, random: Random, *, gaps: int) -> list[bytes | int]:
    """The stream with gaps in it, given as numbers."""
    parts: list[bytes | int] = []
    at = 0
    for place in sorted(random.randint(0, len(raw)) for _ in range(gaps)):
        parts += [raw[at:place], random.choice(GAPS)]
        at = place
    return [*parts, raw[at:]]


def _recut(parts: list[bytes | int], random: Random, pieces: int) -> list[bytes | int]:
    """The same with every piece of bytes cut further."""
    cut: list[bytes | int] = []
    for part in parts:
        if isinstance(part, int):
            cut.append(part)
        else:
            cut += cuts(part, random, pieces)
    return cut


def _written_down(parts: list[bytes | int], stream: PacketStream) -> list[StreamItem]:
    """What the stream gives when it is written down after each part."""
    items: list[StreamItem] = []
    for part in parts:
        items += stream.gap(part) if isinstance(part, int) else stream.feed(part)
        assert sum(map(len, stream.passed_chunks)) <= MAX_SEARCH_BYTES
        assert stream.held == sum(map(len, stream.chunks))
        stream = pickle.loads(pickle.dumps(stream))
    return items + stream.close()


def seeds() -> Iterator[bytes]:
    """The streams of the captures and of the tests, in every mode."""
    flags = (0, 1, 2, 4, 12, 0x10, 0x31, 0x22, 0x94)
    for number, data in enumerate(streams()):
        yield bytes((flags[number % len(flags)], number & 0xFF)) + data[: MAX_LENGTH - 2]
    for version in ProtocolVersion:
        data = b"".join(conversation(version))
        for number, flag in enumerate(flags):
            yield bytes((flag, number)) + data[: MAX_LENGTH - 2]
