"""From the start of a frame to its IP header: link layers, tags, label stacks and session headers.

Every link function takes ``(data, offset, stop, end)``: the frame's bytes, where its header starts, where the
captured bytes stop and where the frame ended on the wire (``end >= stop``; larger when a snap length cut the frame).
It returns ``(version, offset, end, encapsulation)`` of the IP header, version 4 or 6 and ``end`` not beyond the given
one, or the :class:`NotSegment` that says why there is none.  The encapsulation holds what keeps equal addresses in
different networks apart: VLAN identifiers, two bytes each, and the service identifier of 802.1ah.  Nothing here raises
on any input.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

from mqttscope.net.segment import NotSegment, unread

MAX_LAYERS: Final = 16
"""How many tags, label stacks, LLC, PPP and bridged headers one frame may nest."""
MAX_LABELS: Final = 32
"""How many labels an MPLS stack may have."""
MAX_ATTRIBUTES: Final = 64
"""How many attributes of an NFLOG frame are looked at."""

Located = tuple[int, int, int, bytes]
Link = Callable[[bytes, int, int, int], Located | NotSegment]

NOT_IP: Final = NotSegment("not_ip", "the frame holds no IP datagram")
COMPRESSED: Final = unread("ppp_compressed")
PPP_ENCRYPTED: Final = unread("ppp_encrypted")
MACSEC_ENCRYPTED: Final = unread("macsec")
WLAN_ENCRYPTED: Final = unread("wlan_encrypted")
WLAN_FRAGMENT: Final = unread("wlan_fragment")
WLAN_AGGREGATE: Final = unread("wlan_aggregate")
WLAN_DAMAGED: Final = NotSegment("malformed", "the receiver's checksum says that the 802.11 frame is damaged")
LINK_TRUNCATED: Final = NotSegment("truncated", "the capture's snap length cut the frame inside the link layer headers")
LINK_MALFORMED: Final = NotSegment("malformed", "the frame ends inside the link layer headers")
TOO_MANY_LAYERS: Final = NotSegment("malformed", f"more than {MAX_LAYERS} nested link layer headers")
TOO_MANY_LABELS: Final = NotSegment("malformed", f"more than {MAX_LABELS} MPLS labels")

IPV4: Final = 0x0800
IPV6: Final = 0x86DD
ETHERNET: Final = 0x6558
MPLS: Final = 0x8847
PPP: Final = 0x880B
_HSR: Final = 0x892F
_MACSEC: Final = 0x88E5
_LLC: Final = 0  # not an EtherType: what follows is an IEEE 802.2 header
_VLAN_TYPES: Final = frozenset((0x8100, 0x88A8, 0x9100, 0x9200, 0x9300))
_CARRIERS: Final = _VLAN_TYPES | {IPV4, IPV6, MPLS, 0x8848, 0x8864}
_PPP_TYPES: Final = {0x0021: IPV4, 0x0057: IPV6, 0x0281: MPLS, 0x0283: 0x8848}
_PPP_COMPRESSED: Final = frozenset((0x002D, 0x002F))
"""Van Jacobson's compressed TCP (RFC 1144)."""
_PPP_ENCRYPTED: Final = frozenset((0x0053, 0x0055, 0x00FB, 0x00FD))
"""What both ends agreed to encrypt (RFC 1968) or compress (RFC 1962), as Microsoft's encryption says it does."""
# AF_INET is 2 everywhere; AF_INET6 is 10 on Linux, 23 on Windows, 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on macOS.
_FAMILIES: Final = {2: 4, 10: 6, 23: 6, 24: 6, 28: 6, 30: 6}
SERVICE_MARK: Final = b"\xf2\x01"
"""Starts the four bytes of an 802.1ah service identifier in an encapsulation; no VLAN identifier looks like it."""


def ethertype(
    data: bytes, kind: int, offset: int, stop: int, end: int, encapsulation: bytes = b""
) -> Located | NotSegment:
    """Follow an EtherType (IEEE 802.3, RFC 7042) through tags and nested headers to the IP header.

    ``kind`` is the EtherType of what starts at ``offset``.  Handled: 802.1Q, 802.1ad and their vendor forms, MPLS
    (RFC 3032), PPPoE sessions (RFC 2516), PPP, 802.3 with LLC/SNAP, bridged Ethernet, 802.1ah, HSR tags (IEC 62439-3;
    PRP has a trailer, which no IP length counts), MACsec (802.1AE) where it only protects what it carries.
    """
    for _ in range(MAX_LAYERS):
        if kind == IPV4:
            return 4, offset, end, encapsulation
        if kind == IPV6:
            return 6, offset, end, encapsulation
        needed = offset + 8
        if kind in _VLAN_TYPES:
            needed = offset + 4
            if needed <= stop:
                identifier = (data[offset] & 0x0F) << 8 | data[offset + 1]
                if identifier:  # 0 is a priority tag: it names no VLAN
                    encapsulation += identifier.to_bytes(2, "big")
                kind = _type_or_length(data, offset + 2)
        elif kind == ETHERNET:
            needed = offset + 14
            if needed <= stop:
                kind = _type_or_length(data, offset + 12)
        elif kind == MPLS or kind == 0x8848:
            found = _mpls(data, offset, stop, end)
            if isinstance(found, NotSegment):
                return found
            kind, needed = found
        elif kind == 0x8864:
            needed = offset + 6
            if needed <= stop:
                if data[offset] != 0x11 or data[offset + 1]:
                    return NOT_IP
                # Some devices write the padded length into the IP header, so this one counts too.
                end = min(end, needed + (data[offset + 4] << 8 | data[offset + 5]))
                stop = min(stop, end)
                kind = PPP
        elif kind == PPP:
            found = _ppp(data, offset, stop, end)
            if isinstance(found, NotSegment):
                return found
            kind, needed = found
        elif kind == _LLC:
            if data[offset : offset + 3] == b"\x06\x06\x03":
                kind, needed = IPV4, offset + 3
            elif needed <= stop:
                if data[offset : offset + 6] not in (b"\xaa\xaa\x03\0\0\0", b"\xaa\xaa\x03\0\0\xf8"):
                    return NOT_IP
                kind = data[offset + 6] << 8 | data[offset + 7]
        elif kind == 0x88E7:
            needed = offset + 4
            if needed <= stop:
                encapsulation += SERVICE_MARK + b"\0" + data[offset + 1 : offset + 4]
                kind = ETHERNET
        elif kind == _HSR:
            needed = offset + 6
            if needed <= stop:
                kind = _type_or_length(data, offset + 4)
        elif kind == _MACSEC:
            needed = offset + 8
            if needed <= stop:
                control = data[offset]
                if control & 0x0C:  # encrypted, or changed in another way
                    return MACSEC_ENCRYPTED
                needed += 8 if control & 0x20 else 0  # an explicit secure channel identifier
                if needed <= stop:
                    kind = _type_or_length(data, needed - 2)
        else:
            return NOT_IP
        if needed > stop:
            return _short(needed, end)
        offset = needed
    return TOO_MANY_LAYERS


def _short(needed: int, end: int) -> NotSegment:
    return LINK_TRUNCATED if needed <= end else LINK_MALFORMED


def _type_or_length(data: bytes, offset: int) -> int:
    # IEEE 802.3 section 3.2.6: up to 1500 it is a length, and an LLC header follows.
    kind = data[offset] << 8 | data[offset + 1]
    return kind if kind > 1500 else _LLC


def _mpls(data: bytes, offset: int, stop: int, end: int) -> tuple[int, int] | NotSegment:
    """EtherType and offset of what a label stack carries, guessed as RFC 4928 section 3 expects it."""
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
    """EtherType and offset of what a PPP frame carries, address and protocol field compressed or not (RFC 1661)."""
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
        return COMPRESSED
    if protocol in _PPP_ENCRYPTED:
        return PPP_ENCRYPTED
    return _PPP_TYPES.get(protocol, -1), offset


def _ethernet(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    return ethertype(data, ETHERNET, offset, stop, end)


def _point_to_point(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    # LINKTYPE_PPP_HDLC holds Cisco HDLC too; its address octets are no PPP protocol.
    if data[offset : offset + 2] in (b"\x0f\0", b"\x8f\0"):
        return _cisco_hdlc(data, offset, stop, end)
    return ethertype(data, PPP, offset, stop, end)


def _pppd(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    # The address octet is replaced by the direction, 0 or 1; the control octet may still follow it.
    offset += 2 if data[offset + 1 : offset + 2] == b"\x03" else 1
    return ethertype(data, PPP, offset, stop, end)


def _pppoe(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    return ethertype(data, 0x8864, offset, stop, end)


def _cisco_hdlc(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    if offset + 4 > stop:
        return _short(offset + 4, end)
    return ethertype(data, data[offset + 2] << 8 | data[offset + 3], offset + 4, stop, end)


def _behind_direction(link: Link) -> Link:
    """The same link layer after one octet that tells the direction."""
    return lambda data, offset, stop, end: link(data, offset + 1, stop, end)


def _cooked(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    if offset + 16 > stop:
        return _short(offset + 16, end)
    return _cooked_protocol(data, data[offset + 14] << 8 | data[offset + 15], offset + 16, stop, end)


def _cooked_2(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    if offset + 20 > stop:
        return _short(offset + 20, end)
    return _cooked_protocol(data, data[offset] << 8 | data[offset + 1], offset + 20, stop, end)


def _cooked_protocol(data: bytes, kind: int, offset: int, stop: int, end: int) -> Located | NotSegment:
    if kind == 4:  # Linux writes ETH_P_802_2 in place of an EtherType
        kind = _LLC
    elif kind <= 1500:
        return NOT_IP
    return ethertype(data, kind, offset, stop, end)


def _loopback(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    # NULL has the byte order of the capturing host and LOOP network order, but some tools mix the two up.
    if offset + 4 > stop:
        return _short(offset + 4, end)
    family = data[offset : offset + 4]
    version = _FAMILIES.get(int.from_bytes(family, "little")) or _FAMILIES.get(int.from_bytes(family, "big"))
    return (version, offset + 4, end, b"") if version else NOT_IP


def _raw(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    if offset >= stop:
        return _short(offset + 1, end)
    version = data[offset] >> 4
    return (version, offset, end, b"") if version in (4, 6) else NOT_IP


def _ipv4(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    return 4, offset, end, b""


def _ipv6(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    return 6, offset, end, b""


def _ipnet(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    return _raw(data, offset + 24, stop, end)


def _pflog(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    if offset + 2 > stop:
        return _short(offset + 2, end)
    version = _FAMILIES.get(data[offset + 1])
    return (version, offset + (data[offset] + 3 & ~3), end, b"") if version else NOT_IP


def _nflog(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
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
    return NOT_IP


def _pktap(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    if offset + 12 > stop:
        return _short(offset + 12, end)
    length = int.from_bytes(data[offset : offset + 4], "little")
    inner = int.from_bytes(data[offset + 8 : offset + 12], "little")
    link = LINKS.get(inner)
    if link is None or link in (_pktap, _ppi):
        return unsupported(inner)
    return link(data, offset + length, stop, end)


def wlan(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    """IEEE 802.11-2020 section 9.3.2: data frames; LLC follows their header.

    Management and control frames hold no IP datagram.  A station that repeats a frame sends the same TCP segment again,
    and so does an access point that passes it on: that is for the flow to sort out.
    """
    if offset + 24 > stop:
        # The frame control is enough to know the short control frames.
        if offset + 2 <= stop and data[offset] & 0x0F != 0x08:
            return NOT_IP
        return _short(offset + 24, end)
    kind, flags = data[offset], data[offset + 1]
    if kind & 0x0F != 0x08 or kind & 0x40:  # another version, no data frame, or one without data
        return NOT_IP
    if flags & 0x40:
        return WLAN_ENCRYPTED
    if flags & 0x04 or data[offset + 22] & 0x0F:
        return WLAN_FRAGMENT
    body = offset + (30 if flags & 0x03 == 0x03 else 24)
    aggregate = False
    if kind & 0x80:
        if body + 2 > stop:
            return _short(body + 2, end)
        aggregate = bool(data[body] & 0x80)
        body += 6 if flags & 0x80 else 2
    if not aggregate:
        return ethertype(data, _LLC, body, stop, end)
    # Subframes of destination, source, length and LLC, each but the last padded to a multiple of four.
    if body + 14 > stop:
        return _short(body + 14, end)
    length = data[body + 12] << 8 | data[body + 13]
    following = body + (14 + length + 3 & ~3)
    if following + 14 <= end - _FCS_LENGTH:
        return WLAN_AGGREGATE
    end = min(end, body + 14 + length)
    return ethertype(data, _LLC, body + 14, min(stop, end), end)


_FCS_LENGTH: Final = 4


def _radiotap(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    """https://www.radiotap.org: little endian fields by a bitmap, of which the second holds flags."""
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
    if flags & 0x20 and start + 24 <= stop:
        return _padded_wlan(data, start, stop, end)
    return wlan(data, start, stop, end)


def _padded_wlan(data: bytes, start: int, stop: int, end: int) -> Located | NotSegment:
    """Some receivers pad the header of data frames to a multiple of four bytes."""
    kind, flags = data[start], data[start + 1]
    length = 30 if flags & 0x03 == 0x03 else 24
    if kind & 0x8F == 0x88:
        length += 6 if flags & 0x80 else 2
    padding = -length % 4
    if not padding or kind & 0x0F != 0x08:
        return wlan(data, start, stop, end)
    moved = data[: start + length] + data[start + length + padding :]
    found = wlan(moved, start, max(stop - padding, start), max(end - padding, start))
    if isinstance(found, NotSegment):
        return found
    version, offset, inner_end, encapsulation = found
    return version, offset + padding, min(inner_end + padding, end), encapsulation


def _avs(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    """The header of AVS: version and length in network order."""
    if offset + 8 > stop:
        return _short(offset + 8, end)
    start = offset + int.from_bytes(data[offset + 4 : offset + 8], "big")
    if start > stop:
        return _short(start, end)
    return wlan(data, start, stop, end)


def _prism(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    """The header of Prism: message code and length in the order of the host; some write that of AVS in its place."""
    if offset + 8 > stop:
        return _short(offset + 8, end)
    if data[offset : offset + 3] == b"\x80\x21\x10":
        return _avs(data, offset, stop, end)
    lengths = [int.from_bytes(data[offset + 4 : offset + 8], order) for order in _ORDERS]
    start = offset + min(lengths)
    if start > stop:
        return _short(start, end)
    return wlan(data, start, stop, end)


_ORDERS: Final[tuple[Literal["little", "big"], ...]] = ("little", "big")


def _ppi(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    """PPI: length and link type of what it describes, little endian."""
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


def _infiniband(data: bytes, offset: int, stop: int, end: int) -> Located | NotSegment:
    """IP over InfiniBand (RFC 4391) after the global routing header: an EtherType and two reserved bytes."""
    if offset + 44 > stop:
        return _short(offset + 44, end)
    return ethertype(data, data[offset + 40] << 8 | data[offset + 41], offset + 44, stop, end)


LINKS: Final[dict[int, Link]] = {
    0: _loopback,
    1: _ethernet,
    9: _point_to_point,
    12: _raw,
    14: _raw,
    50: _point_to_point,
    51: _pppoe,
    101: _raw,
    104: _cisco_hdlc,
    105: wlan,
    108: _loopback,
    113: _cooked,
    117: _pflog,
    119: _prism,
    127: _radiotap,
    163: _avs,
    166: _pppd,
    192: _ppi,
    204: _behind_direction(_point_to_point),
    205: _behind_direction(_cisco_hdlc),
    226: _ipnet,
    228: _ipv4,
    229: _ipv6,
    239: _nflog,
    242: _infiniband,
    258: _pktap,
    276: _cooked_2,
}
"""The supported LINKTYPE_ values and their link functions."""

LINK_TYPE_NAMES: Final[dict[int, str]] = {
    0: "BSD loopback",
    1: "Ethernet",
    3: "AX.25",
    6: "IEEE 802.5 Token Ring",
    8: "SLIP",
    9: "PPP",
    10: "FDDI",
    12: "raw IP",
    14: "raw IP",
    50: "PPP in HDLC-like framing",
    51: "PPP over Ethernet",
    99: "Symantec Enterprise Firewall",
    100: "LLC over ATM",
    101: "raw IP",
    104: "Cisco HDLC",
    105: "IEEE 802.11",
    107: "Frame Relay",
    108: "OpenBSD loopback",
    113: "Linux cooked",
    114: "Apple LocalTalk",
    117: "OpenBSD pflog",
    119: "IEEE 802.11 plus Prism header",
    122: "IP over Fibre Channel",
    123: "ATM of SunATM",
    127: "IEEE 802.11 plus radiotap",
    129: "Linux ARCNET",
    138: "IP over IEEE 1394",
    140: "SS7 MTP2",
    141: "SS7 MTP3",
    143: "DOCSIS",
    144: "Linux IrDA",
    163: "IEEE 802.11 plus AVS header",
    165: "BACnet MS/TP",
    166: "PPP of pppd with direction",
    177: "Linux LAPD",
    182: "Multilink Frame Relay",
    187: "Bluetooth HCI UART",
    189: "USB of Linux",
    192: "PPI",
    195: "IEEE 802.15.4 with FCS",
    197: "Endace ERF",
    201: "Bluetooth HCI UART with direction",
    202: "AX.25 with KISS header",
    203: "LAPD",
    204: "PPP with direction",
    205: "Cisco HDLC with direction",
    206: "Frame Relay with direction",
    209: "I2C of Linux",
    210: "FlexRay",
    212: "LIN",
    215: "IEEE 802.15.4 with non-ASK PHY header",
    220: "USB of Linux, memory-mapped",
    224: "Fibre Channel FC-2",
    226: "Solaris IPNET",
    227: "CAN of SocketCAN",
    228: "raw IPv4",
    229: "raw IPv6",
    230: "IEEE 802.15.4 without FCS",
    231: "D-Bus",
    239: "Linux NFLOG",
    240: "Hilscher netANALYZER",
    242: "IP over InfiniBand",
    247: "InfiniBand",
    248: "SCTP",
    249: "USBPcap",
    251: "Bluetooth Low Energy",
    252: "Wireshark upper PDU",
    253: "Linux netlink",
    254: "Bluetooth Linux monitor",
    256: "Bluetooth Low Energy with pseudo-header",
    257: "PROFIBUS",
    258: "Apple PKTAP",
    259: "IEEE 802.3 EPON",
    261: "Z-Wave R1 and R2",
    262: "Z-Wave R3",
    266: "USB of macOS",
    268: "SDLC",
    270: "LoRaTap",
    271: "Linux vsock",
    272: "Nordic Bluetooth Low Energy sniffer",
    274: "Ethernet with preamble",
    276: "Linux cooked version 2",
    280: "VPP dispatch trace",
    283: "IEEE 802.15.4 with TAP header",
    288: "USB 2.0",
    290: "Event Tracing for Windows",
} | {147 + number: f"USER{number}" for number in range(16)}
"""What people call the common LINKTYPE_ values, supported or not."""


@lru_cache(maxsize=256)
def unsupported(link_type: int) -> NotSegment:
    """Why a frame of a link type missing from :data:`LINKS` holds no segment; the sentence names the link type."""
    name = LINK_TYPE_NAMES.get(link_type, "unknown")
    return NotSegment("unsupported_link_type", f"link type {link_type} ({name}) is not supported")
