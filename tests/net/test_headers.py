from __future__ import annotations

import gzip
import io
import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

import dpkt
import pytest

from mqttscope.net import headers
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import ACK, PSH, Fragment, NotSegment, Segment, direction_key, endpoints, ports, reverse_key
from tests.conftest import shared_path

A4, B4 = bytes([10, 0, 0, 4]), bytes([10, 0, 0, 2])
A6, B6 = bytes.fromhex("fd000000000000000000000000000004"), bytes.fromhex("fd000000000000000000000000000002")
PORTS = struct.pack("!HH", 51234, 1883)
PINGREQ = b"\xc0\x00"
KEY4 = direction_key(A4 + B4, PORTS)
KEY6 = direction_key(A6 + B6, PORTS)
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


VXLAN = b"\x08\0\0\0\0\x01\x02\0"
GENEVE = b"\x02\0\x65\x58\0\x01\x02\0" + bytes(8)
IP4, IP6 = ip4(tcp()), ip6(tcp())

# Sentence, link type, frame, encapsulation expected in the key; every frame carries the same segment.
WHOLE: list[tuple[str, int, bytes, bytes]] = [
    ("plain Ethernet and IPv4", 1, ethernet(0x800, IP4), b""),
    ("plain Ethernet and IPv6", 1, ethernet(0x86DD, IP6), b""),
    ("Ethernet padding behind the datagram", 1, ethernet(0x800, IP4) + bytes(4), b""),
    ("Ethernet trailer behind IPv6", 1, ethernet(0x86DD, IP6) + b"trailer", b""),
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
    ("IPv6 in IPv6 behind destination options", 229, ip6(extension(41) + IP6, 60), b"\xf0\x29"),
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
]  # fmt: skip
IDS = [row[0] for row in WHOLE]


def spliced(layers: int) -> bytes:
    datagram = IP4
    for _ in range(layers):
        datagram = ip4(datagram, 4)
    return datagram


# Sentence, link type, frame, original length or None, the constant expected.
REFUSED: list[tuple[str, int, bytes, int | None, NotSegment]] = [
    ("IPv6 where IPv4 was announced", 1, ethernet(0x800, IP6), None, headers.IP_VERSION),
    ("IPv4 where IPv6 was announced", 229, IP4 + bytes(20), None, headers.IP_VERSION),
    ("IPv4 header length 16", 228, ip4(tcp(), first=0x44), None, headers.IP_HEADER_LENGTH),
    ("IPv4 header length 60 in 42 bytes", 228, ip4(tcp(), first=0x4F), None, headers.IP_HEADER_LENGTH),
    ("IPv4 header beyond the frame", 228, ip4(b"", first=0x4F, total=1000), None, headers.IP_SHORT),
    ("IPv4 total length 19", 228, ip4(tcp(), total=19), None, headers.IP_HEADER_LENGTH),
    ("IPv4 total length 0 in a huge frame", 228, ip4(tcp(), total=0), 1 << 31, headers.IP_TOO_LONG),
    ("IPv6 payload length 0 in a huge frame", 229, ip6(tcp(), length=0), 1 << 31, headers.IP_TOO_LONG),
    ("IPv4 header cut", 228, IP4[:19], 42, headers.IP_TRUNCATED),
    ("IPv4 options cut", 228, ip4(tcp(), options=bytes(8))[:24], 50, headers.IP_TRUNCATED),
    ("IPv6 header cut", 229, IP6[:39], 62, headers.IP_TRUNCATED),
    ("IPv6 extension header cut", 229, ip6(extension(6, 4) + tcp(), 0)[:60], 102, headers.IP_TRUNCATED),
    ("IPv6 extension header beyond the datagram", 229,
     ip6(extension(6)[:1] + b"\xff" + bytes(30), 0), None, headers.IP_SHORT),
    ("1000 IPv6 extension headers", 229, ip6(extension(0) * 1000, 0), None, headers.TOO_MANY_EXTENSION_HEADERS),
    ("ICMP", 228, ip4(bytes(8), 1), None, headers.NOT_TCP),
    ("ICMP fragment", 228, ip4(bytes(8), 1, fragment=0x2000), None, headers.NOT_TCP),
    ("ICMPv6", 229, ip6(bytes(8), 58), None, headers.NOT_TCP),
    ("ESP behind hop-by-hop options", 229, ip6(extension(50) + bytes(40), 0), None, headers.NOT_TCP),
    ("no next header", 229, ip6(extension(59), 60), None, headers.NOT_TCP),
    ("UDP", 228, ip4(udp(53, bytes(40)), 17), None, headers.NOT_TCP),
    ("VXLAN port without VXLAN", 228, ip4(udp(4789, bytes(60)), 17), None, headers.NOT_TCP),
    ("GENEVE control message", 228, ip4(udp(6081, b"\0\x80" + bytes(60)), 17), None, headers.NOT_TCP),
    ("GRE of PPTP", 228, ip4(b"\x20\x01\x88\x0b" + bytes(20), 47), None, headers.NOT_TCP),
    ("IPv6 extension number over IPv4", 228, ip4(extension(6) + tcp(), 60), None, headers.NOT_TCP),
    ("100 nested tunnels", 228, spliced(100), None, headers.TOO_MANY_TUNNELS),
    ("TCP data offset 16", 1, ethernet(0x800, ip4(tcp(data_offset=4))), None, headers.TCP_DATA_OFFSET),
    ("TCP data offset beyond the datagram", 1, ethernet(0x800, ip4(tcp(data_offset=6))), None, headers.TCP_DATA_OFFSET),
    ("TCP data offset into the Ethernet padding", 1,
     ethernet(0x800, ip4(tcp(data_offset=6))) + bytes(9), None, headers.TCP_DATA_OFFSET),
    ("TCP header beyond the datagram", 1, ethernet(0x800, ip4(tcp()[:19])) + bytes(9), None, headers.TCP_SHORT),
    ("TCP header cut", 1, ethernet(0x800, IP4)[:50], 56, headers.TCP_TRUNCATED),
]  # fmt: skip


@pytest.mark.parametrize(("link_type", "data", "encapsulation"), [row[1:] for row in WHOLE], ids=IDS)
def test_a_frame_gives_its_segment(link_type: int, data: bytes, encapsulation: bytes) -> None:
    got = one(segment(frame(data, link_type, number=12)))
    addresses = A4 + B4 if got.key[0] == A4[0] else A6 + B6
    key = direction_key(addresses, PORTS, encapsulation)
    assert got == Segment(key, 1000, 2000, PSH | ACK, 512, PINGREQ, 0, 12, 5_000, "x.pcap")
    assert len(encapsulation) % 2 == 0


@pytest.mark.parametrize(
    ("link_type", "data", "original_length", "expected"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_frame_without_a_segment_says_why(
    link_type: int, data: bytes, original_length: int | None, expected: NotSegment
) -> None:
    assert segment(frame(data, link_type, original_length)) is expected


def test_bytes_that_the_snap_length_cut_are_counted_by_the_ip_length() -> None:
    data = ethernet(0x800, ip4(tcp(b"x" * 1000))) + b"trailer"
    got = one(segment(frame(data[:100], original_length=len(data))))
    assert (got.payload, got.missing) == (b"x" * 46, 954)


def test_bytes_that_the_snap_length_cut_are_counted_by_the_original_length_under_offload() -> None:
    data = ethernet(0x800, ip4(tcp(b"x" * 70_000), total=0))
    got = one(segment(frame(data[:100], original_length=len(data))))
    assert (len(got.payload), got.missing) == (46, 69_954)
    assert len(one(segment(frame(data))).payload) == 70_000


def test_a_snap_length_inside_the_tcp_options_leaves_an_empty_payload() -> None:
    data = ethernet(0x800, ip4(tcp(b"x" * 10, options=TIMESTAMPS)))
    got = one(segment(frame(data[:60], original_length=len(data))))
    assert (got.payload, got.missing, got.sequence) == (b"", 10, 1000)


def test_an_original_length_below_the_captured_one_is_ignored() -> None:
    assert one(segment(frame(ethernet(0x86DD, ip6(tcp(), length=0)), original_length=0))).payload == PINGREQ


def test_keys_of_the_two_directions_are_each_others_reverse() -> None:
    there = one(segment(frame(IP6, 101)))
    back = ip6(PORTS[2:] + PORTS[:2] + tcp()[4:])
    back = back[:8] + back[24:40] + back[8:24] + back[40:]
    assert one(segment(frame(back, 101))).key == reverse_key(there.key)
    assert endpoints(there.key) == ("[fd00::4]:51234", "[fd00::2]:1883")


def test_an_ipv4_fragment_names_its_place() -> None:
    got = segment(frame(ethernet(0x8100, vlan(5, 0x800, ip4(b"12345678", fragment=0x2003))) + bytes(9)))
    key = A4 + B4 + b"\0\x07\x06\0\x05"
    assert got == Fragment(key, 24, True, 6, b"12345678", 0, A4, B4, b"\0\x05", 1, 5_000, "x.pcap")


def test_an_ipv6_fragment_names_its_place_behind_other_headers() -> None:
    data = ip6(extension(44) + fragment_header(6, 64, False, 0x01020304) + b"1234", 0)
    got = segment(frame(data[:-2], 229, len(data)))
    assert got == Fragment(A6 + B6 + b"\1\2\3\4", 64, False, 6, b"12", 2, A6, B6, b"", 1, 5_000, "x.pcap")


def read_frames(path: Path) -> Iterator[Frame]:
    """Frames of a capture as far as dpkt reads it."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    numbers = itertools.count(1)
    try:
        reader = dpkt.pcapng.Reader if content[:4] == b"\x0a\x0d\x0d\x0a" else dpkt.pcap.Reader
        source = io.BytesIO(content)
        capture = reader(source)
        for timestamp, data in capture:
            # The upper half of a pcap link type says whether there is a frame check sequence.
            yield Frame(next(numbers), int(timestamp * 10**9), capture.datalink() & 0xFFFF, data, len(data), path.name)
    except (ValueError, dpkt.UnpackError, struct.error, AttributeError):
        return


def captures() -> list[Path]:
    found = [path for path in sorted(shared_path("captures").rglob("*")) if path.suffix in (".pcap", ".pcapng", ".gz")]
    assert len(found) > 100
    return found


def dpkt_tcp(link_type: int, data: bytes) -> tuple[object, ...] | None:
    """Ports, numbers, flags, payload of a plain TCP segment as dpkt reads it, or ``None``."""
    layers = {
        1: dpkt.ethernet.Ethernet,
        113: dpkt.sll.SLL,
        276: dpkt.sll2.SLL2,
        0: dpkt.loopback.Loopback,
        9: dpkt.ppp.PPP,
        12: dpkt.ip.IP,
        14: dpkt.ip.IP,
        228: dpkt.ip.IP,
        229: dpkt.ip6.IP6,
    }
    if link_type not in layers:
        return None
    try:
        datagram = layers[link_type](data).data
    except (dpkt.UnpackError, IndexError):
        return None
    if link_type in (12, 14, 228, 229):
        datagram = layers[link_type](data)
    if not isinstance(datagram, dpkt.ip.IP | dpkt.ip6.IP6) or not isinstance(datagram.data, dpkt.tcp.TCP):
        return None
    if isinstance(datagram, dpkt.ip.IP):
        if datagram.mf or datagram.offset or not datagram.len:
            return None
    elif any(isinstance(header, dpkt.ip6.IP6FragmentHeader) for header in datagram.all_extension_headers):
        return None
    inner = datagram.data
    if len(inner.opts) != inner.off * 4 - 20:  # dpkt takes what it gets
        return None
    return inner.sport, inner.dport, inner.seq, inner.ack, inner.flags & 0xFF, inner.win, bytes(inner.data)


def test_dpkt_reads_the_same_segments_from_the_shared_captures() -> None:
    compared = 0
    for path in captures():
        for given_frame in itertools.islice(read_frames(path), 300):
            expected = dpkt_tcp(given_frame.link_type, given_frame.data)
            if expected is None:
                continue
            result = segment(given_frame)
            where = f"{path.name} frame {given_frame.number}"
            assert isinstance(result, Segment), (where, result)
            got = (
                *ports(result.key),
                result.sequence,
                result.acknowledgment,
                result.flags,
                result.window,
                result.payload,
            )
            assert got == expected, where
            compared += 1
    assert compared > 10_000


def test_no_frame_of_the_shared_captures_raises() -> None:
    seen = 0
    for path in captures():
        table = FragmentTable()
        for given_frame in read_frames(path):
            result = segment(given_frame)
            if isinstance(result, Fragment):
                table.feed(result)
            seen += 1
    assert seen > 100_000


def test_a_capture_with_a_snap_length_tells_how_much_is_missing() -> None:
    whole = list(read_frames(shared_path("captures", "derived", "paho-v5-live", "link-ethernet.pcap")))
    cut = shared_path("captures", "derived", "paho-v5-live", "file-snap64.pcap").read_bytes()
    at, missing = 24, 0
    for full in whole:
        captured, original = struct.unpack_from("<II", cut, at + 8)
        got = one(segment(frame(cut[at + 16 : at + 16 + captured], 1, original)))
        at += 16 + captured
        expected = one(segment(full))
        assert (got.key, got.sequence) == (expected.key, expected.sequence)
        assert expected.payload.startswith(got.payload)
        assert len(got.payload) + got.missing == len(expected.payload)
        missing += got.missing
    assert at == len(cut)
    assert missing > 0
