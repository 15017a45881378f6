"""Frames with other addresses and nothing in them that nobody reads, lengths and checksums as before.

What stays: link layers without names (Ethernet, VLAN tags, PPP, loopback, Linux cooked), the headers of IP and TCP,
their usual options.  What goes: padding and trailers, options of IP, options of TCP that may hold a cookie or a key.
The payload is filler until somebody knows better (`pieces`).

Frames of tunnels and of other link layers hold further addresses, names of interfaces and processes, positions.  Their
TCP segment is written as a plain IP datagram; a VLAN tag that no network has stands for the tunnel, since it keeps
equal addresses apart.

Checksums are not calculated, but changed by as much as the bytes were (RFC 1624): a right one stays right, a wrong one
stays wrong, one that the network interface was to fill in as well, also where the frame is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mqttscope.net import links
from mqttscope.net.checksum import is_left_to_interface
from mqttscope.net.frame import Frame
from mqttscope.net.segment import Fragment, NotSegment, Segment, is_ipv4_key
from mqttscope.redact.addresses import Addresses
from mqttscope.redact.kinds import Choice, Treatment, Value, filler

ETHERNET: Final = 1
RAW: Final = 101
_COOKED: Final = {113: (4, 2, 6), 276: (11, 1, 12)}
"""Of Linux cooked captures: where the length of the address is, in how many bytes, and where the address is."""
_COOKED_ROOM: Final = 8
"""Bytes for the address."""
_NAMELESS: Final = {
    **dict.fromkeys((0, 108), 4), **dict.fromkeys((12, 14, 101, 228, 229), 0), 9: 4, 50: 4, 51: 8, 104: 4, 166: 4,
    204: 5, 205: 5,
}  # fmt: skip
"""Link types whose headers have no addresses, and the length that they have at most before IP."""
_VLAN_TYPES: Final = (b"\x81\0", b"\x88\xa8", b"\x91\0", b"\x92\0", b"\x93\0")
_IP_TYPES: Final = (b"\x08\0", b"\x86\xdd")
_TCP: Final = 6
_FRAGMENT: Final = 44
_NOP: Final = 1
_KEPT_OPTIONS: Final = {2: (4,), 3: (3,), 4: (2,), 5: (10, 18, 26, 34), 8: (10,)}
"""Options of TCP that stay, with their lengths: segment size, window scale, selective acknowledgments, time stamps."""
_TUNNEL_TAG: Final = 0x0FFE
MAX_TUNNELS: Final = 4_094
"""Tunnels that are kept apart; further ones share a tag."""
_SHARED_TAG: Final = 4_095
BuildFrame = Callable[..., bytes]
"""`capture.write.ip_frame`."""


@dataclass(slots=True)
class MovedFrame:
    """A frame that is being rewritten."""

    timestamp_ns: int
    link_type: int
    original_length: int
    data: bytearray | None
    """Its bytes; ``None`` once they lie elsewhere, at ``place``."""
    group: bytes = b""
    """The connection that it belongs to, so that it is written when that speaks MQTT; empty for one that always is."""
    place: int = -1
    payload: int = 0
    """Where the payload of the segment begins."""
    checksum: int = -1
    """Where the checksum of TCP is; -1 if it was not captured, or does not count the payload."""
    replaced: bytes = bytes(4)
    """How many IP addresses were replaced in its headers, how many bytes these have, and the same of link addresses."""
    parts: list[Part] = field(default_factory=list)
    """Of a datagram that came in fragments: where the payload lies; empty where it lies in this frame."""


@dataclass(slots=True)
class Part:
    """Bytes of a payload that lie in the frame of a fragment."""

    start: int
    """Their offset in the payload."""
    length: int
    frame: MovedFrame
    place: int
    """Where they begin in the frame."""


@dataclass(slots=True)
class MovedFragment:
    """The frame of an IP fragment, with filler for what it carries."""

    frame: MovedFrame
    offset: int
    """Offset in the payload of the datagram, in bytes."""
    place: int
    """Where that begins in the frame."""
    length: int
    before: int
    """The sum of its bytes, and of the addresses."""
    after: int
    """The same after they were replaced."""


def folded(number: int) -> int:
    """A sum of 16-bit words in ones' complement."""
    while number > 0xFFFF:
        number = (number & 0xFFFF) + (number >> 16)
    return number


def word_sum(data: bytes | bytearray, *, odd: bool = False) -> int:
    """The sum of the 16-bit words of some bytes, in ones' complement; ``odd``: they begin with a low octet."""
    padded = bytes(odd) + bytes(data)
    # 2**16 is 1 modulo 2**16 - 1, so the remainder of the number is that of the sum of its words.
    return int.from_bytes(padded + bytes(len(padded) % 2), "big") % 0xFFFF


def adjusted(checksum: int, before: int, after: int) -> int:
    """A checksum when words of one sum are replaced by words of another (RFC 1624, equation 3)."""
    if before % 0xFFFF == after % 0xFFFF:
        return checksum
    return ~folded((~checksum & 0xFFFF) + (0xFFFF - before % 0xFFFF) + after) & 0xFFFF


def change(data: bytearray, at: int, before: int, after: int) -> None:
    made = adjusted(int.from_bytes(data[at : at + 2], "big"), before, after)
    data[at : at + 2] = made.to_bytes(2, "big")


@dataclass(slots=True)
class Layout:
    """Where the parts of a plain frame lie; those that a snap length cut off end where the bytes do."""

    ip: int
    version: int
    tcp: int
    payload: int
    stop: int
    """The end of the captured bytes of the datagram."""
    tags: list[int] = field(default_factory=list)


def layout(frame: Frame, found: Segment) -> Layout | None:
    """The layout of a frame with this segment; ``None`` where it is not plain."""
    data, kind = frame.data, frame.link_type
    link = links.LINKS.get(kind)
    if link is None:
        return None
    size = len(data)
    located = link(data, 0, size, max(size, frame.original_length))
    if isinstance(located, NotSegment) or not _is_plain_link(data, kind, located[1], located[3]):
        return None
    version, ip, end, _ = located
    stop = min(size, end)
    if version == 4:
        length, total = (data[ip] & 0x0F) * 4, data[ip + 2] << 8 | data[ip + 3]
        if data[ip + 9] != _TCP or (data[ip + 6] << 8 | data[ip + 7]) & 0x3FFF:
            return None
        tcp = ip + length
    else:
        total = data[ip + 4] << 8 | data[ip + 5]
        total += 40 if total else 0
        if data[ip + 6] != _TCP:
            return None
        tcp = ip + 40
    if total:
        stop = min(stop, ip + total)
    payload = tcp + (data[tcp + 12] >> 2 & 0x3C)
    if data[payload:stop] != found.payload:
        return None
    return Layout(ip, version, tcp, min(payload, stop), stop)


def _is_plain_link(data: bytes, kind: int, ip: int, encapsulation: bytes) -> bool:
    """Whether the header before IP holds nothing but addresses where they are expected, and VLAN tags."""
    if kind == ETHERNET:
        at = 12
        while data[at : at + 2] in _VLAN_TYPES:
            at += 4
        return at + 2 == ip and data[at : at + 2] in _IP_TYPES
    if kind in _COOKED:
        return ip == (16 if kind == 113 else 20)
    return not encapsulation and 0 <= ip <= _NAMELESS.get(kind, -1)


class Frames:
    """Rewrites frames."""

    def __init__(self, addresses: Addresses, choice: Choice, build: BuildFrame) -> None:
        """``build``: makes an IP datagram of a segment, as `capture.write.ip_frame`."""
        self._addresses = addresses
        self._choice = choice
        self._build = build
        self._replaced: list[tuple[Value, int]] = []
        """Kinds and lengths of the addresses that were replaced in the frame at hand."""
        self._tunnels: dict[bytes, int] = {}
        self.rebuilt = 0
        """Frames whose tunnel or link layer was taken off."""
        self.sharing = 0
        """Frames of tunnels that are not kept apart."""

    def survey(self, frame: Frame, found: Segment | Fragment | NotSegment) -> None:
        """Note the addresses of a frame, all of which no other address may become."""
        data = frame.data
        for at, length in _link_places(data, frame.link_type):
            self._addresses.know(data[at : at + length])
        if isinstance(found, Segment):
            size = 4 if is_ipv4_key(found.key) else 16
            ends = (found.key[:size], found.key[size : 2 * size])
        elif isinstance(found, Fragment):
            ends = (found.source, found.destination)
        else:
            link = links.LINKS.get(frame.link_type)
            located = link(data, 0, len(data), len(data)) if link is not None else found
            if isinstance(located, NotSegment):
                return
            at, size = (located[1] + 12, 4) if located[0] == 4 else (located[1] + 8, 16)
            if len(data) < at + 2 * size:
                return
            ends = (data[at : at + size], data[at + size : at + 2 * size])
        for one in ends:
            self._addresses.know(one)

    def moved(self, frame: Frame, found: Segment) -> MovedFrame:
        """A frame with this segment, with other addresses and without its payload."""
        where = layout(frame, found)
        if where is None:
            return self._rebuilt(frame, found)
        data = bytearray(frame.data)
        self._link(data, frame.link_type)
        # What is after the datagram is padding, a checksum, or memory of the sender.
        data[where.stop :] = bytes(len(data) - where.stop)
        checksum = where.tcp + 16
        before = word_sum(data[where.payload : where.stop]) + self._options(data, where)
        data[where.payload : where.stop] = filler(where.stop - where.payload)
        after = word_sum(data[where.payload : where.stop])
        if where.version == 4:
            self._ip_options(data, where)
        old, new = self._ip(data, where)
        sums = int.from_bytes(data[checksum : checksum + 2], "big")
        if is_left_to_interface(sums, old, where.stop + found.missing - where.tcp):
            # It counts the addresses and nothing after them.
            data[checksum : checksum + 2] = folded(sums + 0xFFFF - old + new).to_bytes(2, "big")
            checksum = -1
        else:
            change(data, checksum, before + old, after + new)
        return self._made(frame, data, found, where.payload, checksum)

    def fragment(self, frame: Frame, found: Fragment) -> MovedFragment | None:
        """A frame with a fragment of a TCP segment; ``None`` where it is not plain."""
        link = links.LINKS[frame.link_type]
        located = link(frame.data, 0, len(frame.data), max(len(frame.data), frame.original_length))
        if found.protocol != _TCP or isinstance(located, NotSegment):
            return None
        version, ip, _, encapsulation = located
        data = bytearray(frame.data)
        if not _is_plain_link(frame.data, frame.link_type, ip, encapsulation):
            return None
        body = ip + (data[ip] & 0x0F) * 4 if version == 4 else ip + 48
        stop = body + len(found.data)
        if frame.data[body:stop] != found.data or (version == 6 and data[ip + 6] != _FRAGMENT):
            return None
        header = 0
        checksum = -1
        if not found.offset:
            # The header of TCP is in one piece, or there is none.
            header = data[body + 12] >> 2 & 0x3C if len(found.data) >= 20 else 0
            if not 20 <= header <= len(found.data):
                return None
            checksum = body + 16
        self._link(data, frame.link_type)
        data[stop:] = bytes(len(data) - stop)
        where = Layout(ip, version, body, body + header, stop)
        before = word_sum(data[body + header : stop]) + (self._options(data, where) if header else 0)
        data[body + header : stop] = filler(stop - body - header)
        after = word_sum(data[body + header : stop])
        if version == 4:
            self._ip_options(data, where)
        old, new = self._ip(data, where)
        if header:
            # Every fragment has the addresses, and the checksum counts them once.
            before, after = before + old, after + new
        made = self._made(frame, data, None, body + header, checksum)
        return MovedFragment(made, found.offset, body, stop - body, before, after)

    def _take_replaced(self) -> bytes:
        """`MovedFrame.replaced` of the frame at hand, which is complete."""
        sizes = [[size for kind, size in self._replaced if kind is one] for one in (Value.ADDRESSES, Value.MACS)]
        self._replaced.clear()
        return bytes(number for one in sizes for number in (len(one), sum(one)))

    def _made(
        self, frame: Frame, data: bytearray, found: Segment | None, payload: int, checksum: int, kind: int = -1
    ) -> MovedFrame:
        original = max(frame.original_length, len(data))
        if kind >= 0 and found is not None:
            original = len(data) + found.missing
        return MovedFrame(frame.timestamp_ns, frame.link_type if kind < 0 else kind, original, data,
            payload=payload, checksum=checksum, replaced=self._take_replaced(),
        )  # fmt: skip

    def _rebuilt(self, frame: Frame, found: Segment) -> MovedFrame:
        """A segment as a plain datagram."""
        self.rebuilt += 1
        key = found.key
        size = 4 if is_ipv4_key(key) else 16
        source, destination = self._address(key[:size]), self._address(key[size : 2 * size])
        ports = key[2 * size : 2 * size + 4]
        options = bytearray(found.options[: len(found.options) // 4 * 4])
        _without_cookies(options)
        data = bytearray(
            self._build(
                source,
                destination,
                (int.from_bytes(ports[:2], "big"), int.from_bytes(ports[2:], "big")),
                sequence=found.sequence,
                acknowledgment=found.acknowledgment,
                flags=found.flags,
                window=found.window,
                payload=filler(len(found.payload)),
                options=bytes(options),
                missing=found.missing,
            )
        )
        payload = len(data) - len(found.payload)
        checksum = payload - len(options) - 4
        kind = RAW
        tag = key[2 * size + 4 : -1]
        if tag:
            number = self._tunnel(tag)
            head = bytes(12) + b"\x88\xa8" + _TUNNEL_TAG.to_bytes(2, "big") + b"\x81\0" + number.to_bytes(2, "big")
            head += _IP_TYPES[size == 16]
            data[:0] = head
            payload, checksum, kind = payload + len(head), checksum + len(head), ETHERNET
        return self._made(frame, data, found, payload, checksum, kind)

    def _tunnel(self, tag: bytes) -> int:
        """The number that stands for a tunnel."""
        if tag not in self._tunnels and len(self._tunnels) >= MAX_TUNNELS:
            self.sharing += 1
            return _SHARED_TAG
        return self._tunnels.setdefault(tag, len(self._tunnels) + 1)

    def _address(self, raw: bytes) -> bytes:
        treatment = self._choice.of_kind(Value.ADDRESSES)
        if treatment is Treatment.KEEP:
            return raw
        made = bytes(len(raw)) if treatment is Treatment.BLANK else self._addresses.ip(raw)
        if made != raw:
            self._replaced.append((Value.ADDRESSES, len(raw)))
        return made

    def _link(self, data: bytearray, kind: int) -> None:
        """Replace the addresses of the link layer."""
        if kind in _COOKED:
            ((begin, length),) = _link_places(data, kind)
            unused = slice(begin + length, begin + _COOKED_ROOM)
            data[unused] = bytes(len(data[unused]))
        treatment = self._choice.of_kind(Value.MACS)
        for at, length in _link_places(data, kind):
            if len(data) < at + length or treatment is Treatment.KEEP:
                continue
            raw = bytes(data[at : at + length])
            made = bytes(length) if treatment is Treatment.BLANK else self._addresses.mac(raw)
            if made != raw:
                self._replaced.append((Value.MACS, length))
            data[at : at + length] = made

    def _ip(self, data: bytearray, where: Layout) -> tuple[int, int]:
        """Replace the addresses of an IP header; returns the sums of the old and of the new ones."""
        at, size = (where.ip + 12, 4) if where.version == 4 else (where.ip + 8, 16)
        before = bytes(data[at : at + 2 * size])
        after = self._address(before[:size]) + self._address(before[size:])
        data[at : at + 2 * size] = after
        old, new = word_sum(before), word_sum(after)
        if where.version == 4:
            change(data, where.ip + 10, old, new)
        return old, new

    def _ip_options(self, data: bytearray, where: Layout) -> None:
        """Options of IPv4 hold addresses: nothing is left of them but their length."""
        start, end = where.ip + 20, where.tcp
        if start < end:
            before = word_sum(data[start:end])
            data[start:end] = bytes((_NOP,)) * (end - start)
            change(data, where.ip + 10, before, word_sum(data[start:end]))

    def _options(self, data: bytearray, where: Layout) -> int:
        """Remove options of TCP that may say who somebody is; returns by how much the sum of the header changes."""
        start, end = where.tcp + 20, min(where.payload, where.stop)
        options = data[start:end]
        before = word_sum(options)
        _without_cookies(options)
        data[start:end] = options
        return before + 0xFFFF - word_sum(options)


def _link_places(data: bytes | bytearray, kind: int) -> list[tuple[int, int]]:
    """Where the addresses of a link layer are, and their lengths; they may have been cut off."""
    if kind == ETHERNET:
        return [(0, 6), (6, 6)]
    if kind not in _COOKED:
        return []
    at, width, begin = _COOKED[kind]
    return [(begin, min(_COOKED_ROOM, int.from_bytes(data[at : at + width], "big")))]


def _without_cookies(options: bytearray) -> None:
    """Write no-operations over all options of TCP that are not known to be harmless."""
    at = 0
    while at < len(options):
        kind = options[at]
        if kind == 0:
            options[at:] = bytes(len(options) - at)
            return
        if kind == _NOP:
            at += 1
            continue
        length = options[at + 1] if at + 1 < len(options) else 0
        if length < 2 or at + length > len(options):
            options[at:] = bytes((_NOP,)) * (len(options) - at)
            return
        if length not in _KEPT_OPTIONS.get(kind, ()):
            options[at : at + length] = bytes((_NOP,)) * length
        at += length
