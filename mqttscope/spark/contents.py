"""Whether captures of a stream have the same content: those that were read, and new ones under other names."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from mqttscope.capture.compressed import ByteSource
from mqttscope.lake.contents import Content, content_at

if TYPE_CHECKING:
    from mqttscope.spark.offsets import Followed

CHECK_BYTES = 512
"""So many bytes at the beginning and before the position tell whether a capture is still the same."""


def checks(file: BinaryIO, position: int) -> tuple[int, int]:
    """CRC-32 of the first and of the last bytes before a position: whether they are still the same."""
    file.seek(0)
    head = file.read(min(position, CHECK_BYTES))
    file.seek(max(0, position - CHECK_BYTES))
    return zlib.crc32(head), zlib.crc32(file.read(min(position, CHECK_BYTES)))


def begins_with(name: str, one: Followed) -> bool:
    """Whether what was read of a capture is what a compressed file begins with.  Raises `OSError`."""
    with open(name, "rb", buffering=0) as file:
        source = ByteSource(file)
        head = source.fill(b"", CHECK_BYTES)[: one.memory.position]
        tail, left = head[-CHECK_BYTES:], one.memory.position - len(head)
        while left > 0 and (piece := source.fill(b"", 1)):
            tail, left = (tail + piece[:left])[-CHECK_BYTES:], left - len(piece)
    checked = _checked(one)
    return left <= 0 and (zlib.crc32(head[:checked]), zlib.crc32(tail[-checked:])) == (one.head, one.tail)


def content_now(name: str, position: int, head: int, tail: int, size: int) -> Content | None:
    """The content of a capture that was read, its first ``size`` bytes; ``None`` where it is gone.

    ``position``, ``head``, ``tail``: up to where it was read, and what `checks` said then.  It may have been renamed
    since, in its folder, and another one may have its name.
    """
    folder, base = os.path.split(name)
    with suppress(OSError):
        for one in (base, *sorted(set(os.listdir(folder or os.curdir)) - {base})):
            path = os.path.join(folder, one)
            with suppress(OSError):
                if os.path.isfile(path) and os.path.getsize(path) >= size:
                    with open(path, "rb", buffering=0) as file:
                        if checks(file, position) == (head, tail):
                            return content_at(path, size)
    return None


class Contents:
    """Captures that are read, by what they begin with: only those that begin alike have to be compared."""

    def __init__(self) -> None:
        self._by_time: dict[float, list[Followed]] = {}
        self._by_head: dict[tuple[int, int], list[Followed]] = {}

    def add(self, one: Followed) -> None:
        """Know one more; of those that are complete the time of the first frame is forgotten."""
        self._by_time.setdefault(one.first_ns, []).append(one)
        if one.memory.position:
            self._by_head.setdefault((_checked(one), one.head), []).append(one)

    def alike(self, name: str, first_ns: float) -> list[Followed]:
        """Those that may be what the file of this name is, whose first frame has this time.  Raises `OSError`."""
        found = {one.file: one for one in (*self._by_time.get(first_ns, ()), *self._with_head(name))}
        return list(found.values())

    def _with_head(self, name: str) -> Iterator[Followed]:
        with open(name, "rb", buffering=0) as file:
            head = ByteSource(file).fill(b"", CHECK_BYTES)
        for checked in {checked for checked, _ in self._by_head}:
            yield from self._by_head.get((checked, zlib.crc32(head[:checked])), ())


def _checked(one: Followed) -> int:
    return min(one.memory.position, CHECK_BYTES)
