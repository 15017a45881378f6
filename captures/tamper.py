"""A proxy between clients and broker that makes the broker seem to break rules.

It drops, changes, holds and adds packets.  Recorded is the side of the clients.  Whatever a scenario does not ask to be
changed passes as it comes.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import mqttbytes as mb

Change = Callable[[bytes], Sequence[bytes]]
"""What is passed on instead of a packet."""
SERVER, CLIENT = "server", "client"


def drop(packet: bytes) -> Sequence[bytes]:
    """Nothing is passed on."""
    return ()


def twice(packet: bytes) -> Sequence[bytes]:
    """The packet and the same once more."""
    return (packet, packet)


def replace(old: bytes, new: bytes) -> Change:
    """Other bytes inside the packet; the Remaining Length is put right."""

    def change(packet: bytes) -> Sequence[bytes]:
        return (mb.packet(packet[0], mb.body(packet).replace(old, new, 1)),)

    return change


def first_byte(value: int) -> Change:
    """Another type or other flags."""
    return lambda packet: (bytes([value]) + packet[1:],)


def instead(*packets: bytes) -> Change:
    """Other packets."""
    return lambda packet: packets


@dataclass(slots=True)
class Order:
    """What happens to packets of one sender on the connections of one client."""

    sender: str
    client: str
    kind: str
    change: Change
    times: int
    holding: bytes = b""
    """Only packets that contain this."""


@dataclass(slots=True)
class Joined:
    """One client and its connection to the broker."""

    client: socket.socket
    server: socket.socket
    name: str = ""

    def other(self, sender: str) -> socket.socket:
        """Where the packets of a side go."""
        return self.client if sender == SERVER else self.server


@dataclass(slots=True)
class Proxy:
    """Accepts connections on one port and hands them to the broker on another."""

    host: str
    port: int
    broker_port: int
    orders: list[Order] = field(default_factory=list)
    kept_open: set[str] = field(default_factory=set)
    """Clients whose connections stay open when the broker closes."""
    joined: list[Joined] = field(default_factory=list)
    raw: bool = False
    """Whether nothing is changed, since packets are wrapped in something else."""
    gather: float = 0.0
    """Seconds for which the broker's bytes are gathered, to be passed on together."""
    listening: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.listening = socket.create_server((self.host, self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it with all connections."""
        self.listening.close()
        for one in self.joined:
            for side in (one.client, one.server):
                with suppress(OSError):
                    side.close()

    def change(self, sender: str, client: str, kind: str, change: Change, times: int = 1, holding: bytes = b"") -> None:
        """Change the next packets of a type that a side sends; the client is told by its Client Identifier."""
        self.orders.append(Order(sender, client, kind, change, times, holding))

    def keep_open(self, client: str) -> None:
        """Do not pass on that the broker closes the connection of this client."""
        self.kept_open.add(client)

    def send(self, receiver: str, client: str, *packets: bytes, before: int = 0) -> None:
        """Send packets that the other side has not sent, on the last connection of a client or one before it."""
        one = [one for one in self.joined if one.name == client][-1 - before]
        (one.client if receiver == CLIENT else one.server).sendall(b"".join(packets))

    def hang_up(self, number: int) -> None:
        """Close a connection, counted from 0, as if the broker did."""
        one = self.joined[number]
        for side in (one.client, one.server):
            side.shutdown(socket.SHUT_WR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                server = socket.create_connection((self.host, self.broker_port))
                for side in (client, server):
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                one = Joined(client, server)
                self.joined.append(one)
                for source, sender in ((client, CLIENT), (server, SERVER)):
                    threading.Thread(target=self._carry, args=(one, source, sender), daemon=True).start()

    def _carry(self, one: Joined, source: socket.socket, sender: str) -> None:
        waiting = b""
        target = one.other(sender)
        try:
            while data := source.recv(65536):
                if self.raw:
                    target.sendall(data)
                    continue
                waiting += data
                if self.gather and sender == SERVER:
                    time.sleep(self.gather)
                    with suppress(BlockingIOError):
                        waiting += source.recv(1 << 20, socket.MSG_DONTWAIT)
                out: list[bytes] = []
                for packet in mb.split(waiting):
                    waiting = waiting[len(packet) :]
                    if sender == CLIENT and packet[0] >> 4 == 1:
                        one.name = mb.client_identifier(packet)
                    out += self._changed(one.name, sender, packet)
                if out:
                    target.sendall(b"".join(out))
        except ConnectionResetError:
            if sender == CLIENT:
                one.server.shutdown(socket.SHUT_RDWR)
                return
        except OSError:
            return
        if sender == CLIENT or one.name not in self.kept_open:
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)

    def _changed(self, name: str, sender: str, packet: bytes) -> Sequence[bytes]:
        for order in self.orders:
            meant = (order.sender, order.client, order.kind) == (sender, name, mb.TYPES[packet[0] >> 4])
            if meant and order.times and order.holding in packet:
                order.times -= 1
                return order.change(packet)
        return (packet,)


def late(proxy: Proxy, client: str, seconds: float) -> Change:
    """The packet comes to the client only so many seconds after the broker has sent it."""

    def change(packet: bytes) -> Sequence[bytes]:
        def pass_on() -> None:
            time.sleep(seconds)
            proxy.send(CLIENT, client, packet)

        threading.Thread(target=pass_on, daemon=True).start()
        return ()

    return change
