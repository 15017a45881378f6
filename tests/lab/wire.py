"""A network to draw faults on: two hosts in namespaces of their own, and a wire between them that obeys.

Each host is a network namespace. Both are joined to a third one, in which a thread carries frames from one to the
other. It can drop what one side or both send, delay all, and send a RST as a middlebox does. Without root there is
loopback alone, and nothing can be done to it.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from tests.tools import SBIN, program

CLIENT, SERVER = "client", "server"
_CLONE_NEWNET = 0x40000000
_SIOCETHTOOL = 0x8946
_OFFLOADS = (0x17, 0x1F, 0x2C)
"""ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGRO: frames that a program carries need checksums, and sizes of a wire."""
_OUTGOING = 4
_LIBC = ctypes.CDLL(None, use_errno=True)


def can_make_networks() -> bool:
    """Whether this user may make network namespaces."""
    if os.geteuid() != 0 or not (shutil.which("ip") or shutil.which("ip", path=SBIN)):
        return False
    name = f"lab-{os.getpid()}-try"
    done = subprocess.run([program("ip"), "netns", "add", name], capture_output=True, check=False)
    if done.returncode:
        return False
    return not subprocess.run([program("ip"), "netns", "del", name], capture_output=True, check=False).returncode


def _enter(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        if _LIBC.setns(handle, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {path}")
    finally:
        os.close(handle)


class Flow(NamedTuple):
    """Last TCP segment from one side of a connection."""

    frame: bytes
    next_sequence: int
    acknowledgment: int


class Network:
    """Loopback: both hosts are this one."""

    client_address = server_address = "127.0.0.1"
    device = "lo"
    obeys = False

    @contextmanager
    def on(self, host: str) -> Iterator[None]:
        """Sockets, threads and programs that are started inside belong to a host."""
        yield

    def close(self) -> None:
        """Remove what was made."""


class Wire(Network):
    """Two hosts and the wire between them."""

    client_address, server_address = "10.77.0.1", "10.77.0.2"
    device = "eth0"
    obeys = True

    def __init__(self, name: str) -> None:
        self._names = {CLIENT: f"{name}-c", SERVER: f"{name}-s", "wire": f"{name}-w"}
        self._cut: set[str] = set()
        self._delay_s = 0.0
        self._flows: dict[tuple[bytes, bytes, int, int], Flow] = {}
        self._is_open = True
        self._wake, self._woken = os.pipe()
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _ip(self, *words: str) -> None:
        subprocess.run([program("ip"), *words], check=True, capture_output=True, timeout=20)

    def _build(self) -> None:
        for name in self._names.values():
            self._ip("netns", "add", name)
        self._ends = {}
        middle = self._names["wire"]
        for host, address in ((CLIENT, self.client_address), (SERVER, self.server_address)):
            namespace = self._names[host]
            self._ip("-n", namespace, "link", "add", "eth0", "type", "veth", "peer", "name", host, "netns", middle)
            self._ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
            self._ip("-n", namespace, "link", "set", "lo", "up")
            self._ip("-n", namespace, "link", "set", "eth0", "up")
            self._ip("-n", middle, "link", "set", host, "up")
            with self.on(host), socket.socket() as handle:
                for command in _OFFLOADS:
                    value = ctypes.create_string_buffer(struct.pack("II", command, 0))
                    request = struct.pack("16sP16x", b"eth0", ctypes.addressof(value))
                    with suppress(OSError):
                        fcntl.ioctl(handle, _SIOCETHTOOL, request)
            with self.on("wire"):
                end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
                end.bind((host, 0))
                end.setblocking(False)
            self._ends[host] = end

    @contextmanager
    def on(self, host: str) -> Iterator[None]:
        back = f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"
        handle = os.open(back, os.O_RDONLY)
        try:
            _enter(f"/run/netns/{self._names[host]}")
            try:
                yield
            finally:
                if _LIBC.setns(handle, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(handle)

    def cut(self, *senders: str) -> None:
        """Drop what these hosts send; without an argument, what both send."""
        self._cut = set(senders or (CLIENT, SERVER))

    @property
    def is_cut(self) -> bool:
        return bool(self._cut)

    def mend(self) -> None:
        """Drop nothing any more."""
        self._cut = set()

    def delay(self, seconds: float) -> None:
        """Deliver all frames later."""
        self._delay_s = seconds

    def reset(self, client_port: int, time_to_live: int, receivers: tuple[str, ...] = (CLIENT, SERVER)) -> bool:
        """Send a RST in the name of the other side, as a middlebox does."""
        flows = {socket.inet_ntoa(key[0]): flow for key, flow in self._flows.items() if client_port in key[2:]}
        senders = {SERVER: flows.get(self.client_address), CLIENT: flows.get(self.server_address)}
        for receiver in receivers:
            flow = senders[receiver]
            if flow is None:
                return False
            self._ends[receiver].send(_reset(flow, time_to_live))
        return True

    def _carry(self) -> None:
        queue: list[tuple[float, int, str, bytes]] = []
        sources: list[Any] = [*self._ends.values(), self._wake]
        count = 0
        while self._is_open:
            rest = max(queue[0][0] - time.monotonic(), 0) if queue else None
            ready, _, _ = select.select(sources, [], [], rest)
            for sender, receiver in ((CLIENT, SERVER), (SERVER, CLIENT)):
                if self._ends[sender] not in ready:
                    continue
                with suppress(BlockingIOError):
                    while True:
                        frame, address = self._ends[sender].recvfrom(65536)
                        if address[2] == _OUTGOING or sender in self._cut:
                            continue
                        self._note(frame)
                        count += 1
                        heapq.heappush(queue, (time.monotonic() + self._delay_s, count, receiver, frame))
            while queue and queue[0][0] <= time.monotonic():
                _, _, receiver, frame = heapq.heappop(queue)
                with suppress(OSError):
                    self._ends[receiver].send(frame)

    def _note(self, frame: bytes) -> None:
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            return
        start = 14 + (frame[14] & 15) * 4
        source, target, sequence, acknowledgment, offset, flags = struct.unpack_from(">HHIIBB", frame, start)
        length = struct.unpack_from(">H", frame, 16)[0] - (start - 14) - (offset >> 4) * 4
        following = sequence + length + bool(flags & 2) + bool(flags & 1) & 0xFFFFFFFF
        self._flows[frame[26:30], frame[30:34], source, target] = Flow(frame, following, acknowledgment)

    def _remove(self) -> None:
        for name in self._names.values():
            subprocess.run([program("ip"), "netns", "del", name], capture_output=True, check=False)

    def close(self) -> None:
        self._is_open = False
        os.write(self._woken, b"x")
        self._thread.join(5)
        for end in self._ends.values():
            end.close()
        os.close(self._wake)
        os.close(self._woken)
        self._remove()


def _sum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _reset(flow: Flow, time_to_live: int) -> bytes:
    """Frame with a RST that continues a flow."""
    start = 14 + (flow.frame[14] & 15) * 4
    ports, addresses = flow.frame[start : start + 4], flow.frame[26:34]
    tcp = ports + struct.pack(">IIBBHHH", flow.next_sequence, flow.acknowledgment, 5 << 4, 0x14, 0, 0, 0)
    check = _sum(addresses + struct.pack(">HH", 6, len(tcp)) + tcp)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 40, 0, 0, time_to_live, 6, 0) + addresses
    ip = ip[:10] + struct.pack(">H", _sum(ip)) + ip[12:]
    return flow.frame[:14] + ip + tcp[:16] + struct.pack(">H", check) + tcp[18:]
