"""Addresses of IP and of link layers in the place of the real ones, under a key.

Each octet of an IPv4 address becomes another of as many decimal digits, by a permutation that depends on the octets
before it: addresses of one network stay in one network, which is never the one that they were in, and the text of an
address keeps its length.  IPv6 does the same by bytes.

No address becomes one that the capture holds (`Addresses.know`), and no two become one.  A network of the capture
(`/24` of IPv4, `/64` of IPv6) becomes one that the capture does not hold: where the permutation gives one that it
holds, another one of the same class is taken.  Where none is left, addresses find room one by one: in the place of
other networks, then in other networks of the capture, then in no class; never in the network that they were in.

An address stays in its class, since readers and rules go by that: loopback, the unspecified address, multicast and
broadcast stay as they are; of private, link-local, shared and benchmarking addresses the prefix that says so stays, and
of those of the documentation of IPv6.  Any other address becomes one outside of these classes.  The blocks of IPv4 for
documentation (RFC 5737) are no class: each is one network, and its prefix would name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from ipaddress import IPv4Address, ip_address, ip_network
from itertools import chain
from math import gcd, prod
from typing import Final

from mqttscope.net.proxy_protocol import SIGNATURE
from mqttscope.redact.pseudonyms import Pseudonyms

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
_MAX_TURNS: Final = 64
"""Times a text or an address of a link layer is drawn; then zeros take its place."""
IPV4_TEXT: Final = re.compile(rb"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_WORD: Final = re.compile(rb"[^ \r\n]+")
_SAID: Final = re.compile(rb"PROXY|TCP[46]|UNKNOWN|[0-9]{1,5}")
"""What else a header of the PROXY protocol says that is a line: the protocol and the ports."""
_DIGIT: Final = re.compile(rb"[0-9A-Fa-f]")
_HEX: Final = b"0123456789abcdef"
_SIZES: Final = {1: 4, 2: 16}
"""Bytes of an address by the family that a binary header names."""
_NETWORK_SIZES: Final = {4: 3, 16: 8}
"""Bytes that name the network of an address, by the bytes of the address."""
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
        self._held: set[bytes] = set()
        """The networks of what is known."""
        self._given: set[bytes] = set()
        """What took the place of networks."""
        self._targets: dict[tuple[bytes, int, bool], bytes | None] = {}
        """What a network becomes, by the bits that stay and whether the digits do."""
        self._networks: dict[tuple[bytes, int, bool], Iterator[bytes]] = {}
        """The networks of one kind that may still be given."""
        self._rooms: dict[tuple[bytes, int, bool, bool], _Room] = {}
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
        if raw in self._made:
            return self._made[raw]
        for turn in range(_MAX_TURNS):
            drawn = self._names.stream(b"mac" + bytes(turn), raw, len(raw))
            # Locally administered: no vendor made it.
            drawn = bytes((drawn[0] & 0xFC | 0x02,)) + drawn[1:]
            if self._is_free(drawn):
                return self._keep(raw, drawn)
        return self._keep(raw, bytes(len(raw)))

    def text(self, raw: bytes) -> bytes:
        """A text with other IPv4 addresses, of the same length."""
        return IPV4_TEXT.sub(lambda hit: self._told(hit[0]), raw)

    def proxied(self, header: bytes, *, blank: bool = False, keep: bool = False) -> tuple[bytes, list[int]]:
        """A header of the PROXY protocol with other addresses, of the same length and form; and their lengths.

        ``blank``: nothing is left of them but their form; ``keep``: they stay.  Nothing is left of what else the header
        has in it.  The lengths are those of the addresses that became others.
        """
        sizes: list[int] = []
        if not header.startswith(SIGNATURE):

            def replaced(hit: re.Match[bytes]) -> bytes:
                if _SAID.fullmatch(hit[0]):
                    return hit[0]
                if not _packed(hit[0]):
                    return b"*" * len(hit[0])
                word = hit[0] if keep else _DIGIT.sub(b"1", hit[0]) if blank else self._word(hit[0])
                sizes.extend([len(word)] * (word != hit[0]))
                return word

            return _WORD.sub(replaced, header), sizes
        made = bytearray(header[:16] + bytes(len(header) - 16))
        for at, size in _proxied_places(header):
            before = header[at : at + size]
            made[at : at + size] = before if keep else bytes(size) if blank else self.ip(before)
            sizes.extend([size] * (made[at : at + size] != before))
            made[at + size : at + size + 4] = header[at + size : at + size + 4]
        return bytes(made), sizes

    def _word(self, raw: bytes) -> bytes:
        """An address in a header that is a line."""
        if IPV4_TEXT.fullmatch(raw):
            return self._told(raw)
        packed = _packed(raw)
        if self.ip(packed) == packed:
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
        else:
            made = _DIGIT.sub(b"0", raw)
        self._texts[raw] = made
        self._taken.add(made)
        return made

    def _settle(self) -> None:
        """Replace all that is known: what is as usual first, so that others give way to it whatever comes first."""
        self._settled = True
        known = {one for one in self._known if len(one) in _NETWORK_SIZES}
        self._held = {_network(one) for one in known}
        # Not in the order of their numbers, which the order of what takes their places would show.
        drawn = {one: self._names.stream(b"order", one, 16) for one in known | self._held}
        moving = sorted(
            (one for one in known if one not in self._made and one[:12] != _V4_MAPPED),
            key=lambda one: (drawn[_network(one)], drawn[one]),
        )
        usual = {raw: self._usual(raw) for raw in moving}
        for raw, made in usual.items():
            if self._is_new(_network(made)):
                self._target(raw, made)
        sharing = []
        for raw, made in usual.items():
            target = self._target(raw, made)
            if made == raw or (target is not None and self._is_free(target + made[len(target) :])):
                self._take(raw, made)
            else:
                sharing.append(raw)
        for raw in sharing:
            self._take(raw, usual[raw])

    def _take(self, raw: bytes, usual: bytes) -> bytes:
        """An address in the place of another, near to what is usual."""
        if usual == raw or raw[:12] == _V4_MAPPED:
            return self._keep(raw, usual)
        return self._keep(raw, next(one for one in self._others(raw, usual) if one is not None and self._is_free(one)))

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

    def _others(self, raw: bytes, usual: bytes) -> Iterator[bytes | None]:
        """Addresses in the place of one, the best first: of its class, then, of IPv4, of no class.

        None, or one that is not free, where a network or a kind of them is full.
        """
        kept = _kept(raw)
        short = len(raw) == 4
        own = _network(raw)
        if kept >= 8 * len(own):
            yield usual
            yield self._room(raw, kept, digits=False, held=own in self._held, own=b"")
        for bits in (kept, 0) if short else (kept,):
            for digits in (True, False) if short else (False,):
                target = self._target(raw, usual, bits, digits=digits)
                yield target and target + usual[len(own) :]
                yield self._room(raw, bits, digits=digits, held=False, own=own)
            for digits in (True, False):
                yield self._room(raw, bits, digits=digits and short, held=True, own=own)

    def _is_new(self, network: bytes) -> bool:
        """Whether neither the capture holds a network nor another one became it."""
        return network not in self._held and network not in self._given

    def _target(self, raw: bytes, usual: bytes, bits: int | None = None, *, digits: bool = True) -> bytes | None:
        """The network that the one of an address becomes, in its class if ``bits`` does not say otherwise.

        ``digits``: only one with as many digits.  None if none is left.
        """
        own, kept = _network(raw), _kept(raw)
        if kept >= 8 * len(own):
            return own
        bits = kept if bits is None else bits
        digits = digits and len(raw) == 4
        place = (own, bits, digits)
        if place not in self._targets:
            values = _values(raw, bits, digits)
            row = self._networks.setdefault(
                _kind(values[: len(own)], bits, digits), self._every_network(raw, values, bits)
            )
            made = next((one for one in chain([_network(usual)], row) if one != own and self._is_new(one)), None)
            self._targets[place] = made
            if made is not None:
                self._given.add(made)
        return self._targets[place]

    def _room(self, raw: bytes, bits: int, *, digits: bool, held: bool, own: bytes) -> bytes | None:
        """A free address in any network but ``own``; only in networks of the capture if ``held``, or in no such one."""
        values = _values(raw, bits, digits)
        kind = (*_kind(values, bits, digits), held)
        room = self._rooms.get(kind)
        if room is None:
            room = self._rooms[kind] = _Room(self._every_address(raw, values, bits, held=held))
        return room.take(own, self._is_free)

    def _every_network(self, raw: bytes, values: Sequence[tuple[int, ...]], bits: int) -> Iterator[bytes]:
        """Networks of some octets of which as many bits stay as of an address, each once."""
        size = _NETWORK_SIZES[len(raw)]
        return (one for one in self._every(values[:size], b"network") if _kept(one + raw[size:]) == bits)

    def _every_address(
        self, raw: bytes, values: Sequence[tuple[int, ...]], bits: int, *, held: bool
    ) -> Iterator[bytes]:
        for network in self._every_network(raw, values, bits):
            if (network in self._held) is held:
                yield from (network + one for one in self._every(values[len(network) :], network))

    def _every(self, values: Sequence[tuple[int, ...]], purpose: bytes) -> Iterator[bytes]:
        """All combinations of octets, each once, in an order under the key."""
        size = prod(len(one) for one in values)
        form = b"".join(bytes(one[:1]) for one in values)
        at = first = self._names.number(b"first " + purpose, form, size)
        step = self._names.number(b"step " + purpose, form, size)
        # With no factor in common, the steps reach all of them before they come back.
        while gcd(step, size) != 1:
            step += 1
        while True:
            rest, made = at, bytearray()
            for row in reversed(values):
                rest, index = divmod(rest, len(row))
                made.append(row[index])
            yield bytes(reversed(made))
            at = (at + step) % size
            if at == first:
                return


class _Room:
    """Addresses of one kind, which are given one by one to what comes from other networks."""

    def __init__(self, addresses: Iterator[bytes]) -> None:
        self._addresses = addresses
        self._left: list[bytes] = []
        """What could not be given to those of the same network: always of one network."""

    def take(self, own: bytes, is_free: Callable[[bytes], bool]) -> bytes | None:
        """The next free address that is not of the network ``own``; None if none is left."""
        while self._left and not self._left[-1].startswith(own):
            made = self._left.pop()
            if is_free(made):
                return made
        for made in self._addresses:
            if is_free(made):
                if not own or not made.startswith(own):
                    return made
                self._left.append(made)
        return None


def _network(raw: bytes) -> bytes:
    return raw[: _NETWORK_SIZES[len(raw)]]


def _values(raw: bytes, bits: int, digits: bool) -> tuple[tuple[int, ...], ...]:
    """For each octet of an address those that may take its place if the first bits stay."""
    return tuple(_like(one, min(8, max(0, bits - 8 * index)), digits) for index, one in enumerate(raw))


def _kind(values: Sequence[tuple[int, ...]], bits: int, digits: bool) -> tuple[bytes, int, bool]:
    return bytes(one[0] for one in values), bits, digits


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
