"""DNS messages put together record by record, and the frames that bring them."""

from __future__ import annotations

import struct
from ipaddress import ip_address

from mqttscope.net.frame import Frame
from mqttscope.net.segment import DnsMessage

A, CNAME, AAAA = 1, 5, 28
POINTER = b"\xc0\x0c"
"""To the name in the question."""
CLIENT, SERVER = "192.0.2.4", "192.0.2.2"
"""As `tests.dissect.talk.Talk` has them."""


def name(text: str) -> bytes:
    """A name without compression."""
    labels = [label.encode() for label in text.split(".") if label]
    return b"".join(bytes((len(label),)) + label for label in labels) + b"\0"


def record(owner: bytes, kind: int, data: bytes, length: int | None = None, internet: int = 1) -> bytes:
    return owner + struct.pack("!HHIH", kind, internet, 60, len(data) if length is None else length) + data


def host(text: str, owner: bytes = POINTER) -> bytes:
    """The record of an address."""
    packed = ip_address(text).packed
    return record(owner, A if len(packed) == 4 else AAAA, packed)


def message(asked: bytes, *records: bytes, flags: int = 0x8180, count: int | None = None, questions: int = 1) -> bytes:
    counts = questions, len(records) if count is None else count, 0, 0
    head = struct.pack("!HHHHHH", 0x1234, flags, *counts)
    return head + asked + b"\0\1\0\1" + b"".join(records)


def answer(asked: str, *addresses: str) -> bytes:
    """The usual answer."""
    return message(name(asked), *map(host, addresses))


def received(data: bytes, client: str = CLIENT, frame: int = 1, timestamp_ns: int = 0) -> DnsMessage:
    """A message as it comes out of its frame."""
    return DnsMessage("not_tcp", "", ip_address(client).packed, bytes((192, 0, 2, 53)), data, frame, timestamp_ns)


def query(asked: str, kind: int = A) -> bytes:
    """A query for an address."""
    return message(name(asked), flags=0x0100)[:-4] + struct.pack("!HH", kind, 1)


def failure(asked: str, code: int, kind: int = A) -> bytes:
    """A response without an address."""
    return message(name(asked), flags=0x8180 | code)[:-4] + struct.pack("!HH", kind, 1)


def datagram(data: bytes, client: str = CLIENT, port: int = 53) -> bytes:
    """An IP datagram from a resolver to a client."""
    target = ip_address(client).packed
    body = struct.pack("!HHHH", port, 40_000, 8 + len(data), 0) + data
    if len(target) == 16:
        return struct.pack("!IHBB", 0x60000000, len(body), 17, 64) + ip_address("fd00::53").packed + target + body
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 7, 0x4000, 64, 17, 0)
    return head + bytes((192, 0, 2, 53)) + target + body


def asking(data: bytes, client: str = CLIENT) -> bytes:
    """An IPv4 datagram from a client to a resolver."""
    body = struct.pack("!HHHH", 40_000, 53, 8 + len(data), 0) + data
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 7, 0x4000, 64, 17, 0)
    return head + ip_address(client).packed + bytes((192, 0, 2, 53)) + body


def framed(data: bytes, number: int = 1, timestamp_ns: int = 0, capture: str = "a.pcap") -> Frame:
    """A datagram as a frame without a link layer."""
    return Frame(number, timestamp_ns, 101, data, len(data), capture)
