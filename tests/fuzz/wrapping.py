"""Frames of every link type around the IP datagrams of the captures; no matter which, the datagram is found again."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack

ETHERNET, NULL, RAW, SLL, SLL2, PPP, HDLC, PPPOE, PPPD = 1, 0, 101, 113, 276, 9, 104, 51, 166
LINK_TYPES = (
    1, 0, 9, 12, 14, 50, 51, 101, 104, 105, 108, 113, 117, 119, 127, 163, 166, 192, 204, 205, 226, 228, 229, 239, 242,
    258, 276, 147,
)  # fmt: skip
"""Every supported link type and one that is not."""
_MACS = bytes.fromhex("020000000002020000000001")


def wrapped(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    """Link type and frame: the same IP datagram after every header that is walked."""
    four = datagram[0] >> 4 == 4
    kind = b"\x08\x00" if four else b"\x86\xdd"
    ppp = b"\x00\x21" if four else b"\x00\x57"
    ethernet = _MACS + kind + datagram
    yield ETHERNET, ethernet
    yield ETHERNET, _MACS + b"\x81\x00\x00\x07" + kind + datagram
    yield ETHERNET, _MACS + b"\x88\xa8\x00\x64\x81\x00\x00\x07" + kind + datagram
    yield ETHERNET, _MACS + b"\x88\x47\x00\x01\x00\x40\x00\x02\x01\x40" + datagram
    yield ETHERNET, _MACS + b"\x88\x64\x11\x00\x00\x01" + pack(">H", len(datagram) + 2) + ppp + datagram
    yield ETHERNET, _MACS + pack(">H", len(datagram) + 8) + b"\xaa\xaa\x03\x00\x00\x00" + kind + datagram
    yield NULL, (b"\x02\0\0\0" if four else b"\x1e\0\0\0") + datagram
    yield 108, (b"\0\0\0\x02" if four else b"\0\0\0\x1e") + datagram
    for link in (12, 14, RAW, 228 if four else 229):
        yield link, datagram
    yield SLL, b"\0\0\0\x01\0\x06\x02\0\0\0\0\x01\0\0" + kind + datagram
    yield SLL2, kind + b"\0\0\0\0\0\x01\0\x01\0\x06\x02\0\0\0\0\x01\0\0" + datagram
    yield PPP, b"\xff\x03" + ppp + datagram
    yield 50, ppp + datagram
    yield 204, b"\x01\xff\x03" + ppp + datagram
    yield HDLC, b"\x0f\x00" + kind + datagram
    yield 205, b"\x00\x0f\x00" + kind + datagram
    yield PPPOE, b"\x11\x00\x00\x01" + pack(">H", len(datagram) + 2) + ppp + datagram
    yield PPPD, b"\x01" + ppp + datagram
    yield 117, (b"\x3d\x02\0\0" if four else b"\x3d\x18\0\0") + bytes(60) + datagram
    yield 226, b"\x01" + (b"\x02" if four else b"\x1a") + bytes(22) + datagram
    yield 239, b"\x02\x00\0\0" + pack("<HH", len(datagram) + 4, 9) + datagram
    yield 258, pack("<III", 108, 1, 1) + bytes(96) + ethernet
    yield 147, datagram
    llc = b"\xaa\xaa\x03\x00\x00\x00" + kind + datagram
    quality = b"\x88\x01" + bytes(22) + b"\0\0" + llc
    yield 105, b"\x08\x02" + bytes(22) + llc
    yield 119, pack("<II", 0x44, 144) + bytes(136) + quality
    yield 127, b"\0\0\x09\0\x02\0\0\0\x10" + quality + bytes(4)
    yield 163, pack(">II", 0x80211001, 64) + bytes(56) + quality
    yield 192, pack("<BBHI", 0, 0, 8, 105) + quality
    yield 242, bytes(40) + kind + b"\0\0" + datagram
    yield ETHERNET, _MACS + b"\x89\x2f\0\x40\0\x07" + kind + datagram
    for number, tunnel in ((47, b"\0\0" + kind), (47, b"\x20\0" + kind + b"\0\0\0\x07"), (47, b"\0\0\x65\x58")):
        inner = ethernet if tunnel[2:4] == b"\x65\x58" else datagram
        yield RAW, _ipv4(number, tunnel + inner)
    yield RAW, _ipv4(4 if four else 41, datagram)
    yield RAW, _ipv4(17, pack(">HHHH", 50_000, 4_789, len(ethernet) + 16, 0) + b"\x08\0\0\0\0\0\x07\0" + ethernet)
    yield RAW, _ipv4(17, pack(">HHHH", 50_000, 6_081, len(ethernet) + 16, 0) + b"\0\0\x65\x58\0\0\x07\0" + ethernet)
    for port, tunnel, inner in (
        (2_152, b"\x30\xff" + pack(">HI", len(datagram), 7), datagram),
        (2_152, b"\x34\xff" + pack(">HI", len(datagram) + 8, 7) + b"\0\0\0\x85\x01\0\0\0", datagram),
        (4_790, b"\x0c\0\0" + (b"\x01" if four else b"\x02") + bytes(4), datagram),
        (5_555, b"\x08" + bytes(7), ethernet),
        (37_008, b"\x01\0\0\x01\x01", ethernet),
        (1_701, b"\0\x02\0\x05\0\x06", b"\xff\x03" + ppp + datagram),
    ):
        yield RAW, _ipv4(17, pack(">HHHH", 50_000, port, len(tunnel + inner) + 8, 0) + tunnel + inner)
    yield RAW, _ipv4(47, b"\x30\x01\x88\x0b" + pack(">HHI", len(ppp + datagram), 3, 1) + ppp + datagram)
    yield RAW, _ipv4(47, b"\x10\0\x22\xeb" + bytes(4) + b"\x20" + bytes(11) + ethernet)
    yield RAW, _ipv4(51, pack(">BBHII", 4 if four else 41, 1, 0, 1, 1) + datagram)
    yield RAW, _ipv6(0, bytes((60, 0)) + bytes(6) + bytes((4 if four else 41, 0)) + bytes(6) + datagram)


def fragments(datagram: bytes, size: int = 48) -> list[bytes]:
    """An IPv4 datagram in fragments of ``size`` bytes; anything else as it is."""
    length = (datagram[0] & 15) * 4
    body = datagram[length:]
    if datagram[0] >> 4 != 4 or len(body) <= size:
        return [datagram]
    chunks = []
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        more = 0x2000 if at + size < len(body) else 0
        total, place = pack(">H", length + len(piece)), pack(">H", more | at // 8)
        chunks.append(datagram[:2] + total + datagram[4:6] + place + datagram[8:length] + piece)
    return chunks


def _ipv4(protocol: int, body: bytes) -> bytes:
    head = pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0)
    return head + bytes((192, 0, 2, 1, 192, 0, 2, 2)) + body


def _ipv6(following: int, body: bytes) -> bytes:
    head = pack(">IHBB", 0x60000000, len(body), following, 64)
    return (
        head + bytes.fromhex("20010db8") + bytes(11) + b"\x01" + bytes.fromhex("20010db8") + bytes(11) + b"\x02" + body
    )
