"""A man in the middle between a replay and its broker, which answers otherwise than the broker did."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

from mqttscope.mqtt import ControlPacket, ProtocolVersion, encode
from mqttscope.mqtt.stream import PacketStream

P = TypeVar("P", bound=ControlPacket)
CLOSE = b""
"""In the place of a packet: end the connection here."""
Said = Sequence[ControlPacket | bytes]
Change = Callable[[str, ControlPacket], Said]
"""What a client gets instead of a packet of the broker, by its Client Identifier and the packet."""


def altered(packet: P, **fields: Any) -> P:
    """The same with other fields."""
    p = copy(packet)
    for name, value in fields.items():
        setattr(p, name, value)
    p.raw = b""
    return p


def once(matches: Callable[[str, ControlPacket], bool], result: Callable[[Any], Said]) -> Change:
    """Changes the first packet that matches, and no other."""
    done = False

    def change(client: str, packet: ControlPacket) -> Said:
        nonlocal done
        if done or not matches(client, packet):
            return (packet,)
        done = True
        return result(packet)

    return change


def exchanged(matches: Callable[[str, ControlPacket], bool]) -> Change:
    """Holds the first packet that matches back until after the second."""
    held: list[ControlPacket] = []
    done = False

    def change(client: str, packet: ControlPacket) -> Said:
        nonlocal done
        if done or not matches(client, packet):
            return (packet,)
        held.append(packet)
        done = len(held) == 2
        return tuple(reversed(held)) if done else ()

    return change


def untouched(client: str, packet: ControlPacket) -> Said:
    """Nothing is changed."""
    return (packet,)


@dataclass(slots=True)
class Between:
    """Forwards the connections of one broker."""

    upstream: int
    change: Change
    delay_s: float = 0.0
    """How much later everything comes."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        streams = PacketStream(), PacketStream()
        name = [""]
        ways = [
            asyncio.create_task(self._upwards(reader, up_writer, streams, name)),
            asyncio.create_task(self._downwards(up_reader, writer, streams[1], name)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for stream_writer in (writer, up_writer):
                stream_writer.close()
                with suppress(ConnectionError):
                    await stream_writer.wait_closed()

    async def _upwards(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        streams: tuple[PacketStream, PacketStream],
        name: list[str],
    ) -> None:
        while data := await reader.read(65_536):
            for item in streams[0].feed(data):
                identifier = getattr(item, "client_identifier", None)
                if identifier is not None:
                    name[0], streams[1].version = identifier, streams[0].version
            await asyncio.sleep(self.delay_s)
            writer.write(data)

    async def _downwards(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: PacketStream, name: list[str]
    ) -> None:
        while data := await reader.read(65_536):
            await asyncio.sleep(self.delay_s)
            # One write for what comes together: a client that closes after the first packet has read the second too.
            together = b""
            for item in stream.feed(data):
                assert isinstance(item, ControlPacket), item
                for result in self.change(name[0], item):
                    if result == CLOSE:
                        writer.write(together)
                        return
                    together += _bytes(result, stream.version)
            writer.write(together)


def _bytes(result: ControlPacket | bytes, version: ProtocolVersion) -> bytes:
    if isinstance(result, bytes):
        return result
    return result.raw or encode(result, version)


@contextmanager
def threaded(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
    *,
    tls: ssl.SSLContext | None = None,
) -> Iterator[int]:
    """A server on loopback in an event loop of its own, in another thread; gives its port."""
    ports: list[int] = []
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def until_stopped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError, ConnectionError):
            await serve(reader, writer)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(until_stopped, "127.0.0.1", 0, ssl=tls)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        await stop.wait()
        server.close()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


@contextmanager
def between(upstream: int, change: Change, *, delay_s: float = 0.0) -> Iterator[int]:
    """A man in the middle before a broker on loopback; gives the port to connect to."""
    with threaded(Between(upstream, change, delay_s).serve) as port:
        yield port
