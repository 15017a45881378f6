"""Frames put together header by header."""

from __future__ import annotations

import struct

from mqttscope.net.frame import Frame
from mqttscope.net.segment import ACK, PSH, Fragment, NotSegment, Segment

A4, B4 = bytes([10, 0, 0, 4]), bytes([10, 0, 0, 2])
A6, B6 = bytes.fromhex("fd000000000000000000000000000004"), bytes.fromhex("fd000000000000000000000000000002")
PORTS = struct.pack("!HH", 51234, 1883)
PINGREQ = b"\xc0\x00"
TIMESTAMPS = b"\x01\x01\x08\x0a" + bytes(8)


def tcp(payload: bytes = PINGREQ, options: bytes = b"", data_offset: int | None = None) -> bytes:
    offset = 5 + len(options) // 4 if data_offset is None else data_offset
    return PORTS + struct.pack("!IIBBHHH", 1000, 2000, offset << 4, PSH | ACK, 512, 0, 0) + options + payload


def udp(port: int, payload: bytes) -> bytes:
    return struct.pack("!HHHH", 40000, port, 8 + len(payload), 0) + payload


def ip4(
    payload: bytes,
    protocol: int = 6,
    options: bytes = b"",
    total: int | None = None,
    fragment: int = 0x4000,
    first: int = -1,
) -> bytes:
    length = 20 + len(options)
    return (
        struct.pack(
            "!BBHHHBBH",
            0x40 | length // 4 if first < 0 else first,
            0,
            length + len(payload) if total is None else total,
            7,
            fragment,
            64,
            protocol,
            0,
        )
        + A4
        + B4
        + options
        + payload
    )


def ip6(payload: bytes, following: int = 6, length: int | None = None, first: int = 0x60) -> bytes:
    return (
        bytes((first, 0, 0, 0))
        + struct.pack("!HBB", len(payload) if length is None else length, following, 64)
        + A6
        + B6
        + payload
    )


def ethernet(kind: int, payload: bytes) -> bytes:
    return bytes.fromhex("020000000001020000000002") + kind.to_bytes(2, "big") + payload


def vlan(tag: int, kind: int, payload: bytes) -> bytes:
    return struct.pack("!HH", tag, kind) + payload


def frame(data: bytes, link_type: int = 1, original_length: int | None = None, number: int = 1) -> Frame:
    return Frame(number, 5_000, link_type, data, len(data) if original_length is None else original_length, "x.pcap")


def one(result: Segment | Fragment | NotSegment | None) -> Segment:
    assert isinstance(result, Segment), result
    return result


def extension(following: int, words: int = 0) -> bytes:
    return bytes((following, words)) + bytes(6 + 8 * words)


def fragment_header(following: int, offset: int = 0, more: bool = False, identification: int = 9) -> bytes:
    return struct.pack("!BBHI", following, 0, offset | more, identification)


def wlan(payload: bytes, flags: int = 0x01, kind: int = 0x08, quality: bytes = b"", sequence: int = 0x10) -> bytes:
    """An 802.11 data frame with LLC; ``quality`` is the QoS control of one with kind 0x88."""
    third = bytes.fromhex("020000000003") + struct.pack("<H", sequence)
    fourth = bytes.fromhex("020000000004") if flags & 3 == 3 else b""
    head = bytes((kind, flags)) + b"\x2c\0" + bytes.fromhex("020000000001020000000002") + third + fourth
    return head + quality + payload


def subframe(payload: bytes, *, last: bool = True) -> bytes:
    """One subframe of an 802.11 A-MSDU."""
    raw = bytes.fromhex("020000000001020000000002") + struct.pack("!H", len(payload)) + payload
    return raw if last else raw + bytes(-len(raw) % 4)


def radiotap(payload: bytes, flags: int | None = None, time: bool = False, more: int = 0) -> bytes:
    """A radiotap header with as few fields; ``more``: further words of the bitmap."""
    present = (0x01 if time else 0) | (0x02 if flags is not None else 0)
    words = struct.pack(f"<{more + 1}I", *_words(present, more))
    fields = bytes(-(4 + len(words)) % 8) + struct.pack("<Q", 12345) if time else b""
    fields += b"" if flags is None else bytes((flags,))
    return struct.pack("<BBH", 0, 0, 4 + len(words) + len(fields)) + words + fields + payload


def _words(present: int, more: int) -> list[int]:
    return [(present if not n else 0) | (0x80000000 if n < more else 0) for n in range(more + 1)]


def ppp(payload: bytes, protocol: int = 0x0021) -> bytes:
    return b"\xff\x03" + protocol.to_bytes(2, "big") + payload


def gtp(payload: bytes, flags: int = 0x30, optional: bytes = b"", kind: int = 255) -> bytes:
    """A GTP-U message over UDP."""
    return udp(2152, struct.pack("!BBHI", flags, kind, len(optional + payload), 77) + optional + payload)


def erspan_3(payload: bytes, kind: int = 0, platform: bytes = b"", version: int = 2) -> bytes:
    """ERSPAN type III in GRE."""
    last = kind << 10 | bool(platform)
    head = struct.pack("!BBHIHH", version << 4, 7, 5, 99, 0, last)
    return b"\x10\0\x22\xeb" + bytes(4) + head + platform + payload


def tzsp(
    payload: bytes, protocol: int = 1, tags: bytes = b"\x0a\x01\x33\0\x01", kind: int = 0, port: int = 37008
) -> bytes:
    """TZSP over UDP: by default a tag, padding, the end of the tags."""
    return udp(port, struct.pack("!BBH", 1, kind, protocol) + tags + payload)


def l2tp(payload: bytes, flags: int = 0x0002, optional: bytes = b"") -> bytes:
    """L2TP over UDP; with ``optional`` after both identifiers, and the length where the flags say so."""
    numbers = struct.pack("!HH", 5, 6) + optional + payload
    length = struct.pack("!H", len(numbers) + 4) if flags & 0x4000 else b""
    return udp(1701, struct.pack("!H", flags) + length + numbers)


def pptp(payload: bytes, acknowledged: bool = False) -> bytes:
    """PPP in the enhanced GRE of PPTP."""
    flags = 0x3001 | (0x80 if acknowledged else 0)
    head = struct.pack("!HHHHI", flags, 0x880B, len(payload), 3, 1)
    return head + (bytes(4) if acknowledged else b"") + payload


SNAP = b"\xaa\xaa\x03\0\0\0"
VXLAN = b"\x08\0\0\0\0\x01\x02\0"
GENEVE = b"\x02\0\x65\x58\0\x01\x02\0" + bytes(8)
IP4, IP6 = ip4(tcp()), ip6(tcp())
# Sentence, link type, frame, encapsulation expected in the key; every frame carries the same segment.
WHOLE: list[tuple[str, int, bytes, bytes]] = [
    ("plain Ethernet and IPv4", 1, ethernet(0x800, IP4), b""),
    ("plain Ethernet and IPv6", 1, ethernet(0x86DD, IP6), b""),
    ("Ethernet padding after the datagram", 1, ethernet(0x800, IP4) + bytes(4), b""),
    ("Ethernet trailer after IPv6", 1, ethernet(0x86DD, IP6) + b"trailer", b""),
    ("TCP options", 1, ethernet(0x800, ip4(tcp(options=TIMESTAMPS))), b""),
    ("TCP options up to the largest data offset", 1, ethernet(0x800, ip4(tcp(options=bytes(40)))), b""),
    ("IPv4 options", 1, ethernet(0x800, ip4(tcp(), options=b"\x94\x04\0\0")), b""),
    ("40 bytes of IPv4 options", 1, ethernet(0x800, ip4(tcp(), options=bytes(40))), b""),
    ("reserved fragment bit of IPv4 set", 1, ethernet(0x800, ip4(tcp(), fragment=0x8000)), b""),
    ("IPv4 total length 0 of segmentation offload", 1, ethernet(0x800, ip4(tcp(), total=0)), b""),
    ("IPv6 payload length 0 of segmentation offload", 1, ethernet(0x86DD, ip6(tcp(), length=0)), b""),
    ("IPv4 total length beyond the frame on the wire", 1, ethernet(0x800, ip4(tcp(), total=1500)), b""),
    ("IPv6 payload length beyond the frame on the wire", 1, ethernet(0x86DD, ip6(tcp(), length=1500)), b""),
    ("IPv6 hop-by-hop and destination options", 1,
     ethernet(0x86DD, ip6(extension(60) + extension(6, 2) + tcp(), 0)), b""),
    ("IPv6 routing, mobility, HIP, shim6", 229,
     ip6(extension(135, 1) + extension(139) + extension(140) + extension(6) + tcp(), 43), b""),
    ("IPv6 authentication header", 229, ip6(b"\x06\x04" + bytes(22) + tcp(), 51), b""),
    ("IPv4 authentication header", 228, ip4(b"\x06\x04" + bytes(22) + tcp(), 51), b""),
    ("IPv6 atomic fragment", 229, ip6(fragment_header(6) + tcp(), 44), b""),
    ("IPv4 in IPv4", 228, ip4(IP4, 4), b"\xf0\x04"),
    ("IPv6 in IPv4", 228, ip4(IP6, 41), b"\xf0\x29"),
    ("IPv4 in IPv6", 229, ip6(IP4, 4), b"\xf0\x04"),
    ("IPv6 in IPv6", 229, ip6(IP6, 41), b"\xf0\x29"),
    ("IPv6 in IPv6 after destination options", 229, ip6(extension(41) + IP6, 60), b"\xf0\x29"),
    ("GRE", 228, ip4(b"\0\0\x08\0" + IP4, 47), b"\xf0\x2f"),
    ("GRE with checksum, key, sequence", 228,
     ip4(b"\xb0\0\x86\xdd" + bytes(4) + b"key!" + bytes(4) + IP6, 47), b"\xf0\x30key!"),
    ("GRE over IPv6", 229, ip6(b"\0\0\x08\0" + IP4, 47), b"\xf0\x2f"),
    ("GRE with bridged Ethernet", 228,
     ip4(b"\0\0\x65\x58" + ethernet(0x8100, vlan(3, 0x800, IP4)), 47), b"\xf0\x2f\0\x03"),
    ("GRE with MPLS", 228, ip4(b"\0\0\x88\x47\0\x01\x01\x40" + IP4, 47), b"\xf0\x2f"),
    ("ERSPAN type I", 228, ip4(b"\0\0\x88\xbe" + ethernet(0x800, IP4), 47), b"\xf0\x2f"),
    ("ERSPAN type II", 228, ip4(b"\x10\0\x88\xbe" + bytes(12) + ethernet(0x800, IP4), 47), b"\xf0\x2f"),
    ("VXLAN", 228, ip4(udp(4789, VXLAN + ethernet(0x800, IP4)), 17), b"\xf1\x01\0\0\x01\x02"),
    ("VXLAN in a VLAN, VLAN inside", 1,
     ethernet(0x8100, vlan(8, 0x800, ip4(udp(4789, VXLAN + ethernet(0x8100, vlan(9, 0x86DD, IP6))), 17))),
     b"\0\x08\xf1\x01\0\0\x01\x02\0\x09"),
    ("GENEVE with options", 229, ip6(udp(6081, GENEVE + ethernet(0x800, IP4)), 17), b"\xf1\x02\0\0\x01\x02"),
    ("GENEVE with IP straight inside", 228, ip4(udp(6081, b"\0\0\x08\0\0\0\x07\0" + IP4), 17), b"\xf1\x02\0\0\0\x07"),
    ("VXLAN on the port of Linux", 228, ip4(udp(8472, VXLAN + ethernet(0x800, IP4)), 17), b"\xf1\x01\0\0\x01\x02"),
    ("VXLAN on any port", 228, ip4(udp(1234, VXLAN + ethernet(0x800, IP4)), 17), b"\xf1\x01\0\0\x01\x02"),
    ("VXLAN with a group policy on any port", 228,
     ip4(udp(4799, b"\x88\x08\0\x37" + VXLAN[4:] + ethernet(0x800, IP4)), 17), b"\xf1\x01\0\0\x01\x02"),
    ("GENEVE on any port", 229, ip6(udp(16081, GENEVE + ethernet(0x800, IP4)), 17), b"\xf1\x02\0\0\x01\x02"),
    ("GENEVE on any port, IP straight inside", 228,
     ip4(udp(16081, b"\0\0\x08\0\0\0\x07\0" + IP4), 17), b"\xf1\x02\0\0\0\x07"),
    ("TZSP on any port", 228, ip4(tzsp(ethernet(0x800, IP4), port=37777), 17), b"\xf0\x82"),
    ("TZSP with 802.11 inside on any port", 228,
     ip4(tzsp(wlan(SNAP + b"\x08\0" + IP4), 18, port=37777), 17), b"\xf0\x82"),
    ("VXLAN on any port, padded inside", 228,
     ip4(udp(1234, VXLAN + ethernet(0x800, IP4) + bytes(4)), 17), b"\xf1\x01\0\0\x01\x02"),
    ("VXLAN on any port, VLAN and IPv6 inside", 228,
     ip4(udp(1234, VXLAN + ethernet(0x8100, vlan(9, 0x86DD, IP6))), 17), b"\xf1\x01\0\0\x01\x02\0\x09"),
    ("VXLAN-GPE with IPv4", 228, ip4(udp(4790, b"\x0c\0\0\x01\0\x01\x02\0" + IP4), 17), b"\xf1\x01\0\0\x01\x02"),
    ("VXLAN-GPE with IPv6", 228, ip4(udp(4790, b"\x0c\0\0\x02\0\x01\x02\0" + IP6), 17), b"\xf1\x01\0\0\x01\x02"),
    ("VXLAN-GPE with Ethernet", 228,
     ip4(udp(4790, b"\x0c\0\0\x03\0\x01\x02\0" + ethernet(0x800, IP4)), 17), b"\xf1\x01\0\0\x01\x02"),
    ("VXLAN-GPE port with VXLAN", 228, ip4(udp(4790, VXLAN + ethernet(0x800, IP4)), 17), b"\xf1\x01\0\0\x01\x02"),
    ("VXLAN-GPE on any port", 228,
     ip4(udp(1234, b"\x0c\0\0\x01\0\x01\x02\0" + IP4), 17), b"\xf1\x01\0\0\x01\x02"),
    ("GTP-U", 228, ip4(gtp(IP4), 17), b"\xf0\x81"),
    ("GTP-U with IPv6, over IPv6", 229, ip6(gtp(IP6), 17), b"\xf0\x81"),
    ("GTP-U with a sequence number", 228, ip4(gtp(IP4, 0x32, b"\0\x05\0\0"), 17), b"\xf0\x81"),
    ("GTP-U with a PDU session container", 228, ip4(gtp(IP4, 0x34, b"\0\0\0\x85\x01\0\x01\0"), 17), b"\xf0\x81"),
    ("GTP-U with two extension headers", 228,
     ip4(gtp(IP6, 0x36, b"\0\x09\0\xc0\x01\0\x01\x85\x02\0\x01\0\0\0\0\0"), 17), b"\xf0\x81"),
    ("ERSPAN type II, version 1", 228,
     ip4(b"\x10\0\x88\xbe" + bytes(4) + b"\x10\x07\0\x05\0\0\0\0" + ethernet(0x800, IP4), 47), b"\xf0\x2f"),
    ("ERSPAN type III", 228, ip4(erspan_3(ethernet(0x800, IP4)), 47), b"\xf0\x2f"),
    ("ERSPAN type III with the platform's header", 228,
     ip4(erspan_3(ethernet(0x86DD, IP6), platform=b"\x08" + bytes(7)), 47), b"\xf0\x2f"),
    ("ERSPAN type III with an IP datagram", 228, ip4(erspan_3(IP4, kind=2), 47), b"\xf0\x2f"),
    ("TZSP", 228, ip4(tzsp(ethernet(0x800, IP4)), 17), b"\xf0\x82"),
    ("TZSP with a VLAN inside", 228,
     ip4(tzsp(ethernet(0x8100, vlan(3, 0x800, IP4)), tags=b"\x01"), 17), b"\xf0\x82\0\x03"),
    ("TZSP with 802.11 inside", 228, ip4(tzsp(wlan(SNAP + b"\x08\0" + IP4), 18), 17), b"\xf0\x82"),
    ("L2TP", 228, ip4(l2tp(ppp(IP4)), 17), b"\xf0\x83"),
    ("L2TP with length, sequence and offset", 228,
     ip4(l2tp(ppp(IP6, 0x57), 0x4A02, bytes(4) + b"\0\x02\0\0"), 17), b"\xf0\x83"),
    ("PPTP", 228, ip4(pptp(ppp(IP4)), 47), b"\xf0\x84"),
    ("PPTP with an acknowledgment", 228, ip4(pptp(b"\x21" + IP4, acknowledged=True), 47), b"\xf0\x84"),
]  # fmt: skip
