"""Reading pcapng: many sections, byte orders and interfaces, all kinds of packet blocks, drops and secrets.

Format: draft-ietf-opsawg-pcapng.  Blocks that are not needed are skipped.  Section lengths are not used: block lengths
give the position as well, and are always present.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import gcd
from typing import Final, Literal

from mqttscope.capture.compressed import ByteSource
from mqttscope.capture.pcap import FRAME_LIMIT, FrameSink, InterfaceState, ReaderState
from mqttscope.errors import MqttscopeError
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, CaptureSecrets, Frame

PCAPNG_MAGIC: Final = b"\x0a\x0d\x0d\x0a"
"""The first four bytes of a pcapng file, equal in both byte orders."""
BLOCK_OVERHEAD: Final = 1 << 20
"""Maximum length of a block beyond its frame: fields and options."""
TIMESTAMP_LIMIT: Final = 1 << 63
"""Times are signed 64-bit nanoseconds (1677 to 2262); times out of bounds are moved to the nearer end and reported."""

_SECTION_HEADER: Final = 0x0A0D0D0A
_INTERFACE_DESCRIPTION: Final = 1
_OBSOLETE_PACKET: Final = 2
_SIMPLE_PACKET: Final = 3
_INTERFACE_STATISTICS: Final = 5
_ENHANCED_PACKET: Final = 6
_DECRYPTION_SECRETS: Final = 10

_OPTION_DROP_COUNT: Final = 4  # of an Enhanced Packet Block
_OPTION_RECEIVED: Final = 4  # this and the next two of an Interface Statistics Block
_OPTION_INTERFACE_DROPS: Final = 5
_OPTION_SYSTEM_DROPS: Final = 7
_OPTION_TIME_RESOLUTION: Final = 9  # this and the next of an Interface Description Block
_OPTION_TIME_OFFSET: Final = 14
_DROPS_UNKNOWN: Final = 0xFFFF

_BYTE_ORDERS: Final[dict[str, Literal["little", "big"]]] = {"<": "little", ">": "big"}

_ENHANCED_HEADER_SIZE: Final = 28
_ENHANCED_OVERHEAD: Final = 32
_SMALLEST_BLOCK: Final = 12


_new = Frame.__new__


class _DamagedBlockError(MqttscopeError):
    """A block contradicts itself; the message gives the contradiction."""


@dataclass(slots=True)
class _SectionState:
    order: str
    interfaces: list[InterfaceState] = field(default_factory=list)

    def interface(self, index: int) -> InterfaceState:
        if index >= len(self.interfaces):
            raise _DamagedBlockError(f"a block refers to interface {index}, {len(self.interfaces)} are described")
        return self.interfaces[index]


def read_pcapng(
    source: ByteSource,
    buffer: bytes,
    capture: str,
    *,
    frame_limit: int = FRAME_LIMIT,
    state: ReaderState | None = None,
    more: bool = False,
    direct: FrameSink | None = None,
) -> Iterator[Frame | CaptureNotice]:
    """The frames and notices of a pcapng file, then one :class:`CaptureError` when it is damaged or incomplete.

    ``source``: continuation of the file after ``buffer``, the bytes read before, which begin with :data:`PCAPNG_MAGIC`.
    ``capture``: name for the frames.  ``frame_limit``: maximum frame length in bytes.

    Frames of Simple Packet Blocks have no time and take the time of the previous frame, or 0.  Drop counts of packet
    blocks are summed up per interface and reported at the end of the section.

    ``state``: position to resume from, unless new; ``buffer`` and ``source`` then begin there.  ``more``: the file
    continues to grow, so that its end is not final.  Frames that ``direct`` takes are not yielded.
    """
    section = _SectionState("<") if state is None else _SectionState(state.order, state.interfaces)
    interfaces = section.interfaces
    unpack, unpack_length = _unpackers(section.order)
    known = upper = since = link_type = multiplier = -1  # of the interface seen last
    steady = False
    interface: InterfaceState
    base, position, end = 0, 0, len(buffer)
    number, timestamp, beyond = 0, 0, 0
    if state is not None:
        base, number, timestamp, beyond = state.position, state.frames, state.timestamp_ns, state.beyond
    message: str | None = None
    if direct is not None:
        direct.base = base
    try:
        while True:
            if position + _ENHANCED_HEADER_SIZE > end:
                buffer = source.fill(buffer[position:], _ENHANCED_HEADER_SIZE)
                base, position, end = base + position, 0, len(buffer)
                if direct is not None:
                    direct.base = base
            if position + _ENHANCED_HEADER_SIZE <= end:
                kind, length, interface_id, high, low, captured, original = unpack(buffer, position)
                stop = position + length
                # Anything but a complete, consistent Enhanced Packet Block takes the slower path below.
                if (
                    kind == _ENHANCED_PACKET
                    and stop <= end
                    and interface_id < len(interfaces)
                    and captured + _ENHANCED_OVERHEAD <= length
                    and not length & 3
                    and captured <= frame_limit
                    and unpack_length(buffer, stop - 4)[0] == length
                ):
                    start = position + _ENHANCED_HEADER_SIZE
                    data_end = start + captured
                    if captured + 35 < length:
                        options = buffer[data_end + (-captured & 3) : stop - 4]
                        drops = _integers(options, section.order).get(_OPTION_DROP_COUNT, 0)
                        interfaces[interface_id].dropped_between += drops
                    if high != upper or interface_id != known:
                        # The upper half of the time changes rarely (once an hour for microseconds).
                        interface, upper, known = interfaces[interface_id], high, interface_id
                        link_type, multiplier = interface.link_type, interface.multiplier
                        since = interface.time(high << 32)
                        steady = (
                            interface.divisor == 1
                            and _is_near(since)
                            and _is_near(interface.time(high << 32 | 0xFFFFFFFF))
                        )
                    if steady:
                        timestamp = since + low * multiplier
                    else:
                        timestamp = interface.time(high << 32 | low)
                        if not _is_near(timestamp):
                            timestamp, is_beyond = _far_time(high << 32 | low, interface)
                            beyond += is_beyond
                    number += 1
                    if direct is not None and direct.take(
                        buffer, start, data_end, number, timestamp, link_type, original, capture
                    ):
                        position = stop
                        continue
                    # Without __init__, because this runs once per frame.
                    frame = _new(Frame)
                    frame.number = number
                    frame.timestamp_ns = timestamp
                    frame.link_type = link_type
                    frame.data = buffer[start:data_end]
                    frame.original_length = original
                    frame.capture = capture
                    frame.interface = interface_id
                    yield frame
                    position = stop
                    continue
            if end - position < _SMALLEST_BLOCK:
                if position < end and not more:
                    message = f"ends inside a block header ({end - position} of {_SMALLEST_BLOCK} bytes are there)"
                message = source.fault or message
                break
            kind, length, order = _block_header(buffer[position : position + _SMALLEST_BLOCK], section.order)
            size = length + (-length & 3)  # files of old writers leave the padding out of the length
            if size > frame_limit + BLOCK_OVERHEAD:
                raise _DamagedBlockError(f"a block claims {length} bytes")
            if size > end - position:
                buffer = source.fill(buffer[position:], size)
                base, position, end = base + position, 0, len(buffer)
                if direct is not None:
                    direct.base = base
                if size > end:
                    if not more:
                        message = f"ends inside a block ({end} of {size} bytes are there)"
                    message = source.fault or message
                    break
                continue  # complete now: perhaps an ordinary packet block
            _check_trailer(buffer[position + size - 4 : position + size], length, order)
            body = buffer[position + 8 : position + size - 4]
            if kind == _SECTION_HEADER:
                _check_section_header(body, order)
                yield from _unreported_drops(section, capture)
                section = _SectionState(order)
                interfaces = section.interfaces
                unpack, unpack_length = _unpackers(order)
                known = -1
            elif kind == _INTERFACE_DESCRIPTION:
                interfaces.append(_interface(body, order))
            elif kind in _PACKET_BLOCKS:
                index, ticks, data, original = _PACKET_BLOCKS[kind](body, section)
                interface = section.interface(index)
                if len(data) > frame_limit:
                    raise _DamagedBlockError(f"a frame claims {len(data)} bytes, the maximum is {frame_limit}")
                if ticks is not None:
                    timestamp = interface.time(ticks)
                    if not _is_near(timestamp):
                        timestamp, is_beyond = _far_time(ticks, interface)
                        beyond += is_beyond
                number += 1
                yield Frame(number, timestamp, interface.link_type, data, original, capture, index)
            elif kind == _INTERFACE_STATISTICS:
                yield from _statistics(body, section, capture)
            elif kind == _DECRYPTION_SECRETS:
                yield _secrets(body, order, capture)
            position += size
    except _DamagedBlockError as error:
        message = f"is damaged: {error}"
    if state is not None:
        state.order, state.interfaces = section.order, section.interfaces
        state.damaged = message is not None and source.fault is None
        state.position, state.frames, state.timestamp_ns, state.beyond = base + position, number, timestamp, beyond
    if more and message is None:
        return
    yield from _unreported_drops(section, capture)
    if beyond:
        times = f"has {beyond} frame(s) with a time outside the years 1677 to 2262"
        message = f"{message}; {times}" if message else times
    if message:
        yield CaptureError(capture, message, base + position, number)


@dataclass(slots=True)
class Block:
    """A block of a pcapng file as it is, with its padding."""

    data: bytes
    order: str
    """Byte order of its section, as `struct` writes it."""
    frame: Frame | None = None
    """The frame of a packet block."""
    simple_ticks: int | None = None
    """Of a Simple Packet Block: the time of the frame before in the units of the first interface."""


def read_blocks(source: ByteSource, buffer: bytes, capture: str) -> Iterator[Block | CaptureError]:
    """The blocks of a pcapng file, to copy them; `read_pcapng` yields the same frames.

    A file that is damaged or incomplete ends with one :class:`CaptureError`.
    """
    section = _SectionState("<")
    base = position = number = timestamp = 0
    message: str | None = None
    try:
        while True:
            if position + _SMALLEST_BLOCK > len(buffer):
                buffer = source.fill(buffer[position:], _SMALLEST_BLOCK)
                base, position = base + position, 0
                if len(buffer) < _SMALLEST_BLOCK:
                    message = "ends inside a block header" if buffer else None
                    break
            kind, length, order = _block_header(buffer[position : position + _SMALLEST_BLOCK], section.order)
            size = length + (-length & 3)
            if size > FRAME_LIMIT + BLOCK_OVERHEAD:
                raise _DamagedBlockError(f"a block claims {length} bytes")
            if position + size > len(buffer):
                buffer = source.fill(buffer[position:], size)
                base, position = base + position, 0
                if size > len(buffer):
                    message = "ends inside a block"
                    break
            _check_trailer(buffer[position + size - 4 : position + size], length, order)
            data = buffer[position : position + size]
            body = data[8:-4]
            block = Block(data, order)
            if kind == _SECTION_HEADER:
                _check_section_header(body, order)
                section = _SectionState(order)
            elif kind == _INTERFACE_DESCRIPTION:
                section.interfaces.append(_interface(body, order))
            elif kind in _PACKET_BLOCKS:
                index, ticks, content, original = _PACKET_BLOCKS[kind](body, section)
                interface = section.interface(index)
                if ticks is None:
                    block.simple_ticks = max(0, (timestamp - interface.offset_ns) * interface.divisor)
                    block.simple_ticks //= interface.multiplier
                else:
                    timestamp = interface.time(ticks)
                number += 1
                block.frame = Frame(number, timestamp, interface.link_type, content, original, capture, index)
            yield block
            position += size
    except _DamagedBlockError as error:
        message = f"is damaged: {error}"
    message = source.fault or message
    if message is not None:
        yield CaptureError(capture, message, base + position, number)


def _unpackers(order: str) -> tuple[Callable[..., tuple[int, ...]], Callable[..., tuple[int, ...]]]:
    """Unpackers for the header of an Enhanced Packet Block, and for the length after it."""
    return struct.Struct(order + "IIIIIII").unpack_from, struct.Struct(order + "I").unpack_from


def _is_near(timestamp: int) -> bool:
    return -TIMESTAMP_LIMIT <= timestamp < TIMESTAMP_LIMIT


def _far_time(ticks: int, interface: InterfaceState) -> tuple[int, bool]:
    """The time that out-of-bounds ticks probably mean, and whether it is still out of bounds."""
    # PcapPlusPlus and others write times before 1970 as negative numbers into the unsigned field.
    if ticks >= 1 << 63:
        timestamp = interface.time(ticks - (1 << 64))
        if _is_near(timestamp):
            return timestamp, False
    return (TIMESTAMP_LIMIT - 1 if interface.time(ticks) > 0 else -TIMESTAMP_LIMIT), True


def _block_header(header: bytes, order: str) -> tuple[int, int, str]:
    """Type, total length and byte order of a block; a section header has its own byte order."""
    if header[:4] == PCAPNG_MAGIC:
        if header[8:12] == b"\x4d\x3c\x2b\x1a":
            order = "<"
        elif header[8:12] == b"\x1a\x2b\x3c\x4d":
            order = ">"
        else:
            raise _DamagedBlockError(f"a section has the byte order mark {header[8:12].hex(' ')}")
    kind, length = struct.unpack_from(order + "II", header)
    if length < _SMALLEST_BLOCK:
        raise _DamagedBlockError(f"a block claims {length} bytes, {_SMALLEST_BLOCK} are the least")
    return kind, length, order


def _check_trailer(trailer: bytes, length: int, order: str) -> None:
    after = int.from_bytes(trailer, _BYTE_ORDERS[order])
    if after not in (length, length + (-length & 3)):
        raise _DamagedBlockError(f"a block has the lengths {length} at its beginning and {after} at its end")


def _fields(layout: str, body: bytes, what: str) -> tuple[int, ...]:
    if len(body) < struct.calcsize(layout):
        raise _DamagedBlockError(f"the body of {what} has only {len(body)} bytes")
    return struct.unpack_from(layout, body)


def _options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    position, end = 0, len(data)
    while position + 4 <= end:
        code, length = struct.unpack_from(order + "HH", data, position)
        if not code:
            return
        start = position + 4
        if start + length > end:
            raise _DamagedBlockError(f"option {code} claims {length} bytes, {end - start} are there")
        yield code, data[start : start + length]
        position = start + length + (-length & 3)


def _integers(data: bytes, order: str) -> dict[int, int]:
    """The 64-bit options of a block; for repeated options, the last one."""
    byte_order = _BYTE_ORDERS[order]
    return {code: int.from_bytes(value, byte_order) for code, value in _options(data, order) if len(value) == 8}


def latest_half(body: bytes, order: str) -> int:
    """The largest upper half of ticks with all times within `TIMESTAMP_LIMIT`, or -1.

    ``body``: of the Interface Description Block; `ValueError` if it contradicts itself.
    """
    try:
        interface = _interface(body, order)
    except _DamagedBlockError as error:
        raise ValueError(str(error)) from None
    if not _is_near(interface.time(0)):
        return -1
    ticks = ((TIMESTAMP_LIMIT - interface.offset_ns) * interface.divisor - 1) // interface.multiplier
    return min(ticks + 1 >> 32, 1 << 32) - 1


def _check_section_header(body: bytes, order: str) -> None:
    _, major, minor = _fields(order + "IHH", body, "a section header")
    if major != 1:
        raise _DamagedBlockError(f"a section has version {major}.{minor}, known is 1")


def _interface(body: bytes, order: str) -> InterfaceState:
    link_type, snap_length = _fields(order + "HxxI", body, "an interface description")
    unit, offset = 1_000_000, 0
    for code, value in _options(body[8:], order):
        if code == _OPTION_TIME_RESOLUTION and len(value) == 1:
            exponent = value[0] & 0x7F
            unit = 2**exponent if value[0] & 0x80 else 10**exponent
        elif code == _OPTION_TIME_OFFSET and len(value) == 8:
            offset = int.from_bytes(value, _BYTE_ORDERS[order], signed=True)
    common = gcd(1_000_000_000, unit)
    return InterfaceState(link_type, snap_length, 1_000_000_000 // common, unit // common, offset * 1_000_000_000)


_PacketParts = tuple[int, int | None, bytes, int]
"""Fields of a packet block: number of the interface, ticks of its clock, captured bytes, length on the wire."""


def _enhanced_packet(body: bytes, section: _SectionState) -> _PacketParts:
    index, high, low, captured, original = _fields(section.order + "IIIII", body, "a packet block")
    interface = section.interface(index)
    data, options = _captured(body, 20, captured)
    interface.dropped_between += _integers(options, section.order).get(_OPTION_DROP_COUNT, 0)
    return index, high << 32 | low, data, original


def _obsolete_packet(body: bytes, section: _SectionState) -> _PacketParts:
    index, drops, high, low, captured, original = _fields(section.order + "HHIIII", body, "a packet block")
    interface = section.interface(index)
    if drops != _DROPS_UNKNOWN:
        interface.dropped_between += drops
    return index, high << 32 | low, _captured(body, 20, captured)[0], original


def _simple_packet(body: bytes, section: _SectionState) -> _PacketParts:
    (original,) = _fields(section.order + "I", body, "a packet block")
    interface = section.interface(0)
    captured = min(original, interface.snap_length or original)
    return 0, None, _captured(body, 4, captured)[0], original


def _captured(body: bytes, start: int, captured: int) -> tuple[bytes, bytes]:
    """The captured bytes and, after their padding, the options."""
    stop = start + captured
    if stop > len(body):
        raise _DamagedBlockError(f"a frame claims {captured} bytes, its block has {len(body) - start}")
    return body[start:stop], body[stop + (-captured & 3) :]


_PACKET_BLOCKS: Final[dict[int, Callable[[bytes, _SectionState], _PacketParts]]] = {
    _OBSOLETE_PACKET: _obsolete_packet,
    _SIMPLE_PACKET: _simple_packet,
    _ENHANCED_PACKET: _enhanced_packet,
}


def _statistics(body: bytes, section: _SectionState, capture: str) -> Iterator[CaptureDrops]:
    """Drops since the previous statistics, if any; the notices add up to the total."""
    index, _, _ = _fields(section.order + "III", body, "interface statistics")
    interface = section.interface(index)
    counters = _integers(body[12:], section.order)
    dropped = counters.get(_OPTION_INTERFACE_DROPS, 0) + counters.get(_OPTION_SYSTEM_DROPS, 0)
    received = counters.get(_OPTION_RECEIVED)
    if dropped > interface.dropped:
        since = None if received is None else max(0, received - interface.received)
        yield CaptureDrops(capture, index, since, dropped - interface.dropped)
        interface.dropped = dropped
        interface.received = received or interface.received


def _unreported_drops(section: _SectionState, capture: str) -> Iterator[CaptureDrops]:
    """Drop counts of packet blocks, minus the drops that statistics have reported."""
    for index, interface in enumerate(section.interfaces):
        if interface.dropped_between > interface.dropped:
            yield CaptureDrops(capture, index, None, interface.dropped_between - interface.dropped)


def _secrets(body: bytes, order: str, capture: str) -> CaptureSecrets:
    secrets_type, length = _fields(order + "II", body, "a secrets block")
    if 8 + length > len(body):
        raise _DamagedBlockError(f"secrets claim {length} bytes, their block has {len(body) - 8}")
    return CaptureSecrets(capture, secrets_type, body[8 : 8 + length])
