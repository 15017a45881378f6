"""From a captured frame to its TCP segment: IPv4, IPv6, tunnels and TCP.

:func:`segment` is a pure function.  What it cannot turn into a segment it names: a :class:`Fragment` is for
``fragments.FragmentTable``, a :class:`NotSegment` is a shared constant.

Lengths come from the IP header, so padding and trailers do not count; where segmentation offload left an IP length of
0, the frame's length on the wire takes its place.  An IP length beyond the frame's length on the wire ends there: what
the wire did not carry is not missing from the capture, and sequence numbers show any loss.  Checksums are not verified:
frames captured on the sending host are seen before the network interface fills them in, and are as good as any other.
The addresses are those of the innermost IP header, whatever a routing header or a home address option says.
"""

from __future__ import annotations

from struct import unpack_from

from mqttscope.net import links
from mqttscope.net.frame import Frame
from mqttscope.net.segment import Fragment, NotSegment, Segment, direction_key

MAX_TUNNELS = 8
"""How many tunnels one frame may nest."""
MAX_EXTENSION_HEADERS = 16
"""How many IPv6 extension headers one datagram may have."""
MAX_OFFLOAD_LENGTH = 524_288
"""Longest IP datagram, in bytes, believed where the IP header announces a length of 0 (Linux's GSO_MAX_SIZE)."""

NOT_TCP = NotSegment("not_tcp", "the IP datagram holds no TCP segment")
TOO_MANY_TUNNELS = NotSegment("not_tcp", f"more than {MAX_TUNNELS} nested tunnels")
IP_TRUNCATED = NotSegment("truncated", "the capture's snap length cut the frame inside the IP headers")
IP_SHORT = NotSegment("malformed", "the frame ends inside the IP headers")
IP_VERSION = NotSegment("malformed", "the IP version is not the one that the link layer announced")
IP_HEADER_LENGTH = NotSegment("malformed", "the IPv4 header length is below 20 bytes or beyond the total length")
IP_TOO_LONG = NotSegment("malformed", f"the IP length is 0 in a frame of more than {MAX_OFFLOAD_LENGTH} bytes")
TOO_MANY_EXTENSION_HEADERS = NotSegment("malformed", f"more than {MAX_EXTENSION_HEADERS} IPv6 extension headers")
TCP_TRUNCATED = NotSegment("truncated", "the capture's snap length cut the frame inside the TCP header")
TCP_SHORT = NotSegment("malformed", "the IP datagram ends inside the TCP header")
TCP_DATA_OFFSET = NotSegment("malformed", "the TCP data offset is below 20 bytes or beyond the IP datagram")

_new = object.__new__

_PLAIN_IPV4 = b"\x08\0\x45"
"""EtherType of IPv4, version 4 with 20 bytes of header."""
_PLAIN_IPV6 = b"\x86\xdd\x60"
"""EtherType of IPv6, version 6 with the upper half of the traffic class 0."""
_TCP = 6
_UDP = 17
_GRE = 47
_AUTHENTICATION = 51
_IN_IP = {4: 4, 41: 6}
_OPTIONS = frozenset((0, 43, 60, 135, 139, 140))
_FRAGMENT = 44
_EXTENSIONS = _OPTIONS | {_FRAGMENT, _AUTHENTICATION}
_FRAGMENTED_IPV4 = frozenset((_TCP, _UDP, _GRE, _AUTHENTICATION, 4, 41))

# An encapsulation holds VLAN identifiers (at most 0x0fff) and these marks, some followed by a four-byte identifier.
_MARK_IN_IP = {4: b"\xf0\x04", 6: b"\xf0\x29"}
_MARK_GRE = b"\xf0\x2f"
_MARK_GRE_KEY = b"\xf0\x30"
_MARK_VXLAN = b"\xf1\x01"
_MARK_GENEVE = b"\xf1\x02"
_VXLAN_PORT = 4789
_GENEVE_PORT = 6081


def segment(frame: Frame) -> Segment | Fragment | NotSegment:
    """The TCP segment of a frame (RFC 9293), the IP fragment it holds, or why there is neither.

    When the snap length cut TCP options but left the fixed 20 bytes, the segment has an empty payload and ``missing``
    says how long it was.
    """
    # Nearly all frames of most captures are not worth a walk: Ethernet II with at most one VLAN tag, IPv4 without
    # options or IPv6 without extension headers, and a TCP segment that was captured whole.
    data = frame.data
    size = len(data)
    if frame.link_type == 1 and size >= 54:
        begin = data[12:15]
        key = b""
        if begin == _PLAIN_IPV4:
            length, fragment, protocol, sequence, acknowledgment, data_offset, flags, window = unpack_from(
                "!H2xHxB14xIIBBH", data, 16
            )
            if protocol == 6 and not fragment & 0x3FFF:
                key = data[26:38]
                body, end = 34, 14 + length
        elif size < 74:
            pass  # too short for what may come now, or padded
        elif begin == _PLAIN_IPV6:
            length, protocol, sequence, acknowledgment, data_offset, flags, window = unpack_from(
                "!HB37xIIBBH", data, 18
            )
            if protocol == 6:
                key = data[22:58]
                body, end = 54, 54 + length
        elif begin[:2] == b"\x81\0" and data[16:19] == _PLAIN_IPV4:
            length, fragment, protocol, sequence, acknowledgment, data_offset, flags, window = unpack_from(
                "!H2xHxB14xIIBBH", data, 20
            )
            identifier = bytes((data[14] & 0x0F, data[15]))
            if protocol == 6 and not fragment & 0x3FFF and identifier != b"\0\0":
                key = direction_key(data[30:38], data[38:42], identifier)
                body, end = 38, 18 + length
        if key and data_offset >= 0x50:
            start = body + (data_offset >> 2 & 0x3C)
            if start <= end <= size:
                # Without __init__: there is one for each frame of the capture.
                made = _new(Segment)
                made.key = key
                made.sequence = sequence
                made.acknowledgment = acknowledgment
                made.flags = flags
                made.window = window
                made.payload = data[start:end]
                made.missing = 0
                made.frame = frame.number
                made.timestamp_ns = frame.timestamp_ns
                made.capture = frame.capture
                return made
    return walk(frame)


def walk(frame: Frame) -> Segment | Fragment | NotSegment:
    """What `segment` says, by going through the headers one by one, whatever they are."""
    data = frame.data
    link = links.LINKS.get(frame.link_type)
    if link is None:
        return links.unsupported(frame.link_type)
    stop = len(data)
    end = frame.original_length
    if end < stop:
        end = stop
    located = link(data, 0, stop, end)
    if isinstance(located, NotSegment):
        return located
    return _network(frame, data, located, stop, 0)


# Everywhere below, `stop` is where the captured bytes of the enclosing layer stop in `data`, and `end` where that layer
# ended on the wire; `stop` is never larger than `end`.


def _network(
    frame: Frame, data: bytes, located: links.Located, stop: int, depth: int
) -> Segment | Fragment | NotSegment:
    version, offset, end, encapsulation = located
    if end < stop:
        stop = end
    if depth > MAX_TUNNELS:
        return TOO_MANY_TUNNELS
    if version == 4:
        return _ipv4(frame, data, offset, stop, end, encapsulation, depth)
    return _ipv6(frame, data, offset, stop, end, encapsulation, depth)


def _ipv4(
    frame: Frame, data: bytes, offset: int, stop: int, end: int, encapsulation: bytes, depth: int
) -> Segment | Fragment | NotSegment:
    """RFC 791 section 3.1."""
    if offset + 20 > stop:
        return _short(offset + 20, end)
    first, total, fragment, protocol = unpack_from("!BxH2xHxB", data, offset)
    if first >> 4 != 4:
        return IP_VERSION
    length = (first & 0x0F) * 4
    if length < 20 or 0 < total < length:
        return IP_HEADER_LENGTH
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
    addresses = data[offset + 12 : offset + 20]
    if not fragment & 0x3FFF:
        return transport(frame, data, protocol, body, stop, end, addresses, encapsulation, depth)
    if protocol not in _FRAGMENTED_IPV4:
        return NOT_TCP
    return Fragment(
        addresses + data[offset + 4 : offset + 6] + data[offset + 9 : offset + 10] + encapsulation,
        (fragment & 0x1FFF) * 8,
        bool(fragment & 0x2000),
        protocol,
        data[body:stop],
        end - stop,
        addresses[:4],
        addresses[4:],
        encapsulation,
        frame.number,
        frame.timestamp_ns,
        frame.capture,
    )


def _ipv6(
    frame: Frame, data: bytes, offset: int, stop: int, end: int, encapsulation: bytes, depth: int
) -> Segment | Fragment | NotSegment:
    """RFC 8200 section 3.  Payload length 0 is a jumbogram or offload: the enclosing layer tells the end."""
    body = offset + 40
    if body > stop:
        return _short(body, end)
    if data[offset] >> 4 != 6:
        return IP_VERSION
    length = data[offset + 4] << 8 | data[offset + 5]
    if length:
        if body + length < end:
            end = body + length
            if end < stop:
                stop = end
    elif end - offset > MAX_OFFLOAD_LENGTH:
        return IP_TOO_LONG
    return transport(frame, data, data[offset + 6], body, stop, end, data[offset + 8 : body], encapsulation, depth)


def transport(
    frame: Frame,
    data: bytes,
    protocol: int,
    offset: int,
    stop: int,
    end: int,
    addresses: bytes,
    encapsulation: bytes,
    depth: int,
) -> Segment | Fragment | NotSegment:
    """Follow an IP protocol number from the end of an IP header to the TCP segment.

    ``data[offset:stop]`` is what was captured of the datagram's payload, ``end - offset`` its length on the wire.
    ``addresses`` is the source followed by the destination, ``depth`` the number of tunnels around.  Number, time and
    capture come from ``frame``.
    """
    if protocol == _TCP:
        if offset + 20 > stop:
            return TCP_TRUNCATED if offset + 20 <= end else TCP_SHORT
        sequence, acknowledgment, data_offset, flags, window = unpack_from("!4xIIBBH", data, offset)
        start = offset + (data_offset >> 2 & 0x3C)
        if data_offset < 0x50 or start > end:
            return TCP_DATA_OFFSET
        payload = data[start:stop]
        return Segment(
            direction_key(addresses, data[offset : offset + 4], encapsulation),
            sequence,
            acknowledgment,
            flags,
            window,
            payload,
            end - start - len(payload),
            frame.number,
            frame.timestamp_ns,
            frame.capture,
        )
    located: links.Located | NotSegment
    if protocol == _UDP:
        located = _udp(data, offset, stop, end, encapsulation)
    elif protocol == _GRE:
        located = _gre(data, offset, stop, end, encapsulation)
    elif protocol in _IN_IP:
        version = _IN_IP[protocol]
        located = version, offset, end, encapsulation + _MARK_IN_IP[version]
    elif protocol == _AUTHENTICATION or (protocol in _EXTENSIONS and len(addresses) == 32):
        return _extensions(frame, data, protocol, offset, stop, end, addresses, encapsulation, depth)
    else:
        return NOT_TCP
    if isinstance(located, NotSegment):
        return located
    return _network(frame, data, located, stop, depth + 1)


def _extensions(
    frame: Frame,
    data: bytes,
    protocol: int,
    offset: int,
    stop: int,
    end: int,
    addresses: bytes,
    encapsulation: bytes,
    depth: int,
) -> Segment | Fragment | NotSegment:
    """Skip IPv6 extension headers (RFC 8200 section 4) and the Authentication Header, which IPv4 has too (RFC 4302)."""
    for _ in range(MAX_EXTENSION_HEADERS):
        if offset + 8 > stop:  # none is shorter than 8 bytes
            return _short(offset + 8, end)
        if protocol == _FRAGMENT:
            position = data[offset + 2] << 8 | data[offset + 3]
            if position & 0xFFF9:
                return Fragment(
                    addresses + data[offset + 4 : offset + 8] + encapsulation,
                    position & 0xFFF8,
                    bool(position & 1),
                    data[offset],
                    data[offset + 8 : stop],
                    end - stop,
                    addresses[: len(addresses) // 2],
                    addresses[len(addresses) // 2 :],
                    encapsulation,
                    frame.number,
                    frame.timestamp_ns,
                    frame.capture,
                )
            length = 8
        elif protocol == _AUTHENTICATION:
            length = (data[offset + 1] + 2) * 4
        else:
            length = (data[offset + 1] + 1) * 8
        protocol = data[offset]
        offset += length
        if offset > stop:
            return _short(offset, end)
        if protocol not in _EXTENSIONS:
            return transport(frame, data, protocol, offset, stop, end, addresses, encapsulation, depth)
    return TOO_MANY_EXTENSION_HEADERS


def _gre(data: bytes, offset: int, stop: int, end: int, encapsulation: bytes) -> links.Located | NotSegment:
    """RFC 2784 and 2890; ERSPAN types I and II carry bridged Ethernet."""
    if offset + 4 > stop:
        return _short(offset + 4, end)
    flags, kind = unpack_from("!HH", data, offset)
    if flags & 0x4007:  # source routes (RFC 1701) and the enhanced GRE of PPTP
        return NOT_TCP
    offset += 8 if flags & 0x8000 else 4
    if flags & 0x2000:
        if offset + 4 > stop:
            return _short(offset + 4, end)
        encapsulation += _MARK_GRE_KEY + data[offset : offset + 4]
        offset += 4
    else:
        encapsulation += _MARK_GRE
    if flags & 0x1000:
        offset += 4
    if kind == 0x88BE:
        # Only type II has a sequence number, and a header of its own.
        offset += 8 if flags & 0x1000 else 0
        kind = links.ETHERNET
    return links.ethertype(data, kind, offset, stop, end, encapsulation)


def _udp(data: bytes, offset: int, stop: int, end: int, encapsulation: bytes) -> links.Located | NotSegment:
    """VXLAN (RFC 7348) and GENEVE (RFC 8926) on their registered ports."""
    inner = offset + 8
    if inner + 8 > stop:
        return NOT_TCP
    port = data[offset + 2] << 8 | data[offset + 3]
    identifier = b"\0" + data[inner + 4 : inner + 7]
    if port == _VXLAN_PORT:
        if not data[inner] & 0x08:
            return NOT_TCP
        encapsulation += _MARK_VXLAN + identifier
        return links.ethertype(data, links.ETHERNET, inner + 8, stop, end, encapsulation)
    if port == _GENEVE_PORT:
        if data[inner] & 0xC0 or data[inner + 1] & 0x80:  # another version, or a control message
            return NOT_TCP
        kind = data[inner + 2] << 8 | data[inner + 3]
        encapsulation += _MARK_GENEVE + identifier
        return links.ethertype(data, kind, inner + 8 + (data[inner] & 0x3F) * 4, stop, end, encapsulation)
    return NOT_TCP


def _short(needed: int, end: int) -> NotSegment:
    return IP_TRUNCATED if needed <= end else IP_SHORT
