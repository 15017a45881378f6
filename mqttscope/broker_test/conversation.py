"""What was said on one connection: by whom, when, and which of it was the mutation's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import PacketStream
from mqttscope.transport.wire import Endpoint, Made, Wire

CLIENT = Endpoint.of(("127.0.0.1", 51_234))
SERVER = Endpoint.of(("127.0.0.1", 1883))
_ACKNOWLEDGEMENTS = (b"\x40", b"\x50", b"\x62", b"\x70")
"""How PUBACK, PUBREC, PUBREL and PUBCOMP begin."""
FIN, RESET = "fin", "reset"


@dataclass(slots=True)
class Said:
    """Bytes that one side sent, or the end of its stream."""

    from_client: bool
    data: bytes
    timestamp_ns: int
    mutated: bool = False
    """Whether they are of a step of the mutation."""
    ends: str = ""
    """``fin`` or ``reset`` where the side ends the connection here."""


@dataclass(slots=True)
class Conversation:
    """One connection from its beginning to its end."""

    version: ProtocolVersion
    opened_ns: int = 0
    said: list[Said] = field(default_factory=list)

    def add(self, from_client: bool, data: bytes, timestamp_ns: int, *, mutated: bool = False, ends: str = "") -> None:
        self.said.append(Said(from_client, data, timestamp_ns, mutated, ends))

    def shorten(self, most_bytes: int) -> None:
        """Keep so much of what the broker said, and all that the client did but acknowledge it."""
        left, kept = most_bytes, []
        for one in self.said:
            if one.from_client or one.ends:
                if one.mutated or one.data[:1] not in _ACKNOWLEDGEMENTS:
                    kept.append(one)
            elif left > 0:
                one.data = one.data[:left]
                left -= len(one.data)
                kept.append(one)
        self.said = kept

    def sent(self, *, mutated: bool = False) -> bytes:
        """All bytes of the client, or those from the mutation's first one on."""
        first = self.begins if mutated else 0
        return b"".join(one.data for one in self.said[first:] if one.from_client)

    @property
    def begins(self) -> int:
        """Index of the mutation's first word; after the last one where it has none."""
        return next((index for index, one in enumerate(self.said) if one.mutated), len(self.said))

    def packets(self, *, from_client: bool) -> list[ControlPacket | Malformed]:
        """What a side sent, as far as it can be read."""
        stream = PacketStream()
        stream.version = self.version
        found: list[ControlPacket | Malformed] = []
        for one in self.said:
            if one.from_client is from_client and one.data:
                found += (item for item in stream.feed(one.data) if isinstance(item, ControlPacket | Malformed))
        return found

    def mutated_ranges(self) -> list[tuple[int, int]]:
        """Where in the client's stream the bytes of the mutation are."""
        ranges, position = [], 0
        for one in self.said:
            if one.from_client:
                if one.mutated and one.data:
                    ranges.append((position, position + len(one.data)))
                position += len(one.data)
        return ranges


def frames(
    conversation: Conversation,
    *,
    capture: str = "trial",
    client: Endpoint = CLIENT,
    server: Endpoint = SERVER,
    next_number: Callable[[], int] | None = None,
) -> Iterable[Made]:
    """The conversation as TCP segments with their frames.

    Each side acknowledges what came before its own word: a broker that has reacted has read.  The client reads all.
    """
    wire = Wire(client, server, capture, next_number or count(1).__next__)
    yield from wire.open(conversation.opened_ns)
    last = conversation.opened_ns
    for one in conversation.said:
        last = one.timestamp_ns
        behind = wire.sent(not one.from_client)
        if one.data:
            yield from wire.data(one.from_client, one.data, last, behind)
        if one.ends == RESET:
            yield from wire.abort(one.from_client, last)
        elif one.ends:
            yield from wire.close(one.from_client, last, behind)
    if not wire.reset:
        yield from wire.close(True, last, wire.sent(False))
        yield from wire.close(False, last, wire.sent(True))
        yield from wire.settle(last)
