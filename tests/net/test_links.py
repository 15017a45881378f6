from __future__ import annotations

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqttscope.net import headers, links
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.headers import segment
from mqttscope.net.segment import ACK, PSH, Fragment, NotSegment, Segment, direction_key, unread
from tests import corpora
from tests.conftest import EXHAUSTIVE
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
    SNAP,
    WHOLE,
    ethernet,
    frame,
    ip4,
    one,
    ppp,
    radiotap,
    subframe,
    tcp,
    vlan,
    wlan,
)
from tests.net.recorded import read_frames

LLC4, LLC6 = SNAP + b"\x08\0" + IP4, SNAP + b"\x86\xdd" + IP6


def pppoe(payload: bytes) -> bytes:
    return struct.pack("!BBHH", 0x11, 0, 99, len(payload)) + payload


# Sentence, link type, frame, encapsulation expected in the key; every frame carries the same segment.
LINKED: list[tuple[str, int, bytes, bytes]] = [
    ("802.1Q", 1, ethernet(0x8100, vlan(100, 0x800, IP4)), b"\0\x64"),
    ("802.1Q with priority bits", 1, ethernet(0x8100, vlan(0xF064, 0x86DD, IP6)), b"\0\x64"),
    ("802.1Q priority tag, VLAN 0", 1, ethernet(0x8100, vlan(0xE000, 0x800, IP4)), b""),
    ("QinQ with 802.1ad", 1, ethernet(0x88A8, vlan(200, 0x8100, vlan(100, 0x800, IP4))), b"\0\xc8\0\x64"),
    ("QinQ with 0x9100", 1, ethernet(0x9100, vlan(4094, 0x8100, vlan(1, 0x800, IP4))), b"\x0f\xfe\0\x01"),
    ("802.1Q in front of a length and LLC/SNAP", 1, ethernet(0x8100, vlan(5, 40, SNAP + b"\x08\0" + IP4)), b"\0\x05"),
    ("MPLS, two labels", 1, ethernet(0x8847, bytes.fromhex("0001004000012140") + IP4), b""),
    ("MPLS multicast and IPv6", 1, ethernet(0x8848, bytes.fromhex("00010140") + IP6), b""),
    ("MPLS pseudowire with control word", 1,
     ethernet(0x8847, bytes.fromhex("0001014000000000") + ethernet(0x800, IP4)), b""),
    ("MPLS pseudowire without control word", 1,
     ethernet(0x8847, bytes.fromhex("00010140") + ethernet(0x800, IP4)), b""),
    ("PPPoE session", 1, ethernet(0x8864, pppoe(b"\0\x21" + IP4)), b""),
    ("PPPoE session and IPv6, protocol compressed", 1, ethernet(0x8864, pppoe(b"\x57" + IP6)), b""),
    ("PPPoE length below the IP total length", 1,
     ethernet(0x8864, pppoe(b"\0\x21" + ip4(tcp(), total=46)) + bytes(6)), b""),
    ("PPPoE in a VLAN", 1, ethernet(0x8100, vlan(7, 0x8864, pppoe(b"\0\x21" + IP4))), b"\0\x07"),
    ("802.3 with LLC/SNAP", 1, ethernet(50, SNAP + b"\x08\0" + IP4), b""),
    ("802.3 with SNAP of RFC 1042 bridges", 1, ethernet(50, b"\xaa\xaa\x03\0\0\xf8\x86\xdd" + IP6), b""),
    ("802.3 with IP straight after LLC", 1, ethernet(45, b"\x06\x06\x03" + IP4), b""),
    ("802.1ah", 1, ethernet(0x88E7, b"\0\0\x01\x02" + ethernet(0x800, IP4)), b"\xf2\x01\0\0\x01\x02"),
    ("NULL, little endian", 0, b"\x02\0\0\0" + IP4, b""),
    ("NULL, big endian", 0, b"\0\0\0\x02" + IP4, b""),
    *((f"NULL, IPv6 as family {n}", 0, bytes((n, 0, 0, 0)) + IP6, b"") for n in (10, 23, 24, 28, 30)),
    *((f"NULL, big endian, IPv6 as family {n}", 0, bytes((0, 0, 0, n)) + IP6, b"") for n in (10, 24, 28, 30)),
    ("LOOP", 108, b"\0\0\0\x02" + IP4, b""),
    ("PPP", 9, ppp(IP4), b""),
    ("PPP without address and control", 9, b"\0\x21" + IP4, b""),
    ("PPP with everything compressed", 9, b"\x21" + IP4, b""),
    ("PPP and IPv6", 50, ppp(IP6, 0x57), b""),
    ("PPP and MPLS", 9, ppp(bytes.fromhex("00010140") + IP4, 0x0281), b""),
    ("PPP link type with Cisco HDLC inside", 50, b"\x0f\0\x08\0" + IP4, b""),
    ("PPPoE without Ethernet", 51, pppoe(b"\0\x21" + IP4), b""),
    ("PPP of pppd", 166, b"\x01\x03\0\x21" + IP4, b""),
    ("PPP of pppd without control octet", 166, b"\0\0\x21" + IP4, b""),
    ("PPP with direction", 204, b"\x01" + ppp(IP4), b""),
    ("Cisco HDLC", 104, b"\x0f\0\x86\xdd" + IP6, b""),
    ("Cisco HDLC, multicast address", 104, b"\x8f\0\x08\0" + IP4, b""),
    ("Cisco HDLC with direction", 205, b"\0\x0f\0\x08\0" + IP4, b""),
    ("raw IP 12", 12, IP4, b""),
    ("raw IP 14", 14, IP6, b""),
    ("raw IP 101", 101, IP4, b""),
    ("raw IPv4", 228, IP4, b""),
    ("raw IPv6", 229, IP6, b""),
    ("raw IPv4 with trailer", 228, IP4 + b"trailer", b""),
    ("Linux cooked", 113, bytes(14) + b"\x08\0" + IP4, b""),
    ("Linux cooked, VLAN tag after", 113, bytes(14) + b"\x81\0" + vlan(9, 0x86DD, IP6), b"\0\x09"),
    ("Linux cooked, LLC/SNAP", 113, bytes(14) + b"\0\x04" + SNAP + b"\x08\0" + IP4, b""),
    ("Linux cooked version 2", 276, b"\x08\0" + bytes(18) + IP4, b""),
    ("Linux cooked version 2, IPv6", 276, b"\x86\xdd" + bytes(18) + IP6, b""),
    ("OpenBSD pflog", 117, b"\x3d\x02" + bytes(62) + IP4, b""),
    ("Solaris IPNET", 226, bytes(24) + IP6, b""),
    ("NFLOG, little endian", 239, b"\x02\0\0\0\x05\0\x0a\0x\0\0\0\x2e\0\x09\0" + IP4, b""),
    ("NFLOG, big endian", 239, b"\x02\0\0\0\0\x05\0\x0ax\0\0\0\0\x2e\0\x09" + IP4, b""),
    ("HSR", 1, ethernet(0x892F, b"\0\x40\0\x07\x08\0" + IP4), b""),
    ("HSR in a VLAN", 1, ethernet(0x8100, vlan(7, 0x892F, b"\x10\x40\0\x07\x86\xdd" + IP6)), b"\0\x07"),
    ("PRP", 1, ethernet(0x800, IP4) + b"\0\x07\xa0\x38\x88\xfb", b""),
    ("MACsec that only protects", 1,
     ethernet(0x88E5, b"\x20\0\0\0\0\x01" + bytes(8) + b"\x08\0" + IP4 + bytes(16)), b""),
    ("MACsec without a secure channel identifier", 1, ethernet(0x88E5, b"\0\0\0\0\0\x01\x86\xdd" + IP6), b""),
    ("802.11 to the access point", 105, wlan(LLC4), b""),
    ("802.11 from the access point", 105, wlan(LLC6, flags=0x02), b""),
    ("802.11 between access points", 105, wlan(LLC4, flags=0x03), b""),
    ("802.11 with quality of service", 105, wlan(LLC4, kind=0x88, quality=b"\x05\0"), b""),
    ("802.11 with high throughput control", 105, wlan(LLC4, 0x82, 0x88, b"\0\0" + bytes(4)), b""),
    ("802.11 repeated", 105, wlan(LLC4, flags=0x09), b""),
    ("802.11 A-MSDU of one", 105, wlan(subframe(LLC4), kind=0x88, quality=b"\x80\0"), b""),
    ("802.11 with Prism", 119, struct.pack("<II", 0x44, 144) + bytes(136) + wlan(LLC4), b""),
    ("802.11 with AVS as Prism", 119, struct.pack(">II", 0x80211001, 64) + bytes(56) + wlan(LLC4), b""),
    ("802.11 with AVS", 163, struct.pack(">II", 0x80211001, 64) + bytes(56) + wlan(LLC6), b""),
    ("802.11 with radiotap", 127, radiotap(wlan(LLC4)), b""),
    ("802.11 with radiotap, time and flags", 127, radiotap(wlan(LLC6), 0, time=True), b""),
    ("802.11 with radiotap, checksum after", 127, radiotap(wlan(LLC4) + bytes(4), 0x10, more=2), b""),
    ("802.11 with radiotap, header padded", 127,
     radiotap(wlan(b"\0\0" + LLC4, kind=0x88, quality=b"\0\0"), 0x20, time=True, more=1), b""),
    ("802.11 with PPI", 192, struct.pack("<BBHI", 0, 0, 8, 105) + wlan(LLC4), b""),
    ("IP over InfiniBand", 242, bytes(40) + b"\x08\0\0\0" + IP4, b""),
    ("PKTAP around Ethernet", 258, struct.pack("<III", 16, 1, 1) + bytes(4) + ethernet(0x800, IP4), b""),
]  # fmt: skip

# Sentence, link type, frame, original length or None, the constant expected.
REFUSED: list[tuple[str, int, bytes, int | None, NotSegment]] = [
    ("empty frame", 1, b"", None, links.LINK_MALFORMED),
    ("empty record of a longer frame", 1, b"", 60, links.LINK_TRUNCATED),
    ("ARP", 1, ethernet(0x806, bytes(46)), None, links.NOT_IP),
    ("spanning tree", 1, ethernet(38, b"\x42\x42\x03" + bytes(40)), None, links.NOT_IP),
    ("PPPoE discovery", 1, ethernet(0x8863, bytes(46)), None, links.NOT_IP),
    ("PPP link control", 9, ppp(bytes(8), 0xC021), None, links.NOT_IP),
    ("Van Jacobson compressed TCP", 9, ppp(bytes(8), 0x002D), None, unread("ppp_compressed")),
    ("PPP compressed by agreement", 9, ppp(bytes(8), 0x00FD), None, unread("ppp_encrypted")),
    ("PPP encrypted by agreement", 9, ppp(bytes(8), 0x0053), None, unread("ppp_encrypted")),
    ("MACsec encrypted", 1, ethernet(0x88E5, b"\x2c" + bytes(60)), None, unread("macsec")),
    ("HSR that the frame ends in", 1, ethernet(0x892F, b"\0"), None, links.LINK_MALFORMED),
    ("802.11 beacon", 105, wlan(bytes(40), 0, 0x80), None, links.NOT_IP),
    ("802.11 acknowledgment", 105, b"\xd4\0" + bytes(8), None, links.NOT_IP),
    ("802.11 without data", 105, wlan(b"", 0x11, 0x48), None, links.NOT_IP),
    ("802.11 encrypted", 105, wlan(LLC4, flags=0x41), None, unread("wlan_encrypted")),
    ("802.11 first fragment", 105, wlan(LLC4, flags=0x05), None, unread("wlan_fragment")),
    ("802.11 last fragment", 105, wlan(LLC4, sequence=0x11), None, unread("wlan_fragment")),
    ("802.11 A-MSDU of two", 105,
     wlan(subframe(LLC4, last=False) + subframe(LLC4), kind=0x88, quality=b"\x80\0"), None, unread("wlan_aggregate")),
    ("802.11 received with errors", 127, radiotap(wlan(LLC4), 0x40), None, links.WLAN_DAMAGED),
    ("802.11 cut", 127, radiotap(wlan(b"")), 100, links.LINK_TRUNCATED),
    ("radiotap shorter than itself", 127, struct.pack("<BBHI", 0, 0, 4, 0) + wlan(LLC4), None, links.LINK_MALFORMED),
    ("AVS longer than the frame", 163, struct.pack(">II", 0x80211001, 6400) + wlan(LLC4), None, links.LINK_MALFORMED),
    ("Linux cooked netlink", 113, bytes(40), None, links.NOT_IP),
    ("NULL with AppleTalk", 0, b"\x10\0\0\0" + IP4, None, links.NOT_IP),
    ("raw IP of version 5", 101, b"\x50" + IP4[1:], None, links.NOT_IP),
    ("100 VLAN tags", 1, ethernet(0x8100, vlan(1, 0x8100, b"") * 100), None, links.TOO_MANY_LAYERS),
    ("100 MPLS labels", 1, ethernet(0x8847, bytes(400)), None, links.TOO_MANY_LABELS),
    ("NFLOG attribute below its header", 239, bytes(4) + b"\x03\0\x05\0" + bytes(20), None, links.LINK_MALFORMED),
    ("NFLOG without a datagram", 239, bytes(4) + b"\x04\0\x05\0" * 100, None, links.TOO_MANY_ATTRIBUTES),
    ("VLAN tag that the frame ends in", 1, ethernet(0x8100, b"\0"), None, links.LINK_MALFORMED),
    ("VLAN tag that the snap length cut", 1, ethernet(0x8100, b"\0"), 60, links.LINK_TRUNCATED),
]  # fmt: skip
ALL = [*LINKED, *WHOLE]


@each("link_type, data, encapsulation", [row[1:] for row in LINKED], ids=[row[0] for row in LINKED])
def test_a_link_layer_leads_to_the_segment(link_type: int, data: bytes, encapsulation: bytes) -> None:
    got = one(segment(frame(data, link_type, number=12)))
    addresses = A4 + B4 if got.key[0] == A4[0] else A6 + B6
    key = direction_key(addresses, PORTS, encapsulation)
    assert got == Segment(key, 1000, 2000, PSH | ACK, 512, PINGREQ, 0, 12, 5_000, "x.pcap")
    assert len(encapsulation) % 2 == 0


@each("link_type, data, original_length, expected", [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_link_layer_without_ip_says_why(
    link_type: int, data: bytes, original_length: int | None, expected: NotSegment
) -> None:
    assert segment(frame(data, link_type, original_length)) is expected


def test_every_supported_link_type_has_a_frame_in_the_table() -> None:
    assert {row[1] for row in ALL} == set(links.LINKS)


@pytest.mark.parametrize(
    ("link_type", "name"),
    [
        (147, "USER0"),
        (162, "USER15"),
        (195, "IEEE 802.15.4 with FCS"),
        (10, "FDDI"),
        (271, "Linux vsock"),
        (99_999, "unknown"),
    ],
)
def test_an_unsupported_link_type_is_named(link_type: int, name: str) -> None:
    result = segment(frame(ethernet(0x800, IP4), link_type))
    expected = NotSegment("unsupported_link_type", f"link type {link_type} ({name}) is not supported")
    assert result == expected
    assert segment(frame(b"", link_type)) is result


def test_supported_link_types_have_a_name_where_they_may_not_be_nested() -> None:
    assert set(links.LINKS) & set(links.LINK_TYPE_NAMES) == {192, 258}


def test_a_pktap_frame_around_an_unsupported_link_type_names_the_inner_one() -> None:
    result = segment(frame(struct.pack("<III", 12, 1, 147) + bytes(40), 258))
    assert result == links.unsupported(147)
    assert segment(frame(struct.pack("<III", 0, 1, 258) * 9, 258)) == links.unsupported(258)


def test_headers_that_name_a_link_type_do_not_nest() -> None:
    ppi = struct.pack("<BBHI", 0, 0, 8, 192)
    assert segment(frame(ppi * 5000, 192)) == links.unsupported(192)
    assert segment(frame(struct.pack("<III", 12, 1, 192) + ppi * 9, 258)) == links.unsupported(192)
    assert segment(frame(struct.pack("<BBHI", 0, 0, 8, 147) + bytes(40), 192)) == links.unsupported(147)


@each("link_type, data", [row[1:3] for row in ALL], ids=[row[0] for row in ALL])
def test_a_frame_cut_at_any_length_gives_a_prefix_or_a_reason(link_type: int, data: bytes) -> None:
    # The fixed TCP header and its payload are the last bytes of each of these frames but for trailers.
    for length in range(len(data)):
        result = segment(frame(data[:length], link_type, len(data)))
        if isinstance(result, Segment):
            assert result.payload == PINGREQ[: len(result.payload)]
            assert len(result.payload) + result.missing == len(PINGREQ)
        else:
            # A tunnel's own header may be cut before it can be told from other traffic.
            assert isinstance(result, NotSegment)
            assert result.reason in ("truncated", "not_tcp", "not_ip", "unsupported_link_type")


def test_the_same_addresses_in_other_networks_have_other_keys() -> None:
    keys = {one(segment(frame(row[2], row[1]))).key for row in ALL}
    assert len(keys) == len({(row[3], one(segment(frame(row[2], row[1]))).key[0]) for row in ALL})


DERIVED = [
    "file-be-nano", "ip4-fragments", "ip6", "ip6-fragments", "ip6-hopbyhop-dstopts", "link-c-hdlc",
    "link-ethernet-padded-trailer", "link-ipv4-228", "link-ipv6-229", "link-loop", "link-mpls", "link-null-be-family",
    "link-null-le", "link-null-le-ip6", "link-ppp", "link-ppp-ip6", "link-pppoe", "link-qinq", "link-raw-101",
    "link-raw-101-ip6", "link-raw-12", "link-raw-14", "link-sll", "link-sll-ip6", "link-sll2", "link-sll2-ip6",
    "link-tunnel-gre", "link-tunnel-ipip", "link-tunnel-vxlan", "link-vlan", "link-vlan-ip6",
]  # fmt: skip
SOURCES = ["suricata-mqtt5-props", *corpora.cases("captures/derived/paho-v5-live/*", ["paho-v5-live"])]


def payloads(source: str, name: str) -> list[tuple[bytes, int, int, int, bytes]]:
    table = FragmentTable()
    got = []
    for given_frame in read_frames(corpora.path("captures", "derived", source, f"{name}.pcap")):
        result: Segment | Fragment | NotSegment | None = segment(given_frame)
        if isinstance(result, Fragment):
            result = table.feed(result)
        if result is not None:
            actual_segment = one(result)
            assert actual_segment.missing == 0
            at = 8 if actual_segment.key[0] == 10 else 32
            got.append(
                (
                    actual_segment.key[at : at + 4],
                    actual_segment.sequence,
                    actual_segment.acknowledgment,
                    actual_segment.flags,
                    actual_segment.payload,
                )
            )
    assert not table.datagrams
    return got


@pytest.mark.parametrize("source", SOURCES)
@each("name", DERIVED)
def test_the_same_traffic_on_another_link_gives_the_same_segments(source: str, name: str) -> None:
    expected = payloads(source, "link-ethernet")
    assert len(expected) > 10
    assert payloads(source, name) == expected


@pytest.mark.parametrize("source", SOURCES)
def test_the_list_of_derived_captures_is_complete(source: str) -> None:
    texts = {
        path.stem
        for pattern in ("link-*", "ip[46]*")
        for path in corpora.path("captures", "derived", source).glob(pattern)
    }
    assert texts - {"link-ethernet", "link-linktype-user0"} == set(DERIVED) - {"file-be-nano"}


@pytest.mark.parametrize("source", SOURCES)
def test_frames_of_a_user_link_type_are_all_refused_with_one_constant(source: str) -> None:
    frames = list(read_frames(corpora.path("captures", "derived", source, "link-linktype-user0.pcap")))
    assert len(frames) > 10
    assert {id(segment(given_frame)) for given_frame in frames} == {id(links.unsupported(147))}


LINK_TYPES = st.sampled_from([*links.LINKS, 147, 99_999])


@settings(max_examples=400, deadline=None)
@given(LINK_TYPES, st.binary(max_size=120), st.integers(0, 1 << 32))
def test_random_bytes_never_raise(link_type: int, data: bytes, original_length: int) -> None:
    segment(frame(data, link_type, original_length))


@settings(max_examples=1500 if EXHAUSTIVE else 500, deadline=None)
@given(
    st.sampled_from(ALL),
    st.lists(st.tuples(st.integers(0, 150), st.integers(0, 255)), max_size=4),
    st.integers(0, 150),
    st.integers(0, 70_000),
)
@example(LINKED[0], [(16, 0), (17, 0)], 150, 70_000)
def test_mutated_frames_never_raise_nor_miss_a_negative_number_of_bytes(
    row: tuple[str, int, bytes, bytes], changes: list[tuple[int, int]], length: int, original_length: int
) -> None:
    data = bytearray(row[2])
    for at, value in changes:
        data[at % len(data)] = value
    result = segment(frame(bytes(data[:length]), row[1], original_length))
    if isinstance(result, Segment):
        assert 0 <= result.missing <= headers.MAX_OFFLOAD_LENGTH
        assert len(result.payload) <= length
    elif isinstance(result, Fragment):
        assert result.missing >= 0
        FragmentTable().feed(result)
