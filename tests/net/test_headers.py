from __future__ import annotations

import itertools
import struct
from pathlib import Path

import dpkt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.net import headers
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.headers import locate, segment, walk
from mqttscope.net.segment import (
    ACK,
    PSH,
    Fragment,
    NotSegment,
    Segment,
    direction_key,
    endpoints,
    ports,
    reverse_key,
    unread,
)
from tests import corpora
from tests.conftest import THOROUGH
from tests.each import each
from tests.net.octets import (
    A4,
    A6,
    B4,
    B6,
    IP4,
    IP6,
    PINGREQ,
    PORTS,
    TIMESTAMPS,
    VXLAN,
    WHOLE,
    erspan_3,
    ethernet,
    extension,
    fragment_header,
    frame,
    gtp,
    ip4,
    ip6,
    l2tp,
    one,
    ppp,
    pptp,
    tcp,
    tzsp,
    udp,
    vlan,
)
from tests.net.recorded import read_frames

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
    ("ESP after hop-by-hop options", 229, ip6(extension(50) + bytes(40), 0), None, unread("esp")),
    ("ESP over UDP", 228, ip4(udp(4500, b"\0\0\x07\0" + bytes(40)), 17), None, unread("esp")),
    ("key exchange over UDP", 228, ip4(udp(4500, bytes(60)), 17), None, headers.NOT_TCP),
    ("WireGuard", 228, ip4(udp(51820, b"\x04\0\0\0" + bytes(60)), 17), None, unread("wireguard")),
    ("GTP-U version 2", 228, ip4(gtp(IP4, 0x50), 17), None, unread("gtp_u_version_2")),
    ("GTP-U with unknown content", 228, ip4(gtp(bytes(40)), 17), None, unread("gtp_u")),
    ("GTP-U echo", 228, ip4(gtp(bytes(4), 0x32, kind=1), 17), None, headers.NOT_TCP),
    ("GTP-U with an extension header of length 0", 228,
     ip4(gtp(IP4, 0x34, b"\0\0\0\x85" + bytes(4)), 17), None, unread("gtp_u")),
    ("GTP-U with 1000 extension headers", 228,
     ip4(gtp(IP4, 0x34, b"\0\0\0\x85" + b"\x01\0\0\x85" * 1000), 17), None, headers.TOO_MANY_EXTENSION_HEADERS),
    ("a name server asked from the port of GTP-U", 228,
     ip4(udp(2152, bytes(2) + b"\1" + bytes(40)), 17), None, headers.NOT_TCP),
    ("ERSPAN of version 3", 228, ip4(erspan_3(ethernet(0x800, IP4), version=3), 47), None, unread("erspan")),
    ("ERSPAN type III with something else", 228, ip4(erspan_3(IP4, kind=3), 47), None, unread("erspan")),
    ("ERSPAN type III with something else, empty", 228, ip4(erspan_3(b"", kind=3), 47), None, unread("erspan")),
    ("ERSPAN type III, IP header cut", 228, ip4(erspan_3(IP4, kind=2), 47)[:45], 82, headers.IP_TRUNCATED),
    ("ERSPAN type III with no IP datagram", 228, ip4(erspan_3(bytes(40), kind=2), 47), None, unread("erspan")),
    ("ERSPAN type II of version 5", 228,
     ip4(b"\x10\0\x88\xbe" + bytes(4) + b"\x50" + bytes(7) + ethernet(0x800, IP4), 47), None, unread("erspan")),
    ("VXLAN-GPE with a service header", 228,
     ip4(udp(4790, b"\x0c\0\0\x04" + bytes(40)), 17), None, unread("vxlan_gpe")),
    ("TZSP with Token Ring", 228, ip4(tzsp(bytes(40), 2), 17), None, unread("tzsp")),
    ("TZSP without an end of its tags", 228, ip4(tzsp(b"", tags=bytes(400)), 17), None, unread("tzsp")),
    ("TZSP keep alive", 228, ip4(tzsp(b"", kind=4), 17), None, headers.NOT_TCP),
    ("L2TP version 3", 228, ip4(l2tp(bytes(40), 0x0003), 17), None, unread("l2tp_version_3")),
    ("L2TP version 3 over IP", 228, ip4(bytes(40), 115), None, unread("l2tp_version_3")),
    ("L2TP control", 228, ip4(l2tp(bytes(40), 0xC802, bytes(4)), 17), None, headers.NOT_TCP),
    ("L2TP compressed", 228, ip4(l2tp(ppp(bytes(40), 0xFD)), 17), None, unread("ppp_encrypted")),
    ("PPTP compressed", 228, ip4(pptp(ppp(bytes(40), 0xFD)), 47), None, unread("ppp_encrypted")),
    ("PPTP acknowledgment alone", 228, ip4(b"\x20\x81\x88\x0b\0\0\0\x03" + bytes(4), 47), None, headers.NOT_TCP),
    ("CAPWAP", 228, ip4(udp(5247, b"\0\x10\x42" + bytes(60)), 17), None, unread("capwap")),
    ("Teredo", 228, ip4(udp(3544, IP6), 17), None, unread("teredo")),
    ("LISP", 228, ip4(udp(4341, bytes(8) + IP4), 17), None, unread("lisp")),
    ("MQTT-SN", 228, ip4(udp(1884, b"\x0b\x04\x04\x01\0\x3cdev01"), 17), None, unread("mqtt_sn")),
    ("MQTT-SN, three bytes of length", 228,
     ip4(udp(10000, b"\x01\x01\x07\x0c" + bytes(259)), 17), None, unread("mqtt_sn")),
    ("MQTT-SN of a forwarder", 228,
     ip4(udp(10000, b"\x05\xfe\x01\0\x07\x0b\x04\x04\x01\0\x3cdev01"), 17), None, unread("mqtt_sn")),
    ("MQTT-SN CONNECT on any port", 228, ip4(udp(5555, b"\x0b\x04\x04\x01\0\x3cdev01"), 17), None, unread("mqtt_sn")),
    ("no MQTT-SN CONNECT by its flags", 228,
     ip4(udp(5555, b"\x0b\x04\x14\x01\0\x3cdev01"), 17), None, headers.NOT_TCP),
    ("no MQTT-SN CONNECT by its length", 228,
     ip4(udp(5555, b"\x0c\x04\x04\x01\0\x3cdev01"), 17), None, headers.NOT_TCP),
    ("no MQTT-SN CONNECT by its identifier", 228,
     ip4(udp(5555, b"\x0b\x04\x04\x01\0\x3cde\0\x01\xff"), 17), None, headers.NOT_TCP),
    ("MQTT-SN PUBLISH on any port", 228, ip4(udp(5555, b"\x09\x0c\0\0\1\0\0hi"), 17), None, headers.NOT_TCP),
    ("MQTT-SN ping", 228, ip4(udp(1883, b"\x02\x16"), 17), None, unread("mqtt_sn")),
    ("no MQTT-SN by its length", 228, ip4(udp(1884, b"\x0c\x04\x04\x01\0\x3cdev01"), 17), None, headers.NOT_TCP),
    ("QUIC", 228, ip4(udp(14567, b"\xc3\0\0\0\x01\x0812345678" + bytes(40)), 17), None, unread("quic")),
    ("QUIC of a draft", 228, ip4(udp(443, b"\xc3\xff\0\0\x1d\x0812345678" + bytes(40)), 17), None, unread("quic")),
    ("no QUIC by its version", 228, ip4(udp(443, b"\xc3\1\2\3\4\x0812345678" + bytes(40)), 17), None, headers.NOT_TCP),
    ("UDP without payload", 228, ip4(udp(1883, b""), 17), None, headers.NOT_TCP),
    ("UDP cut inside its header", 228, ip4(udp(1883, b"")[:6], 17), None, headers.NOT_TCP),
    ("no next header", 229, ip6(extension(59), 60), None, headers.NOT_TCP),
    ("UDP", 228, ip4(udp(54, bytes(40)), 17), None, headers.NOT_TCP),
    ("VXLAN port without VXLAN", 228, ip4(udp(4789, bytes(60)), 17), None, headers.NOT_TCP),
    ("GENEVE control message", 228, ip4(udp(6081, b"\0\x80" + bytes(60)), 17), None, headers.NOT_TCP),
    ("enhanced GRE without a sequence number", 228, ip4(b"\x20\x01\x88\x0b" + bytes(20), 47), None, headers.NOT_TCP),
    ("GRE with routes", 228, ip4(b"\x40\0\x08\0" + bytes(20), 47), None, headers.NOT_TCP),
    ("IPv6 extension number over IPv4", 228, ip4(extension(6) + tcp(), 60), None, headers.NOT_TCP),
    ("100 nested tunnels", 228, spliced(100), None, headers.TOO_MANY_TUNNELS),
    ("TCP data offset 16", 1, ethernet(0x800, ip4(tcp(data_offset=4))), None, headers.TCP_DATA_OFFSET),
    ("TCP data offset beyond the datagram", 1, ethernet(0x800, ip4(tcp(data_offset=6))), None, headers.TCP_DATA_OFFSET),
    ("TCP data offset into the Ethernet padding", 1,
     ethernet(0x800, ip4(tcp(data_offset=6))) + bytes(9), None, headers.TCP_DATA_OFFSET),
    ("TCP header beyond the datagram", 1, ethernet(0x800, ip4(tcp()[:19])) + bytes(9), None, headers.TCP_SHORT),
    ("TCP header cut", 1, ethernet(0x800, IP4)[:50], 56, headers.TCP_TRUNCATED),
]  # fmt: skip


@each("link_type, data, encapsulation", [row[1:] for row in WHOLE], ids=IDS)
def test_a_frame_gives_its_segment(link_type: int, data: bytes, encapsulation: bytes) -> None:
    got = one(segment(frame(data, link_type, number=12)))
    addresses = A4 + B4 if got.key[0] == A4[0] else A6 + B6
    key = direction_key(addresses, PORTS, encapsulation)
    assert got == Segment(key, 1000, 2000, PSH | ACK, 512, PINGREQ, 0, 12, 5_000, "x.pcap", got.options)
    assert len(encapsulation) % 2 == 0


@each("link_type, data, original_length, expected", [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_frame_without_a_segment_says_why(
    link_type: int, data: bytes, original_length: int | None, expected: NotSegment
) -> None:
    assert segment(frame(data, link_type, original_length)) is expected


# Sentence and payload of an ordinary UDP datagram that resembles VXLAN.
NO_VXLAN = [
    ("reserved bits set", b"\x08\0\1\0\0\x01\x02\0" + ethernet(0x800, IP4)),
    ("a flag that no group policy has", b"\x88\1\0\0\0\x01\x02\0" + ethernet(0x800, IP4)),
    ("a group policy and no IP inside", b"\x88\0\0\0\0\x01\x02\0" + ethernet(0x806, bytes(46))),
    ("GENEVE and no IP inside", b"\0\0\x65\x58\0\x01\x02\0" + ethernet(0x806, bytes(46))),
    ("GENEVE and IP length far below", b"\0\0\x65\x58\0\x01\x02\0" + ethernet(0x800, IP4) + bytes(40)),
    ("GENEVE and other IP", b"\0\0\x86\xdd\0\x01\x02\0" + IP4),
    ("a GENEVE control message", b"\0\x80\x65\x58\0\x01\x02\0" + ethernet(0x800, IP4)),
    ("GENEVE of another version", b"\x40\0\x65\x58\0\x01\x02\0" + ethernet(0x800, IP4)),
    ("GENEVE options beyond the datagram", b"\x3f\0\x65\x58\0\x01\x02\0" + ethernet(0x800, IP4)),
    ("TZSP and no IP inside", b"\1\0\0\1\1" + ethernet(0x806, bytes(46))),
    ("TZSP and IP length far below", b"\1\0\0\1\1" + ethernet(0x800, IP4) + bytes(80)),
    ("TZSP without an end of its tags", b"\1\0\0\1" + bytes(400)),
    ("TZSP cut inside its tags", b"\1\0\0\1\x0a\xff\0\0\0"),
    ("last byte set", b"\x08\0\0\0\0\x01\x02\1" + ethernet(0x800, IP4)),
    ("no IP inside", VXLAN + ethernet(0x806, bytes(46))),
    ("source address of a group", VXLAN + b"\2\0\0\0\0\1\3\0\0\0\0\2\x08\0" + IP4),
    ("IP length beyond", VXLAN + ethernet(0x800, ip4(tcp(), total=1500))),
    ("IP length far below", VXLAN + ethernet(0x800, IP4) + bytes(40)),
    ("IPv6 length beyond", VXLAN + ethernet(0x86DD, ip6(tcp(), length=1500))),
    ("next protocol and other IP", b"\x0c\0\0\x02\0\x01\x02\0" + IP4),
    ("next protocol unknown", b"\x0c\0\0\x09\0\x01\x02\0" + IP4),
    ("next protocol and IP length below", b"\x0c\0\0\x01\0\x01\x02\0" + IP4 + bytes(40)),
]


@each("payload", [row[1] for row in NO_VXLAN], ids=[row[0] for row in NO_VXLAN])
def test_ordinary_datagrams_are_not_taken_for_vxlan(payload: bytes) -> None:
    assert segment(frame(ip4(udp(1234, payload), 17), 228)) is headers.NOT_TCP


@pytest.mark.long
@settings(max_examples=2000 if THOROUGH else 1000, deadline=None, derandomize=True)
@given(
    st.integers(0, 65535) | st.sampled_from([53, 123, 443, 1701, 1883, 2152, 3544, 4341, 4500, 5247, 8472, 37008]),
    st.binary(max_size=60),
)
def test_random_datagrams_are_no_tunnels(port: int, payload: bytes) -> None:
    """Whatever they begin with: a segment is made only of what has a whole TCP header in the right place."""
    result = segment(frame(ip4(udp(port, payload), 17), 228))
    if isinstance(result, Segment):
        assert port in (2152, 4789, 4790, 6081, 8472, 1701, 37008)


def test_bytes_behind_the_udp_length_do_not_count() -> None:
    inner = gtp(IP4)
    assert one(segment(frame(ip4(inner + b"trailer", 17), 228))).payload == PINGREQ
    message = udp(1884, b"\x0b\x04\x04\x01\0\x3cdev01")
    assert segment(frame(ip4(message + b"trailer", 17), 228)) is unread("mqtt_sn")


def test_both_directions_of_a_gtp_tunnel_have_keys_that_are_each_others_reverse() -> None:
    back = ip4(PORTS[2:] + PORTS[:2] + tcp()[4:])
    back = back[:12] + back[16:20] + back[12:16] + back[20:]
    there, again = gtp(IP4), bytearray(gtp(back))
    again[12:16] = b"\0\0\x09\x09"  # the tunnel endpoint identifier of the other side
    keys = [one(segment(frame(ip4(bytes(tunnel), 17), 228))).key for tunnel in (there, again)]
    assert keys[0] == reverse_key(keys[1])


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
    assert TIMESTAMPS.startswith(got.options)
    assert len(got.options) == 60 - 54


@pytest.mark.parametrize("options", [b"", TIMESTAMPS, bytes(40)])
def test_a_segment_has_the_options_of_its_header(options: bytes) -> None:
    data = ethernet(0x800, ip4(tcp(b"x" * 10, options=options)))
    assert one(segment(frame(data))).options == one(walk(frame(data))).options == options


def test_an_original_length_below_the_captured_one_is_ignored() -> None:
    assert one(segment(frame(ethernet(0x86DD, ip6(tcp(), length=0)), original_length=0))).payload == PINGREQ


SHORT = [
    (1, ethernet(0x800, IP4)),
    (1, ethernet(0x86DD, IP6)),
    (1, ethernet(0x8100, vlan(5, 0x800, IP4))),
    (1, ethernet(0x8100, vlan(0xF005, 0x800, IP4))),
    (1, ethernet(0x8100, vlan(0, 0x800, IP4))),
    (1, ethernet(0x8100, vlan(7, 0x86DD, IP6))),
    (1, ethernet(0x800, ip4(tcp(PINGREQ, options=TIMESTAMPS))) + bytes(6)),
    (101, IP4),
    (101, IP6),
    (101, ip4(tcp(PINGREQ, options=TIMESTAMPS)) + bytes(6)),
]


@pytest.mark.long
@given(
    st.sampled_from(SHORT),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3),
    st.integers(-30, 30),
    st.integers(-3, 3),
)
@settings(max_examples=3000 if THOROUGH else 1500, deadline=None, derandomize=True)
def test_the_short_way_and_the_walk_agree(
    link: tuple[int, bytes], changes: list[tuple[int, int]], longer: int, original: int
) -> None:
    link_type, data = link
    damaged = bytearray(data + bytes(max(0, longer)))[: len(data) + longer]
    for at, value in changes:
        if at < len(damaged):
            damaged[at] = value
    given_frame = frame(bytes(damaged), link_type, max(0, len(damaged) + original))
    assert segment(given_frame) == walk(given_frame)


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


each_collection = pytest.mark.parametrize("root", corpora.collections("captures/**/*.pcap"))


def captures(root: Path) -> list[Path]:
    paths = [path for path in sorted(root.glob("captures/**/*")) if path.suffix in (".pcap", ".pcapng", ".gz")]
    assert len(paths) > 100
    return paths


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


@each_collection
def test_dpkt_reads_the_same_segments(root: Path) -> None:
    compared = 0
    for path in captures(root):
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
    assert compared > 5_000


@each_collection
def test_no_frame_raises(root: Path) -> None:
    seen = 0
    for path in captures(root):
        table = FragmentTable()
        for given_frame in read_frames(path):
            result = segment(given_frame)
            if isinstance(result, Fragment):
                table.feed(result)
            seen += 1
    assert seen > 5_000


def test_a_capture_with_a_snap_length_tells_how_much_is_missing() -> None:
    whole = list(read_frames(corpora.path("captures", "derived", "suricata-mqtt5-props", "link-ethernet.pcap")))
    cut = corpora.path("captures", "derived", "suricata-mqtt5-props", "file-snap64.pcap").read_bytes()
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


USUAL = [
    (1, ethernet(0x800, IP4)),
    (1, ethernet(0x86DD, IP6)),
    (1, ethernet(0x8100, vlan(0xF005, 0x800, IP4))),
    (1, ethernet(0x8100, vlan(0xF005, 0x800, ip4(tcp(b""))))),
    (1, ethernet(0x800, ip4(tcp(PINGREQ, options=TIMESTAMPS))) + bytes(6)),
    (101, IP4),
]
UNUSUAL = [
    (1, ethernet(0x8100, vlan(0, 0x800, IP4))),
    (1, ethernet(0x8100, vlan(7, 0x86DD, IP6))),
    (1, ethernet(0x8100, vlan(7, 0x8100, vlan(8, 0x800, IP4)))),
    (101, IP6),
    (113, IP4),
    (1, b""),
]


@given(
    st.sampled_from(USUAL + UNUSUAL),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3),
    st.integers(-60, 30),
    st.integers(0, 9),
)
@settings(max_examples=1_500, deadline=None, derandomize=True)
@pytest.mark.long
def test_bytes_around_a_frame_have_no_say_in_where_its_segment_is(
    link: tuple[int, bytes], changes: list[tuple[int, int]], longer: int, before: int
) -> None:
    link_type, data = link
    damaged = bytearray(data + bytes(max(0, longer)))[: max(0, len(data) + longer)]
    for at, value in changes:
        if at < len(damaged):
            damaged[at] = value
    buffer, end = b"\x45" * before + bytes(damaged) + b"\x45" * before, before + len(damaged)
    row = locate(buffer, before, end, link_type)
    alone = locate(bytes(damaged), 0, len(damaged), link_type)
    assert row[:5] == alone[:5]
    assert (not row[0]) or [place - before for place in row[5:]] == list(alone[5:])


def test_usual_frames_are_taken_and_others_left_to_the_walk() -> None:
    for link_type, data in USUAL:
        key, sequence, acknowledgment, flags, window, options, start, end = locate(data, 0, len(data), link_type)
        actual_segment = segment(frame(data, link_type))
        assert isinstance(actual_segment, Segment)
        assert (key, sequence, acknowledgment, flags, window) == (
            actual_segment.key, actual_segment.sequence, actual_segment.acknowledgment, actual_segment.flags,
            actual_segment.window,
        )  # fmt: skip
        assert (data[options:start], data[start:end]) == (actual_segment.options, actual_segment.payload)
    for link_type, data in UNUSUAL:
        assert not locate(data, 0, len(data), link_type)[0]
