"""Maps the bytes of streams to frames, and replaces payloads of frames part by part.

A stream is understood later than its segments arrive: a packet may end many segments after its beginning, and a segment
may be sent again after it was understood.  So each payload is a `SegmentPiece` with a reference to its frame.
`DirectionPieces` contains the waiting pieces of one direction, and the last completed ones.  A replacement is written
into every piece that contains the bytes.  Bytes that were sent again with other content stay different.

`FrameSpool` stores frames in order until all replacements are known: the newest in memory, the others in a file, where
they are changed in place.  The file never contains original payload bytes.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from mqttscope.net.segment import distance
from mqttscope.redact.frames import MovedFrame, change, word_sum
from mqttscope.redact.kinds import FILLER, Values, filler

HISTORY: Final = 32
"""Number of completed pieces remembered per direction, for segments that are sent again."""
KEPT_PIECES: Final = 64
"""Number of pieces kept at the end of a connection: they may belong to the next one between these endpoints."""
MAX_WAITING: Final = 1 << 19
"""Maximum number of waiting pieces per direction; beyond it, unknown bytes of the oldest pieces stay filler."""
MEMORY_BYTES: Final = 8 << 20
"""Maximum number of bytes of frames in memory."""
Buffer = bytes | bytearray
FRAME_COST: Final = 256
"""Memory overhead of a frame, in bytes."""


@dataclass(slots=True)
class SegmentPiece:
    """The payload of a segment."""

    frame: MovedFrame
    start: int
    """Sequence number of the first byte."""
    original: bytes
    replaced: bytearray
    known: bytearray
    """1 for each byte with a known replacement."""
    left: int
    """Number of bytes without a known replacement."""
    values: list[tuple[int, Values]] = field(default_factory=list)
    """Replaced values, by the last byte of their packet."""

    def take_values(self, start: int, stop: int) -> list[tuple[int, Values]]:
        """Remove and return the values of packets that end in a range of bytes."""
        values = [row for row in self.values if start <= row[0] < stop]
        if values:
            self.values = [row for row in self.values if not start <= row[0] < stop]
        return values


@dataclass(slots=True)
class DirectionPieces:
    """The pieces of one direction between two endpoints."""

    on_recount: Callable[[Values, int], None] = lambda values, times: None
    """Called with values and the change of the number of pieces that contain them."""
    waiting: list[SegmentPiece] = field(default_factory=list)
    again: deque[SegmentPiece] = field(default_factory=lambda: deque(maxlen=HISTORY))
    """Pieces that were known on arrival; they may belong to another connection with equal sequence numbers."""
    history: deque[SegmentPiece] = field(default_factory=lambda: deque(maxlen=HISTORY))
    highest: int = -1
    """Sequence number after the furthest byte received; -1 before the first byte."""
    ended: bool = False
    """Whether the connection has ended: waiting pieces will not be understood."""
    forgotten: int = 0
    """Number of pieces dropped before they were understood, for lack of memory."""

    def add(self, frame: MovedFrame, start: int, payload: bytes, put: Put) -> None:
        """Add the payload of a segment, which is filler in its frame, and fill in known replacements."""
        self.ended = False
        length = len(payload)
        piece = SegmentPiece(frame, start, payload, bytearray(filler(length)), bytearray(length), length)
        end = (start + length) & 0xFFFFFFFF
        if self.highest < 0 or distance(self.highest, start) >= 0:
            self.highest = end
        else:
            if distance(self.highest, end) > 0:
                self.highest = end
            repeated = 0
            for earlier in (*self.history, *self.waiting):
                shift = distance(earlier.start, start)
                low, high = max(0, -shift), min(length, len(earlier.original) - shift)
                if low < high and 1 in earlier.known[low + shift : high + shift]:
                    repeated += self._repeat(earlier, piece, low, high, shift, put)
            if repeated >= length:
                self.again.append(piece)
                return
        if len(self.waiting) >= MAX_WAITING:
            self.forgotten += len(self.waiting) - MAX_WAITING // 2
            self.end(MAX_WAITING // 2)
        self.waiting.append(piece)

    def _repeat(self, earlier: SegmentPiece, piece: SegmentPiece, low: int, high: int, shift: int, put: Put) -> int:
        """Fill in replacements of an earlier piece for the repeated bytes, preliminarily; returns their number."""
        at, count = low, 0
        while at < high:
            if not earlier.known[at + shift]:
                at += 1
                continue
            stop = earlier.known.find(0, at + shift, high + shift) - shift
            stop = high if stop + shift < 0 else stop
            part = slice(at + shift, stop + shift)
            new = _replacement_for(piece, at, earlier.original[part], earlier.replaced[part])
            piece.replaced[at:stop] = new
            self._exchange(piece, at, stop, [(end - shift, values) for end, values in earlier.values])
            put(piece.frame, at, new)
            count += stop - at
            at = stop
        return count

    def _exchange(self, piece: SegmentPiece, start: int, stop: int, values: list[tuple[int, Values]]) -> None:
        """Count the values of packets that end in some bytes of a piece, and uncount the earlier values there."""
        for _, known in piece.take_values(start, stop):
            self.on_recount(known, -1)
        for end, fresh in values:
            if start <= end < stop:
                piece.values.append((end, fresh))
                self.on_recount(fresh, 1)

    def learn(self, start: int, original: bytes, new: bytes, put: Put, values: Values | None = None) -> None:
        """Replace bytes that begin at a sequence number; ``values`` are the replaced values in them."""
        length = len(original)
        placed = False
        for piece in (*self.again, *self.waiting) if self.again else self.waiting:
            shift = distance(piece.start, start)
            low, high = max(0, -shift), min(length, len(piece.original) - shift)
            if low < high and 0 in piece.known[low + shift : high + shift]:
                self._exchange(piece, low + shift, high + shift, [(length - 1 + shift, values)] if values else [])
                placed = placed or high == length
                _fill(piece, low + shift, original[low:high], new[low:high], put)
        if values and placed:
            # The values were counted before; now each piece that contains their end counts them.
            self.on_recount(values, -1)
        if any(not piece.left for piece in self.waiting):
            self._release(lambda piece: not piece.left)

    def release_until(self, end: int) -> None:
        """Release all pieces before a sequence number; their remaining filler is final."""
        if self.waiting and distance((self.waiting[0].start + len(self.waiting[0].original)) & 0xFFFFFFFF, end) >= 0:
            self._release(lambda piece: distance((piece.start + len(piece.original)) & 0xFFFFFFFF, end) >= 0)

    def end(self, count: int | None = None) -> None:
        """Drop the waiting pieces except the last ``count`` (by default `KEPT_PIECES`)."""
        self.ended = count is None
        del self.waiting[: max(0, len(self.waiting) - (KEPT_PIECES if count is None else count))]

    def _release(self, done: Callable[[SegmentPiece], bool]) -> None:
        left = []
        for piece in self.waiting:
            if done(piece):
                self.history.append(piece)
            else:
                left.append(piece)
        self.waiting = left


Put = Callable[[MovedFrame, int, bytes], None]
"""Writes bytes into a frame, at an offset in its payload."""


def _fill(piece: SegmentPiece, at: int, original: bytes, replacement: bytes, put: Put) -> None:
    """Write a replacement into a piece where no replacement is known yet."""
    stop = at + len(original)
    fresh = stop - at if not any(piece.known[at:stop]) else piece.known[at:stop].count(0)
    if not fresh:
        return
    new = bytearray(_replacement_for(piece, at, original, replacement))
    if fresh < stop - at:
        for index in range(at, stop):
            if piece.known[index]:
                new[index - at] = piece.replaced[index]
    piece.replaced[at:stop] = new
    piece.left -= fresh
    piece.known[at:stop] = b"\1" * (stop - at)
    put(piece.frame, at, bytes(new))


def _replacement_for(piece: SegmentPiece, at: int, original: Buffer, replacement: Buffer) -> bytes:
    """The replacement for a piece; where its bytes differ from the original ones, the result differs as well."""
    own = piece.original[at : at + len(original)]
    if own == original:
        return bytes(replacement)
    return bytes(
        new if byte == other else FILLER[0] if new != FILLER[0] else FILLER[1]
        for byte, other, new in zip(own, original, replacement, strict=True)
    )


_HEADER: Final = "<qHII4sB"


class FrameSpool:
    """Frames in order, in memory and in a file."""

    def __init__(self, file: BinaryIO, memory_bytes: int | None = None) -> None:
        """``file`` is empty and seekable; frames that do not fit into memory are written there."""
        self._file = file
        self._limit = MEMORY_BYTES if memory_bytes is None else memory_bytes
        self._held = 0
        self._end = 0
        self._frames: deque[MovedFrame] = deque()

    def append(self, frame: MovedFrame) -> None:
        """Add a frame, which may still be changed."""
        assert frame.data is not None
        self._frames.append(frame)
        self._held += len(frame.data) + FRAME_COST
        while self._held > self._limit and len(self._frames) > 1:
            self._write(self._frames.popleft())

    def put(self, frame: MovedFrame, at: int, new: bytes) -> None:
        """Write bytes into the payload of a frame or fragmented datagram, and adjust the checksum."""
        odd = bool(at & 1)
        if not frame.parts:
            old = self._exchange(frame, frame.payload + at, new)
            self.adjust(frame, word_sum(old, odd=odd), word_sum(new, odd=odd))
            return
        for part in frame.parts:
            low, high = max(at, part.start), min(at + len(new), part.start + part.length)
            if low < high:
                piece, odd = new[low - at : high - at], bool(low & 1)
                old = self._exchange(part.frame, part.place + low - part.start, piece)
                self.adjust(frame.parts[0].frame, word_sum(old, odd=odd), word_sum(piece, odd=odd))

    def _exchange(self, frame: MovedFrame, place: int, new: bytes) -> bytes:
        """Write bytes into a frame; returns the overwritten bytes."""
        data = frame.data
        if data is not None:
            old = bytes(data[place : place + len(new)])
            data[place : place + len(new)] = new
            return old
        self._file.seek(frame.place + place)
        old = self._file.read(len(new))
        self._file.seek(frame.place + place)
        self._file.write(new)
        return old

    def adjust(self, frame: MovedFrame, before: int, after: int) -> None:
        """Adjust the TCP checksum to a change of the sum of the bytes."""
        if frame.checksum < 0:
            return
        if frame.data is not None:
            change(frame.data, frame.checksum, before, after)
            return
        self._file.seek(frame.place + frame.checksum)
        word = bytearray(self._file.read(2))
        change(word, 0, before, after)
        self._file.seek(frame.place + frame.checksum)
        self._file.write(word)

    def assign_group(self, frame: MovedFrame, group: bytes) -> None:
        """Set the connection of a frame that was appended with a placeholder of zeros."""
        assert len(frame.group) == len(group)
        frame.group = group
        if frame.data is None:
            self._file.seek(frame.place - len(group))
            self._file.write(group)

    def frames(self) -> Iterator[MovedFrame]:
        """All frames, from the first one."""
        self._file.seek(0)
        size = struct.calcsize(_HEADER)
        at = 0
        while at < self._end:
            head = self._file.read(size)
            timestamp_ns, kind, original, length, replaced, group = struct.unpack(_HEADER, head)
            name = self._file.read(group)
            data = bytearray(self._file.read(length))
            at += size + group + length
            yield MovedFrame(timestamp_ns, kind, original, data, name, replaced=replaced)
        yield from self._frames

    def _write(self, frame: MovedFrame) -> None:
        data = frame.data
        assert data is not None
        self._held -= len(data) + FRAME_COST
        head = struct.pack(
            _HEADER,
            frame.timestamp_ns,
            frame.link_type,
            frame.original_length,
            len(data),
            frame.replaced,
            len(frame.group),
        )
        self._file.seek(self._end)
        self._file.write(head + frame.group + data)
        frame.place = self._end + len(head) + len(frame.group)
        self._end = frame.place + len(data)
        frame.data = None
