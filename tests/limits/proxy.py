"""Inputs at the limits of the package proxy."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any
from unittest.mock import patch

from mqttscope.proxy import Proxy, service
from mqttscope.proxy.pair import FirstPacket, ProxiedConnection
from mqttscope.proxy.relay import Relay, Route
from mqttscope.transport.recording import Recording
from mqttscope.transport.target import parse_upstream
from mqttscope.transport.websocket import frame
from tests.limits.leaping import leaping, now
from tests.proxy.rig import free_port
from tests.proxy.test_pair import CONNECT, REQUEST, Scene
from tests.proxy.test_service import WILDCARD
from tests.proxy.upstream import joined, send, serving
from tests.transport.test_recording import conversation
from tests.transport.wires import CLIENT, V4


def half_closed(seconds: float) -> list[str]:
    """What is said of a broker that is silent for so long after its client has closed."""
    scene = Scene()
    scene.pair.client.data_received(CONNECT)
    scene.pair.server.data_received(b"\x20\x02\0\0")
    scene.pair.client.eof_received()
    scene.clock.advance(seconds)
    return [note.rpartition("closed: ")[2] for note in scene.notes]


def requested(length: int) -> list[bool]:
    """Whether an HTTP request of so many bytes is complete, and then the CONNECT in the WebSocket after it."""
    first = FirstPacket()
    head, end = REQUEST[:-4] + b"\r\nX: ", REQUEST[-4:]
    return [first.feed(head + bytes(length - len(head + end)) + end), first.feed(frame(CONNECT, 2, b"mask"))]


async def is_read(size: int) -> bool:
    """Whether a client is read while so many bytes wait for a broker that takes nothing."""
    loop, recording = asyncio.get_running_loop(), Recording("it")
    pair = ProxiedConnection(recording.wire(*V4), recording, lambda _: None)
    others = []
    for end in (pair.client, pair.server):
        mine, other = socket.socketpair()
        others.append(other)
        await loop.create_connection(lambda end=end: end, sock=mine)  # type: ignore[misc]
    pair.join()
    client, server = pair.client.transport, pair.server.transport
    assert client is not None
    assert server is not None
    while not server.get_write_buffer_size():
        pair.server.forward(bytes(1 << 16))
    pair.server.forward(bytes(size - server.get_write_buffer_size()))
    reading = client.is_reading()
    for end in (pair.client, pair.server):
        end.abort()
    await pair.gone.wait()
    for other in others:
        other.close()
    return reading


@asynccontextmanager
async def relaying(upstream: str, **more: Any) -> AsyncIterator[tuple[int, list[str]]]:
    """A relay, by its port, and what it says."""
    notes: list[str] = []
    relay = Relay(Route("127.0.0.1", 0, parse_upstream(upstream), **more), Recording("it"), notes.append)
    await relay.start()
    yield relay.addresses[0][1], notes
    await relay.close()


@asynccontextmanager
async def silent() -> AsyncIterator[int]:
    """The port of a server that says nothing and closes after its client."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@leaping
async def connected(seconds: float) -> list[str]:
    """What is said of a client that sends its CONNECT after so long."""
    async with silent() as port, relaying(f"mqtt://127.0.0.1:{port}") as (listening, notes):
        _, writer = await asyncio.open_connection("127.0.0.1", listening)
        await asyncio.sleep(seconds)
        writer.write(CONNECT)
        await asyncio.sleep(0.01)
        writer.close()
        return [note.rpartition(": ")[2] for note in notes]


@leaping
async def unreached(seconds: float) -> list[str]:
    """What is said of a broker that ends the TLS handshake after so long."""

    async def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        writer.close()

    server = await asyncio.start_server(end, "127.0.0.1", 0)
    url = f"mqtts://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, relaying(url, upstream_tls=ssl.create_default_context()) as (port, notes):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        await asyncio.sleep(1)
        return [note.rpartition(": ")[2] for note in notes]


@leaping
async def undecided(seconds: float) -> list[str]:
    """What is said of a client that ends the TLS handshake after so long."""
    async with relaying("mqtt://127.0.0.1:1", listen_tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) as (port, notes):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(seconds)
        writer.close()
        await asyncio.sleep(0.01)
        return [note.partition("failed: ")[2] for note in notes]


@leaping
async def troubles(count: int) -> list[str]:
    """What is said of so many clients without a broker, and at the end, up to a colon."""
    async with relaying(f"mqtt://127.0.0.1:{free_port()}") as (port, notes):
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
    return [note.rpartition(" mqtt:")[0].rpartition(": ")[2] or note for note in notes]


@leaping
async def drained(seconds: float) -> float:
    """How long the end of a relay takes whose client takes what is for it after so long."""
    loop, peers = asyncio.get_running_loop(), list[asyncio.StreamWriter]()
    server = await asyncio.start_server(lambda _, writer: peers.append(writer), "127.0.0.1", 0)
    url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        async with relaying(url) as (port, _):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", port))
            reader, writer = await asyncio.open_connection(sock=sock)
            await asyncio.sleep(0.01)
            peers[0].write(bytes(1 << 23))
            await asyncio.sleep(0.01)
            began = now()
            loop.call_later(seconds, lambda: asyncio.ensure_future(reader.read()))
        lasted = now() - began
        for end in (writer, *peers):
            end.transport.abort()
    return round(lasted, 3)


class Late(Recording):
    """Answers questions after a time."""

    seconds = 0.0

    def ask(self, question: Any) -> Future[Any]:
        future = Future[Any]()

        def answer() -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(question())

        asyncio.get_running_loop().call_later(self.seconds, answer)
        return future


@leaping
async def asked(frames: Sequence[float] = (), connected_s: float = 0.0, judged_s: float = 0.0) -> object:
    """Frames that an answer lacks, of those that come at these times, and whether it has all connections."""
    proxy, recording, loop = Proxy("mqtt://127.0.0.1:1", select=["PUB103"]), Late("it"), asyncio.get_running_loop()
    relay = Relay(proxy._route, recording)
    proxy._recording, proxy._relay = recording, relay
    recording.seconds, relay.connecting = judged_s, 1
    loop.call_later(connected_s, setattr, relay, "connecting", 0)
    for at, seconds in enumerate(frames, 1):
        loop.call_later(seconds, setattr, recording, "frames", at)
    try:
        return await proxy._answer(lambda: (len(frames) - recording.frames, not relay.connecting))
    except TimeoutError:
        return "TimeoutError"


def heard(count: int) -> Proxy:
    """A proxy that has heard CONNECT, CONNACK, and so many messages on a topic with a wildcard."""
    proxy = Proxy("mqtt://127.0.0.1:1", select=["PUB103"])
    recording = Recording("it", listener=proxy._on_event)
    wire = conversation(recording)
    for _ in range(count):
        recording.write(wire.data(CLIENT, WILDCARD, recording.now()))
    return proxy


def packets(count: int) -> tuple[int, int]:
    """Packets that are kept of so many, and those that are forgotten."""
    proxy = heard(count - 2)
    return len(proxy.packets()), proxy.forgotten


def conforms(proxy: Proxy) -> str:
    """Why traffic does not conform of which no finding counts."""
    try:
        proxy.assert_conformant(ignore=["ALL"], require_packets=0)
    except AssertionError as error:
        return str(error)
    return ""


def large(size: int) -> str:
    """Why traffic does not conform that has a PUBLISH of so many bytes."""
    body = b"\0\x01a" + bytes(size - 7)
    digits = bytes((len(body) & 0x7F | 0x80, len(body) >> 7 & 0x7F | 0x80, len(body) >> 14))
    with patch.object(service, "_QUIET_S", 0.01), serving() as server, Proxy(server.url, select=["PUB103"]) as proxy:
        with joined(proxy, server) as (client, upstream):
            send(client, upstream, b"\x30" + digits + body)
        return conforms(proxy)
