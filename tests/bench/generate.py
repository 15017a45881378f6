"""A large capture of a busy broker, the same in every run, and the exact truth about what is in it.

Devices of all versions connect, publish with every QoS, get commands, ping and reconnect; packets share segments and
span them; of a hundred frames one comes twice, half a one in the wrong order, and thirty only acknowledge.  Memory
does not depend on the number of frames.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from random import Random

from tests.bench.devices import DISCONNECT, PINGREQ, PINGRESP, Device, device, large_payloads, log_line, payloads
from tests.bench.frames import ACK, FIN, MSS, PSH, RST, SYN, Link, Writer, link, writing
from tests.bench.printing import Out, say

SIZES = (250_000, 1_000_000)
DEVICES = 1_000
FRAMES_PER_DEVICE = 50
"""Small captures have fewer devices, so that not all of their frames are beginnings of connections."""
STEP_NS = 180_000
"""The longest time from one frame to the next; it is 90 microseconds on average."""
ACKNOWLEDGED = 0.7
"""How often a segment is acknowledged at once and not by the next segment with data."""
LONGEST_EXCHANGE = 64
"""No exchange takes more frames."""
LARGE_IN_GIANT = 60
"""How many of 160 exchanges of the giant connection are large packets; of others it is one of 98."""
CACHE = Path(tempfile.gettempdir()) / "mqttscope-bench"

_NAMES = {
    0x1: "connect", 0x2: "connack", 0x3: "publish", 0x4: "puback", 0x5: "pubrec", 0x6: "pubrel", 0x7: "pubcomp",
    0x8: "subscribe", 0x9: "suback", 0xA: "unsubscribe", 0xB: "unsuback", 0xC: "pingreq", 0xD: "pingresp",
    0xE: "disconnect",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrafficMix:
    """How the traffic of a capture differs from that of others."""

    giant: float = 0.0
    """Share of exchanges that belong to the first device, which then never disconnects."""
    wrong: float = 0.0
    """Share of packets that break the specification, so that a linter has something to report."""
    has_fresh_payloads: bool = False
    """Whether no payload recurs."""
    ending: float = 0.004
    """Share of exchanges that end their connection instead."""
    retransmitted: float = 0.018
    """Share of the segments with data that come twice."""
    swapped: float = 0.055
    """Share of the places in a train of segments where two of them are exchanged."""


CLEAN = TrafficMix()
MIXES = {
    "clean": CLEAN,
    "unfriendly": TrafficMix(wrong=0.13, has_fresh_payloads=True),
    "short": TrafficMix(ending=0.15, retransmitted=0.05, swapped=0.25),
}
"""The captures of the benchmark: nothing to report and recurring payloads; a finding in nine frames and no recurring
payloads; many short connections with retransmissions and reordering."""


@dataclass(slots=True)
class Truth:
    """What a generated capture holds."""

    frames: int = 0
    bytes: int = 0
    connections: int = 0
    packets: dict[str, int] = field(default_factory=Counter)
    """Packets by type; each is counted once, however often its bytes come."""
    qos: dict[str, int] = field(default_factory=Counter)
    """PUBLISH packets by QoS."""
    versions: dict[str, int] = field(default_factory=Counter)
    """Connections by protocol level."""
    data_segments: int = 0
    empty_segments: int = 0
    retransmissions: int = 0
    reorderings: int = 0
    shared_segments: int = 0
    """Segments that hold more than one packet."""
    spanning_packets: int = 0
    """Packets that take more than one segment."""
    wrong_packets: int = 0
    """Packets that break the specification, each in one way."""

    @property
    def total(self) -> int:
        """All packets."""
        return sum(self.packets.values())


@dataclass(slots=True)
class Connection:
    """A device while it is connected."""

    device: Device
    link: Link


class Traffic:
    """Writes exchanges until there are enough frames."""

    def __init__(self, writer: Writer, seed: int, devices: int, mix: TrafficMix = CLEAN) -> None:
        self.random = Random(seed)
        self.writer = writer
        self.truth = Truth()
        self.payloads = payloads(self.random)
        self.large = large_payloads(self.random)
        self.devices = [device(number, self.random) for number in range(devices)]
        self.connections: list[Connection | None] = [None] * devices
        exchanges: tuple[tuple[Callable[[Connection], None], int], ...] = (
            (self.publish_0, 26),
            (self.publish_1, 22),
            (self.publish_2, 6),
            (self.deliver, 15),
            (self.ping, 8),
            (self.several_in_a_segment, 8),
            (self.train, 8),
            (self.over_segments, 3),
            (self.large_publish, 1),
            (self.subscriptions, 1),
        )
        self.exchanges = [exchange for exchange, weight in exchanges for _ in range(weight)]
        self.mix = mix
        self.giant_exchanges = self.exchanges + [self.large_publish] * LARGE_IN_GIANT
        self.mistakes = (self.dup_of_qos_0, self.control_character, self.wildcard, self.ping_answer, self.empty_topic)

    def run(self, frames: int) -> Truth:
        """Write that many frames."""
        random, writer = self.random.random, self.writer
        count, mix, truth = len(self.devices), self.mix, self.truth
        while writer.frames < frames - LONGEST_EXCHANGE:
            number = 0 if mix.giant and random() < mix.giant else int(random() * count)
            connection = self.connections[number]
            if connection is None:
                self.connections[number] = self.connect(number)
            elif mix.giant and number == 0:
                self.giant_exchanges[int(random() * len(self.giant_exchanges))](connection)
            elif random() < mix.ending:
                self.disconnect(connection)
                self.connections[number] = None
            elif truth.wrong_packets < mix.wrong * truth.total:
                self.mistakes[truth.wrong_packets % len(self.mistakes)](connection)
                truth.wrong_packets += 1
            else:
                self.exchanges[int(random() * len(self.exchanges))](connection)
        while writer.frames < frames:
            self.acknowledge(next(connection for connection in self.connections if connection is not None), 0)
        self.truth.frames, self.truth.bytes = writer.frames, writer.size
        return self.truth

    def send(self, connection: Connection, side: int, packets: list[bytes]) -> None:
        """One segment with whole packets."""
        self.count(packets)
        if len(packets) > 1:
            self.truth.shared_segments += 1
        self.data(connection.link, side, b"".join(packets))

    def count(self, packets: list[bytes]) -> None:
        """Note the packets of which bytes are on their way."""
        truth = self.truth
        for packet in packets:
            first = packet[0]
            truth.packets[_NAMES[first >> 4]] += 1
            if first >> 4 == 3:
                truth.qos[str(first >> 1 & 3)] += 1

    def data(self, link: Link, side: int, payload: bytes) -> None:
        """One segment with data, sometimes twice."""
        random, sequence = self.random.random, link.sequence[side]
        self.truth.data_segments += 1
        self.writer.data(link, side, payload, int(random() * STEP_NS))
        if random() < self.mix.retransmitted:
            self.truth.retransmissions += 1
            self.truth.data_segments += 1
            self.writer.segment(link, side, sequence, payload, PSH | ACK, int(random() * STEP_NS))

    def pieces(self, link: Link, side: int, parts: list[bytes]) -> None:
        """Segments that are sent without waiting, so that some overtake others."""
        random = self.random.random
        sequence = link.sequence[side]
        order = []
        for part in parts:
            order.append((sequence, part))
            sequence = (sequence + len(part)) & 0xFFFFFFFF
        link.sequence[side] = sequence
        for at in range(len(order) - 1):
            if random() < self.mix.swapped:
                order[at], order[at + 1] = order[at + 1], order[at]
                self.truth.reorderings += 1
        for number, part in order:
            self.truth.data_segments += 1
            self.writer.segment(link, side, number, part, PSH | ACK, int(random() * STEP_NS))

    def acknowledge(self, connection: Connection, side: int) -> None:
        """A segment without data."""
        self.bare(connection.link, side, ACK)

    def bare(self, link: Link, side: int, flags: int) -> None:
        """A segment without data, with these flags."""
        self.truth.empty_segments += 1
        self.writer.bare(link, side, flags, int(self.random.random() * STEP_NS))

    def maybe_acknowledge(self, connection: Connection, side: int) -> None:
        """A segment without data, unless data will acknowledge soon."""
        if self.random.random() < ACKNOWLEDGED:
            self.acknowledge(connection, side)

    def connect(self, number: int) -> Connection:
        """Handshake, CONNECT, CONNACK and the first subscription."""
        random, single_device = self.random, self.devices[number]
        connection = Connection(single_device, self.link(number))
        truth = self.truth
        truth.connections += 1
        truth.versions[str(single_device.level)] += 1
        self.bare(connection.link, 0, SYN)
        self.bare(connection.link, 1, SYN | ACK)
        self.acknowledge(connection, 0)
        clean = random.random() < 0.5
        self.send(connection, 0, [single_device.connect(clean=clean)])
        self.acknowledge(connection, 1)
        self.send(connection, 1, [single_device.connack(present=not clean)])
        self.maybe_acknowledge(connection, 0)
        self.subscriptions(connection, unsubscribe=False)
        return connection

    def link(self, number: int) -> Link:
        """Where the next connection of a device runs."""
        random = self.random
        draw = random.random()
        numbers = random.getrandbits(32), random.getrandbits(32)
        ports = random.randint(32_768, 60_999), 1883
        if draw < 0.12:
            pair = IPv6Address(0x20010DB8 << 96 | number + 16).packed, IPv6Address(0x20010DB8 << 96 | 1).packed
            return link(6, pair, ports, 0, numbers)
        addresses = IPv4Address((10 << 24) + 256 + number).packed, IPv4Address(10 << 24 | 2).packed
        return link(4, addresses, ports, 100 + number % 3 if draw < 0.22 else 0, numbers)

    def disconnect(self, connection: Connection) -> None:
        """An end in good order, or a reset."""
        link = connection.link
        if self.random.random() < 0.3:
            self.bare(link, 0, RST | ACK)
            return
        self.send(connection, 0, [DISCONNECT])
        self.bare(link, 0, FIN | ACK)
        self.bare(link, 1, FIN | ACK)
        self.acknowledge(connection, 0)

    def payload(self) -> bytes:
        """One of the payloads, or a new one."""
        if self.mix.has_fresh_payloads:
            return log_line(self.random, self.truth.total)
        return self.payloads[int(self.random.random() * len(self.payloads))]

    def published(self, connection: Connection, qos: int = 0, identifier: bytes = b"") -> bytes:
        """A PUBLISH of the device."""
        return connection.device.publish(qos, identifier, self.payload(), self.random.random())

    def publish_0(self, connection: Connection) -> None:
        """QoS 0."""
        self.send(connection, 0, [self.published(connection)])
        self.maybe_acknowledge(connection, 1)

    def publish_1(self, connection: Connection) -> None:
        """QoS 1 with its acknowledgement."""
        identifier = connection.device.identifier(0)
        self.send(connection, 0, [self.published(connection, 1, identifier)])
        self.send(connection, 1, [b"\x40\x02" + identifier])
        self.maybe_acknowledge(connection, 0)

    def publish_2(self, connection: Connection) -> None:
        """QoS 2, all four packets."""
        identifier = connection.device.identifier(0)
        self.send(connection, 0, [self.published(connection, 2, identifier)])
        self.send(connection, 1, [b"\x50\x02" + identifier])
        self.send(connection, 0, [b"\x62\x02" + identifier])
        self.send(connection, 1, [b"\x70\x02" + identifier])
        self.maybe_acknowledge(connection, 0)

    def deliver(self, connection: Connection) -> None:
        """A message to the device, QoS 0 or 1."""
        qos = self.random.random() < 0.4
        identifier = connection.device.identifier(1) if qos else b""
        self.send(connection, 1, [connection.device.delivery(int(qos), identifier, self.payload())])
        if qos:
            self.send(connection, 0, [b"\x40\x02" + identifier])
            self.maybe_acknowledge(connection, 1)
        else:
            self.maybe_acknowledge(connection, 0)

    def ping(self, connection: Connection) -> None:
        """PINGREQ and PINGRESP."""
        self.send(connection, 0, [PINGREQ])
        self.send(connection, 1, [PINGRESP])
        self.maybe_acknowledge(connection, 0)

    def several_in_a_segment(self, connection: Connection) -> None:
        """Up to six packets that TCP put together, as far as they fit."""
        packets: list[bytes] = []
        size = 0
        for _ in range(self.random.randint(2, 6)):
            packets.append(self.published(connection))
            size += len(packets[-1])
            if size > MSS - 700:
                break
        self.send(connection, 0, packets)
        self.maybe_acknowledge(connection, 1)

    def train(self, connection: Connection) -> None:
        """Segments of one packet each, one after the other."""
        packets = [self.published(connection) for _ in range(self.random.randint(2, 5))]
        self.count(packets)
        self.pieces(connection.link, 0, packets)
        self.maybe_acknowledge(connection, 1)

    def over_segments(self, connection: Connection) -> None:
        """Three packets in two segments, cut inside of the second one."""
        packets = [self.published(connection) for _ in range(3)]
        self.count(packets)
        self.truth.spanning_packets += 1
        whole = b"".join(packets)
        cut = len(packets[0]) + self.random.randint(1, len(packets[1]) - 1)
        self.pieces(connection.link, 0, [whole[:cut], whole[cut:]])
        self.acknowledge(connection, 1)

    def dup_of_qos_0(self, connection: Connection) -> None:
        """DUP with QoS 0, which 3.1 has nothing against."""
        if connection.device.level == 3:
            self.wildcard(connection)
        else:
            packet = self.published(connection)
            self.send(connection, 0, [bytes((packet[0] | 8,)) + packet[1:]])

    def control_character(self, connection: Connection) -> None:
        """A control character in the topic."""
        self.send(connection, 0, [connection.device.publish_to("status/\x07", self.payload())])

    def wildcard(self, connection: Connection) -> None:
        """A wildcard in the topic."""
        self.send(connection, 0, [connection.device.publish_to("status/#", self.payload())])

    def ping_answer(self, connection: Connection) -> None:
        """A PINGRESP that nobody has asked for."""
        self.send(connection, 1, [PINGRESP])

    def empty_topic(self, connection: Connection) -> None:
        """No topic, and no alias for one."""
        self.send(connection, 0, [connection.device.publish_to("", self.payload())])

    def large_publish(self, connection: Connection) -> None:
        """A packet of several full segments; every second one is acknowledged."""
        payload = self.large[int(self.random.random() * len(self.large))]
        packet = connection.device.publish(0, b"", payload, self.random.random())
        self.count([packet])
        self.truth.spanning_packets += 1
        parts = [packet[at : at + MSS] for at in range(0, len(packet), MSS)]
        for at in range(0, len(parts), 2):
            self.pieces(connection.link, 0, parts[at : at + 2])
            self.acknowledge(connection, 1)

    def subscriptions(self, connection: Connection, *, unsubscribe: bool = True) -> None:
        """SUBSCRIBE with SUBACK, or the opposite before."""
        asked = [connection.device.subscribe()]
        if unsubscribe:
            asked.insert(0, connection.device.unsubscribe())
        for question, answer in asked:
            self.send(connection, 0, [question])
            self.send(connection, 1, [answer])
            self.maybe_acknowledge(connection, 0)


def measure(out: Out, frames: Sequence[int] = SIZES, traffic: str = "clean") -> None:
    """Print the paths of captures, which are made where they are not there."""
    for size in frames:
        path, truth = capture(size, devices=min(DEVICES, size // FRAMES_PER_DEVICE), mix=MIXES[traffic])
        out(str(path))
        say(f"{truth.frames:,} frames, {truth.total:,} packets")


def generate(path: Path, frames: int, *, seed: int = 1, devices: int = DEVICES, mix: TrafficMix = CLEAN) -> Truth:
    """Write a capture of exactly that many frames; returns what is in it."""
    with writing(path) as writer:
        return Traffic(writer, seed, devices, mix).run(frames)


def capture(
    frames: int, *, seed: int = 1, devices: int = DEVICES, mix: TrafficMix = CLEAN, cache: Path = CACHE
) -> tuple[Path, Truth]:
    """A capture from the cache, made when it is not there, and its truth."""
    code = hashlib.sha256(repr(mix).encode())
    for name in ("frames.py", "devices.py", "generate.py"):
        code.update((Path(__file__).parent / name).read_bytes())
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{frames}-{seed}-{devices}-{code.hexdigest()[:12]}.pcapng"
    manifest = path.with_suffix(".json")
    if manifest.exists():
        return path, Truth(**json.loads(manifest.read_text()))
    truth = generate(path, frames, seed=seed, devices=devices, mix=mix)
    manifest.write_text(json.dumps({row.name: getattr(truth, row.name) for row in fields(truth)}, indent=1) + "\n")
    return path, truth
