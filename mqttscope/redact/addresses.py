"""Replaces IP and link-layer addresses under a key.

Each octet of an IPv4 address becomes another octet with equally many decimal digits, by a permutation that depends on
the octets before it.  So addresses of one network stay in one network, which is never the original one, and the text of
an address keeps its length.  IPv6 addresses are permuted byte by byte.

No address becomes an address of the capture (`Addresses.note`), and no two addresses become equal.  A network of the
capture (`/24` of IPv4, `/64` of IPv6) becomes a network that is not in the capture: if the permutation gives a network
of the capture, another network of the class is used.  If all are used up, addresses are placed one by one: in
replacements of other networks, then in other networks of the capture, then outside the classes; never in their own
original network.

An address stays in its class, which matters to readers and rules.  Loopback, unspecified, multicast and broadcast
addresses stay unchanged.  Private, link-local, shared and benchmarking addresses, and IPv6 documentation addresses,
keep the prefix of their class.  Any other address becomes an address outside these classes.  The IPv4 blocks for
documentation (RFC 5737) are not a class: each is a single network, and its prefix would reveal it.
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
"""Number, mask and length of the IPv4 prefixes that stay."""
_SPLIT: Final = frozenset(net >> 24 for net, _, length in _CLASSES if length > 8)
"""First octets that occur both in a class and outside the classes."""
_DIGITS: Final = (range(10), range(10, 100), range(100, 256))
"""Octets by number of digits."""
_MAX_TURNS: Final = 64
"""Maximum number of attempts to draw a text or link-layer address; then zeros are used."""
IPV4_TEXT: Final = re.compile(rb"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_WORD: Final = re.compile(rb"[^ \r\n]+")
_HEADER_WORDS: Final = re.compile(rb"PROXY|TCP[46]|UNKNOWN|[0-9]{1,5}")
"""Other words of a text header of the PROXY protocol: protocol and ports."""
_DIGIT: Final = re.compile(rb"[0-9A-Fa-f]")
_HEX: Final = b"0123456789abcdef"
_SIZES: Final = {1: 4, 2: 16}
"""Size of an address by the address family of a binary PROXY header."""
_NETWORK_SIZES: Final = {4: 3, 16: 8}
"""Number of bytes that identify the network, by the size of an address."""
_TUNNEL_ADDRESS: Final = 4
"""Size of the link address in Linux cooked captures of a tunnel, which is an IPv4 address."""
_BROADCAST: Final = b"\xff\xff\xff\xff"
_V4_MAPPED: Final = bytes(10) + b"\xff\xff"
_V6_ALONE: Final = (bytes(16), bytes(15) + b"\1")
"""The unspecified address and loopback."""
_V6_MULTICAST, _V6_GLOBAL, _V6_DOCUMENTATION = 0xFF, b"\x2a", b"\x20\x01\x0d\xb8"
_SOLICITED: Final = bytes.fromhex("ff0200000000000000000001ff")
_SOLICITED_MAC: Final = bytes.fromhex("3333ff")
"""Multicast groups that end with the last three bytes of an address (RFC 4291 section 2.7.1; RFC 2464 section 7)."""


class Addresses:
    """Replacements of the addresses of one run."""

    def __init__(self, names: Pseudonyms) -> None:
        self._names = names
        self._known: set[bytes] = set()
        self._settled = False
        self._replacements: dict[bytes, bytes] = {}
        self._in_use: set[bytes] = set()
        """Addresses in use as replacements."""
        self._texts: dict[bytes, bytes] = {}
        """Replacements of address texts that cannot use the replacement of the address."""
        self._held: set[bytes] = set()
        """Networks of the capture."""
        self._network_targets: set[bytes] = set()
        """Networks in use as replacements."""
        self._targets: dict[tuple[bytes, int, bool], bytes | None] = {}
        """Replacement of a network, by the number of bits that stay and whether the number of digits stays."""
        self._networks: dict[tuple[bytes, int, bool], Iterator[bytes]] = {}
        """Remaining networks of each kind."""
        self._rooms: dict[tuple[bytes, int, bool, bool], _AddressPool] = {}
        self._order = lru_cache(4_096)(self._permuted)

    def note(self, raw: bytes) -> None:
        """Note an IPv4, IPv6 or link-layer address of the capture.

        Replacements are reproducible if all addresses are noted before the first replacement.
        """
        self._known.add(raw)
        if raw[:12] == _V4_MAPPED:
            self._known.add(raw[12:])

    def note_text(self, raw: bytes) -> None:
        """Note the IPv4 addresses in a text, and the addresses in a binary header of the PROXY protocol."""
        for hit in IPV4_TEXT.finditer(raw):
            packed = _packed(hit[0])
            if packed:
                self._known.add(packed)
        if raw.startswith(SIGNATURE):
            for at, size in _proxy_address_places(raw):
                self.note(raw[at : at + size])

    def ip(self, raw: bytes) -> bytes:
        """The replacement of an IPv4 or IPv6 address."""
        if not self._settled:
            self._settle()
        return self._replacements.get(raw) or self._choose(raw, self._usual(raw))

    def mac(self, raw: bytes) -> bytes:
        """The replacement of a link-layer address; groups, broadcast and zeros stay."""
        if len(raw) == _TUNNEL_ADDRESS:
            return self.ip(raw)
        if raw[:3] == _SOLICITED_MAC:
            return _SOLICITED_MAC + self._permute_octets(raw[3:], 0, b"node ")
        if not any(raw) or raw[0] & 1:
            return raw
        if raw in self._replacements:
            return self._replacements[raw]
        for turn in range(_MAX_TURNS):
            drawn = self._names.stream(b"mac" + bytes(turn), raw, len(raw))
            # The locally administered bit is set, so the address belongs to no vendor.
            drawn = bytes((drawn[0] & 0xFC | 0x02,)) + drawn[1:]
            if self._is_free(drawn):
                return self._store(raw, drawn)
        return self._store(raw, bytes(len(raw)))

    def text(self, raw: bytes) -> bytes:
        """The text with its IPv4 addresses replaced, in unchanged length."""
        return IPV4_TEXT.sub(lambda hit: self._replace_text(hit[0]), raw)

    def proxy_header(self, header: bytes, *, blank: bool = False, keep: bool = False) -> tuple[bytes, list[int]]:
        """A header of the PROXY protocol with replaced addresses, in unchanged length, and the sizes of changed ones.

        ``blank`` leaves only the form of the addresses; ``keep`` leaves the addresses.  Everything else in the header,
        except protocol and ports, is blanked.
        """
        sizes: list[int] = []
        if not header.startswith(SIGNATURE):

            def replaced(hit: re.Match[bytes]) -> bytes:
                if _HEADER_WORDS.fullmatch(hit[0]):
                    return hit[0]
                if not _packed(hit[0]):
                    return b"*" * len(hit[0])
                word = hit[0] if keep else _DIGIT.sub(b"1", hit[0]) if blank else self._word(hit[0])
                sizes.extend([len(word)] * (word != hit[0]))
                return word

            return _WORD.sub(replaced, header), sizes
        result = bytearray(header[:16] + bytes(len(header) - 16))
        for at, size in _proxy_address_places(header):
            before = header[at : at + size]
            result[at : at + size] = before if keep else bytes(size) if blank else self.ip(before)
            sizes.extend([size] * (result[at : at + size] != before))
            result[at + size : at + size + 4] = header[at + size : at + size + 4]
        return bytes(result), sizes

    def _word(self, raw: bytes) -> bytes:
        if IPV4_TEXT.fullmatch(raw):
            return self._replace_text(raw)
        packed = _packed(raw)
        if self.ip(packed) == packed:
            return raw
        # The text of this address's replacement is nearly always longer, so it is not used.
        return self._texts.get(raw) or self._drawn_text(raw, self._hexadecimal)

    def _replace_text(self, raw: bytes) -> bytes:
        packed = _packed(raw)
        address = str(IPv4Address(self.ip(packed))).encode() if packed else b""
        return address if len(address) == len(raw) else self._texts.get(raw) or self._drawn_text(raw, self._names.text)

    def _hexadecimal(self, raw: bytes, purpose: bytes) -> bytes:
        digits = zip(raw, self._names.stream(purpose, raw, len(raw)), strict=True)
        return bytes(character if character in b":." else _HEX[other % 15 + 1] for character, other in digits)

    def _drawn_text(self, raw: bytes, draw: Callable[[bytes, bytes], bytes]) -> bytes:
        """A text with the form of an address that is not in the capture."""
        text = raw
        for turn in range(_MAX_TURNS):
            text = draw(raw, b"address" + bytes(turn))
            if text != raw and text not in self._in_use and self._is_free(_packed(text)):
                break
        else:
            text = _DIGIT.sub(b"0", raw)
        self._texts[raw] = text
        self._in_use.add(text)
        return text

    def _settle(self) -> None:
        """Replace all noted addresses, first those with their usual replacement, so that order does not matter."""
        self._settled = True
        known = {address for address in self._known if len(address) in _NETWORK_SIZES}
        self._held = {_network(address) for address in known}
        # In an order under the key: numeric order would show in the order of the replacements.
        drawn = {value: self._names.stream(b"order", value, 16) for value in known | self._held}
        moving = sorted(
            (address for address in known if address not in self._replacements and address[:12] != _V4_MAPPED),
            key=lambda address: (drawn[_network(address)], drawn[address]),
        )
        usual = {raw: self._usual(raw) for raw in moving}
        for raw, other in usual.items():
            if self._is_new(_network(other)):
                self._target(raw, other)
        sharing = []
        for raw, other in usual.items():
            target = self._target(raw, other)
            if other == raw or (target is not None and self._is_free(target + other[len(target) :])):
                self._choose(raw, other)
            else:
                sharing.append(raw)
        for raw in sharing:
            self._choose(raw, usual[raw])

    def _choose(self, raw: bytes, usual: bytes) -> bytes:
        """Replace an address with its usual replacement, or with a similar one."""
        if usual == raw or raw[:12] == _V4_MAPPED:
            return self._store(raw, usual)
        others = (other for other in self._others(raw, usual) if other is not None and self._is_free(other))
        return self._store(raw, next(others))

    def _store(self, raw: bytes, other: bytes) -> bytes:
        self._replacements[raw] = other
        self._in_use.add(other)
        return other

    def _is_free(self, address: bytes) -> bool:
        if address in self._known or address in self._in_use:
            return False
        return len(address) not in _SIZES.values() or _kept_bits(address) < 8 * len(address)

    def _usual(self, raw: bytes) -> bytes:
        """The usual replacement of an address; the address itself if it stays."""
        if raw[:12] == _V4_MAPPED:
            return _V4_MAPPED + self.ip(raw[12:])
        bits = _kept_bits(raw)
        if bits >= 8 * len(raw):
            return raw
        return self._permute_octets(raw, bits, b"ipv4 " if len(raw) == 4 else b"ipv6 ")

    def _permute_octets(self, raw: bytes, prefix: int, purpose: bytes) -> bytes:
        """The address with its first bits kept and its other octets replaced, each depending on the ones before."""
        result = bytearray()
        for index, octet in enumerate(raw):
            bits = prefix - 8 * index
            if bits >= 8:
                result.append(octet)
                continue
            values = _like(octet, max(0, bits), len(raw) == 4)
            domain = values
            if len(raw) == 4 and not prefix and index < 2:
                domain = _outside(raw[:index], values, split=octet in _SPLIT)
                values = _outside(bytes(result), values, split=octet in _SPLIT)
            # The next octet in a cycle of all octets, so never the original one.
            at = self._order(domain, purpose + raw[:index]).index(octet) + 1
            result.append(self._order(values, purpose + raw[:index])[at % len(values)])
        return bytes(result)

    def _permuted(self, values: tuple[int, ...], purpose: bytes) -> tuple[int, ...]:
        return tuple(values[at] for at in self._names.permutation(len(values), purpose + bytes(values[:1])))

    def _others(self, raw: bytes, usual: bytes) -> Iterator[bytes | None]:
        """Possible replacements of an address, the best first: of its class, then for IPv4 outside the classes.

        Yields ``None`` or an address in use if a network or kind is exhausted.
        """
        prefix = _kept_bits(raw)
        short = len(raw) == 4
        own = _network(raw)
        if prefix >= 8 * len(own):
            yield usual
            yield self._room(raw, prefix, digits=False, held=own in self._held, own=b"")
        for bits in (prefix, 0) if short else (prefix,):
            for digits in (True, False) if short else (False,):
                target = self._target(raw, usual, bits, digits=digits)
                yield target and target + usual[len(own) :]
                yield self._room(raw, bits, digits=digits, held=False, own=own)
            for digits in (True, False):
                yield self._room(raw, bits, digits=digits and short, held=True, own=own)

    def _is_new(self, network: bytes) -> bool:
        """Whether a network is neither in the capture nor in use as a replacement."""
        return network not in self._held and network not in self._network_targets

    def _target(self, raw: bytes, usual: bytes, bits: int | None = None, *, digits: bool = True) -> bytes | None:
        """The replacement of an address's network, in its class unless ``bits`` is given; ``None`` if all are in use.

        ``digits`` requires equally many digits.
        """
        own, prefix = _network(raw), _kept_bits(raw)
        if prefix >= 8 * len(own):
            return own
        bits = prefix if bits is None else bits
        digits = digits and len(raw) == 4
        place = (own, bits, digits)
        if place not in self._targets:
            values = _values(raw, bits, digits)
            row = self._networks.setdefault(
                _kind(values[: len(own)], bits, digits), self._every_network(raw, values, bits)
            )
            networks = chain([_network(usual)], row)
            target = next((network for network in networks if network != own and self._is_new(network)), None)
            self._targets[place] = target
            if target is not None:
                self._network_targets.add(target)
        return self._targets[place]

    def _room(self, raw: bytes, bits: int, *, digits: bool, held: bool, own: bytes) -> bytes | None:
        """A free address outside the network ``own``: in networks of the capture if ``held``, else in others."""
        values = _values(raw, bits, digits)
        kind = (*_kind(values, bits, digits), held)
        room = self._rooms.get(kind)
        if room is None:
            room = self._rooms[kind] = _AddressPool(self._every_address(raw, values, bits, held=held))
        return room.take(own, self._is_free)

    def _every_network(self, raw: bytes, values: Sequence[tuple[int, ...]], bits: int) -> Iterator[bytes]:
        """Distinct networks from these octets that share the first ``bits`` bits with an address."""
        size = _NETWORK_SIZES[len(raw)]
        return (
            network for network in self._every(values[:size], b"network") if _kept_bits(network + raw[size:]) == bits
        )

    def _every_address(
        self, raw: bytes, values: Sequence[tuple[int, ...]], bits: int, *, held: bool
    ) -> Iterator[bytes]:
        for network in self._every_network(raw, values, bits):
            if (network in self._held) is held:
                yield from (network + host for host in self._every(values[len(network) :], network))

    def _every(self, values: Sequence[tuple[int, ...]], purpose: bytes) -> Iterator[bytes]:
        """All combinations of octets, each once, in an order under the key."""
        size = prod(len(octets) for octets in values)
        form = b"".join(bytes(octets[:1]) for octets in values)
        at = first = self._names.number(b"first " + purpose, form, size)
        step = self._names.number(b"step " + purpose, form, size)
        # With step and size coprime, the steps visit all combinations before they repeat.
        while gcd(step, size) != 1:
            step += 1
        while True:
            rest, octets = at, bytearray()
            for row in reversed(values):
                rest, index = divmod(rest, len(row))
                octets.append(row[index])
            yield bytes(reversed(octets))
            at = (at + step) % size
            if at == first:
                return


class _AddressPool:
    """Addresses of one kind, used one by one as replacements for addresses of other networks."""

    def __init__(self, addresses: Iterator[bytes]) -> None:
        self._addresses = addresses
        self._left: list[bytes] = []
        """Addresses skipped because of their network; all of one network."""

    def take(self, own: bytes, is_free: Callable[[bytes], bool]) -> bytes | None:
        """The next free address outside the network ``own``, or ``None``."""
        while self._left and not self._left[-1].startswith(own):
            address = self._left.pop()
            if is_free(address):
                return address
        for address in self._addresses:
            if is_free(address):
                if not own or not address.startswith(own):
                    return address
                self._left.append(address)
        return None


def _network(raw: bytes) -> bytes:
    return raw[: _NETWORK_SIZES[len(raw)]]


def _values(raw: bytes, bits: int, digits: bool) -> tuple[tuple[int, ...], ...]:
    """Possible replacements of each octet of an address if the first bits stay."""
    return tuple(_like(octet, min(8, max(0, bits - 8 * index)), digits) for index, octet in enumerate(raw))


def _kind(values: Sequence[tuple[int, ...]], bits: int, digits: bool) -> tuple[bytes, int, bool]:
    return bytes(octets[0] for octets in values), bits, digits


def _packed(text: bytes) -> bytes:
    """The bytes of an address in text form; empty if the text is not an address."""
    try:
        return ip_address(text.decode("ascii")).packed
    except ValueError:
        return b""


def _proxy_address_places(header: bytes) -> list[tuple[int, int]]:
    """Offsets and sizes of the addresses in a binary PROXY header; the ports follow both addresses."""
    size = _SIZES.get(header[13] >> 4, 0) if len(header) >= 16 else 0
    return [(16, size), (16 + size, size)] if size and len(header) >= 20 + 2 * size else []


def _kept_bits(raw: bytes) -> int:
    """Number of the first bits of an address that stay; all bits if the address does not identify anyone."""
    every = 8 * len(raw)
    if len(raw) == 4:
        if not any(raw) or raw == _BROADCAST or raw[0] == 127 or raw[0] >> 4 == 0xE:
            return every
        number = int.from_bytes(raw, "big")
        return next((length for net, mask, length in _CLASSES if number & mask == net), 0)
    if raw[:12] == _V4_MAPPED:
        return 96 + _kept_bits(raw[12:])
    if raw in _V6_ALONE:
        return every
    if raw[0] == _V6_MULTICAST:
        return 8 * len(_SOLICITED) if raw.startswith(_SOLICITED) else every
    if raw[0] == 0xFE and raw[1] & 0xC0 == 0x80:
        return 10 if any(raw[2:8]) else 64
    return 8 * len(_V6_DOCUMENTATION) if raw.startswith(_V6_DOCUMENTATION) else 8


@cache
def _like(octet: int, bits: int, digits: bool) -> tuple[int, ...]:
    """Octets with equal first bits, and with equally many digits if ``digits``."""
    known = next(row for row in _DIGITS if octet in row) if digits else range(256)
    return tuple(other for other in known if other >> (8 - bits) == octet >> (8 - bits))


@cache
def _outside(begin: bytes, values: tuple[int, ...], *, split: bool) -> tuple[int, ...]:
    """The first or second octets that lead to addresses outside the classes.

    ``split`` selects the first octets of `_SPLIT`, which form a cycle of their own.
    """
    if begin:
        return tuple(octet for octet in values if not _kept_bits(bytes((begin[0], octet, 0, 1))))
    chosen = (octet for octet in values if (octet in _SPLIT) is split)
    return tuple(octet for octet in chosen if split or not _kept_bits(bytes((octet, 0, 0, 1))))
