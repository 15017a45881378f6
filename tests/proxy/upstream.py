"""A server that does as it is told, behind a proxy in the same process, and what the proxy's file says of it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqttscope.proxy import Proxy
from mqttscope.transport.wire import FramedSegment
from tests.proxy.rig import PATIENCE_S
from tests.transport.linking import frames
from tests.transport.wires import streams

RESET = struct.pack("ii", 1, 0)


class Server:
    """Accepts when asked to."""

    def __init__(self, listening: socket.socket) -> None:
        self.listening = listening
        self.port = int(listening.getsockname()[1])
        self.url = f"mqtt://127.0.0.1:{self.port}"

    def accept(self) -> socket.socket:
        """The next connection that the proxy makes."""
        sock, _ = self.listening.accept()
        sock.settimeout(PATIENCE_S)
        return sock


@contextmanager
def serving() -> Iterator[Server]:
    """A server on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)
        yield Server(listening)


@contextmanager
def joined(proxy: Proxy, server: Server) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client and its server, with the proxy between them."""
    with connect(proxy) as client, server.accept() as upstream:
        yield client, upstream


def connect(proxy: Proxy) -> socket.socket:
    """A client of a proxy."""
    return socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)


def reset(sock: socket.socket) -> None:
    """Close with a reset, as the system does for a process that is killed with bytes unread."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


def read(sock: socket.socket, size: int) -> bytes:
    """So many bytes, fewer at the end of the stream."""
    parts = []
    while size and (part := sock.recv(min(size, 1 << 16))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send(sender: socket.socket, receiver: socket.socket, data: bytes) -> None:
    """Send bytes to the other side of the proxy, and wait for them there."""
    sender.sendall(data)
    assert read(receiver, len(data)) == data


def recorded(proxy: Proxy, path: Path) -> tuple[bytes, bytes, list[str]]:
    """The bytes of both directions of the only connection in the proxy's file, and how it went."""
    return streams(made(proxy, path))


def made(proxy: Proxy, path: Path) -> list[FramedSegment]:
    """The frames of the proxy's file."""
    proxy.write(path)
    return frames(path)
