"""Readers of live metrics: a server with a monitor, and requests as a program sends them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mqttscope.metrics.monitor import LiveMonitor
from tests import tools

tools.package("prometheus_client")

from mqttscope.metrics.server import MetricsServer


@contextmanager
def served(monitor: LiveMonitor | None = None, host: str = "127.0.0.1") -> Iterator[MetricsServer]:
    """A server that answers in its thread."""
    reports: list[str] = []
    server = MetricsServer(monitor or LiveMonitor("lo"), host, reports.append)
    server.start(0)
    try:
        yield server
    finally:
        server.close()
        assert reports == []


def request(path: str = "/", host: str = "localhost", method: str = "GET", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


def connected(server: MetricsServer) -> socket.socket:
    """A connection to the server."""
    return socket.create_connection(("127.0.0.1", server.addresses[0][1]), timeout=20)


def read_all(client: socket.socket) -> bytes:
    """All that comes until the end."""
    parts = []
    while part := client.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def answered(server: MetricsServer, data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and content of an answer."""
    with connected(server) as client:
        client.sendall(data)
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), body


async def status_of(server: MetricsServer, *pieces: bytes, pause_s: float = 0.0, reads_after_s: float = 0.0) -> int:
    """Status of the answer to a request that comes in pieces, with pauses between them; 0 without a whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.addresses[0][1])
    try:
        for number, piece in enumerate(pieces):
            await asyncio.sleep(pause_s if number else 0)
            writer.write(piece)
        await asyncio.sleep(reads_after_s)
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    except ConnectionError:
        return 0
    finally:
        writer.transport.abort()
    length = next((int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")), -1)
    return int(head.split()[1]) if length == len(body) else 0
