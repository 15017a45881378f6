"""What tests of links need: a listener that keeps what it hears, ways to wait, and what a record says."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mqttscope.capture import open_capture
from mqttscope.mqtt import Connack, Connect, ControlPacket, ProtocolVersion, Publish, encode
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment
from mqttscope.transport import server
from mqttscope.transport.client import BrokerConnector
from mqttscope.transport.link import Link, Listener
from mqttscope.transport.recording import LinkRecorder, Recording
from mqttscope.transport.server import Factory, Server
from mqttscope.transport.target import BrokerUrl
from mqttscope.transport.wire import FramedSegment
from tests.transport.wires import complaints, streams

PATIENCE_S = 20.0
V311 = ProtocolVersion.V3_1_1
T = TypeVar("T")


def packet(control_packet: ControlPacket) -> bytes:
    """As MQTT 3.1.1 writes it."""
    return encode(control_packet, V311)


async def connect(
    target: BrokerUrl, listener: Listener, *, recorder: LinkRecorder | None = None, **options: Any
) -> Link:
    """A link to a broker."""
    return await BrokerConnector(target, **options).open(listener, V311, recorder=recorder)


async def serve(host: str, port: int, factory: Factory, **options: Any) -> Server:
    """A server that listens."""
    listening = Server(factory, **options)
    await listening.listen(host, port)
    return listening


CONNECT = packet(Connect(client_identifier="dev1", keep_alive=60))
CONNACK = packet(Connack())
PUBLISH = packet(Publish(topic_name="a/b", payload=b"21.5"))


class Transport(asyncio.Transport):
    """Notes what is asked of it, and never sends."""

    def __init__(self, *, tls: bool = False) -> None:
        super().__init__({"sslcontext": object() if tls else None})
        self.asked: list[str] = []
        self.written = b""
        self.waiting = 0
        self.high_water_bytes: int | None = None
        self.tls = tls

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high_water_bytes = high

    def can_write_eof(self) -> bool:
        return not self.tls

    def write_eof(self) -> None:
        self.asked.append("eof")

    def close(self) -> None:
        self.asked.append("close")

    def is_closing(self) -> bool:
        return bool({"close", "abort"} & set(self.asked))

    def abort(self) -> None:
        self.asked.append("abort")

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")


class Heard:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.data = b""
        self.end: tuple[str, str] | None = None
        self.flow: list[bool] = []
        self.changed = asyncio.Event()

    @property
    def how(self) -> str:
        """How it ended."""
        return self.end[0] if self.end else ""

    def received(self, data: bytes) -> None:
        assert self.end is None
        self.data += data
        self.changed.set()

    def ended(self, how: str, detail: str) -> None:
        assert self.end is None
        self.end = (how, detail)
        self.changed.set()

    def writable(self, on: bool) -> None:
        self.flow.append(on)
        self.changed.set()

    async def until(self, happened: Callable[[], object]) -> None:
        """Wait until something is true of it."""
        async with asyncio.timeout(PATIENCE_S):
            while not happened():
                self.changed.clear()
                await self.changed.wait()

    async def gets(self, data: bytes) -> None:
        """Wait for these bytes, which are all that came."""
        await self.until(lambda: len(self.data) >= len(data))
        assert self.data == data
        self.data = b""


async def until(happened: Callable[[], object]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not happened():
            await asyncio.sleep(0.001)


async def soon(awaited: Awaitable[T]) -> T:
    """Wait, but not forever."""
    return await asyncio.wait_for(awaited, PATIENCE_S)


def recorder(path: Path) -> LinkRecorder:
    """Records into a file."""
    return LinkRecorder(Recording("it", path=str(path)))


def frames(path: Path) -> list[FramedSegment]:
    """The frames of a file."""
    segments = []
    for frame in open_capture([path]):
        assert isinstance(frame, Frame)
        shown = segment(frame)
        assert isinstance(shown, Segment)
        segments.append(FramedSegment(frame, shown))
    return segments


def story(path: Path) -> tuple[bytes, bytes, list[str]]:
    """The bytes of both directions of the only connection in a file, and how it went."""
    return streams(frames(path))


def sound_story(path: Path) -> tuple[bytes, bytes, list[str]]:
    """The story of a file in which tshark finds nothing wrong."""
    assert complaints(path) == []
    return story(path)


def fail_to_accept(patch: pytest.MonkeyPatch, failures: list[int]) -> None:
    """Have the next attempts to accept a connection fail with these numbers of errors."""
    accept = asyncio.SelectorEventLoop.sock_accept

    async def flaky(loop: asyncio.SelectorEventLoop, sock: socket.socket) -> object:
        if failures:
            raise OSError(failures.pop(0), "no")
        return await accept(loop, sock)

    patch.setattr(asyncio.SelectorEventLoop, "sock_accept", flaky)
    patch.setattr(server, "_BUSY_S", 0.01)
