"""Reads pcap: microseconds and nanoseconds, both byte orders, and Kuznetzov's modified format.

Format: draft-ietf-opsawg-pcap.  The version is not checked: every writer since 1998 writes 2.4, and files with another
version have an identical layout.

`ReaderState` is the state of a reader in the middle of a capture.  A later run, also in another process, resumes from
it; the pcapng reader uses it as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from mqttscope.capture.compressed import ByteSource
from mqttscope.net.frame import CaptureError, Frame


class FrameSink(Protocol):
    """Takes frames directly out of a reader's buffer, so that no `Frame` is built for them."""

    base: int
    """Uncompressed offset of the first byte of ``data`` in the capture; readers set it before they offer a frame."""

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

        ``False`` if it was not taken: the sink is unchanged, and the reader yields the frame.
        """


@dataclass(slots=True)
class InterfaceState:
    """Fields of an Interface Description Block, and counters of the interface."""

    link_type: int
    snap_length: int
    multiplier: int
    divisor: int
    offset_ns: int
    received: int = 0
    """From Interface Statistics Blocks, counted from the start of the capture, like ``dropped``."""
    dropped: int = 0
    dropped_between: int = 0
    """Sum of the drop counts in packet blocks."""

    def time(self, ticks: int) -> int:
        """Nanoseconds since the epoch; fractions of a nanosecond are cut off."""
        return ticks * self.multiplier // self.divisor + self.offset_ns


@dataclass(slots=True)
class ReaderState:
    """Read position in a capture, and everything before it that affects the reading of later records.  Plain data.

    A reader with a state begins at its position, and updates the state at the end of the bytes; this is then not the
    end of the capture.
    """

    position: int = 0
    """Offset of the first unread record."""
    frames: int = 0
    """Number of frames read."""
    timestamp_ns: int = 0
    """Time of the last frame; for a pcap file, the consumer of the frames sets it."""
    link_types: list[int] = field(default_factory=list)
    """Link types of the frames; the consumer of the frames sets them."""
    beyond: int = 0
    """Number of frames with a time out of bounds."""
    damaged: bool = False
    """Whether reading cannot continue, because the record at ``position`` contradicts itself."""
    order: str = "<"
    """Byte order of the current section of a pcapng file."""
    interfaces: list[InterfaceState] = field(default_factory=list)
    """Interfaces of the current section."""

    def to_values(self) -> list[Any]:
        """The state as numbers, texts and lists, for JSON."""
        interfaces = [
            [each.link_type, each.snap_length, each.multiplier, each.divisor, each.offset_ns, each.received,
             each.dropped, each.dropped_between] for each in self.interfaces
        ]  # fmt: skip
        return [
            self.position, self.frames, self.timestamp_ns, list(self.link_types), self.beyond, self.damaged, self.order,
            interfaces,
        ]  # fmt: skip

    @classmethod
    def from_values(cls, values: Sequence[Any]) -> ReaderState:
        """The state with the values of `to_values`."""
        state = cls(*values[:7])
        state.interfaces = [InterfaceState(*row) for row in values[7]]
        return state

    def copy(self) -> ReaderState:
        return ReaderState.from_values(self.to_values())


FRAME_LIMIT: Final = 64 << 20
"""Maximum length of a frame; a larger length field is damage, whatever the snap length of the file."""
STANDARD_SNAP_LENGTH: Final = 262_144
"""Maximum length of frames from libpcap; files with a smaller snap length, or 0, may have frames up to this length."""
LINK_TYPE_MASK: Final = 0xFFFF
"""Mask of the link type field; its upper bits are the length of a frame check sequence, or unused."""

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
"""The first four bytes of supported pcap files."""


def read_pcap(
    source: ByteSource,
    buffer: bytes,
    capture: str,
    *,
    frame_limit: int = FRAME_LIMIT,
    state: ReaderState | None = None,
    more: bool = False,
    direct: FrameSink | None = None,
) -> Iterator[Frame | CaptureError]:
    """The frames of a pcap file, then one :class:`CaptureError` when it is damaged or ends inside a record.

    ``source``: continuation of the file after ``buffer``, the bytes already read, which begin with a magic of
    :data:`PCAP_MAGICS`.  ``capture``: name for the frames.  ``frame_limit``: maximum frame length in bytes.

    ``state``: position to resume from, unless new; then ``buffer`` is the file header and ``source`` begins there.
    ``more``: the file continues to grow, so an incomplete last record is not an error.  Frames that ``direct`` takes
    are not yielded.
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
    if state is not None and state.position:
        base, number = state.position - FILE_HEADER_SIZE, state.frames
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
        # Without __init__, because this runs once per frame.
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
    if state is not None:
        state.position, state.frames, state.damaged = base + position, number, is_damaged
    if is_damaged:
        yield CaptureError(
            capture,
            f"is damaged: a frame claims {captured_length} bytes, more than the maximum of {limit}",
            base + position,
            number,
        )
    elif source.fault or (have and not more):
        wanted = header_size if start > end else header_size + captured_length
        message = f"ends inside a frame record ({have} of {wanted} bytes are there)"
        yield CaptureError(capture, source.fault or message, base + position, number)
