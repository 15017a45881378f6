"""Locates the TCP segment in usual frames, which need no walk through their headers.

`locate` reads frames in the buffer of a reader.  `headers.walk` reads all others; a test compares both.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mqttscope.net.segment import direction_key

_PLAIN_IPV4: Final = b"\x08\0\x45"
"""EtherType of IPv4, version 4 with 20 bytes of header."""
_PLAIN_IPV6: Final = b"\x86\xdd\x60"
"""EtherType of IPv6, version 6 with the upper half of the traffic class 0."""
_ONE_TAG: Final = b"\x81\0"
"""EtherType of a VLAN tag (IEEE 802.1Q)."""
_WHOLE: Final = (b"\x40\0", b"\0\0")
"""Flags and offset of an IPv4 datagram that is no fragment."""
_IPV4_WITHOUT_OPTIONS: Final = 0x45
"""Version 4 with 20 bytes of header."""
_TCP: Final = 6
_IPV4_AND_TCP: Final = Struct("!H2xHxB14xIIBBH").unpack_from
"""Total Length of an IPv4 header without options, fragment, protocol, and numbers of the TCP header after it."""
_IPV6_AND_TCP: Final = Struct("!HB37xIIBBH").unpack_from
"""Payload Length of an IPv6 header, protocol, and numbers of the TCP header after it."""

TcpHeader = tuple[bytes, int, int, int, int, int, int, int]
"""Direction key, sequence and acknowledgment number, flags, window; offsets of TCP options, payload, and its end."""
_UNUSUAL: Final[TcpHeader] = (b"", 0, 0, 0, 0, 0, 0, 0)


def locate(data: bytes, start: int, stop: int, link_type: int) -> TcpHeader:
    """Locate the TCP segment of a usual frame, which is in ``data`` from ``start`` to ``stop``; else the key is empty.

    Usual: Ethernet II with at most one VLAN tag, IPv4 without options or IPv6 without extension headers, and a TCP
    segment that was captured whole; or such IPv4 without a link layer, as recordings of live runs have it.
    """
    size = stop - start
    ip = -1  # where a usual header of IPv4 begins
    if link_type == 1 and size >= 54:
        begin = data[start + 12 : start + 15]
        if begin == _PLAIN_IPV4:
            ip = start + 14
        elif begin == _PLAIN_IPV6 and size >= 74:
            length, protocol, sequence, acknowledgment, data_offset, flags, window = _IPV6_AND_TCP(data, start + 18)
            fragment, key = 0, data[start + 22 : start + 58]
            body, end = start + 54, start + 54 + length
        elif begin[:2] == _ONE_TAG and size >= 58 and data[start + 16 : start + 19] == _PLAIN_IPV4:
            ip = start + 18
        else:
            return _UNUSUAL
    elif link_type == 101 and size >= 40 and data[start] == _IPV4_WITHOUT_OPTIONS:
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


def plain_endpoints(data: bytes, start: int, stop: int, link_type: int) -> bytes:
    """The endpoints of a TCP segment in a usual Ethernet frame, else empty; the TCP header may be damaged."""
    if link_type != 1 or stop - start < 54:
        return b""
    begin = data[start + 12 : start + 15]
    at = start if begin == _PLAIN_IPV4 else start + 4  # with a VLAN tag
    if begin == _PLAIN_IPV6:
        return data[start + 22 : start + 58] if stop - start >= 74 and data[start + 20] == _TCP else b""
    if at != start and (stop - start < 74 or begin[:2] != _ONE_TAG or data[at + 12 : at + 15] != _PLAIN_IPV4):
        return b""
    return data[at + 26 : at + 38] if data[at + 23] == _TCP and data[at + 20 : at + 22] in _WHOLE else b""
