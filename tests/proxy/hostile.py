"""Clients that would hold others up, and a server behind the proxy that puts up with all of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mqttscope.mqtt import Connect, ProtocolVersion, encode
from tests.proxy.rig import PATIENCE_S

V3_1_1 = ProtocolVersion.V3_1_1
PING, PONG = b"\xc0\0", b"\xd0\0"
ACCEPTED = b"\x20\x02\0\0"
GARBAGE = b"\x60\0" * 1_000_000
"""Two million bytes of PUBREL with wrong flags and nothing in them: each two of them are a finding."""


def announced(length: int) -> bytes:
    """The beginning of a PUBLISH with a Remaining Length of so many bytes."""
    digits = bytearray()
    left = length
    while left or not digits:
        digits.append(left & 0x7F | (0x80 if left >> 7 else 0))
        left >>= 7
    return b"\x30" + bytes(digits) + b"\0\x01a"


def memory_mib(process_id: int) -> int:
    """The most memory that a process has had."""
    for line in Path(f"/proc/{process_id}/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("this system does not tell")


class Client:
    """A socket that speaks a little MQTT."""

    def __init__(self, port: int, name: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(encode(Connect(client_identifier=name, keep_alive=0), V3_1_1))
        assert self.read(4) == ACCEPTED

    def read(self, size: int) -> bytes:
        """So many bytes, fewer at the end."""
        data = b""
        while len(data) < size and (part := self.sock.recv(size - len(data))):
            data += part
        return data

    def ping(self) -> None:
        """Ask, and wait for the answer."""
        self.sock.sendall(PING)
        assert self.read(2) == PONG

    def flood(self, data: bytes) -> threading.Thread:
        """Send without reading, beside the test."""

        def send() -> None:
            with suppress(OSError):
                self.sock.sendall(data)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        return thread

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


@contextmanager
def patient_server(*, silent: bool = False) -> Iterator[int]:
    """The port of a server that accepts whatever begins with bytes, answers lone pings, and passes over the rest."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, silent), daemon=True).start()
        yield int(listening.getsockname()[1])


def _accept(listening: socket.socket, silent: bool) -> None:
    with suppress(OSError):
        while True:
            sock, _ = listening.accept()
            threading.Thread(target=_serve, args=(sock, silent), daemon=True).start()


def _serve(sock: socket.socket, silent: bool) -> None:
    accepted = False
    with sock, suppress(OSError):
        while data := sock.recv(1 << 18):
            if silent:
                continue
            if not accepted:
                accepted = True
                sock.sendall(ACCEPTED)
            elif data == PING:
                sock.sendall(PONG)
