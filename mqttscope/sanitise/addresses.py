"""Addresses of IP and of link layers in the place of the real ones, under a key.

Each octet of an IPv4 address becomes another of as many decimal digits, by a permutation that depends on the octets
before it: addresses of one network stay in one network, which is never the one that they were in, and the text of an
address keeps its length.  IPv6 does the same by bytes.

No address becomes one that the capture holds (`Addresses.know`), and no two become one.  Where the permutation would do
either, another address of the same new network is taken, or else another one of the same class.

An address stays in its class, since readers and rules go by that: loopback, the unspecified address, multicast and
broadcast stay as they are; of private, link-local, shared and benchmarking addresses the prefix that says so stays, and
of those of the documentation of IPv6.  Any other address becomes one outside of these classes.  The blocks of IPv4 for
documentation (RFC 5737) are no class: each is one network, and its prefix would name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from ipaddress import IPv4Address, ip_address, ip_network
from itertools import count
from typing import Final

from mqttscope.net.proxy_protocol import SIGNATURE
from mqttscope.sanitise.pseudonyms import Pseudonyms

_CLASSES: Final = tuple(
    (int(net.network_address), int(net.netmask), net.prefixlen)
    for net in map(
        ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
            "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
        ),
    )
)  # fmt: skip
"""Number, mask and length of the prefixes of IPv4 that stay."""
_SPLIT: Final = frozenset(net >> 24 for net, _, length in _CLASSES if length > 8)
"""First octets of addresses of which some are of such a class."""
_DIGITS: Final = (range(10), range(10, 100), range(100, 256))
"""Octets by the number of their digits."""
_MAX_DRAWN: Final = 4_096
"""Addresses of a class that are tried; then almost all of it is in the capture, and one of no class is taken."""
_MAX_TURNS: Final = 64
"""How often a text or an address of a link layer is drawn again."""
IPV4_TEXT: Final = re.compile(rb"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_WORD: Final = re.compile(rb"[0-9A-Fa-f:.]{3,}")
_DIGIT: Final = re.compile(rb"[0-9A-Fa-f]")
_HEX: Final = b"0123456789abcdef"
_SIZES: Final = {1: 4, 2: 16}
"""Bytes of an address by the family that a binary header names."""
_TUNNEL_ADDRESS: Final = 4
"""Bytes of what Linux cooked captures of a tunnel have in the place of an address of Ethernet: one of IPv4."""
_BROADCAST: Final = b"\xff\xff\xff\xff"
_V4_MAPPED: Final = bytes(10) + b"\xff\xff"
_V6_ALONE: Final = (bytes(16), bytes(15) + b"\1")
"""The unspecified address and loopback."""
_V6_MULTICAST, _V6_GLOBAL, _V6_DOCUMENTATION = 0xFF, b"\x2a", b"\x20\x01\x0d\xb8"
_SOLICITED: Final = bytes.fromhex("ff0200000000000000000001ff")
_SOLICITED_MAC: Final = bytes.fromhex("3333ff")
"""Groups that end with the last three bytes of an address (RFC 4291, section 2.7.1; RFC 2464, section 7)."""


class Addresses:
    """The addresses of one run."""

    def __init__(self, names: Pseudonyms) -> None:
        self._names = names
        self._known: set[bytes] = set()
        self._settled = False
        self._made: dict[bytes, bytes] = {}
        self._taken: set[bytes] = set()
        """What took the place of others, so that nothing does twice."""
        self._texts: dict[bytes, bytes] = {}
        """Replacements of texts that cannot be that of the address."""
        self._order = lru_cache(4_096)(self._permuted)

    def know(self, raw: bytes) -> None:
        """Note an address that the capture holds, of 4, 16, or as many bytes as one of a link layer.

        The same key gives the same replacements for the same notes, if all are made before the first replacement.
        """
        self._known.add(raw)
        if raw[:12] == _V4_MAPPED:
            self._known.add(raw[12:])

    def know_text(self, raw: bytes) -> None:
        """Note the IPv4 addresses that stand in a text, and those of a binary header of the PROXY protocol."""
        for hit in IPV4_TEXT.finditer(raw):
            packed = _packed(hit[0])
            if packed:
                self._known.add(packed)
        if raw.startswith(SIGNATURE):
            for at, size in _proxied_places(raw):
                self.know(raw[at : at + size])

    def ip(self, raw: bytes) -> bytes:
        """Another address in the place of one of 4 or 16 bytes."""
        if not self._settled:
            self._settle()
        return self._made.get(raw) or self._take(raw, self._usual(raw))

    def mac(self, raw: bytes) -> bytes:
        """Another address in the place of one of a link layer; groups, the broadcast and zeros stay."""
        if len(raw) == _TUNNEL_ADDRESS:
            return self.ip(raw)
        if raw[:3] == _SOLICITED_MAC:
            return _SOLICITED_MAC + self._moved(raw[3:], 0, b"node ")
        if not any(raw) or raw[0] & 1:
            return raw
        made = self._made.get(raw)
        for turn in range(_MAX_TURNS):
            if made is not None:
                break
            drawn = self._names.stream(b"mac" + bytes(turn), raw, len(raw))
            # Locally administered: no vendor made it.
            drawn = bytes((drawn[0] & 0xFC | 0x02,)) + drawn[1:]
            if turn == _MAX_TURNS - 1 or self._is_free(drawn):
                made = drawn
        assert made is not None
        return self._keep(raw, made)

    def text(self, raw: bytes) -> bytes:
        """A text with other IPv4 addresses, of the same length."""
        return IPV4_TEXT.sub(lambda hit: self._told(hit[0]), raw)

    def proxied(self, header: bytes, *, blank: bool = False) -> tuple[bytes, list[int]]:
        """A header of the PROXY protocol with other addresses, of the same length and form; and their lengths.

        ``blank``: nothing is left of them but their form.  The lengths are those of the addresses that became others.
        """
        sizes: list[int] = []
        if not header.startswith(SIGNATURE):

            def replaced(hit: re.Match[bytes]) -> bytes:
                word = _DIGIT.sub(b"1", hit[0]) if blank and _packed(hit[0]) else self._word(hit[0])
                sizes.extend([len(word)] * (word != hit[0]))
                return word

            return _WORD.sub(replaced, header), sizes
        made = bytearray(header[:16] + bytes(len(header) - 16))
        for at, size in _proxied_places(header):
            before = header[at : at + size]
            made[at : at + size] = bytes(size) if blank else self.ip(before)
            sizes.extend([size] * (made[at : at + size] != before))
            made[at + size : at + size + 4] = header[at + size : at + size + 4]
        return bytes(made), sizes

    def _word(self, raw: bytes) -> bytes:
        """A word of a header that is a line: an address, or what stays."""
        if IPV4_TEXT.fullmatch(raw):
            return self._told(raw)
        if b":" not in raw:
            return raw
        packed = _packed(raw)
        if packed and self.ip(packed) == packed:
            return raw
        # The text of the address that has the place of this one elsewhere is nearly always longer.
        return self._texts.get(raw) or self._drawn_text(raw, self._hexadecimal)

    def _told(self, raw: bytes) -> bytes:
        packed = _packed(raw)
        made = str(IPv4Address(self.ip(packed))).encode() if packed else b""
        return made if len(made) == len(raw) else self._texts.get(raw) or self._drawn_text(raw, self._names.text)

    def _hexadecimal(self, raw: bytes, purpose: bytes) -> bytes:
        digits = zip(raw, self._names.stream(purpose, raw, len(raw)), strict=True)
        return bytes(one if one in b":." else _HEX[other % 15 + 1] for one, other in digits)

    def _drawn_text(self, raw: bytes, draw: Callable[[bytes, bytes], bytes]) -> bytes:
        """A text of the form of an address that is none of the capture."""
        made = raw
        for turn in range(_MAX_TURNS):
            made = draw(raw, b"address" + bytes(turn))
            if made != raw and made not in self._taken and self._is_free(_packed(made)):
                break
        self._texts[raw] = made
        self._taken.add(made)
        return made

    def _settle(self) -> None:
        """Replace all that is known: what is as usual first, so that others give way to it whatever comes first."""
        self._settled = True
        colliding = []
        for raw in sorted(one for one in self._known if len(one) in _SIZES.values()):
            if raw in self._made:
                continue
            made = self._usual(raw)
            if self._is_free(made) or made == raw:
                self._keep(raw, made)
            else:
                colliding.append((raw, made))
        for raw, made in colliding:
            self._take(raw, made)

    def _take(self, raw: bytes, made: bytes) -> bytes:
        """An address in the place of another: ``made``, or one that is free."""
        if made != raw and not self._is_free(made):
            made = next(filter(self._is_free, self._others(raw, made)))
        return self._keep(raw, made)

    def _keep(self, raw: bytes, made: bytes) -> bytes:
        self._made[raw] = made
        self._taken.add(made)
        return made

    def _is_free(self, made: bytes) -> bool:
        if made in self._known or made in self._taken:
            return False
        return len(made) not in _SIZES.values() or _kept(made) < 8 * len(made)

    def _usual(self, raw: bytes) -> bytes:
        """What an address becomes unless that is taken; itself where it stays."""
        if raw[:12] == _V4_MAPPED:
            return _V4_MAPPED + self.ip(raw[12:])
        kept = _kept(raw)
        if kept >= 8 * len(raw):
            return raw
        return self._moved(raw, kept, b"ipv4 " if len(raw) == 4 else b"ipv6 ")

    def _moved(self, raw: bytes, kept: int, purpose: bytes) -> bytes:
        """An address whose first bits stay, with other octets, each of which depends on those before it."""
        made = bytearray()
        for index, octet in enumerate(raw):
            bits = kept - 8 * index
            if bits >= 8:
                made.append(octet)
                continue
            values = _like(octet, max(0, bits), len(raw) == 4)
            domain = values
            if len(raw) == 4 and not kept and index < 2:
                domain = _outside(raw[:index], values, split=octet in _SPLIT)
                values = _outside(bytes(made), values, split=octet in _SPLIT)
            # The next one in a circle of all: never the same.
            at = self._order(domain, purpose + raw[:index]).index(octet) + 1
            made.append(self._order(values, purpose + raw[:index])[at % len(values)])
        return bytes(made)

    def _permuted(self, values: tuple[int, ...], purpose: bytes) -> tuple[int, ...]:
        return tuple(values[at] for at in self._names.permutation(len(values), purpose + bytes(values[:1])))

    def _others(self, raw: bytes, usual: bytes) -> Iterator[bytes]:
        """Further addresses in the place of one: in its new network, then in its class, then of IPv4 of no class."""
        short = len(raw) == 4
        for digits in (True, False):
            values = self._order(_like(raw[-1], 0, digits and short), b"other " + usual[:-1])
            yield from (usual[:-1] + bytes((one,)) for one in values)
        kept = _kept(raw)
        for turn in count():
            drawn = self._names.stream(b"other" + turn.to_bytes(4, "big"), raw, len(raw))
            if short and turn < _MAX_DRAWN // 2:
                like = [_like(octet, 0, True) for octet in raw]
                drawn = bytes(values[one % len(values)] for one, values in zip(drawn, like, strict=True))
            bits = kept if turn < _MAX_DRAWN or not short else 0
            mask = (1 << 8 * len(raw) - bits) - 1
            number = int.from_bytes(raw, "big") & ~mask | int.from_bytes(drawn, "big") & mask
            drawn = number.to_bytes(len(raw), "big")
            if _kept(drawn) == bits:
                yield drawn


def _packed(text: bytes) -> bytes:
    """The bytes of an address that is written so; none where it is no address."""
    try:
        return ip_address(text.decode("ascii")).packed
    except ValueError:
        return b""


def _proxied_places(header: bytes) -> list[tuple[int, int]]:
    """Where the addresses are in a binary header of the PROXY protocol, and their lengths; the ports are after both."""
    size = _SIZES.get(header[13] >> 4, 0) if len(header) >= 16 else 0
    return [(16, size), (16 + size, size)] if size and len(header) >= 20 + 2 * size else []


def _kept(raw: bytes) -> int:
    """How many of the first bits of an address stay; all of them where it says nothing of who has it."""
    every = 8 * len(raw)
    if len(raw) == 4:
        if not any(raw) or raw == _BROADCAST or raw[0] == 127 or raw[0] >> 4 == 0xE:
            return every
        number = int.from_bytes(raw, "big")
        return next((length for net, mask, length in _CLASSES if number & mask == net), 0)
    if raw[:12] == _V4_MAPPED:
        return 96 + _kept(raw[12:])
    if raw in _V6_ALONE:
        return every
    if raw[0] == _V6_MULTICAST:
        return 8 * len(_SOLICITED) if raw.startswith(_SOLICITED) else every
    if raw[0] == 0xFE and raw[1] & 0xC0 == 0x80:
        return 10 if any(raw[2:8]) else 64
    return 8 * len(_V6_DOCUMENTATION) if raw.startswith(_V6_DOCUMENTATION) else 8


@cache
def _like(octet: int, bits: int, digits: bool) -> tuple[int, ...]:
    """Octets with the same first bits, and with as many digits."""
    known = next(row for row in _DIGITS if octet in row) if digits else range(256)
    return tuple(one for one in known if one >> (8 - bits) == octet >> (8 - bits))


@cache
def _outside(begin: bytes, values: tuple[int, ...], *, split: bool) -> tuple[int, ...]:
    """Of the octets that may be the first or the second one, those of addresses of no class.

    ``split``: whether the first one is of those that some classes have a part of: these are a circle by themselves.
    """
    if begin:
        return tuple(one for one in values if not _kept(bytes((begin[0], one, 0, 1))))
    return tuple(one for one in values if (one in _SPLIT) is split and (split or not _kept(bytes((one, 0, 0, 1)))))
