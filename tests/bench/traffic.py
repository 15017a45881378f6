"""MQTT as clients of a real broker on loopback send it, with the number of packets that each side must have sent."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator

from mqttscope.mqtt import (
    Connack,
    Connect,
    Disconnect,
    ProtocolVersion,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    encode,
)

V3_1_1 = ProtocolVersion.V3_1_1
PAYLOAD_BYTES = 100
QUIET_SECONDS = 5.0
SOURCES = 50
"""Addresses that clients come from: one alone would run out of ports, each of which rests a minute."""
MOST_OPEN = 200
BROKER = "max_queued_messages 0\nmax_inflight_messages 0\nset_tcp_nodelay true"
"""Lines of mosquitto's configuration: it drops nothing by itself."""

_CONNACK = encode(Connack(), V3_1_1)
_PUBACK = encode(Puback(2), V3_1_1)
_SUBACK = encode(Suback(1, reason_codes=[0]), V3_1_1)
_DISCONNECT = encode(Disconnect(), V3_1_1)


def steadily(count: int, rate: float) -> Iterator[int]:
    """Numbers from 0 on, each when its time has come."""
    began = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        yield number


def publish(port: int, rate: int, seconds: float) -> tuple[int, int]:
    """Publish at a steady rate to one subscriber; how many messages were sent, and how many came."""
    message = encode(Publish(topic_name="bench/live", payload=bytes(PAYLOAD_BYTES)), V3_1_1)
    subscriber, publisher = subscribed(port, "bench/live"), _client(port, "from")
    count, came = int(rate * seconds), 0
    subscriber.settimeout(QUIET_SECONDS)

    def listen() -> None:
        nonlocal came
        try:
            while came < count * len(message) and (data := subscriber.recv(1 << 16)):
                came += len(data)
        except TimeoutError:
            pass

    listening = threading.Thread(target=listen)
    listening.start()
    for _ in steadily(count, rate):
        publisher.sendall(message)
    listening.join()
    for single_socket in (publisher, subscriber):
        single_socket.sendall(_DISCONNECT)
        single_socket.close()
    return count, came // len(message)


class Crowd:
    """Many clients, each of which connects, subscribes, publishes to itself and goes; some without a word."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.begun = 0
        self.over = 0
        self.sent: Counter[str] = Counter()
        """Packets by type, of both sides; what one side awaited is what the other sent."""
        self.failed: Counter[str] = Counter()
        """Connections that did not go as they should, by what happened."""

    async def come(self, connections: int, rate: float) -> None:
        """Let so many clients come, so many per second, or as fast as they are served."""
        at_work: set[asyncio.Task[None]] = set()
        began = time.perf_counter()
        for number in range(connections):
            wait = began + number / rate - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            while len(at_work) >= MOST_OPEN:
                await asyncio.wait(at_work, return_when=asyncio.FIRST_COMPLETED)
            self.begun += 1
            task = asyncio.create_task(self._client(number))
            at_work.add(task)
            task.add_done_callback(at_work.discard)
        if at_work:
            await asyncio.wait(at_work)

    async def _client(self, number: int) -> None:
        try:
            await asyncio.wait_for(self._converse(number), QUIET_SECONDS)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self.failed[f"{type(error).__name__}: {error}"] += 1
        self.over += 1

    async def _converse(self, number: int) -> None:
        name = f"client-{number:06d}"
        source = (f"127.0.1.{1 + number % SOURCES}", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=source)
        try:
            topic = f"soak/{name}"
            message = {"topic_name": topic, "payload": bytes(PAYLOAD_BYTES)}
            own = encode(Publish(qos=1, packet_identifier=2, **message), V3_1_1)  # type: ignore[arg-type]
            back = encode(Publish(**message), V3_1_1)  # type: ignore[arg-type]
            subscribe = encode(Subscribe(1, subscriptions=[Subscription(topic, 0)]), V3_1_1)
            connect = encode(Connect(client_identifier=name, keep_alive=60), V3_1_1)
            for packets, raw, answer in (
                (("connect", "connack"), connect, (_CONNACK,)),
                (("subscribe", "suback"), subscribe, (_SUBACK,)),
                (("publish", "puback", "publish"), own, (_PUBACK, back)),
            ):
                writer.write(raw)
                await _answered(reader, answer)
                self.sent.update(packets)
            if number % 3 == 0:
                # Reset: the client is gone without FIN.
                handle = writer.get_extra_info("socket")
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif number % 3 == 1:
                writer.write(_DISCONNECT)
                self.sent["disconnect"] += 1
        finally:
            writer.close()


async def _answered(reader: asyncio.StreamReader, expected: tuple[bytes, ...]) -> None:
    """Wait for packets, in whatever order; `ValueError` when others come."""
    came = await reader.readexactly(sum(map(len, expected)))
    if came not in (b"".join(expected), b"".join(reversed(expected))):
        raise ValueError(f"not what was awaited: {came[:20].hex()}")


def subscribed(port: int, topic: str) -> socket.socket:
    """A client that has subscribed to a topic."""
    new_socket = _client(port, "to")
    new_socket.sendall(encode(Subscribe(1, subscriptions=[Subscription(topic, 0)]), V3_1_1))
    _expect(new_socket, _SUBACK)
    return new_socket


def _client(port: int, name: str) -> socket.socket:
    new_socket = socket.create_connection(("127.0.0.1", port))
    new_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    new_socket.sendall(encode(Connect(client_identifier=name), V3_1_1))
    _expect(new_socket, _CONNACK)
    return new_socket


def _expect(receiver: socket.socket, expected: bytes) -> None:
    came = b""
    while len(came) < len(expected):
        data = receiver.recv(len(expected) - len(came))
        if not data:
            break
        came += data
    if came != expected:
        raise ConnectionError(f"not what was awaited: {came.hex()}")
