"""Identity of a capture: by its complete content, by its beginning, or by both ends of the part already read.

A `Fingerprint` identifies a capture by the SHA-256 of its uncompressed content, so a renamed or compressed capture is
not read again.  `find_prefixes` finds captures that are a prefix of another one (a partial copy, a file still
being compressed); `resume_offset` returns how much of a capture was read when it was shorter.  `head_crc` and
`ends_crc` are cheap checks that a path still has the same file.
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
"""Captures with different first bytes are not compared further; the times of frames are among these bytes."""
CRC_BYTES = 1 << 12
CHECK_BYTES = 512
"""Bytes compared at the beginning, and before the read position, to detect a replaced capture."""
_PIECE = 1 << 20


@dataclass(slots=True, frozen=True)
class Fingerprint:
    """Digest and size of the uncompressed content of a capture, up to damage."""

    digest: str
    """SHA-256 in hexadecimal digits, the identity of a capture; for damaged compressed data, of the compressed data."""
    readable: str
    """SHA-256 of the readable bytes."""
    size: int
    """Number of readable bytes."""
    head: int
    """CRC-32 of the first `HEAD_BYTES` readable bytes."""
    known: int = 0
    """Size of a known capture that is a prefix of this one, or 0."""

    @property
    def manifest_entry(self) -> dict[str, list[int]]:
        """Entry of the manifest; `KnownFingerprints` uses it to find captures that continue this one."""
        return {self.readable: [self.size, self.head]}


@dataclass(slots=True, frozen=True)
class KnownFingerprints:
    """Fingerprints of earlier captures, which a new capture may continue."""

    by_head: Mapping[tuple[int, int], Mapping[int, Collection[str]]] = field(default_factory=dict)
    """Digests by length, grouped by the number of compared bytes at the beginning and their CRC-32."""
    names: frozenset[str] = frozenset()
    """Digests of complete captures."""

    @classmethod
    def from_manifest(cls, begins: Mapping[str, Sequence[int]], names: Iterable[str] = ()) -> KnownFingerprints:
        """Create from manifest entries (`Fingerprint.manifest_entry`) and the digests of complete captures."""
        by_head: dict[tuple[int, int], dict[int, set[str]]] = {}
        for digest, (size, head) in begins.items():
            if size:
                by_head.setdefault((min(size, HEAD_BYTES), head), {}).setdefault(size, set()).add(digest)
        return cls(by_head, frozenset(names))

    def may_begin(self, content: Fingerprint) -> bool:
        """Whether a capture may begin with the content of a known one."""
        is_alike = (HEAD_BYTES, content.head) in self.by_head or any(size < HEAD_BYTES for size, _ in self.by_head)
        return is_alike and content.digest not in self.names

    def like(self, head: bytes) -> dict[int, set[str]]:
        """Digests, by length, of known captures that agree with ``head``, the first `HEAD_BYTES` of a capture."""
        by_length: dict[int, set[str]] = {}
        for compared in {compared for compared, _ in self.by_head if compared <= len(head)}:
            for size, digests in self.by_head.get((compared, zlib.crc32(head[:compared])), {}).items():
                by_length.setdefault(size, set()).update(digests)
        return by_length


def fingerprint_of(file: BinaryIO, known: KnownFingerprints | None = None) -> Fingerprint:
    """The fingerprint of an open capture; reads its complete content.

    It is unchanged when a tool rotates and compresses the capture.  Head and tail do not suffice: captures of one
    device begin alike, and a capture that was damaged in the middle ends like the intact one.
    """
    known = known or KnownFingerprints()
    fingerprint = _content_of(file, KnownFingerprints())
    # A second read, to compare, is needed only for a new capture that begins like a known one.
    return _content_of(file, known) if known.may_begin(fingerprint) else fingerprint


def _content_of(file: BinaryIO, known: KnownFingerprints) -> Fingerprint:
    file.seek(0)
    head = file.read(4)
    file.seek(0)
    if not is_compressed(head):
        return _content(_pieces(file), known)
    source = ByteSource(file)
    fingerprint = _content(_filled(source), known)
    if source.fault is None:
        return fingerprint
    file.seek(0)
    return replace(fingerprint, digest=_content(_pieces(file), KnownFingerprints()).digest)


def fingerprint_at(path: str | os.PathLike[str], size: int | None = None) -> Fingerprint:
    """The fingerprint of the first ``size`` bytes of a file.  Raises `OSError`."""
    with open(path, "rb", buffering=0) as file:
        return fingerprint_of(file if size is None else cast(BinaryIO, BoundedFile(file, size)))


def resume_offset(file: BinaryIO, content: Fingerprint) -> tuple[int, float]:
    """Number of bytes of a capture that were read when it was shorter, and the time of the first frame after them.

    0 and `NO_FRAME` if it was not read, or had no frame then: all captures of one tool begin alike.
    """
    if content.known in (0, content.size):
        return content.known, NO_FRAME
    frames, first_ns = first_after(file, content.known)
    return (content.known, first_ns) if frames else (0, NO_FRAME)


@dataclass(slots=True)
class LongerCaptures:
    """Captures that may continue others: a partial copy, or a file still being compressed, begins like the full one."""

    _by_head: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    def add(self, size: int, head: int, name: str) -> None:
        """Add a capture; ``size`` and ``head`` as in `Fingerprint`, ``name``: name to open."""
        self._by_head.setdefault(head, []).append((size, name))

    def holds(self, fingerprint: Fingerprint, opened: Callable[[str], BinaryIO]) -> bool:
        """Whether a longer capture begins with the content of this one; captures that do not open are skipped."""
        wanted = KnownFingerprints({(HEAD_BYTES, fingerprint.head): {fingerprint.size: {fingerprint.readable}}})
        for size, name in self._by_head.get(fingerprint.head, ()) if fingerprint.size >= HEAD_BYTES else ():
            if size > fingerprint.size:
                with suppress(OSError, ValueError), opened(name) as file:
                    if _content_of(file, wanted).known == fingerprint.size:
                        return True
        return False


def find_prefixes(
    fresh: Mapping[str, Fingerprint],
    places: Mapping[str, str],
    begins: Mapping[str, Sequence[int]],
    captures: Mapping[str, str],
    opened: Callable[[str], BinaryIO],
) -> list[str]:
    """Digests of new captures that are a prefix of another capture, new or known; the longer one is read instead.

    ``places``: names to open, of new captures; ``begins`` and ``captures``: known captures, from the manifest.
    """
    longer = LongerCaptures()
    for digest, (size, head) in begins.items():
        if digest in captures:
            longer.add(size, head, captures[digest])
    for digest, fingerprint in fresh.items():
        longer.add(fingerprint.size, fingerprint.head, places[digest])
    return [digest for digest, fingerprint in fresh.items() if longer.holds(fingerprint, opened)]


def _content(pieces: Iterator[bytes], known: KnownFingerprints) -> Fingerprint:
    first = b""
    while len(first) < HEAD_BYTES and (piece := next(pieces, b"")):
        first += piece
    digest, size, begun = hashlib.sha256(), 0, 0
    alike = known.like(first[:HEAD_BYTES])
    lengths = iter(sorted(alike))
    at = next(lengths, -1)
    for piece in chain((first,), pieces):
        hashed = 0
        while 0 < at - size <= len(piece):
            digest.update(memoryview(piece)[hashed : at - size])
            hashed = at - size
            if digest.copy().hexdigest() in alike[at]:
                begun = at
            at = next(lengths, -1)
        digest.update(memoryview(piece)[hashed:])
        size += len(piece)
    hexdigest = digest.hexdigest()
    return Fingerprint(hexdigest, hexdigest, size, zlib.crc32(first[:HEAD_BYTES]), begun)


def _filled(source: ByteSource) -> Iterator[bytes]:
    while piece := source.fill(b"", _PIECE):
        yield piece


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def head_crc(file: BinaryIO, size: int) -> int:
    """CRC-32 of the first bytes, at most ``size``, of an open file; it shows whether the file was replaced.

    Inode numbers do not: some file systems reuse them.
    """
    file.seek(0)
    crc = zlib.crc32(file.read(min(size, CRC_BYTES)))
    file.seek(0)
    return crc


def is_replaced(file: BinaryIO, size: int, begins: int) -> bool:
    """Whether an open file has another `head_crc` than ``begins``, or fewer than ``size`` bytes."""
    return file.seek(0, os.SEEK_END) < size or head_crc(file, size) != begins


def ends_crc(file: BinaryIO, position: int) -> tuple[int, int]:
    """CRC-32 of the first bytes, and of the last bytes before a position, to detect a replaced file."""
    file.seek(0)
    head = file.read(min(position, CHECK_BYTES))
    file.seek(max(0, position - CHECK_BYTES))
    return zlib.crc32(head), zlib.crc32(file.read(min(position, CHECK_BYTES)))
