"""What follows in a capture behind what was read of it before, also where it was compressed in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, cast

from mqttscope.capture.compressed import ByteSource
from mqttscope.capture.growing import Grown, advance, may_be_compressed, read_on
from mqttscope.capture.memory import Memory
from mqttscope.capture.reading import NO_FRAME
from mqttscope.net.frame import CaptureNotice, Frame


def memory_at(file: BinaryIO, position: int) -> Memory:
    """What a reader remembers that came to a position, uncompressed, or to the last whole record before it.

    ``file``: open and seekable.  What it had to say at the end by then counts as told.
    """
    file.seek(0)
    content = cast(BinaryIO, _Uncompressed(file)) if may_be_compressed(file.read(4)) else file
    memory = Memory()
    while memory.position < position and advance(content, memory, position, limit=position):
        pass
    memory.beyond = 0
    for interface in memory.interfaces:
        interface.dropped = max(interface.dropped, interface.dropped_between)
    return memory


def read_rest(file: BinaryIO, capture: str, position: int) -> Iterator[Frame | CaptureNotice]:
    """Frames and notices behind a position, uncompressed; frames have the numbers that they have in the whole capture.

    ``file``: open and seekable.  A record that was not whole at the position comes as well.
    """
    memory = memory_at(file, position)
    yield from read_on(file, capture, Grown(memory, None, file.seek(0, os.SEEK_END)))


def look_behind(file: BinaryIO, position: int) -> tuple[int, float]:
    """How many frames lie before a position, and the time of the first one behind it, or `NO_FRAME`."""
    memory = memory_at(file, position)
    items = read_on(file, "", Grown(memory, None, file.seek(0, os.SEEK_END)))
    return memory.frames, next((item.timestamp_ns for item in items if isinstance(item, Frame)), NO_FRAME)


class _Uncompressed:
    """The content of a compressed file, as a file: going back begins anew."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek(0)

    def seek(self, offset: int) -> int:
        """Go to an offset from the beginning."""
        self._file.seek(0)
        self._source = ByteSource(self._file)
        self._source.skip(offset)
        return offset

    def read(self, size: int) -> bytes:
        """The next bytes; fewer at the end, and before damage."""
        data = self._source.fill(b"", size)
        self._source.give_back(data[size:])
        return data[:size]
