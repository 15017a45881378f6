"""From the start of a frame to its IP header: link layers, tags, label stacks and session headers.

Every link function takes ``(data, offset, stop, end)``: the frame's bytes, where its header starts, where the
captured bytes stop and where the frame ended on the wire (``end >= stop``; larger when a snap length cut the frame).
It returns ``(version, offset, end, encapsulation)`` of the IP header, ``end`` not beyond the given one, or the
:class:`NotSegment` with the reason for its absence.  The encapsulation distinguishes equal addresses in different
networks: VLAN identifiers, two bytes each, and the service identifier of 802.1ah.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

from mqttscope.net.segment import NotSegment, unread

MAX_LAYERS: Final = 16
"""Maximum number of nested tags, label stacks, LLC, PPP and Ethernet headers in a frame."""
MAX_LABELS: Final = 32
MAX_ATTRIBUTES: Final = 64
"""Maximum number of attributes read from an NFLOG frame."""

IpHeader = tuple[int, int, int, bytes]
Located = IpHeader | NotSegment
Link = Callable[[bytes, int, int, int], Located]

NOT_IP: Final = NotSegment("not_ip", "the frame holds no IP datagram")
WLAN_DAMAGED: Final = NotSegment("malformed", "the receiver's checksum shows that the 802.11 frame is damaged")
LINK_TRUNCATED: Final = NotSegment("truncated", "the capture's snap length cut the frame inside the link layer headers")
LINK_MALFORMED: Final = NotSegment("malformed", "the frame ends inside the link layer headers")
TOO_MANY_LAYERS: Final = NotSegment("malformed", f"more than {MAX_LAYERS} nested link layer headers")
TOO_MANY_LABELS: Final = NotSegment("malformed", f"more than {MAX_LABELS} MPLS labels")
TOO_MANY_ATTRIBUTES: Final = NotSegment("malformed", f"no datagram among the first {MAX_ATTRIBUTES} NFLOG attributes")

IPV4: Final = 0x0800
IPV6: Final = 0x86DD
ETHERNET: Final = 0x6558
MPLS: Final = 0x8847
PPP: Final = 0x880B
_HSR: Final = 0x892F
_MACSEC: Final = 0x88E5
_LLC: Final = 0  # not an EtherType: an IEEE 802.2 header follows
_PPPOE: Final = 0x8864
_PROVIDER: Final = 0x88E7
"""802.1ah, provider backbone bridges."""
_VLAN_TYPES: Final = frozenset((0x8100, 0x88A8, 0x9100, 0x9200, 0x9300))
_MPLS_TYPES: Final = frozenset((MPLS, 0x8848))
_CARRIERS: Final = _VLAN_TYPES | _MPLS_TYPES | {IPV4, IPV6, _PPPOE}
_HEADER_LENGTHS: Final = dict.fromkeys(_VLAN_TYPES, 4) | {
    ETHERNET: 14, _PPPOE: 6, _LLC: 8, _PROVIDER: 4, _HSR: 6, _MACSEC: 8,
}  # fmt: skip
"""Bytes from the start of a header to its content, by the EtherType of the header."""
_PPP_TYPES: Final = {0x0021: IPV4, 0x0057: IPV6, 0x0281: MPLS, 0x0283: 0x8848}
_PPP_COMPRESSED: Final = frozenset((0x002D, 0x002F))
"""Van Jacobson's compressed TCP (RFC 1144)."""
_PPP_ENCRYPTED: Final = frozenset((0x0053, 0x0055, 0x00FB, 0x00FD))
"""PPP with encryption (RFC 1968) or compression (RFC 1962), which also marks Microsoft's encryption."""
# AF_INET is 2 everywhere; AF_INET6 is 10 on Linux, 23 on Windows, 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on macOS.
_FAMILIES: Final = {2: 4, 10: 6, 23: 6, 24: 6, 28: 6, 30: 6}
_FCS_LENGTH: Final = 4
SERVICE_MARK: Final = b"\xf2\x01"
"""Starts the four bytes of an 802.1ah service identifier in an encapsulation; no VLAN identifier looks like it."""


def ethertype(data: bytes, kind: int, offset: int, stop: int, end: int, encapsulation: bytes = b"") -> Located:
    """Follow an EtherType (IEEE 802.3, RFC 7042) through tags and nested headers to the IP header.

    ``kind`` is the EtherType of what starts at ``offset``.  Handled: 802.1Q, 802.1ad and their vendor forms, MPLS
    (RFC 3032), PPPoE sessions (RFC 2516), PPP, 802.3 with LLC/SNAP, bridged Ethernet, 802.1ah, HSR tags (IEC 62439-3;
    PRP has a trailer outside of the IP length), MACsec (802.1AE) without encryption.
    """
    for _ in range(MAX_LAYERS + 1):
        if kind == IPV4:
            return 4, offset, end, encapsulation
        if kind == IPV6:
            return 6, offset, end, encapsulation
        if kind == PPP or kind in _MPLS_TYPES:
            inner = _ppp(data, offset, stop, end) if kind == PPP else _mpls(data, offset, stop, end)
            if isinstance(inner, NotSegment):
                return inner
            kind, offset = inner
            continue
        if kind not in _HEADER_LENGTHS:
            return NOT_IP
        start, offset = offset, offset + _HEADER_LENGTHS[kind]
        if kind == _LLC and data[start : start + 3] == b"\x06\x06\x03":
            offset = start + 3
        if offset > stop:
            return _short(offset, end)
        if kind == _PPPOE:
            if data[start] != 0x11 or data[start + 1]:
                return NOT_IP
            # Some devices write the padded length into the IP header, so this length counts too.
            end = min(end, offset + (data[start + 4] << 8 | data[start + 5]))
            stop, kind = min(stop, end), PPP
        elif kind == _LLC:
            if offset == start + 3:
                kind = IPV4
            elif data[start : start + 6] in (b"\xaa\xaa\x03\0\0\0", b"\xaa\xaa\x03\0\0\xf8"):
                kind = data[start + 6] << 8 | data[start + 7]
            else:
                return NOT_IP
        elif kind == _PROVIDER:
            encapsulation += SERVICE_MARK + b"\0" + data[start + 1 : offset]
            kind = ETHERNET
        else:
            if kind in _VLAN_TYPES:
                identifier = (data[start] & 0x0F) << 8 | data[start + 1]
                if identifier:  # 0 is a priority tag: it names no VLAN
                    encapsulation += identifier.to_bytes(2, "big")
            elif kind == _MACSEC:
                if data[start] & 0x0C:  # encrypted, or changed in another way
                    return unread("macsec")
                offset += 8 if data[start] & 0x20 else 0  # an explicit secure channel identifier
                if offset > stop:
                    return _short(offset, end)
            kind = data[offset - 2] << 8 | data[offset - 1]
            if kind <= 1500:  # a length (IEEE 802.3 section 3.2.6), and an LLC header follows
                kind = _LLC
    return TOO_MANY_LAYERS


def _short(needed: int, end: int) -> NotSegment:
    return LINK_TRUNCATED if needed <= end else LINK_MALFORMED


def _mpls(data: bytes, offset: int, stop: int, end: int) -> tuple[int, int] | NotSegment:
    """EtherType and offset of the content of a label stack, guessed as in RFC 4928 section 3."""
    for _ in range(MAX_LABELS):
        offset += 4
        if offset >= stop:
            return _short(offset + 1, end)
        if data[offset - 2] & 1:
            break
    else:
        return TOO_MANY_LABELS
    nibble = data[offset] >> 4
    if nibble == 4:
        return IPV4, offset
    if nibble == 6:
        return IPV6, offset
    # An Ethernet pseudowire: the control word (RFC 4448) starts with a zero nibble, but so do many MAC addresses.
    for start in (offset, offset + 4):
        if start + 14 <= stop and data[start + 12] << 8 | data[start + 13] in _CARRIERS:
            return ETHERNET, start
    return NOT_IP


def _ppp(data: bytes, offset: int, stop: int, end: int) -> tuple[int, int] | NotSegment:
    """EtherType and offset of the content of a PPP frame, with address and protocol compressed or not (RFC 1661)."""
    if data[offset : offset + 2] == b"\xff\x03":
        offset += 2
    if offset >= stop:
        return _short(offset + 1, end)
    protocol = data[offset]
    offset += 1
    if not protocol & 1:
        if offset >= stop:
            return _short(offset + 1, end)
        protocol = protocol << 8 | data[offset]
        offset += 1
    if protocol in _PPP_COMPRESSED:
        return unread("ppp_compressed")
    if protocol in _PPP_ENCRYPTED:
        return unread("ppp_encrypted")
    return _PPP_TYPES.get(protocol, -1), offset


def _typed(at: int, length: int, *, cooked: bool = False) -> Link:
    """A link layer with an EtherType at ``at`` of its header; ``cooked``: Linux writes ETH_P_802_2 (4) for LLC."""

    def link(data: bytes, offset: int, stop: int, end: int) -> Located:
        if offset + length > stop:
            return _short(offset + length, end)
        kind = data[offset + at] << 8 | data[offset + at + 1]
        if cooked and kind <= 1500:
            if kind != 4:
                return NOT_IP
            kind = _LLC
        return ethertype(data, kind, offset + length, stop, end)

    return link


_cisco_hdlc: Final = _typed(2, 4)


def _point_to_point(data: bytes, offset: int, stop: int, end: int) -> Located:
    # LINKTYPE_PPP_HDLC may contain Cisco HDLC; its address octets are not a PPP protocol.
    if data[offset : offset + 2] in (b"\x0f\0", b"\x8f\0"):
        return _cisco_hdlc(data, offset, stop, end)
    return ethertype(data, PPP, offset, stop, end)


def _pppd(data: bytes, offset: int, stop: int, end: int) -> Located:
    # The address octet is replaced by the direction, 0 or 1; the control octet may still follow it.
    offset += 2 if data[offset + 1 : offset + 2] == b"\x03" else 1
    return ethertype(data, PPP, offset, stop, end)


def _after_header(length: int, link: Link) -> Link:
    """A link layer after a header of ``length`` bytes that is ignored, such as the direction."""
    return lambda data, offset, stop, end: link(data, offset + length, stop, end)


def _loopback(data: bytes, offset: int, stop: int, end: int) -> Located:
    # NULL has the byte order of the capturing host and LOOP network order, but some tools mix the two up.
    if offset + 4 > stop:
        return _short(offset + 4, end)
    family = data[offset : offset + 4]
    version = _FAMILIES.get(int.from_bytes(family, "little")) or _FAMILIES.get(int.from_bytes(family, "big"))
    return (version, offset + 4, end, b"") if version else NOT_IP


def _raw(data: bytes, offset: int, stop: int, end: int) -> Located:
    if offset >= stop:
        return _short(offset + 1, end)
    version = data[offset] >> 4
    return (version, offset, end, b"") if version in (4, 6) else NOT_IP


def _pflog(data: bytes, offset: int, stop: int, end: int) -> Located:
    if offset + 2 > stop:
        return _short(offset + 2, end)
    version = _FAMILIES.get(data[offset + 1])
    return (version, offset + (data[offset] + 3 & ~3), end, b"") if version else NOT_IP


def _nflog(data: bytes, offset: int, stop: int, end: int) -> Located:
    # Attributes of length and type, in the byte order of the capturing host; 9 is the datagram, in practice the last.
    offset += 4
    for _ in range(MAX_ATTRIBUTES):
        if offset + 4 > stop:
            return _short(offset + 4, end)
        if data[offset + 2] | data[offset + 3] == 9:
            return _raw(data, offset + 4, stop, end)
        length = int.from_bytes(data[offset : offset + 2], "little" if data[offset + 2] else "big")
        if length < 4:
            return LINK_MALFORMED
        offset += length + 3 & ~3
    return TOO_MANY_ATTRIBUTES


def _pktap(data: bytes, offset: int, stop: int, end: int) -> Located:
    if offset + 12 > stop:
        return _short(offset + 12, end)
    length = int.from_bytes(data[offset : offset + 4], "little")
    inner = int.from_bytes(data[offset + 8 : offset + 12], "little")
    link = LINKS.get(inner)
    if link is None or link in (_pktap, _ppi):
        return unsupported(inner)
    return link(data, offset + length, stop, end)


def wlan(data: bytes, offset: int, stop: int, end: int, *, padded: bool = False) -> Located:
    """Data frames of IEEE 802.11-2020 section 9.3.2.  Repeated frames are left to the flow.

    ``padded``: the receiver has padded the header to a multiple of four bytes.
    """
    if offset + 24 > stop:
        # Short control frames are recognised by the frame control alone.
        if offset + 2 <= stop and data[offset] & 0x0F != 0x08:
            return NOT_IP
        return _short(offset + 24, end)
    kind, flags = data[offset], data[offset + 1]
    if kind & 0x0F != 0x08 or kind & 0x40:  # another version, not a data frame, or without data
        return NOT_IP
    if flags & 0x40:
        return unread("wlan_encrypted")
    if flags & 0x04 or data[offset + 22] & 0x0F:
        return unread("wlan_fragment")
    body = offset + (30 if flags & 0x03 == 0x03 else 24)
    aggregate = False
    if kind & 0x80:
        if body + 2 > stop:
            return _short(body + 2, end)
        aggregate = bool(data[body] & 0x80)
        body += 6 if flags & 0x80 else 2
    if padded:
        body += (offset - body) % 4
    if not aggregate:
        return ethertype(data, _LLC, body, stop, end)
    # Subframes of destination, source, length and LLC, each but the last padded to a multiple of four.
    if body + 14 > stop:
        return _short(body + 14, end)
    length = data[body + 12] << 8 | data[body + 13]
    following = body + (14 + length + 3 & ~3)
    if following + 14 <= end - _FCS_LENGTH:
        return unread("wlan_aggregate")
    end = min(end, body + 14 + length)
    return ethertype(data, _LLC, body + 14, min(stop, end), end)


def _radiotap(data: bytes, offset: int, stop: int, end: int) -> Located:
    """https://www.radiotap.org: little endian fields, announced by a bitmap; its second bit is for flags."""
    if offset + 8 > stop:
        return _short(offset + 8, end)
    length = data[offset + 2] | data[offset + 3] << 8
    start = offset + length
    if start > stop or length < 8:
        return _short(start, end) if length >= 8 else LINK_MALFORMED
    present = data[offset + 4]
    if not present & 0x02:
        return wlan(data, start, stop, end)
    at = offset + 4
    while at + 4 <= start and data[at + 3] & 0x80:
        at += 4
    at += 4
    if present & 0x01:
        at = offset + (at - offset + 7 & ~7) + 8
    if at >= start:
        return LINK_MALFORMED
    flags = data[at]
    if flags & 0x40:
        return WLAN_DAMAGED
    return wlan(data, start, stop, end, padded=bool(flags & 0x20))


def _sized(*orders: Literal["little", "big"]) -> Link:
    """802.11 after a header with its length in the second word; of several byte orders, the shorter length counts."""

    def link(data: bytes, offset: int, stop: int, end: int) -> Located:
        if offset + 8 > stop:
            return _short(offset + 8, end)
        start = offset + min(int.from_bytes(data[offset + 4 : offset + 8], order) for order in orders)
        return wlan(data, start, stop, end) if start <= stop else _short(start, end)

    return link


def _ppi(data: bytes, offset: int, stop: int, end: int) -> Located:
    """PPI: length and link type of the content, little endian."""
    if offset + 8 > stop:
        return _short(offset + 8, end)
    length = data[offset + 2] | data[offset + 3] << 8
    inner = int.from_bytes(data[offset + 4 : offset + 8], "little")
    link = LINKS.get(inner)
    if link is None or link in (_ppi, _pktap):
        return unsupported(inner)
    if length < 8:
        return LINK_MALFORMED
    if offset + length > stop:
        return _short(offset + length, end)
    return link(data, offset + length, stop, end)


LINKS: Final[dict[int, Link]] = {
    0: _loopback,
    1: lambda data, offset, stop, end: ethertype(data, ETHERNET, offset, stop, end),
    9: _point_to_point,
    12: _raw,
    14: _raw,
    50: _point_to_point,
    51: lambda data, offset, stop, end: ethertype(data, _PPPOE, offset, stop, end),
    101: _raw,
    104: _cisco_hdlc,
    105: wlan,
    108: _loopback,
    113: _typed(14, 16, cooked=True),
    117: _pflog,
    119: _sized("little", "big"),  # Prism: the order of the host; some programs write an AVS header in its place
    127: _radiotap,
    163: _sized("big"),
    166: _pppd,
    192: _ppi,
    204: _after_header(1, _point_to_point),
    205: _after_header(1, _cisco_hdlc),
    226: _after_header(24, _raw),
    228: lambda data, offset, stop, end: (4, offset, end, b""),
    229: lambda data, offset, stop, end: (6, offset, end, b""),
    239: _nflog,
    242: _typed(40, 44),  # IP over InfiniBand (RFC 4391), after the global routing header
    258: _pktap,
    276: _typed(0, 20, cooked=True),
}
"""The supported LINKTYPE_ values and their link functions."""

_NAMES: Final = (
    "3 AX.25; 6 IEEE 802.5 Token Ring; 8 SLIP; 10 FDDI; 99 Symantec Enterprise Firewall; 100 LLC over ATM; "
    "107 Frame Relay; 114 Apple LocalTalk; 122 IP over Fibre Channel; 123 ATM of SunATM; 129 Linux ARCNET; "
    "138 IP over IEEE 1394; 140 SS7 MTP2; 141 SS7 MTP3; 143 DOCSIS; 144 Linux IrDA; 165 BACnet MS/TP; "
    "177 Linux LAPD; 182 Multilink Frame Relay; 187 Bluetooth HCI UART; 189 USB of Linux; 192 PPI; "
    "195 IEEE 802.15.4 with FCS; 197 Endace ERF; 201 Bluetooth HCI UART with direction; 202 AX.25 with KISS header; "
    "203 LAPD; 206 Frame Relay with direction; 209 I2C of Linux; 210 FlexRay; 212 LIN; "
    "215 IEEE 802.15.4 with non-ASK PHY header; 220 USB of Linux, memory-mapped; 224 Fibre Channel FC-2; "
    "227 CAN of SocketCAN; 230 IEEE 802.15.4 without FCS; 231 D-Bus; 240 Hilscher netANALYZER; 247 InfiniBand; "
    "248 SCTP; 249 USBPcap; 251 Bluetooth Low Energy; 252 Wireshark upper PDU; 253 Linux netlink; "
    "254 Bluetooth Linux monitor; 256 Bluetooth Low Energy with pseudo-header; 257 PROFIBUS; 258 Apple PKTAP; "
    "259 IEEE 802.3 EPON; 261 Z-Wave R1 and R2; 262 Z-Wave R3; 266 USB of macOS; 268 SDLC; 270 LoRaTap; "
    "271 Linux vsock; 272 Nordic Bluetooth Low Energy sniffer; 274 Ethernet with preamble; 280 VPP dispatch trace; "
    "283 IEEE 802.15.4 with TAP header; 288 USB 2.0; 290 Event Tracing for Windows"
)
LINK_TYPE_NAMES: Final = {147 + number: f"USER{number}" for number in range(16)} | {
    int(number): name for number, _, name in (entry.partition(" ") for entry in _NAMES.split("; "))
}
"""Usual names of common LINKTYPE_ values that are unsupported, at least inside PPI and PKTAP."""


@lru_cache(maxsize=256)
def unsupported(link_type: int) -> NotSegment:
    """Reason why a frame of a link type missing from :data:`LINKS` has no segment; it names the link type."""
    name = LINK_TYPE_NAMES.get(link_type, "unknown")
    return NotSegment("unsupported_link_type", f"link type {link_type} ({name}) is not supported")
