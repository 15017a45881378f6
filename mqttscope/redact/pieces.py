"""Where the bytes of streams lie in frames, and frames whose payload is replaced part by part.

A stream is understood later than its segments come: a packet may end many segments after it began, and a segment may be
sent again after it was understood.  So each payload is a `Piece`, which knows its frame, and `Direction` has the pieces
of one direction that still wait, and the last ones that do not.  What is learned of some bytes goes into every piece
that holds them, wherever they were captured.  Bytes that came again with other content stay different.

`Spool` keeps frames in their order until all is learned: the newest in memory, the others in a file, in which they are
changed where they lie.  No byte of a payload comes into that file before it was replaced.
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
"""Pieces of a direction that are remembered after all of them is known, for segments that are sent again."""
KEPT_PIECES: Final = 64
"""Pieces that stay at the end of a connection: they may be of the next one between the same endpoints."""
MAX_WAITING: Final = 1 << 19
"""Pieces of a direction that wait; of the oldest of more, what is not known stays filler."""
MEMORY_BYTES: Final = 8 << 20
"""Bytes of frames that are held in memory."""
FRAME_COST: Final = 256
"""What a frame counts beside its bytes."""


@dataclass(slots=True)
class Piece:
    """The payload of a segment."""

    frame: MovedFrame
    start: int
    """Sequence number of its first byte."""
    original: bytes
    made: bytearray
    known: bytearray
    """1 for each byte that was replaced by what belongs there."""
    left: int
    """How many were not."""
    values: list[tuple[int, Values]] = field(default_factory=list)
    """What was replaced, by the last byte of the packet that it is in."""

    def take_values(self, start: int, stop: int) -> list[tuple[int, Values]]:
        """Those of packets that end between two bytes, which are no longer in the piece."""
        found = [one for one in self.values if start <= one[0] < stop]
        if found:
            self.values = [one for one in self.values if not start <= one[0] < stop]
        return found


@dataclass(slots=True)
class Direction:
    """The pieces of one direction between two endpoints."""

    again_counted: Callable[[Values, int], None] = lambda values, times: None
    """Told in how many pieces more, or fewer, values are that were counted."""
    waiting: list[Piece] = field(default_factory=list)
    again: deque[Piece] = field(default_factory=lambda: deque(maxlen=HISTORY))
    """Pieces of bytes that were known when they came.  They may be of another connection with the same numbers."""
    history: deque[Piece] = field(default_factory=lambda: deque(maxlen=HISTORY))
    highest: int = -1
    """Sequence number after the furthest byte so far, -1 before the first."""
    ended: bool = False
    """Its connection is over: what still waits is of no packet that anybody reads."""
    forgotten: int = 0
    """Pieces that did not wait until somebody knew them, for lack of room."""

    def add(self, frame: MovedFrame, start: int, payload: bytes, put: Put) -> None:
        """Take the payload of a segment, which is filler in its frame, and fill in what is known of it."""
        self.ended = False
        length = len(payload)
        piece = Piece(frame, start, payload, bytearray(filler(length)), bytearray(length), length)
        end = (start + length) & 0xFFFFFFFF
        if self.highest < 0 or distance(self.highest, start) >= 0:
            self.highest = end
        else:
            if distance(self.highest, end) > 0:
                self.highest = end
            repeated = 0
            for one in (*self.history, *self.waiting):
                shift = distance(one.start, start)
                low, high = max(0, -shift), min(length, len(one.original) - shift)
                if low < high and 1 in one.known[low + shift : high + shift]:
                    repeated += self._repeat(one, piece, low, high, shift, put)
            if repeated >= length:
                self.again.append(piece)
                return
        if len(self.waiting) >= MAX_WAITING:
            self.forgotten += len(self.waiting) - MAX_WAITING // 2
            self.end(MAX_WAITING // 2)
        self.waiting.append(piece)

    def _repeat(self, one: Piece, piece: Piece, low: int, high: int, shift: int, put: Put) -> int:
        """Fill in what an earlier piece has of the same bytes, until somebody knows better; returns how many."""
        at, count = low, 0
        while at < high:
            if not one.known[at + shift]:
                at += 1
                continue
            stop = one.known.find(0, at + shift, high + shift) - shift
            stop = high if stop + shift < 0 else stop
            made = _compared(piece, at, one.original[at + shift : stop + shift], one.made[at + shift : stop + shift])
            piece.made[at:stop] = made
            self._exchange(piece, at, stop, [(end - shift, values) for end, values in one.values])
            put(piece.frame, at, made)
            count += stop - at
            at = stop
        return count

    def _exchange(self, piece: Piece, start: int, stop: int, values: list[tuple[int, Values]]) -> None:
        """Count the values of packets that end in some bytes of a piece, and no longer those that were there."""
        for _, known in piece.take_values(start, stop):
            self.again_counted(known, -1)
        for end, found in values:
            if start <= end < stop:
                piece.values.append((end, found))
                self.again_counted(found, 1)

    def learn(self, start: int, original: bytes, made: bytes, put: Put, values: Values | None = None) -> None:
        """Put ``made`` in the place of bytes that begin at a sequence number; ``values``: what was replaced in them."""
        length = len(original)
        placed = False
        for piece in (*self.again, *self.waiting) if self.again else self.waiting:
            shift = distance(piece.start, start)
            low, high = max(0, -shift), min(length, len(piece.original) - shift)
            if low < high and 0 in piece.known[low + shift : high + shift]:
                self._exchange(piece, low + shift, high + shift, [(length - 1 + shift, values)] if values else [])
                placed = placed or high == length
                _fill(piece, low + shift, original[low:high], made[low:high], put)
        if values and placed:
            # They were counted before, and now for each piece that they end in.
            self.again_counted(values, -1)
        if any(not piece.left for piece in self.waiting):
            self._sort_out(lambda piece: not piece.left)

    def pass_by(self, end: int) -> None:
        """All before a sequence number was gone through: what is filler until now stays so."""
        if self.waiting and distance((self.waiting[0].start + len(self.waiting[0].original)) & 0xFFFFFFFF, end) >= 0:
            self._sort_out(lambda piece: distance((piece.start + len(piece.original)) & 0xFFFFFFFF, end) >= 0)

    def end(self, kept: int | None = None) -> None:
        """Forget what waits, but for the last pieces: `KEPT_PIECES` unless given."""
        self.ended = kept is None
        del self.waiting[: max(0, len(self.waiting) - (KEPT_PIECES if kept is None else kept))]

    def _sort_out(self, done: Callable[[Piece], bool]) -> None:
        left = []
        for piece in self.waiting:
            if done(piece):
                self.history.append(piece)
            else:
                left.append(piece)
        self.waiting = left


Put = Callable[[MovedFrame, int, bytes], None]
"""Puts bytes into a frame, at an offset of its payload."""


def _fill(piece: Piece, at: int, original: bytes, made: bytes, put: Put) -> None:
    """Put bytes into a piece where they are not known yet."""
    stop = at + len(original)
    fresh = stop - at if not any(piece.known[at:stop]) else piece.known[at:stop].count(0)
    if not fresh:
        return
    new = bytearray(_compared(piece, at, original, made))
    if fresh < stop - at:
        for index in range(at, stop):
            if piece.known[index]:
                new[index - at] = piece.made[index]
    piece.made[at:stop] = new
    piece.left -= fresh
    piece.known[at:stop] = b"\1" * (stop - at)
    put(piece.frame, at, bytes(new))


def _compared(piece: Piece, at: int, original: bytes | bytearray, made: bytes | bytearray) -> bytes:
    """What takes the place of bytes of a piece: where they are not those that were replaced, they stay different."""
    own = piece.original[at : at + len(original)]
    if own == original:
        return bytes(made)
    return bytes(
        new if one == other else FILLER[0] if new != FILLER[0] else FILLER[1]
        for one, other, new in zip(own, original, made, strict=True)
    )


_HEADER: Final = "<qHII4sB"


class Spool:
    """Frames in their order."""

    def __init__(self, file: BinaryIO, memory_bytes: int | None = None) -> None:
        """``file``: empty and seekable; frames that do not fit into memory go there."""
        self._file = file
        self._limit = MEMORY_BYTES if memory_bytes is None else memory_bytes
        self._held = 0
        self._end = 0
        self._frames: deque[MovedFrame] = deque()

    def append(self, frame: MovedFrame) -> None:
        """Take a frame, which may still be changed."""
        assert frame.data is not None
        self._frames.append(frame)
        self._held += len(frame.data) + FRAME_COST
        while self._held > self._limit and len(self._frames) > 1:
            self._write(self._frames.popleft())

    def put(self, frame: MovedFrame, at: int, new: bytes) -> None:
        """Put bytes into the payload of a frame, or of a datagram in fragments, and adjust the checksum."""
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
        """Put bytes into a frame; returns those that were there."""
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
        """Adjust the checksum of TCP to a change of the sum of its bytes."""
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

    def belongs(self, frame: MovedFrame, group: bytes) -> None:
        """Say which connection a frame is of that was appended with as many zeros."""
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
