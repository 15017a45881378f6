"""Captures of TCP over IPv4, and a folder with everything that may be wrong."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

from mqttscope.net.segment import ACK
from tests.capture.test_pcap import pcap_file
from tests.capture.test_pcapng import enhanced, interface, section, statistics


def tcp(payload: bytes, *, port: int = 50_000, sequence: int = 1) -> bytes:
    """A TCP segment."""
    return struct.pack("!HHIIBBHHH", port, 1883, sequence, 7, 0x50, ACK, 1000, 0, 0) + payload


def ip(body: bytes, *, fragment: int = 0, identification: int = 1, protocol: int = 6) -> bytes:
    """An Ethernet frame with an IPv4 datagram or a fragment of one."""
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), identification, fragment, 64, protocol, 0)
    return bytes(12) + b"\x08\0" + header + b"\x0a\0\0\1\x0a\0\0\2" + body


def frames(count: int, size: int = 80, *, port: int = 50_000) -> list[bytes]:
    """Segments one after the other."""
    return [ip(tcp(bytes([number & 0xFF]) * size, port=port, sequence=1 + number * size)) for number in range(count)]


def pcap(data: list[bytes], *, seconds: int = 1_700_000_000, order: str = "<", network: int = 1) -> bytes:
    """A capture of these frames."""
    return pcap_file([(seconds + number, number, raw) for number, raw in enumerate(data)], order=order, network=network)


def fragmented() -> list[bytes]:
    """A segment in three fragments between whole ones, the last fragment first; and one without an end."""
    body = tcp(b"f" * 44)
    parts = [ip(body[48:], fragment=6), ip(body[:24], fragment=0x2000), ip(body[24:48], fragment=0x2003)]
    whole = frames(6)
    lonely = ip(body[:24], fragment=0x2000, identification=9)
    datagram = [
        ip(b"u" * 24, fragment=0x2000, protocol=17, identification=5),
        ip(b"u", fragment=3, protocol=17, identification=5),
    ]
    return [whole[0], parts[0], whole[1], parts[1], lonely, whole[2], *datagram, parts[2], *whole[3:]]


def everything(folder: Path) -> list[str]:
    """A folder of captures, good and bad; returns the sources that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    good = pcap(frames(200))
    written = {
        "c.pcap": good,
        "b.pcap": pcap(frames(100), seconds=1_600_000_000, order=">"),
        "a.pcapng": section() + interface() + b"".join(map(enhanced, frames(150))) + statistics(interface_drops=3),
        "packed.gz": gzip.compress(pcap(frames(50), seconds=1_650_000_000)),
        "cut.pcap": good[:-30],
        "damaged.pcap": good[:7974] + b"\xff" * 40 + good[8014:],
        "half.gz": gzip.compress(good)[:-20],
        "usb.pcap": pcap(frames(40), network=189),
        "fragments.pcap": pcap(fragmented(), seconds=1_690_000_000),
        "other.pcap": pcap([ip(b"u" * 30, protocol=17), b"short", *frames(3)]),
        "empty.pcap": pcap([]),
        "text.txt": b"no capture at all",
        "nothing": b"",
    }
    for name, content in written.items():
        (folder / name).write_bytes(content)
    return [f"{folder}/*", f"{folder}/c.pcap", f"{folder}/missing.pcap"]
