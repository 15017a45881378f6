"""Captures to be replayed: one busy publisher, a crowd at once, and a day in which little happens."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from mqttscope.capture.write import PcapngWriter
from mqttscope.mqtt import (
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Pingreq,
    Pingresp,
    ProtocolVersion,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    encode,
)
from mqttscope.transport.wire import Endpoint, FramedSegment, SyntheticConnection
from tests.bench.frames import START_NS

V3_1_1 = ProtocolVersion.V3_1_1
SECOND = 1_000_000_000
MS = 1_000_000
PAYLOAD = bytes(100)
BROKER = Endpoint.of(("192.0.2.1", 1883))
DAY_S = 86_400

Said = tuple[int, bool, ControlPacket | None]
"""When, by the client or not, and what; ``None`` is the end."""


def write(path: Path, conversations: Iterable[Iterator[Said]]) -> None:
    """Conversations as a capture, in the order of time."""
    numbers = itertools.count(1).__next__
    wires: dict[int, SyntheticConnection] = {}
    with PcapngWriter(path) as writer:
        for index, (now, from_client, packet) in heapq.merge(
            *(zip(itertools.repeat(index), conversation) for index, conversation in enumerate(conversations)),
            key=lambda row: row[1][0],
        ):
            segments: list[FramedSegment] = []
            if index not in wires:
                client = Endpoint.of((f"198.51.{100 + index // 250}.{1 + index % 250}", 40_000 + index % 20_000))
                wires[index] = SyntheticConnection(client, BROKER, "bench", numbers, 1_000, 2_000)
                segments += wires[index].open(now - MS)
            wire = wires[index]
            if packet is None:
                segments += [*wire.close(True, now), *wire.close(False, now + MS)]
            else:
                segments += wire.data(from_client, encode(packet, V3_1_1), now, wire.sent(not from_client))
            for segment in segments:
                writer.write(segment.frame)


def publisher(messages: int, qos: int, topic: str) -> Iterator[Said]:
    """One client that publishes as fast as it can."""
    now = START_NS
    yield now, True, Connect(client_identifier="busy", keep_alive=60)
    yield now + MS, False, Connack()
    for number in range(messages):
        now += 100_000
        identifier = 1 + number % 60_000 if qos else None
        publish = Publish(qos=qos, topic_name=topic, packet_identifier=identifier, payload=PAYLOAD)
        yield now + 2 * MS, True, publish
        if identifier is not None:
            yield now + 2 * MS + 50_000, False, Puback(identifier)
    yield now + SECOND, True, Disconnect()
    yield now + SECOND + MS, True, None


def member(number: int, of: int) -> Iterator[Said]:
    """One of many that are there at the same time: subscribes, publishes to itself, pings, and stays for all others."""
    topic, now = f"crowd/{number}", START_NS + number * MS
    yield now, True, Connect(client_identifier=f"member-{number}", keep_alive=60)
    yield now + MS // 2, False, Connack()
    yield now + MS, True, Subscribe(1, subscriptions=[Subscription(topic, 0)])
    yield now + 2 * MS, False, Suback(1, reason_codes=[0])
    now = START_NS + of * MS + number * MS
    yield now, True, Publish(qos=1, topic_name=topic, packet_identifier=2, payload=PAYLOAD)
    yield now + MS, False, Puback(2)
    yield now + 2 * MS, False, Publish(topic_name=topic, payload=PAYLOAD)
    yield now + 3 * MS, True, Pingreq()
    yield now + 4 * MS, False, Pingresp()
    now += of * MS
    yield now + 5 * MS, True, Disconnect()
    yield now + 6 * MS, True, None


def day(number: int) -> Iterator[Said]:
    """A sensor that reports every ten minutes for a day, and pings between."""
    now = START_NS + number * 7 * SECOND
    yield now, True, Connect(client_identifier=f"sensor-{number}", keep_alive=900)
    yield now + MS, False, Connack()
    for _ in range((DAY_S - 600) // 600):
        now += 600 * SECOND
        yield now, True, Publish(topic_name=f"day/{number}", payload=PAYLOAD)
        yield now + 300 * SECOND, True, Pingreq()
        yield now + 300 * SECOND + MS, False, Pingresp()
    now = START_NS + DAY_S * SECOND - (9 - number) * SECOND
    yield now, True, Publish(topic_name=f"day/{number}", payload=PAYLOAD)
    yield now + MS, True, Disconnect()
    yield now + 2 * MS, True, None
