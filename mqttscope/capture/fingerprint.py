"""Which capture a file is: by its complete content, by its beginning, or by the ends of what was read of it.

A `Fingerprint` names a capture by the SHA-256 of its uncompressed content, so renaming or compressing it does not cause
a second read.  A capture whose content is a prefix of another one (a partial copy, a file still being compressed) is
found too (`find_prefixes`), and how much of one was read when it was shorter (`resume_offset`).  `head_crc` and
`ends_crc` are cheap: they tell whether the file of a name is still the one that it was.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import BinaryIO, cast

from mqttscope.capture.compressed import ByteSource, is_compressed
from mqttscope.capture.read import NO_FRAME, BoundedFile, first_after

HEAD_BYTES = 4096
"""Captures that differ in so many bytes at their beginnings need not be compared: times of frames are in there."""
CRC_BYTES = 1 << 12
CHECK_BYTES = 512
"""So many bytes at the beginning and before the position tell whether a capture is still the same."""
_PIECE = 1 << 20


@dataclass(slots=True, frozen=True)
class Fingerprint:
    """What a capture holds, uncompressed, as far as it can be read."""

    digest: str
    """SHA-256, in hexadecimal digits: it is what names a capture; of damaged compressed data, of these themselves."""
    readable: str
    """SHA-256 of what can be read."""
    size: int
    """Bytes that can be read."""
    head: int
    """CRC-32 of the first `HEAD_BYTES` of them."""
    known: int = 0
    """So many at the beginning are all of another one that is known; 0: there is none."""

    @property
    def begins(self) -> dict[str, list[int]]:
        """What has to be known of it, to find others that begin with it (`Known.of`)."""
        return {self.readable: [self.size, self.head]}


@dataclass(slots=True, frozen=True)
class KnownFingerprints:
    """Contents that are known: those of which others may be the continuation."""

    by_head: Mapping[tuple[int, int], Mapping[int, Collection[str]]] = field(default_factory=dict)
    """Digests by length, by how many bytes of the beginning are compared and their CRC-32."""
    names: frozenset[str] = frozenset()
    """Digests of captures that are known as they are."""

    @classmethod
    def of(cls, begins: Mapping[str, Sequence[int]], names: Iterable[str] = ()) -> KnownFingerprints:
        """Those of which this is known (`Content.begins`), and of which only the digest is."""
        found: dict[tuple[int, int], dict[int, set[str]]] = {}
        for digest, (size, head) in begins.items():
            if size:
                found.setdefault((min(size, HEAD_BYTES), head), {}).setdefault(size, set()).add(digest)
        return cls(found, frozenset(names))

    def may_begin(self, content: Fingerprint) -> bool:
        """Whether another content may begin with one of these."""
        is_alike = (HEAD_BYTES, content.head) in self.by_head or any(size < HEAD_BYTES for size, _ in self.by_head)
        return is_alike and content.digest not in self.names

    def like(self, head: bytes) -> dict[int, set[str]]:
        """Digests, by length, of those that begin as a capture whose first `HEAD_BYTES` these are."""
        found: dict[int, set[str]] = {}
        for compared in {compared for compared, _ in self.by_head if compared <= len(head)}:
            for size, digests in self.by_head.get((compared, zlib.crc32(head[:compared])), {}).items():
                found.setdefault(size, set()).update(digests)
        return found


def fingerprint_of(file: BinaryIO, known: KnownFingerprints | None = None) -> Fingerprint:
    """The content of a capture that is open, at its beginning.

    A capture is the same when a tool has rotated and compressed it.  Head and tail alone would not tell: captures of
    one device begin alike, and one whose middle was damaged on the way ends alike.
    """
    known = known or KnownFingerprints()
    found = _content_of(file, KnownFingerprints())
    # Mostly that is all: only what is new and begins as another one is read again, and compared.
    return _content_of(file, known) if known.may_begin(found) else found


def _content_of(file: BinaryIO, known: KnownFingerprints) -> Fingerprint:
    file.seek(0)
    head = file.read(4)
    file.seek(0)
    if not is_compressed(head):
        return _content(_pieces(file), known)
    source = ByteSource(file)
    found = _content(_filled(source), known)
    if source.fault is None:
        return found
    file.seek(0)
    return replace(found, digest=_content(_pieces(file), KnownFingerprints()).digest)


def fingerprint_at(path: str | os.PathLike[str], size: int | None = None) -> Fingerprint:
    """The same of the first ``size`` bytes of a file.  Raises `OSError`."""
    with open(path, "rb", buffering=0) as file:
        return fingerprint_of(file if size is None else cast(BinaryIO, BoundedFile(file, size)))


def resume_offset(file: BinaryIO, content: Fingerprint) -> tuple[int, float]:
    """How many bytes of a capture were read when it was shorter, and the time of the first frame after them.

    0 and `NO_FRAME` where it was not, or had no frame then: all captures of one tool begin alike.
    """
    if content.known in (0, content.size):
        return content.known, NO_FRAME
    frames, first_ns = first_after(file, content.known)
    return (content.known, first_ns) if frames else (0, NO_FRAME)


@dataclass(slots=True)
class LongerCaptures:
    """Captures that others may be the beginning of: a copy that is not whole, one that is just being compressed."""

    _by_head: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    def add(self, size: int, head: int, name: str) -> None:
        """Know one more; ``size`` and ``head`` as in `Content`, ``name``: how it is opened."""
        self._by_head.setdefault(head, []).append((size, name))

    def holds(self, one: Fingerprint, opened: Callable[[str], BinaryIO]) -> bool:
        """Whether one of those that are longer begins with a content, as far as it can be opened."""
        wanted = KnownFingerprints({(HEAD_BYTES, one.head): {one.size: {one.readable}}})
        for size, name in self._by_head.get(one.head, ()) if one.size >= HEAD_BYTES else ():
            if size > one.size:
                with suppress(OSError, ValueError), opened(name) as file:
                    if _content_of(file, wanted).known == one.size:
                        return True
        return False


def find_prefixes(
    fresh: Mapping[str, Fingerprint],
    places: Mapping[str, str],
    begins: Mapping[str, Sequence[int]],
    captures: Mapping[str, str],
    opened: Callable[[str], BinaryIO],
) -> list[str]:
    """Digests of new captures that are the beginning of another one, new or known: what they hold is read there.

    ``places``: what to open, of the new ones; ``begins`` and ``captures``: what the manifest says of the others.
    """
    longer = LongerCaptures()
    for digest, (size, head) in begins.items():
        if digest in captures:
            longer.add(size, head, captures[digest])
    for digest, one in fresh.items():
        longer.add(one.size, one.head, places[digest])
    return [digest for digest, one in fresh.items() if longer.holds(one, opened)]


def _content(pieces: Iterator[bytes], known: KnownFingerprints) -> Fingerprint:
    first = b""
    while len(first) < HEAD_BYTES and (piece := next(pieces, b"")):
        first += piece
    digest, size, begun = hashlib.sha256(), 0, 0
    alike = known.like(first[:HEAD_BYTES])
    lengths = iter(sorted(alike))
    at = next(lengths, -1)
    for piece in chain((first,), pieces):
        taken = 0
        while 0 < at - size <= len(piece):
            digest.update(memoryview(piece)[taken : at - size])
            taken = at - size
            if digest.copy().hexdigest() in alike[at]:
                begun = at
            at = next(lengths, -1)
        digest.update(memoryview(piece)[taken:])
        size += len(piece)
    found = digest.hexdigest()
    return Fingerprint(found, found, size, zlib.crc32(first[:HEAD_BYTES]), begun)


def _filled(source: ByteSource) -> Iterator[bytes]:
    while piece := source.fill(b"", _PIECE):
        yield piece


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def head_crc(file: BinaryIO, size: int) -> int:
    """CRC-32 of the first bytes of a file that is open, of ``size`` at most: whether it is still the same.

    Numbers of files would not do: some file systems give them again.
    """
    file.seek(0)
    found = zlib.crc32(file.read(min(size, CRC_BYTES)))
    file.seek(0)
    return found


def is_replaced(file: BinaryIO, size: int, begins: int) -> bool:
    """Whether a file that is open is not the one that had ``size`` bytes and this `head_crc`, or has lost some."""
    return file.seek(0, os.SEEK_END) < size or head_crc(file, size) != begins


def ends_crc(file: BinaryIO, position: int) -> tuple[int, int]:
    """CRC-32 of the first and of the last bytes before a position: whether they are still the same."""
    file.seek(0)
    head = file.read(min(position, CHECK_BYTES))
    file.seek(max(0, position - CHECK_BYTES))
    return zlib.crc32(head), zlib.crc32(file.read(min(position, CHECK_BYTES)))
