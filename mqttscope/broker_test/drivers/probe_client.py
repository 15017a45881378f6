"""A client that keeps the protocol: it shows whether a broker still serves others, and cleans up after cases.

`ProbeClient` is one connection; `witness`, `broker_health`, `speaks` and the ``forget`` functions are what is done with
it.  `BrokerAccess` opens every connection of a run in the same way, and `PacketListener` collects the packets that
arrive on a link, in bounded memory.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count

from mqttscope.broker_test.fit import password_for
from mqttscope.errors import MqttscopeError
from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.stream import PacketStream
from mqttscope.replay.live import LiveConnection, ends_exchange
from mqttscope.replay.script import Script
from mqttscope.session.connection import Connection
from mqttscope.transport.client import Address, connect
from mqttscope.transport.link import Link, LinkError, LinkErrorKind, Listener
from mqttscope.transport.target import Target


@dataclass(slots=True)
class BrokerAccess:
    """Where connections go, and as whom."""

    target: Target
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    addresses: Sequence[Address] | None = None
    """What the host was resolved to; those that were looked at are those that are connected to."""
    user_name: str | None = None
    """Replaces the recorded ones."""
    password: bytes | None = None
    connect_timeout_s: float = 5.0

    async def open(self, listener: Listener, version: ProtocolVersion, *, timeout_s: float | None = None) -> Link:
        """A new connection; `LinkError` where there is none."""
        return await connect(
            self.target,
            listener,
            tls=self.tls,
            server_name=self.server_name,
            timeout_s=timeout_s or self.connect_timeout_s,
            addresses=self.addresses,
            subprotocol="mqttv3.1" if version == ProtocolVersion.V3_1 else "mqtt",
        )


MAX_RECEIVED_BYTES = 16 * 1024 * 1024
"""A broker that sends more than this on one connection is not listened to any longer."""
MAX_RECEIVED_PACKETS = 140_000
"""The same in packets: the longest cases have 65,535 exchanges."""
MAX_SLICE_BYTES = 8 * 1024
"""So much is looked at before timers, signals and other connections get their turn."""


class PacketListener:
    """Listener of a link that gathers packets; subclasses say what is to be done with them."""

    def __init__(self, version: ProtocolVersion) -> None:
        self.stream = PacketStream()
        self.stream.version = version
        self.stream.max_packet_bytes = MAX_RECEIVED_BYTES
        self.packets: list[ControlPacket | Malformed] = []
        self.link: Link | None = None
        self.how = ""
        """How the other side ended: ``fin``, ``reset``, ``failed``; empty while it has not."""
        self.bytes = 0
        self.count = 0
        """Packets."""
        self.most = MAX_RECEIVED_PACKETS
        """Packets that are listened to."""
        self.flooded = False
        """More came than is listened to."""
        self._changed = asyncio.Event()
        self._deaf = False
        self._unread: deque[bytes] = deque()
        self._end = ""

    def received(self, data: bytes) -> None:
        """Bytes came."""
        if self.flooded or self._deaf:
            return
        self.bytes += len(data)
        if self.link is None or (not self._unread and len(data) <= MAX_SLICE_BYTES):
            self._look_at(data)
            return
        if not self._unread:
            self.link.read(False)
            asyncio.get_running_loop().call_soon(self._read_on)
        self._unread.extend(data[at : at + MAX_SLICE_BYTES] for at in range(0, len(data), MAX_SLICE_BYTES))

    def _read_on(self) -> None:
        """Look at a part of what has come; the rest gets its turn later."""
        if not self._unread:
            return
        self._look_at(self._unread.popleft())
        if self._unread:
            asyncio.get_running_loop().call_soon(self._read_on)
            return
        if self.link is not None and not self._deaf and not self.flooded:
            self.link.read(True)
        if self._end:
            self.ended(self._end, "")

    def _look_at(self, data: bytes) -> None:
        for item in self.stream.feed(data):
            if isinstance(item, ControlPacket | Malformed):
                self.count += 1
                self.packets.append(item)
                self.took(item)
        self._changed.set()
        if not self.flooded and (self.bytes > MAX_RECEIVED_BYTES or self.count > self.most):
            self.flooded = True
            self._unread.clear()
            self.drowned()

    def drowned(self) -> None:
        """More came than is listened to: nothing more is read."""
        if self.link is not None:
            self.link.read(False)

    def stop_reading(self) -> None:
        self._deaf = True
        if self.link is not None:
            self.link.read(False)

    def took(self, packet: ControlPacket | Malformed) -> None:
        """A packet came."""

    def ended(self, how: str, detail: str) -> None:
        """The other side has ended."""
        if self._unread:
            # First what it said before.
            self._end = how
            return
        self.how = how
        self._changed.set()

    def writable(self, on: bool) -> None:
        """Nothing here sends so much that it would have to wait."""

    async def until(self, happened: Callable[[], object], seconds: float) -> bool:
        """Wait until something is true, the other side ends, or the time is over; whether it is true."""
        deadline = time.monotonic() + seconds
        while not happened():
            left = deadline - time.monotonic()
            if self.how or left <= 0:
                return False
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return bool(happened())
        return True

    async def until_quiet(self, happened: Callable[[], object], seconds: float, longest_s: float) -> bool:
        """As `until`, but for who still sends: until nothing comes for ``seconds``, or ``longest_s`` passed."""
        deadline = time.monotonic() + longest_s
        while True:
            before = self.bytes
            if await self.until(happened, seconds):
                return True
            if self.how or self.bytes == before or self.flooded or time.monotonic() > deadline:
                return False

    async def until_ended(self, seconds: float) -> bool:
        await self.until(lambda: False, seconds)
        return bool(self.how)


V3_1, V3_1_1, V5 = ProtocolVersion
VERSIONS = (V3_1_1, V5, V3_1)
"""In this order it is tried what the broker speaks."""
TOPIC = "mqttscope/witness/"
MAX_IDENTIFIER = 65_535
MAX_UNASKED = 20_000
"""Packets that a probe client, which has asked for next to nothing, takes from one question to the next."""
FLOODED = "it sent without end"
"""How the connection of a probe client ended that was flooded."""
LEAVE_S = 0.5
"""How long the broker has to close after our DISCONNECT."""


class BrokerHealth(Enum):
    """What a fresh client finds."""

    SERVES = "it serves"
    SILENT = "it takes connections and answers no CONNECT"
    DEAD = "nothing listens"


UNSPOKEN = frozenset({0x01, 0x84})
"""Codes of a CONNACK with which a broker refuses the version: of 3.1 and 3.1.1, and of 5.0."""


class RefusedError(MqttscopeError):
    """The broker answered CONNECT with a refusal, which the text names."""

    def __init__(self, code: int, version: ProtocolVersion) -> None:
        super().__init__(f"CONNACK 0x{code:02x} ({reason_name(PacketType.CONNACK, code, version)})")
        self.code = code


class FloodedError(MqttscopeError):
    """The broker sends without end to a client that has asked for nothing."""


class ProbeClient(PacketListener):
    """One connection."""

    def __init__(
        self, access: BrokerAccess, version: ProtocolVersion = V3_1_1, client_identifier: str | None = None
    ) -> None:
        super().__init__(version)
        self.most = MAX_UNASKED
        self.access = access
        self.version = version
        script = Script(Connection(0, "", "", "", 0, 0))
        self.live = LiveConnection(script, plays_client=True, keep=False, max_pings=1)
        self.token = os.urandom(6).hex()
        self.client_identifier = client_identifier if client_identifier is not None else f"mqttscope-{self.token}"
        self._numbers = count(1)
        self._heard: set[bytes] = set()
        self._round = 0
        self.hears = False
        """Whether the broker delivers to it what it publishes: some let not everybody subscribe and publish."""

    async def connect(self, seconds: float) -> bool:
        """Connect with a clean session; false when no CONNACK comes, `LinkError` and `RefusedError` as they say."""
        self.link = await self.access.open(self, self.version, timeout_s=seconds)
        self._send(
            packets.Connect(
                protocol_name="MQIsdp" if self.version == V3_1 else "MQTT",
                protocol_level=self.version.value,
                clean_start=True,
                keep_alive=0,
                properties=Properties() if self.version == V5 else None,
                client_identifier=self.client_identifier,
                user_name=self.access.user_name,
                password=password_for(self.version, self.access.user_name, self.access.password),
            )
        )
        await self.until(lambda: self.packets, seconds)
        first = next(iter(self.packets), None)
        if isinstance(first, packets.Connack) and first.reason_code:
            raise RefusedError(first.reason_code, self.version)
        return isinstance(first, packets.Connack)

    async def watch(self, seconds: float) -> bool:
        """Subscribe to a topic of its own, for `round_trip`; false when that is not answered."""
        properties = Properties() if self.version == V5 else None
        rows = [Subscription(TOPIC + self.token, 0)]
        self._send(packets.Subscribe(packet_identifier=self._identifier(), properties=properties, subscriptions=rows))
        if not await self.until(lambda: any(isinstance(one, packets.Suback) for one in self.packets), seconds):
            return False
        self.hears = await self._echo(seconds) is not None
        return not self.how

    async def round_trip(self, seconds: float) -> float | None:
        """Publish to oneself, or ask for PINGRESP where that leads nowhere: the seconds it took, ``None`` for never."""
        return await (self._echo(seconds) if self.hears else self._ping(seconds))

    async def _ping(self, seconds: float) -> float | None:
        start = time.monotonic()
        self._forget()
        self._send(packets.Pingreq())
        came = await self.until(lambda: any(isinstance(one, packets.Pingresp) for one in self.packets), seconds)
        return time.monotonic() - start if came else None

    async def _echo(self, seconds: float) -> float | None:
        self._round += 1
        payload = f"{self._round}".encode()
        start = time.monotonic()
        self._publish(TOPIC + self.token, payload, 0)
        came = await self.until(lambda: payload in self._heard, seconds)
        self._heard.clear()
        self._forget()
        return time.monotonic() - start if came else None

    def _forget(self) -> None:
        """What came before is of no interest any more."""
        self.packets.clear()
        self.bytes = self.count = 0

    async def publish(self, topic: str, payload: bytes, qos: int, seconds: float, *, retain: bool = False) -> bool:
        """Publish, at the highest QoS that the broker takes, and wait until it has taken it over."""
        qos = min(qos, self.live.connection.maximum_qos)
        identifier = self._publish(topic, payload, qos, retain=retain)
        if not qos:
            # It takes packets in their order: with PINGRESP it has read this one.
            return not retain or await self._ping(seconds) is not None
        return await self.until(lambda: identifier not in self.live.connection.client_side.exchanges, seconds)

    async def leave(self, seconds: float = LEAVE_S) -> None:
        """End in good order; the broker has so long for its part."""
        if self.link is not None:
            with suppress(OSError):
                self._send(packets.Disconnect())
            self.link.close()
            await self.until_ended(seconds)
            await self.drop()

    def abort(self) -> None:
        if self.link is not None:
            self.link.abort()
        self.how = self.how or "reset"

    async def drop(self) -> None:
        if self.link is not None:
            self.link.abort()
            await self.link.closed.wait()

    def drowned(self) -> None:
        """Who floods a client that has asked for nothing has lost it."""
        if self.link is not None:
            self.link.abort()
        self.ended(FLOODED, "")

    def took(self, packet: ControlPacket | Malformed) -> None:
        """Acknowledge what has to be."""
        self.live.received(packet, time.time_ns())
        if isinstance(packet, packets.Publish):
            if packet.topic_name == TOPIC + self.token:
                self._heard.add(packet.payload)
        elif isinstance(packet, packets.Pubrec) and not ends_exchange(packet):
            self._send(packets.Pubrel(packet_identifier=packet.packet_identifier))

    def _publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> int:
        identifier = self._identifier() if qos else 0
        self._send(
            packets.Publish(
                qos=qos,
                retain=retain,
                topic_name=topic,
                packet_identifier=identifier or None,
                properties=Properties() if self.version == V5 else None,
                payload=payload,
            )
        )
        return identifier

    def _identifier(self) -> int:
        return (next(self._numbers) - 1) % MAX_IDENTIFIER + 1

    def _send(self, packet: ControlPacket) -> None:
        if self.link is not None:
            raw = encode(packet, self.version)
            self.link.write(self.live.sent(packet, raw, None, time.time_ns()).data)


async def witness(access: BrokerAccess, seconds: float) -> ProbeClient | None:
    """A client that watches whether the broker serves; ``None`` where it does not, `LinkError` without a broker.

    `RefusedError` when the broker refuses it in every version, `FloodedError` when it says more than can be heard.
    """
    refused: RefusedError | None = None
    flooded = False
    for version in VERSIONS:
        made = ProbeClient(access, version)
        try:
            if await made.connect(seconds) and await made.watch(seconds):
                return made
        except RefusedError as error:
            # That it does not speak one version says less than why it refuses us in another.
            refused = error if refused is None or error.code not in UNSPOKEN else refused
        flooded = flooded or made.flooded
        await made.drop()
    if refused is not None:
        raise refused
    if flooded:
        raise FloodedError(f"more than {MAX_UNASKED:,} packets for a client that has asked for nothing")
    return None


async def broker_health(access: BrokerAccess, version: ProtocolVersion, seconds: float) -> BrokerHealth:
    """How a fresh connection fares."""
    probe = ProbeClient(access, version)
    try:
        served = await probe.connect(seconds)
    except LinkError as error:
        return BrokerHealth.DEAD if error.kind is LinkErrorKind.REFUSED else BrokerHealth.SILENT
    except RefusedError:
        served = True
    await (probe.leave() if served else probe.drop())
    return BrokerHealth.SERVES if served else BrokerHealth.SILENT


async def speaks(access: BrokerAccess, version: ProtocolVersion, seconds: float) -> bool:
    """Whether the broker speaks a version: it answers a plain CONNECT in it, or refuses who connects and not that."""
    probe = ProbeClient(access, version)
    try:
        return await probe.connect(seconds)
    except RefusedError as error:
        return error.code not in UNSPOKEN
    finally:
        await probe.leave()


async def forget_session(
    access: BrokerAccess, version: ProtocolVersion, client_identifier: str, seconds: float, *, lasting: bool = True
) -> bool:
    """End the session of a client, with its subscriptions and its queue: a clean one takes its place and ends.

    ``lasting``: it outlives its connection.  One that does not is gone, also where the broker refuses us.
    """
    made = ProbeClient(access, version, client_identifier)
    try:
        return await made.connect(seconds)
    except RefusedError:
        return not lasting
    except LinkError:
        return False
    except asyncio.CancelledError:
        made.abort()
        raise
    finally:
        await made.leave()


async def forget_retained(
    access: BrokerAccess, version: ProtocolVersion, topics: Iterable[str], seconds: float
) -> list[str]:
    """Delete the retained messages of topics (5.0 3.3.1.3); returns the topics for which that was not possible."""
    left = []
    for topic in topics:
        made = ProbeClient(access, version)
        try:
            done = await made.connect(seconds) and await made.publish(topic, b"", 1, seconds, retain=True)
        except (LinkError, RefusedError):
            done = False
        except asyncio.CancelledError:
            made.abort()
            raise
        await made.leave()
        if not done:
            left.append(topic)
    return left
