"""Transcript of one connection: the bytes of both sides, with their times and the mutated parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import PacketStream
from mqttscope.transport.wire import Endpoint, FramedSegment, SyntheticConnection

CLIENT = Endpoint.of(("127.0.0.1", 51_234))
SERVER = Endpoint.of(("127.0.0.1", 1883))
_ACKNOWLEDGEMENTS = (b"\x40", b"\x50", b"\x62", b"\x70")
"""First bytes of PUBACK, PUBREC, PUBREL and PUBCOMP."""
FIN, RESET = "fin", "reset"


@dataclass(slots=True)
class StreamChunk:
    """Bytes that one side sent, or the end of its stream."""

    from_client: bool
    data: bytes
    timestamp_ns: int
    mutated: bool = False
    """Whether a mutated step sent the bytes."""
    ends: str = ""
    """``fin`` or ``reset`` if the sender ends the connection here, else empty."""


@dataclass(slots=True)
class Conversation:
    """Transcript of one connection."""

    version: ProtocolVersion
    opened_ns: int = 0
    chunks: list[StreamChunk] = field(default_factory=list)

    def add(self, from_client: bool, data: bytes, timestamp_ns: int, *, mutated: bool = False, ends: str = "") -> None:
        self.chunks.append(StreamChunk(from_client, data, timestamp_ns, mutated, ends))

    def shorten(self, most_bytes: int) -> None:
        """Keep the first ``most_bytes`` of the broker; drop unmutated acknowledgements of the client."""
        left, chunks = most_bytes, []
        for chunk in self.chunks:
            if chunk.from_client or chunk.ends:
                if chunk.mutated or chunk.data[:1] not in _ACKNOWLEDGEMENTS:
                    chunks.append(chunk)
            elif left > 0:
                chunk.data = chunk.data[:left]
                left -= len(chunk.data)
                chunks.append(chunk)
        self.chunks = chunks

    def sent(self, *, mutated: bool = False) -> bytes:
        """All bytes of the client, or its bytes from the mutation on."""
        first = self.begins if mutated else 0
        return b"".join(chunk.data for chunk in self.chunks[first:] if chunk.from_client)

    @property
    def begins(self) -> int:
        """Index of the first mutated entry; without one, the number of entries."""
        return next((index for index, chunk in enumerate(self.chunks) if chunk.mutated), len(self.chunks))

    def packets(self, *, from_client: bool) -> list[ControlPacket | Malformed]:
        """Packets that one side sent."""
        stream = PacketStream()
        stream.version = self.version
        packets: list[ControlPacket | Malformed] = []
        for chunk in self.chunks:
            if chunk.from_client is from_client and chunk.data:
                packets += (item for item in stream.feed(chunk.data) if isinstance(item, ControlPacket | Malformed))
        return packets

    def mutated_ranges(self) -> list[tuple[int, int]]:
        """Ranges of the mutated bytes in the client's stream."""
        ranges, position = [], 0
        for chunk in self.chunks:
            if chunk.from_client:
                if chunk.mutated and chunk.data:
                    ranges.append((position, position + len(chunk.data)))
                position += len(chunk.data)
        return ranges


def frames(
    conversation: Conversation,
    *,
    capture: str = "trial",
    client: Endpoint = CLIENT,
    server: Endpoint = SERVER,
    next_number: Callable[[], int] | None = None,
) -> Iterable[FramedSegment]:
    """The conversation as TCP segments in frames.

    Each side acknowledges all earlier bytes when it sends: a broker that reacted has read them.
    """
    wire = SyntheticConnection(client, server, capture, next_number or count(1).__next__)
    yield from wire.open(conversation.opened_ns)
    last = conversation.opened_ns
    for chunk in conversation.chunks:
        last = chunk.timestamp_ns
        behind = wire.sent(not chunk.from_client)
        if chunk.data:
            yield from wire.data(chunk.from_client, chunk.data, last, behind)
        if chunk.ends == RESET:
            yield from wire.abort(chunk.from_client, last)
        elif chunk.ends:
            yield from wire.close(chunk.from_client, last, behind)
    if not wire.reset:
        yield from wire.close(True, last, wire.sent(False))
        yield from wire.close(False, last, wire.sent(True))
        yield from wire.settle(last)
