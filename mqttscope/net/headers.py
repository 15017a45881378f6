"""From a captured frame to its TCP segment: IPv4, IPv6, tunnels and TCP.

:func:`segment` is a pure function.  It classifies every frame without a segment: a :class:`Fragment` is for
``fragments.FragmentTable``, a :class:`NotSegment` is a shared constant.  `locate` reads usual frames, also in the
buffer of a reader, and `walk` all others; a test compares both.

Lengths come from the IP header, or from the frame's length on the wire if that is shorter, or if segmentation offload
left an IP length of 0: bytes that were never on the wire are not missing from the capture.  The addresses come from
the innermost IP header, regardless of a routing header or a home address option.  With such headers, and with missing
bytes, a checksum that is not right proves nothing.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import Final

from mqttscope.net import links
from mqttscope.net.checksum import UNJUDGED, WRONG, judge_checksum
from mqttscope.net.frame import Frame
from mqttscope.net.segment import DnsMessage, Fragment, NotSegment, Segment, direction_key, unread

MAX_TUNNELS: Final = 8
MAX_EXTENSION_HEADERS: Final = 16
MAX_TAGS: Final = 64
"""Maximum number of TZSP tags before the encapsulated frame."""
MAX_OFFLOAD_LENGTH: Final = 524_288
"""Maximum length of an IP datagram with a length of 0 in its header, in bytes (Linux's GSO_MAX_SIZE)."""

NOT_TCP: Final = NotSegment("not_tcp", "the IP datagram holds no TCP segment")
TOO_MANY_TUNNELS: Final = NotSegment("malformed", f"more than {MAX_TUNNELS} nested tunnels")
IP_TRUNCATED: Final = NotSegment("truncated", "the capture's snap length cut the frame inside the IP headers")
IP_SHORT: Final = NotSegment("malformed", "the frame ends inside the IP headers")
IP_VERSION: Final = NotSegment("malformed", "the IP version is not the one that the link layer announced")
IP_HEADER_LENGTH: Final = NotSegment("malformed", "the IPv4 header length is below 20 bytes or beyond the total length")
IP_TOO_LONG: Final = NotSegment("malformed", f"the IP length is 0 in a frame of more than {MAX_OFFLOAD_LENGTH} bytes")
TOO_MANY_EXTENSION_HEADERS: Final = NotSegment("malformed", f"more than {MAX_EXTENSION_HEADERS} IPv6 extension headers")
TCP_TRUNCATED: Final = NotSegment("truncated", "the capture's snap length cut the frame inside the TCP header")
TCP_SHORT: Final = NotSegment("malformed", "the IP datagram ends inside the TCP header")
TCP_DATA_OFFSET: Final = NotSegment("malformed", "the TCP data offset is below 20 bytes or beyond the IP datagram")

_new = Segment.__new__

_TCP: Final = 6
_UDP: Final = 17
_GRE: Final = 47
_ESP: Final = 50
_L2TP: Final = 115
_AUTHENTICATION: Final = 51
_IN_IP: Final = {4: 4, 41: 6}
_OTHER_ADDRESSES: Final = frozenset((43, 60, 135, 139, 140))
"""Extension headers that may name the addresses that the checksum covers: routing, home address, HIP, shim6."""
_FRAGMENT: Final = 44
_EXTENSIONS: Final = _OTHER_ADDRESSES | {0, _FRAGMENT, _AUTHENTICATION}
_FRAGMENTED_IPV4: Final = frozenset((_TCP, _UDP, _GRE, _AUTHENTICATION, 4, 41))

# An encapsulation holds VLAN identifiers (at most 0x0fff) and these marks, some followed by a four-byte identifier.
MARK_IN_IP: Final = {4: b"\xf0\x04", 6: b"\xf0\x29"}
MARK_GRE: Final = b"\xf0\x2f"
MARK_GRE_KEY: Final = b"\xf0\x30"
MARK_VXLAN: Final = b"\xf1\x01"
MARK_GENEVE: Final = b"\xf1\x02"
MARK_GTP: Final = b"\xf0\x81"
MARK_TZSP: Final = b"\xf0\x82"
MARK_L2TP: Final = b"\xf0\x83"
MARK_PPTP: Final = b"\xf0\x84"
_VXLAN_PORTS: Final = frozenset((4789, 8472))
_VXLAN_GPE_PORT: Final = 4790
_GENEVE_PORT: Final = 6081
_GTP_PORT: Final = 2152
_TZSP_PORT: Final = 37008
_L2TP_PORT: Final = 1701
_GPE_TYPES: Final = {1: links.IPV4, 2: links.IPV6, 3: links.ETHERNET, 5: links.MPLS}
_GENEVE_VERSIONS: Final = {links.ETHERNET: 0, links.IPV4: 4, links.IPV6: 6}
"""IP versions by the protocol type of GENEVE on unregistered ports; 0 for Ethernet."""
_TZSP_LINKS: Final = {1: 1, 18: 105, 119: 119, 127: 163}
_QUIC_PORTS: Final = frozenset((443, 8883, 14567))
"""Ports of HTTP/3, secure MQTT, and MQTT over QUIC in EMQX."""
_QUIC_VERSIONS: Final = frozenset((0, 1, 0x6B3343CF))
"""Version negotiation, version 1 (RFC 9000) and version 2 (RFC 9369); drafts begin with ff0000."""
_MQTT_SN_PORTS: Final = frozenset((1883, 1884, 1885, 2442, 10000, 20000, 47193))
"""Usual ports of MQTT-SN gateways and forwarders, as no port is registered."""
_ESP_PORT: Final = 4500
_WIREGUARD_PORT: Final = 51820
_CAPWAP_PORT: Final = 5247
_TEREDO_PORT: Final = 3544
_LISP_PORT: Final = 4341
_DNS_PORT: Final = b"\0\x35"
_UDP_PORTS: Final = _VXLAN_PORTS | _QUIC_PORTS | _MQTT_SN_PORTS | {
    _VXLAN_GPE_PORT, _GENEVE_PORT, _GTP_PORT, _TZSP_PORT, _L2TP_PORT,
    _ESP_PORT, _WIREGUARD_PORT, _CAPWAP_PORT, _TEREDO_PORT, _LISP_PORT,
}  # fmt: skip
"""All UDP ports with detailed checks; on other ports only VXLAN, GENEVE and TZSP are recognised."""
_MQTT_SN_TYPES: Final = frozenset((*range(0x03), *range(0x04, 0x19), *range(0x1A, 0x1E))) - {0x11}
PLAIN_IPV4: Final = b"\x08\0\x45"
"""EtherType of IPv4, version 4 with 20 bytes of header."""
PLAIN_IPV6: Final = b"\x86\xdd\x60"
"""EtherType of IPv6, version 6 with the upper half of the traffic class 0."""
ONE_TAG: Final = b"\x81\0"
"""EtherType of a VLAN tag (IEEE 802.1Q)."""
_IPV4_AND_TCP: Final = Struct("!H2xHxB14xIIBBH").unpack_from
"""Total Length of an IPv4 header without options, fragment, protocol, and numbers of the TCP header after it."""
_IPV6_AND_TCP: Final = Struct("!HB37xIIBBH").unpack_from
"""Payload Length of an IPv6 header, protocol, and numbers of the TCP header after it."""

TcpHeader = tuple[bytes, int, int, int, int, int, int, int]
"""Direction key, sequence and acknowledgment number, flags, window; offsets of TCP options, payload, and its end."""
_UNUSUAL: Final[TcpHeader] = (b"", 0, 0, 0, 0, 0, 0, 0)


def locate(data: bytes, start: int, stop: int, link_type: int) -> TcpHeader:
    """Locate the TCP segment of a usual frame, ``data[start:stop]``; the key is empty for any other frame.

    Usual: Ethernet II with at most one VLAN tag, IPv4 without options or IPv6 without extension headers, and a TCP
    segment that was captured whole; or such IPv4 without a link layer, as in recordings of live runs.
    """
    size = stop - start
    ip = -1  # start of a usual IPv4 header
    if link_type == 1 and size >= 54:
        begin = data[start + 12 : start + 15]
        if begin == PLAIN_IPV4:
            ip = start + 14
        elif begin == PLAIN_IPV6 and size >= 74:
            length, protocol, sequence, acknowledgment, data_offset, flags, window = _IPV6_AND_TCP(data, start + 18)
            fragment, key = 0, data[start + 22 : start + 58]
            body, end = start + 54, start + 54 + length
        elif begin[:2] == ONE_TAG and size >= 58 and data[start + 16 : start + 19] == PLAIN_IPV4:
            ip = start + 18
        else:
            return _UNUSUAL
    elif link_type == 101 and size >= 40 and data[start] == 0x45:  # version 4 with 20 bytes of header
        ip = start
    else:
        return _UNUSUAL
    if ip >= 0:
        length, fragment, protocol, sequence, acknowledgment, data_offset, flags, window = _IPV4_AND_TCP(data, ip + 2)
        key, body, end = data[ip + 12 : ip + 24], ip + 20, ip + length
    begins = body + (data_offset >> 2 & 0x3C)
    if protocol != _TCP or fragment & 0x3FFF or data_offset < 0x50 or not begins <= end <= stop:
        return _UNUSUAL
    if ip == start + 18:
        identifier = bytes((data[start + 14] & 0x0F, data[start + 15]))
        if identifier == b"\0\0":
            return _UNUSUAL
        key = direction_key(key[:8], key[8:], identifier)
    return key, sequence, acknowledgment, flags, window, body + 20, begins, end


def judge(data: bytes, key: bytes, options: int, end: int) -> int:
    """Check a segment that `locate` has located; the addresses are right before its header."""
    start = options - 20
    return judge_checksum(data, start - (32 if len(key) == 36 else 8), start, end)


def segment(frame: Frame) -> Segment | Fragment | NotSegment:
    """The TCP segment of a frame (RFC 9293), its IP fragment, or the reason for neither."""
    data = frame.data
    key, sequence, acknowledgment, flags, window, options, start, end = locate(data, 0, len(data), frame.link_type)
    if not key:
        return walk(frame)
    # Without __init__: there is one for each frame of the capture.
    piece = _new(Segment)
    piece.key = key
    piece.sequence = sequence
    piece.acknowledgment = acknowledgment
    piece.flags = flags
    piece.window = window
    piece.payload = data[start:end]
    piece.missing = 0
    piece.frame = frame.number
    piece.timestamp_ns = frame.timestamp_ns
    piece.capture = frame.capture
    piece.options = data[options:start]
    piece.checksum = judge(data, key, options, end)
    return piece


def walk(frame: Frame) -> Segment | Fragment | NotSegment:
    """The result of `segment` for any frame, by reading the headers one by one."""
    data = frame.data
    link = links.LINKS.get(frame.link_type)
    if link is None:
        return links.unsupported(frame.link_type)
    stop = len(data)
    end = frame.original_length
    if end < stop:
        end = stop
    located = link(data, 0, stop, end)
    return located if isinstance(located, NotSegment) else _datagram(frame, located, stop, 0)


# Everywhere below, `stop` is where the captured bytes of the enclosing layer stop in `data`, and `end` where that layer
# ended on the wire; `stop` is never larger than `end`.


def _datagram(frame: Frame, located: links.IpHeader, stop: int, depth: int) -> Segment | Fragment | NotSegment:
    """Read an IP header (RFC 791 section 3.1, RFC 8200 section 3) inside of ``depth`` tunnels, and its content.

    A length of 0 is a jumbogram or offload: the enclosing layer determines the end.
    """
    if depth > MAX_TUNNELS:
        return TOO_MANY_TUNNELS
    data = frame.data
    version, offset, end, encapsulation = located
    if end < stop:
        stop = end
    length = usual = 20 if version == 4 else 40
    if offset + length > stop:
        return _short(offset + length, end)
    if data[offset] >> 4 != version:
        return IP_VERSION
    fragment = 0
    if version == 4:
        first, total, fragment, protocol = unpack_from("!BxH2xHxB", data, offset)
        length = (first & 0x0F) * 4
        if length < 20 or 0 < total < length:
            return IP_HEADER_LENGTH
        addresses = data[offset + 12 : offset + 20]
    else:
        total, protocol = unpack_from("!4xHB", data, offset)
        total += length if total else 0
        addresses = data[offset + 8 : offset + 40]
    provable = length == usual and 0 < total <= end - offset
    if total:
        if offset + total < end:
            end = offset + total
            if end < stop:
                stop = end
    elif end - offset > MAX_OFFLOAD_LENGTH:
        return IP_TOO_LONG
    body = offset + length
    if body > stop:
        return _short(body, end)
    if not fragment & 0x3FFF:
        return transport(frame, protocol, body, stop, end, addresses, encapsulation, depth, provable)
    if protocol not in _FRAGMENTED_IPV4:
        return unread("esp") if protocol == _ESP else NOT_TCP
    key = addresses + data[offset + 4 : offset + 6] + data[offset + 9 : offset + 10] + encapsulation
    position, more = (fragment & 0x1FFF) * 8, bool(fragment & 0x2000)
    source, destination, place = addresses[:4], addresses[4:], (frame.number, frame.timestamp_ns, frame.capture)
    payload = data[body:stop]
    return Fragment(key, position, more, protocol, payload, end - stop, source, destination, encapsulation, *place)


def transport(
    frame: Frame,
    protocol: int,
    offset: int,
    stop: int,
    end: int,
    addresses: bytes,
    encapsulation: bytes,
    depth: int = 0,
    provable: bool = True,
) -> Segment | Fragment | NotSegment:
    """Follow an IP protocol number from the end of an IP header to the TCP segment.

    ``frame.data[offset:stop]`` is what was captured of the datagram's payload, ``addresses`` is source and destination,
    ``depth`` the number of tunnels around.  ``provable``: a wrong checksum of TCP would prove damage.
    """
    data = frame.data
    if protocol in _EXTENSIONS and (protocol == _AUTHENTICATION or len(addresses) == 32):
        # IPv6 extension headers (RFC 8200 section 4), and the Authentication Header, which IPv4 has too (RFC 4302).
        for _ in range(MAX_EXTENSION_HEADERS):
            if offset + 8 > stop:  # all have at least 8 bytes
                return _short(offset + 8, end)
            following = data[offset]
            if protocol == _FRAGMENT:
                length = 8
                position = data[offset + 2] << 8 | data[offset + 3]
                if position & 0xFFF9:
                    key = addresses + data[offset + 4 : offset + 8] + encapsulation
                    payload, half = data[offset + 8 : stop], len(addresses) // 2
                    position, more = position & 0xFFF8, bool(position & 1)
                    source, destination = addresses[:half], addresses[half:]
                    place = frame.number, frame.timestamp_ns, frame.capture
                    return Fragment(
                        key, position, more, following, payload, end - stop, source, destination, encapsulation, *place
                    )
            elif protocol == _AUTHENTICATION:
                length = (data[offset + 1] + 2) * 4
            else:
                length = (data[offset + 1] + 1) * 8
            provable = provable and protocol not in _OTHER_ADDRESSES
            protocol, offset = following, offset + length
            if offset > stop:
                return _short(offset, end)
            if protocol not in _EXTENSIONS:
                break
        else:
            return TOO_MANY_EXTENSION_HEADERS
    if protocol == _TCP:
        if offset + 20 > stop:
            return TCP_TRUNCATED if offset + 20 <= end else TCP_SHORT
        sequence, acknowledgment, data_offset, flags, window = unpack_from("!4xIIBBH", data, offset)
        start = offset + (data_offset >> 2 & 0x3C)
        if data_offset < 0x50 or start > end:
            return TCP_DATA_OFFSET
        key = direction_key(addresses, data[offset : offset + 4], encapsulation)
        payload, options = data[start:stop], data[offset + 20 : min(start, stop)]
        missing, checksum = end - start - len(payload), UNJUDGED
        if stop == end:
            checksum = judge_checksum(addresses + data[offset:end], 0, len(addresses), len(addresses) + end - offset)
            if checksum == WRONG and not provable:
                checksum = UNJUDGED
        number, now, capture = frame.number, frame.timestamp_ns, frame.capture
        return Segment(
            key, sequence, acknowledgment, flags, window, payload, missing, number, now, capture, options, checksum
        )
    located: links.Located
    if protocol == _UDP:
        located = _udp(data, offset, stop, end, encapsulation)
        if located is NOT_TCP and _DNS_PORT in (data[offset : offset + 2], data[offset + 2 : offset + 4]):
            half = len(addresses) // 2
            hosts = addresses[:half], addresses[half:]
            client, server = hosts[::-1] if data[offset : offset + 2] == _DNS_PORT else hosts
            return DnsMessage(
                NOT_TCP.reason, NOT_TCP.detail, client, server, data[offset + 8 : stop], frame.number,
                frame.timestamp_ns,
            )  # fmt: skip
    elif protocol == _GRE:
        located = _gre(data, offset, stop, end, encapsulation)
    elif protocol in _IN_IP:
        version = _IN_IP[protocol]
        located = version, offset, end, encapsulation + MARK_IN_IP[version]
    elif protocol == _ESP:
        return unread("esp")
    else:
        return unread("l2tp_version_3") if protocol == _L2TP else NOT_TCP
    return located if isinstance(located, NotSegment) else _datagram(frame, located, stop, depth + 1)


def _gre(data: bytes, offset: int, stop: int, end: int, encapsulation: bytes) -> links.Located:
    """RFC 2784 and 2890; ERSPAN carries bridged Ethernet, the enhanced GRE of PPTP (RFC 2637) carries PPP."""
    if offset + 4 > stop:
        return _short(offset + 4, end)
    flags, kind = unpack_from("!HH", data, offset)
    if flags & 0x4007:
        if flags & 0xC007 == 1 and kind == links.PPP:
            return _pptp(data, flags, offset + 4, stop, end, encapsulation)
        return NOT_TCP  # source routes (RFC 1701)
    offset += 8 if flags & 0x8000 else 4
    if flags & 0x2000:
        if offset + 4 > stop:
            return _short(offset + 4, end)
        encapsulation += MARK_GRE_KEY + data[offset : offset + 4]
        offset += 4
    else:
        encapsulation += MARK_GRE
    if flags & 0x1000:
        offset += 4
    if kind == 0x88BE:
        # Only type II has a sequence number and its own header.
        if flags & 0x1000:
            if offset + 8 > stop:
                return _short(offset + 8, end)
            if data[offset] >> 4 > 1:
                return unread("erspan")
            offset += 8
        kind = links.ETHERNET
    elif kind == 0x22EB:
        return _erspan_3(data, offset, stop, end, encapsulation)
    return links.ethertype(data, kind, offset, stop, end, encapsulation)


def _erspan_3(data: bytes, offset: int, stop: int, end: int, encapsulation: bytes) -> links.Located:
    """Type III of draft-foschiano-erspan, which is version 2; a platform-specific part of 8 bytes may follow."""
    if offset + 12 > stop:
        return _short(offset + 12, end)
    kind = data[offset + 10] >> 2 & 0x1F
    version = data[offset] >> 4
    offset += 20 if data[offset + 11] & 1 else 12
    if version != 2 or kind not in (0, 2):
        return unread("erspan")
    if kind == 0:
        return links.ethertype(data, links.ETHERNET, offset, stop, end, encapsulation)
    if offset + 6 > stop:  # the length of an IPv6 header ends there
        return _short(offset + 6, end)
    version, _ = _ip_at(data, offset, stop, end)
    return (version, offset, end, encapsulation) if version else unread("erspan")


def _pptp(data: bytes, flags: int, offset: int, stop: int, end: int, encapsulation: bytes) -> links.Located:
    """RFC 2637 section 4.1; each direction has a call identifier of its own, so the encapsulation omits it."""
    if not flags & 0x2000:
        return NOT_TCP
    if offset + 4 > stop:
        return _short(offset + 4, end)
    length = data[offset] << 8 | data[offset + 1]
    offset += 4 + (4 if flags & 0x1000 else 0) + (4 if flags & 0x0080 else 0)
    if not length or not flags & 0x1000:  # an acknowledgment alone
        return NOT_TCP
    end = min(end, offset + length)
    return links.ethertype(data, links.PPP, offset, min(stop, end), end, encapsulation + MARK_PPTP)


def _ip_at(data: bytes, offset: int, stop: int, end: int) -> tuple[int, int]:
    """Version of the IP header at an offset, or 0, and the end of its datagram by its own length."""
    version, inner_end = data[offset] >> 4 if offset < stop else 0, 0
    if version == 4 and offset + 4 <= stop:
        total = data[offset + 2] << 8 | data[offset + 3]
        inner_end = offset + total if 20 <= (data[offset] & 0x0F) * 4 <= total else 0
    elif version == 6 and offset + 6 <= stop:
        inner_end = offset + 40 + (data[offset + 4] << 8 | data[offset + 5])
    return (version, inner_end) if 0 < inner_end <= end else (0, 0)


def _udp(data: bytes, offset: int, stop: int, end: int, encapsulation: bytes) -> links.Located:
    """Tunnels over UDP, by port and form; other datagrams are classified by `_lookalike`."""
    inner = offset + 8
    if inner > stop:
        return NOT_TCP
    source, port, length = unpack_from("!HHH", data, offset)
    if 8 <= length < end - offset:  # 0 is a jumbogram or offload
        end = offset + length
        stop = min(stop, end)
    if inner + 8 > stop:
        return _lookalike(data, source, port, inner, stop, end)
    if port not in _UDP_PORTS and source not in _UDP_PORTS:  # nearly all UDP
        if _is_mqtt_sn_connect(data[inner:stop], end - inner):
            return unread("mqtt_sn")
        return _anywhere(data, inner, stop, end, encapsulation) or NOT_TCP
    identifier = b"\0" + data[inner + 4 : inner + 7]
    if port in _VXLAN_PORTS:
        if not data[inner] & 0x08:
            return NOT_TCP
        encapsulation += MARK_VXLAN + identifier
        return links.ethertype(data, links.ETHERNET, inner + 8, stop, end, encapsulation)
    if port == _GENEVE_PORT:
        if data[inner] & 0xC0 or data[inner + 1] & 0x80:  # another version, or a control message
            return NOT_TCP
        kind = data[inner + 2] << 8 | data[inner + 3]
        encapsulation += MARK_GENEVE + identifier
        return links.ethertype(data, kind, inner + 8 + (data[inner] & 0x3F) * 4, stop, end, encapsulation)
    if port == _VXLAN_GPE_PORT and data[inner] & 0x38 == 0x08:  # version 0 with an identifier
        if data[inner] & 0x01:
            return NOT_TCP  # operation and maintenance
        # draft-ietf-nvo3-vxlan-gpe: the fourth byte is the type of the content.
        following = _GPE_TYPES.get(data[inner + 3]) if data[inner] & 0x04 else links.ETHERNET
        if following is None:
            return unread("vxlan_gpe")
        return links.ethertype(data, following, inner + 8, stop, end, encapsulation + MARK_VXLAN + identifier)
    if port == _GTP_PORT or source == _GTP_PORT:
        return _gtp(data, inner, stop, end, encapsulation)
    if port == _TZSP_PORT:
        return _tzsp(data, inner, stop, end, encapsulation)
    if port == _L2TP_PORT or source == _L2TP_PORT:
        return _l2tp(data, inner, stop, end, encapsulation)
    return _anywhere(data, inner, stop, end, encapsulation) or _lookalike(data, source, port, inner, stop, end)


def _anywhere(data: bytes, inner: int, stop: int, end: int, encapsulation: bytes) -> links.IpHeader | None:
    """The content of a tunnel on an unregistered port, if flags, addresses, types and lengths are consistent."""
    first, flags = data[inner], data[inner + 1]
    located: links.Located
    ends: tuple[int, ...] = (end,)
    is_short = False
    if first == 0x01:
        located = _tzsp(data, inner, stop, end, encapsulation)
        is_short, ends = end - inner <= 128, (end, end - 4)  # tags, and what Ethernet pads or checks
    elif data[inner + 7] or flags & (~0x48 if first == 0x88 else 0xFF):
        return None  # VXLAN with a group policy has two more flags, and an identifier of 16 bits
    else:
        kind = data[inner + 2] << 8 | data[inner + 3]
        start, mark, version = inner + 8, MARK_VXLAN, 0
        if first == 0x0C and kind in (1, 2):
            version = 2 * kind + 2
        elif first != 0x88 and (first, kind) not in ((0x08, 0), (0x0C, 3)):
            if first >= 0x40 or kind not in _GENEVE_VERSIONS:
                return None
            start, mark, version = start + first * 4, MARK_GENEVE, _GENEVE_VERSIONS[kind]
        encapsulation += mark + b"\0" + data[inner + 4 : inner + 7]
        if version:
            located = version, start, end, encapsulation
        elif start + 14 > stop or data[start + 6] & 1:  # a source address is not a group
            return None
        else:
            located = links.ethertype(data, links.ETHERNET, start, stop, end, encapsulation)
            is_short = end - start <= 64  # frames below the shortest of Ethernet are padded
    if isinstance(located, NotSegment):
        return None
    version, inner_end = _ip_at(data, located[1], stop, located[2])
    return located if version == located[0] and (is_short or inner_end in ends) else None


def _gtp(data: bytes, inner: int, stop: int, end: int, encapsulation: bytes) -> links.Located:
    """G-PDUs of version 1 (3GPP TS 29.281); their identifier depends on the receiver, so the encapsulation omits it."""
    first, kind, length = unpack_from("!BBH", data, inner)
    version = first >> 5
    if version != 1:
        # Headers of other versions have other lengths, which are not counted.
        return unread(f"gtp_u_version_{version}") if end - inner - length in (4, 8, 20) else NOT_TCP
    if not first & 0x10 or kind != 255 or inner + 8 + length > end:
        return NOT_TCP  # GTP prime, for charging; echo, error indication, end marker; or not GTP
    offset = inner + 8
    end = min(end, offset + length)
    stop = min(stop, end)
    if first & 0x07:
        following = offset + 3
        offset += 4
        if first & 0x04:
            for _ in range(MAX_EXTENSION_HEADERS):
                if following >= stop:
                    return _short(following + 1, end)
                if not data[following]:
                    break
                if offset >= stop or not data[offset]:
                    return _short(offset + 1, end) if offset >= stop else unread("gtp_u")
                offset += data[offset] * 4
                following = offset - 1
            else:
                return TOO_MANY_EXTENSION_HEADERS
    if offset >= stop:
        return _short(offset + 1, end)
    version = data[offset] >> 4
    if version in (4, 6):
        return version, offset, end, encapsulation + MARK_GTP
    located = links.ethertype(data, links.ETHERNET, offset, stop, end, encapsulation + MARK_GTP)
    if isinstance(located, NotSegment):
        located = links.ethertype(data, links.PPP, offset, stop, end, encapsulation + MARK_GTP)
    if isinstance(located, NotSegment) or _ip_at(data, located[1], stop, end)[0] != located[0]:
        return unread("gtp_u")
    return located


def _tzsp(data: bytes, inner: int, stop: int, end: int, encapsulation: bytes) -> links.Located:
    """TaZmen Sniffer Protocol: version 1, type, protocol of the content, tags with an end tag."""
    version, kind, protocol = unpack_from("!BBH", data, inner)
    if version != 1 or kind > 1:  # configuration, keep alive, port opener
        return NOT_TCP
    offset = inner + 4
    for _ in range(MAX_TAGS):
        if offset >= stop:
            return _short(offset + 1, end)
        tag = data[offset]
        offset += 1
        if tag == 1:
            break
        if tag:
            if offset >= stop:
                return _short(offset + 1, end)
            offset += 1 + data[offset]
    else:
        return unread("tzsp")
    link = links.LINKS.get(_TZSP_LINKS.get(protocol, -1))
    if link is None:
        return unread("tzsp")
    located = link(data, offset, stop, end)
    if isinstance(located, NotSegment):
        return located
    return located[0], located[1], located[2], encapsulation + MARK_TZSP + located[3]


def _l2tp(data: bytes, inner: int, stop: int, end: int, encapsulation: bytes) -> links.Located:
    """PPP in data messages of version 2 (RFC 2661 section 3.1); their identifiers depend on the receiver too."""
    flags = data[inner] << 8 | data[inner + 1]
    if flags & 0x8000:
        return NOT_TCP  # control
    if flags & 0x0F == 3:
        return unread("l2tp_version_3")
    if flags & 0x34FF != 2:
        return NOT_TCP
    offset = inner + 2
    if flags & 0x4000:
        end = min(end, inner + (data[offset] << 8 | data[offset + 1]))
        stop = min(stop, end)
        offset += 2
    offset += 8 if flags & 0x0800 else 4
    if flags & 0x0200:
        if offset + 2 > stop:
            return _short(offset + 2, end)
        offset += 2 + (data[offset] << 8 | data[offset + 1])
    return links.ethertype(data, links.PPP, offset, stop, end, encapsulation + MARK_L2TP)


def _lookalike(data: bytes, source: int, port: int, inner: int, stop: int, end: int) -> NotSegment:
    """Classify UDP that is not read but may be relevant; ordinary UDP is `NOT_TCP`."""
    length, begin = end - inner, data[inner : min(stop, inner + 64)]
    if (source in _MQTT_SN_PORTS or port in _MQTT_SN_PORTS) and _is_mqtt_sn(begin, length):
        return unread("mqtt_sn")
    if length < 16 or inner + 8 > stop:
        return NOT_TCP
    if (source in _QUIC_PORTS or port in _QUIC_PORTS) and data[inner] & 0xC0 == 0xC0:
        version = int.from_bytes(data[inner + 1 : inner + 5], "big")
        if data[inner + 5] <= 20 and (version in _QUIC_VERSIONS or version >> 8 == 0xFF0000):
            return unread("quic")
    if _ESP_PORT in (source, port) and data[inner : inner + 4] != b"\0\0\0\0":
        return unread("esp")
    if _WIREGUARD_PORT in (source, port) and data[inner : inner + 4] == b"\x04\0\0\0" and not length & 15:
        return unread("wireguard")
    if _CAPWAP_PORT in (source, port) and data[inner] == 0 and data[inner + 1] >> 3 in (2, 4):
        return unread("capwap")
    if _TEREDO_PORT in (source, port) and _ip_at(data, inner, stop, end)[0] == 6:
        return unread("teredo")
    if port == _LISP_PORT and _ip_at(data, inner + 8, stop, end)[0]:
        return unread("lisp")
    return NOT_TCP


def _is_mqtt_sn(begin: bytes, length: int) -> bool:
    """MQTT-SN 1.2 section 5.2: the message is as long as the datagram, and its type is a known one."""
    if len(begin) > 3 and begin[0] == 1:
        return begin[1] << 8 | begin[2] == length and begin[3] in _MQTT_SN_TYPES
    # A forwarder puts this header before the message of a client without IP.
    if len(begin) > 1 and begin[1] == 0xFE and 3 <= begin[0] < length:
        begin, length = begin[begin[0] :], length - begin[0]
    return len(begin) > 1 and begin[0] == length and begin[1] in _MQTT_SN_TYPES


def _is_mqtt_sn_connect(message: bytes, length: int) -> bool:
    """Whether a message is a CONNECT (MQTT-SN 1.2, section 5.4.4), checked strictly, since the port may be any."""
    return (
        7 <= length <= 29
        and len(message) == length == message[0]
        and message[1] == 4
        and not message[2] & 0xF3
        and message[3] == 1
        and message[6:].isascii()
        and message[6:].decode("ascii", "replace").isprintable()
    )


def _short(needed: int, end: int) -> NotSegment:
    return IP_TRUNCATED if needed <= end else IP_SHORT
