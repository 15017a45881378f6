"""Addresses of IP and of link layers in the place of the real ones, under a key.

Each octet of an IPv4 address becomes another of as many decimal digits, by a permutation that depends on the octets
before it: addresses of one network stay in one network, the text of an address keeps its length, and two addresses
never become one.  IPv6 does the same by bytes.

An address stays in its class, since readers go by that: loopback, the unspecified address, multicast and broadcast
stay as they are; of private, link-local and documentation addresses the prefix that says so stays.  Any other address
becomes one outside of these classes.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from ipaddress import IPv4Address, ip_network
from typing import Final

from mqttscope.net.proxy_protocol import SIGNATURE
from mqttscope.sanitise.pseudonyms import Pseudonyms

_KEPT_PREFIXES: Final = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4",
)  # fmt: skip
_NETWORKS: Final = tuple((int(net.network_address), int(net.netmask)) for net in map(ip_network, _KEPT_PREFIXES))
_FIRST: Final = frozenset(net >> 24 for net, _ in _NETWORKS)
_DIGITS: Final = (range(10), range(10, 100), range(100, 256))
"""Octets by the number of their digits."""
IPV4_TEXT: Final = re.compile(rb"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_WORD: Final = re.compile(rb"[0-9A-Fa-f:.]{3,}")
_HEX: Final = b"0123456789abcdef"
_SIZES: Final = {1: 4, 2: 16}
"""Bytes of an address by the family that a binary header names."""
_V4_MAPPED: Final = bytes(10) + b"\xff\xff"
_V6_LINK_LOCAL, _V6_MULTICAST, _V6_LOCAL, _V6_DOCUMENTATION = b"\xfe\x80", 0xFF, (0xFC, 0xFD), b"\x20\x01\x0d\xb8"


class Addresses:
    """The addresses of one run."""

    def __init__(self, names: Pseudonyms) -> None:
        self._names = names
        self.ip = lru_cache(65_536)(self._ip)
        """Another address in the place of one of 4 or 16 bytes."""
        self.mac = lru_cache(65_536)(self._mac)
        """Another address in the place of one of 6 or 8 bytes; groups, the broadcast and zeros stay."""

    def text(self, raw: bytes) -> bytes:
        """A text with other IPv4 addresses, of the same length."""
        return IPV4_TEXT.sub(lambda hit: self._told(hit[0]), raw)

    def proxied(self, header: bytes) -> bytes:
        """A header of the PROXY protocol with other addresses, of the same length and form."""
        if not header.startswith(SIGNATURE):
            return _WORD.sub(lambda hit: self._word(hit[0]), header)
        made = bytearray(header[:16] + bytes(len(header) - 16))
        size = _SIZES.get(header[13] >> 4, 0) if len(header) >= 16 else 0
        if size and len(header) >= 20 + 2 * size:
            for at in (16, 16 + size):
                made[at : at + size] = self.ip(header[at : at + size])
            made[16 + 2 * size : 20 + 2 * size] = header[16 + 2 * size : 20 + 2 * size]
        return bytes(made)

    def _word(self, raw: bytes) -> bytes:
        """A word of a header that is a line: an address, or what stays."""
        if IPV4_TEXT.fullmatch(raw):
            return self._told(raw)
        if b":" not in raw:
            return raw
        stream = self._names.stream(b"ipv6 text", raw, len(raw))
        digits = zip(raw, stream, strict=True)
        return bytes(one if one in b":." else _HEX[other % 15 + 1] for one, other in digits)

    def _told(self, raw: bytes) -> bytes:
        try:
            made = str(IPv4Address(self.ip(IPv4Address(raw.decode()).packed))).encode()
        except ValueError:
            return self._names.text(raw, b"address")
        return made if len(made) == len(raw) else self._names.text(raw, b"address")

    def _ip(self, raw: bytes) -> bytes:
        return self._v4(raw) if len(raw) == 4 else self._v6(raw)

    def _v4(self, raw: bytes) -> bytes:
        number = int.from_bytes(raw, "big")
        kept = next((mask for net, mask in _NETWORKS if number & mask == net), 0)
        first = raw[0]
        if first in (0, 127) or first >= 224:
            return raw
        fixed = bin(kept).count("1")
        made = bytearray()
        for index, octet in enumerate(raw):
            bits = min(8, max(0, fixed - 8 * index))
            values = _like(octet, bits)
            if not kept and (not index or made[0] in _FIRST):
                values = [one for one in values if _allowed(bytes((*made, one)))]
            at = values.index(octet) if octet in values else 0
            purpose = b"ipv4 " + raw[:index] + bytes((len(values), values[0]))
            made.append(values[self._names.permute(at, len(values), purpose)])
        return bytes(made)

    def _v6(self, raw: bytes) -> bytes:
        if raw[:12] == _V4_MAPPED:
            return _V4_MAPPED + self._v4(raw[12:])
        if raw[0] == _V6_MULTICAST or not any(raw[:15]):
            return raw
        kept = 1
        if raw[0] == 0xFE and raw[1] & 0xC0 == 0x80:
            kept = 8
        elif raw[:4] == _V6_DOCUMENTATION:
            kept = 4
        made = bytearray(raw[:kept])
        for index in range(kept, 16):
            made.append(self._names.permute(raw[index], 256, b"ipv6 " + raw[:index]))
        return bytes(made)

    def _mac(self, raw: bytes) -> bytes:
        if not any(raw) or raw[0] & 1:
            return raw
        made = self._names.stream(b"mac", raw, len(raw))
        # Locally administered: no vendor made it.
        return bytes((made[0] & 0xFC | 0x02,)) + made[1:]


@cache
def _like(octet: int, bits: int) -> list[int]:
    """Octets with as many digits, and the same in their first bits."""
    digits = next(row for row in _DIGITS if octet in row)
    return [one for one in digits if one >> (8 - bits) == octet >> (8 - bits)]


def _allowed(begin: bytes) -> bool:
    """Whether an address outside of the classes may begin so: no class has all addresses that do."""
    number = int.from_bytes(begin.ljust(4, b"\0"), "big")
    told = 0xFFFFFFFF << (32 - 8 * len(begin)) & 0xFFFFFFFF
    return not any(number & mask == net & told and mask & told == mask for net, mask in _NETWORKS)
