"""A client that obeys the protocol: it checks whether a broker still serves others, and cleans up after cases.

`ProbeClient` is one connection, used by `witness`, `broker_health`, `supports_version` and the ``forget`` functions.
`BrokerAccess` opens every connection of a run with the same settings, and `PacketCollector` collects the packets that
arrive on a link, in bounded memory.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Self

from mqttscope.broker_test.fit import password_for
from mqttscope.errors import MqttscopeError
from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.replay.live import LiveConnection, ends_exchange
from mqttscope.replay.script import Script
from mqttscope.session.connection import Connection
from mqttscope.transport.client import BrokerConnector
from mqttscope.transport.link import LinkError, LinkErrorKind
from mqttscope.transport.peer import LivePeer


@dataclass(slots=True)
class BrokerAccess(BrokerConnector):
    """Address and login of the broker."""

    user_name: str | None = None
    """Replaces the recorded User Name."""
    password: bytes | None = None


MAX_RECEIVED_BYTES = 16 * 1024 * 1024
"""Maximum number of bytes read from a broker on one connection."""
MAX_RECEIVED_PACKETS = 140_000
"""Maximum number of packets read from a broker on one connection: the longest cases have 65,535 exchanges."""


class PacketCollector(LivePeer):
    """Collects the packets of a broker; subclasses react to them."""

    def __init__(self, version: ProtocolVersion) -> None:
        super().__init__()
        self.stream.version = version
        self.stream.max_packet_bytes = MAX_RECEIVED_BYTES
        self.packets: list[ControlPacket | Malformed] = []
        self.bytes = 0
        self.count = 0
        """Number of received packets."""
        self.most = MAX_RECEIVED_PACKETS
        """Maximum number of packets."""
        self.flooded = False
        """Whether the broker exceeded a limit."""
        self._changed = asyncio.Event()
        self._deaf = False

    @property
    def has_room(self) -> bool:
        return not (self.flooded or self._deaf)

    def received(self, data: bytes) -> None:
        """Count and parse received bytes."""
        if self.has_room:
            self.bytes += len(data)
            super().received(data)

    def parse(self, data: bytes) -> None:
        """Collect the packets in one slice of received bytes."""
        for item in self.stream.feed(data):
            if isinstance(item, ControlPacket | Malformed):
                self.count += 1
                self.packets.append(item)
                self.on_packet(item)
        self._changed.set()
        if not self.flooded and (self.bytes > MAX_RECEIVED_BYTES or self.count > self.most):
            self.flooded = True
            self.unread.clear()
            self.on_flood()

    def on_flood(self) -> None:
        """Stop reading after a limit was exceeded."""
        self.listen()

    def stop_reading(self) -> None:
        self._deaf = True
        self.listen()

    def on_packet(self, packet: ControlPacket | Malformed) -> None:
        """Called for each packet."""

    def on_end(self, how: str, detail: str) -> None:
        """Note that the broker ended the connection."""
        super().on_end(how, detail)
        self._changed.set()

    def writable(self, on: bool) -> None:
        """Ignored: no caller sends enough to have to wait."""

    async def until(self, happened: Callable[[], object], seconds: float) -> bool:
        """Wait until a condition is true, the other side ends, or the timeout; returns the condition."""
        deadline = time.monotonic() + seconds
        while not happened():
            left = deadline - time.monotonic()
            if self.ended_by or left <= 0:
                return False
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return bool(happened())
        return True

    async def until_quiet(self, happened: Callable[[], object], seconds: float, longest_s: float) -> bool:
        """Like `until`, but while the other side keeps sending, wait up to ``longest_s``."""
        deadline = time.monotonic() + longest_s
        while True:
            before = self.bytes
            if await self.until(happened, seconds):
                return True
            if self.ended_by or self.bytes == before or self.flooded or time.monotonic() > deadline:
                return False

    async def until_ended(self, seconds: float) -> bool:
        await self.until(lambda: False, seconds)
        return bool(self.ended_by)


V3_1, V3_1_1, V5 = ProtocolVersion
VERSIONS = (V3_1_1, V5, V3_1)
"""Versions to try, in order."""
TOPIC = "mqttscope/witness/"
MAX_IDENTIFIER = 65_535
MAX_UNASKED = 20_000
"""Maximum number of packets that a probe client accepts between two of its requests."""
FLOODED = "the broker flooded it"
"""Reason for the end of a probe client's connection after a flood."""
LEAVE_S = 0.5
"""Timeout of the broker's close after our DISCONNECT."""


class BrokerHealth(Enum):
    """Health of the broker, as seen by a new client."""

    SERVES = "it serves"
    SILENT = "it accepts TCP connections but answers no CONNECT"
    DEAD = "nothing listens"


UNSPOKEN = frozenset({0x01, 0x84})
"""Codes of a CONNACK that refuses the version, in 3.1 and 3.1.1, and in 5.0."""


class RefusedError(MqttscopeError):
    """The broker refused the CONNECT; the message names the reason code."""

    def __init__(self, code: int, version: ProtocolVersion) -> None:
        super().__init__(f"CONNACK 0x{code:02x} ({reason_name(PacketType.CONNACK, code, version)})")
        self.code = code


class FloodedError(MqttscopeError):
    """The broker floods a client that has not subscribed to anything."""


class ProbeClient(PacketCollector):
    """One connection of a client that obeys the protocol."""

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
        """Whether the broker delivers the client's own messages: not every broker lets it subscribe and publish."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Disconnect; after an error, reset the connection."""
        if kind is not None:
            self.abort()
        await self.leave()

    async def connect(self, seconds: float) -> bool:
        """Connect with a clean session; false without a CONNACK.  Raises `LinkError` or `RefusedError`."""
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
        """Subscribe to its own topic for `round_trip`; false without an answer."""
        properties = Properties() if self.version == V5 else None
        rows = [Subscription(TOPIC + self.token, 0)]
        self._send(packets.Subscribe(packet_identifier=self._identifier(), properties=properties, subscriptions=rows))
        if not await self.until(lambda: any(isinstance(packet, packets.Suback) for packet in self.packets), seconds):
            return False
        self.hears = await self._echo(seconds) is not None
        return not self.ended_by

    async def round_trip(self, seconds: float) -> float | None:
        """Seconds until the broker delivers an own message, or answers PINGREQ; ``None`` without an answer."""
        return await (self._echo(seconds) if self.hears else self._ping(seconds))

    async def _ping(self, seconds: float) -> float | None:
        start = time.monotonic()
        self._forget()
        self._send(packets.Pingreq())
        came = await self.until(lambda: any(isinstance(packet, packets.Pingresp) for packet in self.packets), seconds)
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
        self.packets.clear()
        self.bytes = self.count = 0

    async def publish(self, topic: str, payload: bytes, qos: int, seconds: float, *, retain: bool = False) -> bool:
        """Publish, at most at the broker's Maximum QoS, and wait until the broker has accepted the message."""
        qos = min(qos, self.live.connection.maximum_qos)
        identifier = self._publish(topic, payload, qos, retain=retain)
        if not qos:
            # The broker processes packets in order: PINGRESP shows that it has read the PUBLISH.
            return not retain or await self._ping(seconds) is not None
        return await self.until(lambda: identifier not in self.live.connection.client_side.exchanges, seconds)

    async def leave(self, seconds: float = LEAVE_S) -> None:
        """Disconnect normally, and wait ``seconds`` for the broker to close."""
        if self.link is not None:
            with suppress(OSError):
                self._send(packets.Disconnect())
            self.link.close()
            await self.until_ended(seconds)
            await self.drop()

    def abort(self) -> None:
        if self.link is not None:
            self.link.abort()
        self.ended_by = self.ended_by or "reset"

    async def drop(self) -> None:
        if self.link is not None:
            self.link.abort()
            await self.link.closed.wait()

    def on_flood(self) -> None:
        """Abort the connection after a flood."""
        if self.link is not None:
            self.link.abort()
        self.ended(FLOODED, "")

    def on_packet(self, packet: ControlPacket | Malformed) -> None:
        """Handle a packet: note own messages, and answer PUBREC."""
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
    """A client that stays connected and shows that the broker serves; ``None`` if it does not.

    Raises `LinkError` without a broker, `RefusedError` if every version is refused, `FloodedError` after a flood.
    """
    refused: RefusedError | None = None
    flooded = False
    for version in VERSIONS:
        probe = ProbeClient(access, version)
        try:
            if await probe.connect(seconds) and await probe.watch(seconds):
                return probe
        except RefusedError as error:
            # An unsupported version is less informative than the reason for refusing another version.
            refused = error if refused is None or error.code not in UNSPOKEN else refused
        except asyncio.CancelledError:
            await probe.drop()
            raise
        flooded = flooded or probe.flooded
        await probe.drop()
    if refused is not None:
        raise refused
    if flooded:
        raise FloodedError(f"more than {MAX_UNASKED:,} packets to a client without subscriptions")
    return None


async def broker_health(access: BrokerAccess, version: ProtocolVersion, seconds: float) -> BrokerHealth:
    """Health of the broker, as seen by a new connection."""
    async with ProbeClient(access, version) as probe:
        try:
            if await probe.connect(seconds):
                return BrokerHealth.SERVES
        except LinkError as error:
            return BrokerHealth.DEAD if error.kind is LinkErrorKind.REFUSED else BrokerHealth.SILENT
        except RefusedError:
            return BrokerHealth.SERVES
        probe.abort()
    return BrokerHealth.SILENT


async def supports_version(access: BrokerAccess, version: ProtocolVersion, seconds: float) -> bool:
    """Whether the broker supports a version: it accepts a plain CONNECT, or refuses it for another reason."""
    async with ProbeClient(access, version) as probe:
        try:
            return await probe.connect(seconds)
        except RefusedError as error:
            return error.code not in UNSPOKEN


async def forget_session(
    access: BrokerAccess, version: ProtocolVersion, client_identifier: str, seconds: float, *, lasting: bool = True
) -> bool:
    """Remove the session of a client, with its subscriptions and queue, by connecting with a clean session.

    ``lasting`` means that the session outlives its connection.  Other sessions are gone even if the broker refuses us.
    """
    async with ProbeClient(access, version, client_identifier) as probe:
        try:
            return await probe.connect(seconds)
        except RefusedError:
            return not lasting
        except LinkError:
            return False


async def forget_retained(
    access: BrokerAccess, version: ProtocolVersion, topics: Iterable[str], seconds: float
) -> list[str]:
    """Delete the retained messages of topics (5.0 3.3.1.3); returns the topics that still have one."""
    left = []
    for topic in topics:
        done = False
        async with ProbeClient(access, version) as probe:
            with suppress(LinkError, RefusedError):
                done = await probe.connect(seconds) and await probe.publish(topic, b"", 1, seconds, retain=True)
        if not done:
            left.append(topic)
    return left
