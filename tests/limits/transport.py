"""Inputs at the limits of the package transport."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from contextlib import suppress

from mqttscope.dissect import Dissector
from mqttscope.net.segment import ACK, Segment
from mqttscope.replay.drivers.serve import ServerRun
from mqttscope.replay.server import ConnectionMatcher
from mqttscope.transport.link import LinkError
from mqttscope.transport.recording import SEGMENT_COST, JudgingThread
from mqttscope.transport.target import BrokerUrl
from mqttscope.transport.websocket import Framing
from tests.limits.leaping import leaping, now
from tests.net import framing
from tests.net.framing import CLIENT
from tests.transport.linking import Heard, connect, serve
from tests.transport.test_link import linked
from tests.transport.test_peer import SlicePeer
from tests.transport.wires import wire

CROWD = [4 * 1024 * 1024 - SEGMENT_COST] * 4
"""Segments that fill half of the room."""


def segments(size: int) -> list[int]:
    """Sizes of the segments of some bytes."""
    return [len(framed_segment.segment.payload) for framed_segment in wire().data(CLIENT, bytes(size), 0)]


def framed(size: int) -> str:
    """What is wrong with a frame that announces so many bytes."""
    head = framing.frame(b"", length=b"\x7f" + size.to_bytes(8, "big"))
    return Framing(CLIENT, bytes).receive(head).detail


async def parsed_at_once(size: int) -> int:
    """Bytes that are parsed before others get their turn, of so many."""
    peer = SlicePeer()
    peer.received(bytes(size))
    return sum(map(len, peer.slices))


def judged(*sizes: int, apart_ns: int = 0) -> list[str]:
    """What is said while segments wait, each of a stream of its own."""
    begun, notes = threading.Event(), list[str]()
    judging = JudgingThread(Dissector(), lambda _: None, notes.append, lambda _: None)
    judging.ask(begun.wait)
    for stream, size in enumerate(sizes):
        at = bytes([stream]) * 12, 0, 0, ACK, 0xFFFF, bytes(size), 0, 1, stream * apart_ns, "it"
        judging.put(Segment(*at))
    # Nothing of this has to be read.
    judging.listener = None
    begun.set()
    judging.close()
    return [re.split("[:;]", note)[0] for note in notes]


async def waiting(size: int) -> list[bool]:
    """What a listener hears while so many bytes wait to be sent."""
    async with linked() as (link, heard, _):
        while not link.unsent:
            link.write(bytes(1 << 16))
        link.write(bytes(size - link.unsent))
        return list(heard.flow)


@leaping
async def closed(seconds: float) -> float:
    """How long a link takes to close whose other side closes after so long."""
    async with linked() as (link, _, remote):
        link.close()
        asyncio.get_running_loop().call_later(seconds, remote.sock.close)
        await link.closed.wait()
        return now()


def hang_up(sock: socket.socket) -> None:
    """Send FIN, if the other side is still there."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_WR)


@leaping
async def refusal(answers_s: float = 0.0, closes_s: float = 0.0) -> tuple[str, float]:
    """Why there is no WebSocket with a server that refuses it and then closes, and when that is known."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        target = BrokerUrl("ws", "127.0.0.1", listening.getsockname()[1], None, "/mqtt")
        connecting = asyncio.create_task(connect(target, Heard()))
        sock, _ = await loop.sock_accept(listening)
    with sock:
        await loop.sock_recv(sock, 4096)
        loop.call_later(answers_s + closes_s, hang_up, sock)
        await asyncio.sleep(answers_s)
        with suppress(OSError):
            sock.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        try:
            await connecting
        except LinkError as error:
            return str(error.kind), now()
    return "", now()


@leaping
async def handshake(seconds: float) -> list[str]:
    """What is said of a client that asks for a WebSocket after so long."""
    sentences: list[str] = []
    server = await serve("127.0.0.1", 0, lambda _: Heard(), websocket=True, note=sentences.append)
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await asyncio.sleep(seconds)
    writer.write(framing.request())
    await asyncio.sleep(0.01)
    writer.close()
    await server.close()
    return [sentence.rpartition(": ")[2] for sentence in sentences]


@leaping
async def clients(count: int) -> list[str]:
    """What is said when so many clients come at a time."""
    sentences: list[str] = []
    serving = ServerRun([], ConnectionMatcher([]), note=sentences.append)
    await serving.start("127.0.0.1", 0)
    assert serving.server is not None
    writers = [(await asyncio.open_connection("127.0.0.1", serving.server.port))[1] for _ in range(count)]
    await asyncio.sleep(0.01)
    for writer in writers:
        writer.close()
    await serving.close()
    return sentences
