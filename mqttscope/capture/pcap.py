"""Reads pcap: microseconds and nanoseconds, both byte orders, and Kuznetzov's modified format.

Format: draft-ietf-opsawg-pcap.  The version is not judged: every writer since 1998 writes 2.4, and files with another
version have the same layout.

`ReaderState` is where a reader stands in the middle of a capture.  A later run, also in another process, resumes from
it; the reader of pcapng uses it as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from mqttscope.capture.compressed import ByteSource
from mqttscope.net.frame import CaptureError, Frame


class FrameSink(Protocol):
    """Takes frames out of a reader's buffer, so that nothing is made for a frame that nobody wants to see."""

    base: int
    """Offset in the capture, uncompressed, of the first byte of ``data``; readers set it before they offer a frame."""

    def take(
        self,
        data: bytes,
        start: int,
        end: int,
        number: int,
        timestamp_ns: int,
        link_type: int,
        original_length: int,
        capture: str,
    ) -> bool:
        """Take the frame in ``data`` from ``start`` to ``end``; the other arguments are fields of `Frame`.

        ``False`` where it did not: then nothing has happened, and the reader yields the frame.
        """


@dataclass(slots=True)
class Interface:
    """What an Interface Description Block says, and what was lost on the interface."""

    link_type: int
    snap_length: int
    multiplier: int
    divisor: int
    offset_ns: int
    received: int = 0
    """As told by Interface Statistics Blocks; counts up from the start of the capture, like ``dropped``."""
    dropped: int = 0
    dropped_between: int = 0
    """Sum of the drops that the packet blocks carry."""

    def time(self, ticks: int) -> int:
        """Nanoseconds since the epoch; what is finer than a nanosecond is cut off."""
        return ticks * self.multiplier // self.divisor + self.offset_ns


@dataclass(slots=True)
class ReaderState:
    """How far a capture was read, and what of it has a say in what follows.  Plain data.

    A reader that is given one begins where it says, and at the end of the bytes leaves in it where the next one begins:
    the end of the bytes is not the end of the capture then.
    """

    position: int = 0
    """Offset of the first record that was not read."""
    frames: int = 0
    """How many frames were read."""
    timestamp_ns: int = 0
    """Time of the last frame; in a pcap file left to whoever takes the frames."""
    link_types: list[int] = field(default_factory=list)
    """Link types that the frames had; left to whoever takes the frames."""
    beyond: int = 0
    """Frames with a time out of bounds."""
    damaged: bool = False
    """There is nothing to be read any more: the record at ``position`` contradicts itself."""
    order: str = "<"
    """Byte order of the section of a pcapng file."""
    interfaces: list[Interface] = field(default_factory=list)
    """Interfaces of that section."""

    def written(self) -> list[Any]:
        """As numbers, texts and lists, for JSON."""
        interfaces = [
            [one.link_type, one.snap_length, one.multiplier, one.divisor, one.offset_ns, one.received, one.dropped,
             one.dropped_between] for one in self.interfaces
        ]  # fmt: skip
        return [
            self.position, self.frames, self.timestamp_ns, list(self.link_types), self.beyond, self.damaged, self.order,
            interfaces,
        ]  # fmt: skip

    @classmethod
    def of(cls, values: Sequence[Any]) -> ReaderState:
        """What `written` wrote."""
        made = cls(*values[:7])
        made.interfaces = [Interface(*one) for one in values[7]]
        return made

    def copy(self) -> ReaderState:
        return ReaderState.of(self.written())


FRAME_LIMIT: Final = 64 << 20
"""A frame said to be longer than this is damage, whatever the snap length of the file."""
STANDARD_SNAP_LENGTH: Final = 262_144
"""The longest frame that libpcap writes; files that say less, or 0, still hold frames up to this length."""
LINK_TYPE_MASK: Final = 0xFFFF
"""The upper bits of the link type field hold the length of a frame check sequence, or nothing."""

FILE_HEADER_SIZE: Final = 24
"""Bytes before the first record."""
_new = Frame.__new__
LAYOUTS: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000, "IIII"),
    b"\xa1\xb2\xc3\xd4": (">", 1000, "IIII"),
    b"\x4d\x3c\xb2\xa1": ("<", 1, "IIII"),
    b"\xa1\xb2\x3c\x4d": (">", 1, "IIII"),
    b"\x34\xcd\xb2\xa1": ("<", 1000, "IIII8x"),
    b"\xa1\xb2\xcd\x34": (">", 1000, "IIII8x"),
}
"""Magic -> byte order, nanoseconds per unit of the fraction, layout of a record header."""
PCAP_MAGICS: Final = frozenset(LAYOUTS)
"""The first four bytes of the pcap files that are read."""


def read_pcap(
    source: ByteSource,
    buffer: bytes,
    capture: str,
    *,
    frame_limit: int = FRAME_LIMIT,
    memory: ReaderState | None = None,
    more: bool = False,
    direct: FrameSink | None = None,
) -> Iterator[Frame | CaptureError]:
    """The frames of a pcap file, then one :class:`CaptureError` when it is damaged or ends inside a record.

    ``source``: where the file continues after ``buffer``, the bytes read so far, which begin with a magic of
    :data:`PCAP_MAGICS`.  ``capture``: name for the frames.  ``frame_limit``: longest frame believed, in bytes.

    ``memory``: where to begin, unless it is fresh; ``buffer`` is the file header then, and ``source`` begins there.
    ``more``: the file continues growing, so that ending inside a record is no fault.  Frames that ``direct`` takes
    do not come out here.
    """
    buffer = buffer if len(buffer) >= FILE_HEADER_SIZE else source.fill(buffer, FILE_HEADER_SIZE)
    if len(buffer) < FILE_HEADER_SIZE and more and source.fault is None:
        return
    if len(buffer) < FILE_HEADER_SIZE:
        message = f"ends inside the file header ({len(buffer)} of {FILE_HEADER_SIZE} bytes are there)"
        yield CaptureError(capture, source.fault or message, 0, 0)
        return
    order, scale, layout = LAYOUTS[buffer[:4]]
    snap_length, network = struct.unpack_from(order + "II", buffer, 16)
    link_type = network & LINK_TYPE_MASK
    limit = min(max(snap_length, STANDARD_SNAP_LENGTH), frame_limit)
    record = struct.Struct(order + layout)
    unpack, header_size = record.unpack_from, record.size
    base, position, end = 0, FILE_HEADER_SIZE, len(buffer)
    number = 0
    if memory is not None and memory.position:
        base, number = memory.position - FILE_HEADER_SIZE, memory.frames
    if direct is not None:
        direct.base = base
    while True:
        start = position + header_size
        if start > end:
            buffer = source.fill(buffer[position:], header_size)
            base, position, start, end = base + position, 0, header_size, len(buffer)
            if start > end:
                break
            if direct is not None:
                direct.base = base
        seconds, fraction, captured_length, original_length = unpack(buffer, position)
        stop = start + captured_length
        if stop > end:
            if captured_length > limit:
                break
            buffer = source.fill(buffer[position:], header_size + captured_length)
            base, position, start, end = base + position, 0, header_size, len(buffer)
            stop = start + captured_length
            if stop > end:
                break
            if direct is not None:
                direct.base = base
        elif captured_length > limit:
            break
        number += 1
        timestamp_ns = seconds * 1_000_000_000 + fraction * scale
        if direct is not None and direct.take(
            buffer, start, stop, number, timestamp_ns, link_type, original_length, capture
        ):
            position = stop
            continue
        # Without __init__: there is one for each frame of the capture.
        frame = _new(Frame)
        frame.number = number
        frame.timestamp_ns = timestamp_ns
        frame.link_type = link_type
        frame.data = buffer[start:stop]
        frame.original_length = original_length
        frame.capture = capture
        frame.interface = 0
        yield frame
        position = stop
    have = end - position
    is_damaged = start <= end and captured_length > limit
    if memory is not None:
        memory.position, memory.frames, memory.damaged = base + position, number, is_damaged
    if is_damaged:
        yield CaptureError(
            capture,
            f"is damaged: a frame claims {captured_length} bytes, more than the {limit} that are possible",
            base + position,
            number,
        )
    elif source.fault or (have and not more):
        wanted = header_size if start > end else header_size + captured_length
        message = f"ends inside a frame record ({have} of {wanted} bytes are there)"
        yield CaptureError(capture, source.fault or message, base + position, number)
