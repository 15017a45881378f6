"""Rewrites frames: other addresses, and nothing that the dissector does not read; lengths and checksums are kept.

Kept: link layers without names (Ethernet, VLAN tags, PPP, loopback, Linux cooked), the headers of IP and TCP, and their
usual options.  Removed: padding and trailers, IP options, and TCP options that may contain a cookie or key.  Payloads
are filler until their replacement is known (`pieces`).

Frames of tunnels and of other link layers contain further addresses, names of interfaces and processes, and positions.
Their TCP segment is written as a plain IP datagram.  An unused VLAN tag represents the tunnel, because it separates
equal addresses.

Checksums are not calculated but adjusted by the change of the bytes (RFC 1624): correct ones stay correct, wrong ones
stay wrong, and ones left to the network interface stay so, even in truncated frames.
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
from mqttscope.redact.kinds import Treatment, TreatmentChoice, Value, filler

ETHERNET: Final = 1
RAW: Final = 101
_COOKED: Final = {113: (4, 2, 6), 276: (11, 1, 12)}
"""Offset and size of the address length, and offset of the address, in Linux cooked captures."""
_COOKED_ROOM: Final = 8
"""Size of the address field in Linux cooked captures."""
_NAMELESS: Final = {
    **dict.fromkeys((0, 108), 4), **dict.fromkeys((12, 14, 101, 228, 229), 0), 9: 4, 50: 4, 51: 8, 104: 4, 166: 4,
    204: 5, 205: 5,
}  # fmt: skip
"""Link types without addresses, with the maximum length of their headers."""
_VLAN_TYPES: Final = (b"\x81\0", b"\x88\xa8", b"\x91\0", b"\x92\0", b"\x93\0")
_IP_TYPES: Final = (b"\x08\0", b"\x86\xdd")
_TCP: Final = 6
_FRAGMENT: Final = 44
_NOP: Final = 1
_KEPT_OPTIONS: Final = {2: (4,), 3: (3,), 4: (2,), 5: (10, 18, 26, 34), 8: (10,)}
"""TCP options that stay, with their lengths: segment size, window scale, selective acknowledgments, timestamps."""
_TUNNEL_TAG: Final = 0x0FFE
MAX_TUNNELS: Final = 4_094
"""Maximum number of tunnels with their own tag; further tunnels share one tag."""
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
    """Bytes of the frame; ``None`` once they are in the file, at ``place``."""
    group: bytes = b""
    """Key of the connection: the frame is written only if the connection is MQTT; empty to write it always."""
    place: int = -1
    payload: int = 0
    """Offset of the payload of the segment."""
    checksum: int = -1
    """Offset of the TCP checksum; -1 if it was not captured, or does not cover the payload."""
    replaced: bytes = bytes(4)
    """Number and bytes of replaced IP addresses in the headers, then number and bytes of replaced link addresses."""
    parts: list[DatagramPart] = field(default_factory=list)
    """Positions of the payload of a fragmented datagram; empty if the payload is in this frame."""


@dataclass(slots=True)
class DatagramPart:
    """Bytes of a payload in the frame of a fragment."""

    start: int
    """Offset in the payload."""
    length: int
    frame: MovedFrame
    place: int
    """Offset in the frame."""


@dataclass(slots=True)
class MovedFragment:
    """The frame of an IP fragment, with filler for its content."""

    frame: MovedFrame
    offset: int
    """Offset of the content in the datagram, in bytes."""
    place: int
    """Offset of the content in the frame."""
    length: int
    before: int
    """Checksum contribution of the content and addresses before the replacement."""
    after: int
    """Checksum contribution of the content and addresses after the replacement."""


def folded(number: int) -> int:
    """Fold a sum of 16-bit words in ones' complement."""
    while number > 0xFFFF:
        number = (number & 0xFFFF) + (number >> 16)
    return number


def word_sum(data: bytes | bytearray, *, odd: bool = False) -> int:
    """Ones' complement sum of the 16-bit words of some bytes; ``odd`` if they begin with a low octet."""
    padded = bytes(odd) + bytes(data)
    # 2**16 is 1 modulo 2**16 - 1, so a number and the sum of its words have equal remainders.
    return int.from_bytes(padded + bytes(len(padded) % 2), "big") % 0xFFFF


def adjusted(checksum: int, before: int, after: int) -> int:
    """The checksum after words with the sum ``before`` become words with the sum ``after`` (RFC 1624, equation 3)."""
    if before % 0xFFFF == after % 0xFFFF:
        return checksum
    return ~folded((~checksum & 0xFFFF) + (0xFFFF - before % 0xFFFF) + after) & 0xFFFF


def change(data: bytearray, at: int, before: int, after: int) -> None:
    checksum = adjusted(int.from_bytes(data[at : at + 2], "big"), before, after)
    data[at : at + 2] = checksum.to_bytes(2, "big")


@dataclass(slots=True)
class FrameLayout:
    """Offsets of the parts of a plain frame; parts that were cut off end with the captured bytes."""

    ip: int
    version: int
    tcp: int
    payload: int
    stop: int
    """The end of the captured bytes of the datagram."""
    tags: list[int] = field(default_factory=list)


def layout(frame: Frame, segment: Segment) -> FrameLayout | None:
    """The layout of a frame with this segment; ``None`` if the frame is not plain."""
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
    if data[payload:stop] != segment.payload:
        return None
    return FrameLayout(ip, version, tcp, min(payload, stop), stop)


def _is_plain_link(data: bytes, kind: int, ip: int, encapsulation: bytes) -> bool:
    """Whether the header before IP contains only addresses at the expected offsets, and VLAN tags."""
    if kind == ETHERNET:
        at = 12
        while data[at : at + 2] in _VLAN_TYPES:
            at += 4
        return at + 2 == ip and data[at : at + 2] in _IP_TYPES
    if kind in _COOKED:
        return ip == (16 if kind == 113 else 20)
    return not encapsulation and 0 <= ip <= _NAMELESS.get(kind, -1)


class FrameRedactor:
    """Rewrites frames."""

    def __init__(self, addresses: Addresses, choice: TreatmentChoice, build: BuildFrame) -> None:
        """``build`` makes an IP datagram from a segment, like `capture.write.ip_frame`."""
        self._addresses = addresses
        self._choice = choice
        self._build = build
        self._replaced: list[tuple[Value, int]] = []
        """Kinds and lengths of the replaced addresses in the current frame."""
        self._tunnels: dict[bytes, int] = {}
        self.rebuilt = 0
        """Number of frames with a removed tunnel or link layer."""
        self.sharing = 0
        """Number of frames of tunnels that share a tag."""

    def survey(self, frame: Frame, item: Segment | Fragment | NotSegment) -> None:
        """Note the addresses of a frame, which must not become replacements."""
        data = frame.data
        for at, length in _link_places(data, frame.link_type):
            self._addresses.note(data[at : at + length])
        if isinstance(item, Segment):
            size = 4 if is_ipv4_key(item.key) else 16
            ends = (item.key[:size], item.key[size : 2 * size])
        elif isinstance(item, Fragment):
            ends = (item.source, item.destination)
        else:
            link = links.LINKS.get(frame.link_type)
            located = link(data, 0, len(data), len(data)) if link is not None else item
            if isinstance(located, NotSegment):
                return
            at, size = (located[1] + 12, 4) if located[0] == 4 else (located[1] + 8, 16)
            if len(data) < at + 2 * size:
                return
            ends = (data[at : at + size], data[at + size : at + 2 * size])
        for address in ends:
            self._addresses.note(address)

    def rewrite(self, frame: Frame, segment: Segment) -> MovedFrame:
        """The frame of a segment with replaced addresses, and filler for the payload."""
        where = layout(frame, segment)
        if where is None:
            return self._rebuild(frame, segment)
        data = bytearray(frame.data)
        self._link(data, frame.link_type)
        # After the datagram there is padding, a checksum, or leftover memory of the sender.
        data[where.stop :] = bytes(len(data) - where.stop)
        checksum = where.tcp + 16
        before = word_sum(data[where.payload : where.stop]) + self._options(data, where)
        data[where.payload : where.stop] = filler(where.stop - where.payload)
        after = word_sum(data[where.payload : where.stop])
        if where.version == 4:
            self._ip_options(data, where)
        old, new = self._ip(data, where)
        sums = int.from_bytes(data[checksum : checksum + 2], "big")
        if is_left_to_interface(sums, old, where.stop + segment.missing - where.tcp):
            # It covers only the addresses.
            data[checksum : checksum + 2] = folded(sums + 0xFFFF - old + new).to_bytes(2, "big")
            checksum = -1
        else:
            change(data, checksum, before + old, after + new)
        return self._moved_frame(frame, data, segment, where.payload, checksum)

    def fragment(self, frame: Frame, fragment: Fragment) -> MovedFragment | None:
        """The frame of a fragment of a TCP segment, rewritten; ``None`` if the frame is not plain."""
        link = links.LINKS[frame.link_type]
        located = link(frame.data, 0, len(frame.data), max(len(frame.data), frame.original_length))
        if fragment.protocol != _TCP or isinstance(located, NotSegment):
            return None
        version, ip, _, encapsulation = located
        data = bytearray(frame.data)
        if not _is_plain_link(frame.data, frame.link_type, ip, encapsulation):
            return None
        body = ip + (data[ip] & 0x0F) * 4 if version == 4 else ip + 48
        stop = body + len(fragment.data)
        if frame.data[body:stop] != fragment.data or (version == 6 and data[ip + 6] != _FRAGMENT):
            return None
        header = 0
        checksum = -1
        if not fragment.offset:
            # The first fragment must contain the whole TCP header.
            header = data[body + 12] >> 2 & 0x3C if len(fragment.data) >= 20 else 0
            if not 20 <= header <= len(fragment.data):
                return None
            checksum = body + 16
        self._link(data, frame.link_type)
        data[stop:] = bytes(len(data) - stop)
        where = FrameLayout(ip, version, body, body + header, stop)
        before = word_sum(data[body + header : stop]) + (self._options(data, where) if header else 0)
        data[body + header : stop] = filler(stop - body - header)
        after = word_sum(data[body + header : stop])
        if version == 4:
            self._ip_options(data, where)
        old, new = self._ip(data, where)
        if header:
            # Every fragment contains the addresses, but the checksum covers them once.
            before, after = before + old, after + new
        moved = self._moved_frame(frame, data, None, body + header, checksum)
        return MovedFragment(moved, fragment.offset, body, stop - body, before, after)

    def _take_replaced(self) -> bytes:
        """`MovedFrame.replaced` of the current frame, which is complete."""
        sizes = [[size for kind, size in self._replaced if kind is kind_] for kind_ in (Value.ADDRESSES, Value.MACS)]
        self._replaced.clear()
        return bytes(number for row in sizes for number in (len(row), sum(row)))

    def _moved_frame(
        self, frame: Frame, data: bytearray, segment: Segment | None, payload: int, checksum: int, kind: int = -1
    ) -> MovedFrame:
        original = max(frame.original_length, len(data))
        if kind >= 0 and segment is not None:
            original = len(data) + segment.missing
        return MovedFrame(frame.timestamp_ns, frame.link_type if kind < 0 else kind, original, data,
            payload=payload, checksum=checksum, replaced=self._take_replaced(),
        )  # fmt: skip

    def _rebuild(self, frame: Frame, segment: Segment) -> MovedFrame:
        self.rebuilt += 1
        key = segment.key
        size = 4 if is_ipv4_key(key) else 16
        source, destination = self._address(key[:size]), self._address(key[size : 2 * size])
        ports = key[2 * size : 2 * size + 4]
        options = bytearray(segment.options[: len(segment.options) // 4 * 4])
        _remove_cookies(options)
        data = bytearray(
            self._build(
                source,
                destination,
                (int.from_bytes(ports[:2], "big"), int.from_bytes(ports[2:], "big")),
                sequence=segment.sequence,
                acknowledgment=segment.acknowledgment,
                flags=segment.flags,
                window=segment.window,
                payload=filler(len(segment.payload)),
                options=bytes(options),
                missing=segment.missing,
            )
        )
        payload = len(data) - len(segment.payload)
        checksum = payload - len(options) - 4
        kind = RAW
        tag = key[2 * size + 4 : -1]
        if tag:
            number = self._tunnel(tag)
            head = bytes(12) + b"\x88\xa8" + _TUNNEL_TAG.to_bytes(2, "big") + b"\x81\0" + number.to_bytes(2, "big")
            head += _IP_TYPES[size == 16]
            data[:0] = head
            payload, checksum, kind = payload + len(head), checksum + len(head), ETHERNET
        return self._moved_frame(frame, data, segment, payload, checksum, kind)

    def _tunnel(self, tag: bytes) -> int:
        if tag not in self._tunnels and len(self._tunnels) >= MAX_TUNNELS:
            self.sharing += 1
            return _SHARED_TAG
        return self._tunnels.setdefault(tag, len(self._tunnels) + 1)

    def _address(self, raw: bytes) -> bytes:
        treatment = self._choice.treatment_of(Value.ADDRESSES)
        if treatment is Treatment.KEEP:
            return raw
        other = bytes(len(raw)) if treatment is Treatment.BLANK else self._addresses.ip(raw)
        if other != raw:
            self._replaced.append((Value.ADDRESSES, len(raw)))
        return other

    def _link(self, data: bytearray, kind: int) -> None:
        if kind in _COOKED:
            ((begin, length),) = _link_places(data, kind)
            unused = slice(begin + length, begin + _COOKED_ROOM)
            data[unused] = bytes(len(data[unused]))
        treatment = self._choice.treatment_of(Value.MACS)
        for at, length in _link_places(data, kind):
            if len(data) < at + length or treatment is Treatment.KEEP:
                continue
            raw = bytes(data[at : at + length])
            other = bytes(length) if treatment is Treatment.BLANK else self._addresses.mac(raw)
            if other != raw:
                self._replaced.append((Value.MACS, length))
            data[at : at + length] = other

    def _ip(self, data: bytearray, where: FrameLayout) -> tuple[int, int]:
        """Replace the addresses of an IP header; returns the sums of the old and new addresses."""
        at, size = (where.ip + 12, 4) if where.version == 4 else (where.ip + 8, 16)
        before = bytes(data[at : at + 2 * size])
        after = self._address(before[:size]) + self._address(before[size:])
        data[at : at + 2 * size] = after
        old, new = word_sum(before), word_sum(after)
        if where.version == 4:
            change(data, where.ip + 10, old, new)
        return old, new

    def _ip_options(self, data: bytearray, where: FrameLayout) -> None:
        """Overwrite the IPv4 options, which may contain addresses; only their length stays."""
        start, end = where.ip + 20, where.tcp
        if start < end:
            before = word_sum(data[start:end])
            data[start:end] = bytes((_NOP,)) * (end - start)
            change(data, where.ip + 10, before, word_sum(data[start:end]))

    def _options(self, data: bytearray, where: FrameLayout) -> int:
        """Overwrite TCP options that may identify a host or user; returns the change of the header's sum."""
        start, end = where.tcp + 20, min(where.payload, where.stop)
        options = data[start:end]
        before = word_sum(options)
        _remove_cookies(options)
        data[start:end] = options
        return before + 0xFFFF - word_sum(options)


def _link_places(data: bytes | bytearray, kind: int) -> list[tuple[int, int]]:
    """Offsets and lengths of the link-layer addresses, which may be cut off."""
    if kind == ETHERNET:
        return [(0, 6), (6, 6)]
    if kind not in _COOKED:
        return []
    at, width, begin = _COOKED[kind]
    return [(begin, min(_COOKED_ROOM, int.from_bytes(data[at : at + width], "big")))]


def _remove_cookies(options: bytearray) -> None:
    """Overwrite all TCP options with no-operations except the ones known to be harmless."""
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
