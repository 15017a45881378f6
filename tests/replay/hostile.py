"""A broker on loopback that means no good: it answers what it likes, and sends without end.

    python -m tests.replay.hostile pings PORT

Each connection gets a CONNACK (none with ``silent``), and then what the name says, for as long as it is read.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CONNACK = {4: b"\x20\x02\x00\x00", 5: b"\x20\x03\x00\x00\x00"}
BLOCK_BYTES = 1 << 16
"""So much is sent at a time."""
HUGE = b"\x30\xff\xff\xff\x7f\x00\x01x"
"""The beginning of a PUBLISH of 256 MB."""


def _packet(kind: int, body: bytes) -> bytes:
    return bytes((kind, len(body))) + body


def _publish(version: int, first: int, identifier: bytes) -> bytes:
    return _packet(first, b"\x00\x01x" + identifier + (b"\x00" if version == 5 else b"") + b"payload")


def _numbered(version: int) -> bytes:
    """PUBLISH packets of QoS 1 with all identifiers."""
    return b"".join(_publish(version, 0x32, number.to_bytes(2, "big")) for number in range(1, 65_536))


FLOODS: dict[str, Callable[[int], bytes]] = {
    "pings": lambda version: b"\xd0\x00",
    "acknowledgements": lambda version: b"\x40\x02\x00\x01",
    "received": lambda version: b"\x50\x02\x00\x01",
    "releases": lambda version: b"\x62\x02\x00\x01",
    "messages": lambda version: _publish(version, 0x30, b""),
    "to-acknowledge": _numbered,
    "connacks": lambda version: CONNACK[version],
    "nonsense": lambda version: b"\xf0\x00",
    "huge": lambda version: b"\x00",
}
"""What is sent again and again, by the name of the broker."""
OTHERS = ("silent", "mute", "deaf", "kept-alive")
"""``silent`` says nothing at all, ``mute`` nothing after its CONNACK, ``deaf`` does not even read, and ``kept-alive``
answers PINGREQ and nothing else."""
NAMES = (*FLOODS, *OTHERS)
OWN_CLIENTS = b"mqttscope-"
"""How the Client Identifiers of our own clients begin."""


@dataclass(slots=True)
class Hostile:
    """One broker."""

    name: str
    upstream: int = 0
    """Port of a broker that serves our own clients, so that only others are treated badly."""
    heard: threading.Event = field(default_factory=threading.Event)
    """A first connection was taken."""
    _open: list[socket.socket] = field(default_factory=list)
    _over: bool = False

    def listen(self, port: int = 0) -> socket.socket:
        """The listening socket; `take` is to be called with it."""
        return socket.create_server(("127.0.0.1", port), backlog=100)

    def take(self, server: socket.socket) -> None:
        """Take connections until the socket is closed."""
        while not self._over:
            try:
                client, _ = server.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def end(self) -> None:
        """Let all go."""
        self._over = True
        for other_socket in self._open:
            with suppress(OSError):
                other_socket.shutdown(socket.SHUT_RDWR)
            other_socket.close()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            first = client.recv(BLOCK_BYTES)
            if not first:
                return
            if self.upstream and OWN_CLIENTS in first:
                self._forward(client, first)
                return
            version = 5 if b"MQTT\x05" in first else 4
            if self.name == "silent":
                self.heard.set()
                while client.recv(BLOCK_BYTES):
                    pass
                return
            self.heard.set()
            client.sendall(CONNACK[version])
            if self.name == "deaf":
                while not self._over:
                    time.sleep(0.1)
                return
            if self.name not in FLOODS:
                while data := client.recv(BLOCK_BYTES):
                    if self.name == "kept-alive" and data.endswith(b"\xc0\x00"):
                        client.sendall(b"\xd0\x00")
                return
            self._flood(client, version)

    def _forward(self, client: socket.socket, first: bytes) -> None:
        with socket.create_connection(("127.0.0.1", self.upstream)) as broker:
            self._open.append(broker)
            threading.Thread(target=_pump, args=(broker, client), daemon=True).start()
            broker.sendall(first)
            _pump(client, broker)

    def _flood(self, client: socket.socket, version: int) -> None:
        if self.name == "huge":
            client.sendall(HUGE)
        unit = FLOODS[self.name](version)
        block = unit * max(1, BLOCK_BYTES // len(unit))
        threading.Thread(target=_drain, args=(client,), daemon=True).start()
        while not self._over:
            client.sendall(block)


def _drain(client: socket.socket) -> None:
    """Read what comes, so that nobody waits for that."""
    with suppress(OSError):
        while client.recv(BLOCK_BYTES):
            pass


def _pump(other_socket: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := other_socket.recv(BLOCK_BYTES):
            other.sendall(data)
    for end in (other_socket, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def hostile(name: str, upstream: int = 0) -> Iterator[tuple[int, Hostile]]:
    """Such a broker in threads of this process; gives its port."""
    broker = Hostile(name, upstream)
    with broker.listen() as server:
        thread = threading.Thread(target=broker.take, args=(server,), daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1], broker
        finally:
            broker.end()
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _tell_when(happened: threading.Event, word: str) -> None:
    happened.wait()
    _tell(word)


def _tell(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until killed; tells the port, and when the first client was treated badly."""
    name, port = sys.argv[1], int(sys.argv[2])
    broker = Hostile(name, int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    with broker.listen(port) as server:
        _tell(str(server.getsockname()[1]))
        threading.Thread(target=_tell_when, args=(broker.heard, "heard"), daemon=True).start()
        broker.take(server)


if __name__ == "__main__":
    main()
