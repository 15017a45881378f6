"""Where the TCP segment is in a frame as nearly all are, for who has no time to walk down its headers one by one.

`locate` takes frames where they lie in the buffer of a reader.  What it does not take is for `headers.walk`; a test
holds both equal.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mqttscope.net.checksum import judge_checksum
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
"""From the Total Length of an IPv4 header without options: that, fragment, protocol, and what `TcpHeader` has."""
_IPV6_AND_TCP: Final = Struct("!HB37xIIBBH").unpack_from
"""The same from the Payload Length of an IPv6 header, which has no fragment."""

TcpHeader = tuple[bytes, int, int, int, int, int, int, int]
"""Direction key, sequence and acknowledgment number, flags, window, and where in the buffer the options of the TCP
header begin, the payload begins and ends."""
_UNUSUAL: Final[TcpHeader] = (b"", 0, 0, 0, 0, 0, 0, 0)


def locate(data: bytes, start: int, stop: int, link_type: int) -> TcpHeader:
    """Where the TCP segment is in a frame that lies in ``data`` from ``start`` to ``stop``, if the frame is usual.

    The key is empty where it is not.  Nearly all frames of most captures are not worth a walk: Ethernet II with at most
    one VLAN tag, IPv4 without options or IPv6 without extension headers, and a TCP segment that was captured whole; or
    the same IPv4 without a link layer, as recordings of live runs have it.
    """
    size = stop - start
    key = b""
    if link_type == 1 and size >= 54:
        begin = data[start + 12 : start + 15]
        if begin == _PLAIN_IPV4:
            length, fragment, protocol, sequence, acknowledgment, data_offset, flags, window = _IPV4_AND_TCP(
                data, start + 16
            )
            if protocol == 6 and not fragment & 0x3FFF:
                key = data[start + 26 : start + 38]
                body, end = start + 34, start + 14 + length
        elif begin == _PLAIN_IPV6:
            if size < 74:
                return _UNUSUAL
            length, protocol, sequence, acknowledgment, data_offset, flags, window = _IPV6_AND_TCP(data, start + 18)
            if protocol == 6:
                key = data[start + 22 : start + 58]
                body, end = start + 54, start + 54 + length
        elif begin[:2] == _ONE_TAG and size >= 58 and data[start + 16 : start + 19] == _PLAIN_IPV4:
            length, fragment, protocol, sequence, acknowledgment, data_offset, flags, window = _IPV4_AND_TCP(
                data, start + 20
            )
            identifier = bytes((data[start + 14] & 0x0F, data[start + 15]))
            if protocol == 6 and not fragment & 0x3FFF and identifier != b"\0\0":
                key = direction_key(data[start + 30 : start + 38], data[start + 38 : start + 42], identifier)
                body, end = start + 38, start + 18 + length
    elif link_type == 101 and size >= 40 and data[start] == _IPV4_WITHOUT_OPTIONS:
        length, fragment, protocol, sequence, acknowledgment, data_offset, flags, window = _IPV4_AND_TCP(
            data, start + 2
        )
        if protocol == 6 and not fragment & 0x3FFF:
            key = data[start + 12 : start + 24]
            body, end = start + 20, start + length
    if key and data_offset >= 0x50:
        begins = body + (data_offset >> 2 & 0x3C)
        if begins <= end <= stop:
            return key, sequence, acknowledgment, flags, window, body + 20, begins, end
    return _UNUSUAL


def judge(data: bytes, key: bytes, options: int, end: int) -> int:
    """Judge the checksum of a segment that `locate` has located; the addresses are right before its header."""
    start = options - 20
    return judge_checksum(data, start - (32 if len(key) == 36 else 8), start, end)


def plain_endpoints(data: bytes, start: int, stop: int, link_type: int) -> bytes:
    """The endpoints of a TCP segment in a frame that lies in ``data``; empty where the frame is not usual.

    For callers that need no more of the Ethernet frames that `locate` takes; the TCP header may still be damaged.
    """
    if link_type != 1 or stop - start < 54:
        return b""
    begin = data[start + 12 : start + 15]
    at = start if begin == _PLAIN_IPV4 else start + 4  # with a VLAN tag
    if begin == _PLAIN_IPV6:
        return data[start + 22 : start + 58] if stop - start >= 74 and data[start + 20] == _TCP else b""
    if at != start and (stop - start < 74 or begin[:2] != _ONE_TAG or data[at + 12 : at + 15] != _PLAIN_IPV4):
        return b""
    return data[at + 26 : at + 38] if data[at + 23] == _TCP and data[at + 20 : at + 22] in _WHOLE else b""
