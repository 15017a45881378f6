"""How far captures of a folder are read: the offsets of a stream.

An offset says everything: with the same two of them the same rows come, whatever has happened in between.  It names
the captures that are there, so that it stays as small as the folder; those that are complete are packed, with what is
needed to know them again.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

from mqttscope.capture.detect_format import NO_FRAME
from mqttscope.capture.pcap import ReaderState


@dataclass(slots=True)
class Followed:
    """One capture of a stream."""

    file: int
    """Its place in the order of reading, from 0."""
    name: str
    """As a glob or directory gave it."""
    memory: ReaderState = field(default_factory=ReaderState)
    """How far it is read."""
    head: int = 0
    """CRC-32 of its first bytes, as far as they were read: with ``tail`` it says whether it is still the same."""
    tail: int = 0
    """CRC-32 of the bytes before ``memory.position``."""
    size: int | None = None
    """Its length when it was complete; ``None``: it is growing."""
    waiting: int = 0
    """Bytes that could be read already, but for the limit of a batch."""
    first_ns: float = NO_FRAME
    """Time of its first frame; forgotten when it is complete."""
    is_whole: bool = False
    """It is compressed, or no capture at all, and read in one go."""
    begun: int = 0
    """So many bytes of it, uncompressed, were read elsewhere when it was shorter."""

    @property
    def now_ns(self) -> float:
        """Time up to which it is read."""
        return self.memory.timestamp_ns if self.memory.frames else self.first_ns

    def copy(self) -> Followed:
        """Another one that says the same."""
        return Followed(
            self.file, self.name, self.memory.copy(), self.head, self.tail, self.size, self.waiting, self.first_ns,
            self.is_whole, self.begun,
        )  # fmt: skip


@dataclass(slots=True)
class Said:
    """Something that went wrong between an offset and the one before."""

    file: int
    name: str
    message: str
    frames: int
    offset: int | None


@dataclass(slots=True)
class Offset:
    """How far a stream is."""

    captures: dict[str, Followed] = field(default_factory=dict)
    """By name."""
    files: int = 0
    """How many captures there were ever."""
    said: list[Said] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    """New ones whose content is in the lake already: their rows so far are left out."""
    unread: list[str] = field(default_factory=list)
    """What cannot be read, and has been said so."""

    def written(self) -> dict[str, Any]:
        """As JSON, plain values only."""
        growing = [one for one in self.captures.values() if one.size is None]
        complete = [one for one in self.captures.values() if one.size is not None]
        return {
            "version": 1,
            "files": self.files,
            "growing": [
                [
                    one.file, one.name, one.memory.written(), one.head, one.tail, None, one.waiting,
                    None if one.first_ns == NO_FRAME else one.first_ns, one.is_whole, one.begun,
                ]
                for one in growing
            ],
            "complete": _packed(
                [
                    [
                        one.file, one.name, one.head, one.tail, one.size, one.memory.position, one.memory.frames,
                        int(one.is_whole), one.begun,
                    ]
                    for one in complete
                ]
            ),
            "said": [[one.file, one.name, one.message, one.frames, one.offset] for one in self.said],
            "passed": self.passed,
            "unread": self.unread,
        }  # fmt: skip

    @classmethod
    def of(cls, written: dict[str, Any]) -> Offset:
        """What `written` wrote; `ValueError` where it is of another version."""
        if written.get("version") != 1:
            raise ValueError(f"the offset has version {written.get('version')}, this program reads 1")
        captures = []
        for file, name, memory, head, tail, size, waiting, first_ns, is_whole, *begun in written["growing"]:
            first_ns = NO_FRAME if first_ns is None else first_ns
            made = Followed(file, name, ReaderState.of(memory), head, tail, size, waiting, first_ns, is_whole, *begun)
            captures.append(made)
        for file, name, head, tail, size, position, frames, is_whole, *begun in _unpacked(written["complete"]):
            made = Followed(file, name, ReaderState(position, frames), head, tail, size, is_whole=bool(is_whole))
            made.begun = begun[0] if begun else 0
            captures.append(made)
        return cls(
            {one.name: one for one in sorted(captures, key=lambda one: one.file)},
            written["files"],
            [Said(*one) for one in written["said"]],
            list(written["passed"]),
            list(written.get("unread", ())),
        )


def _packed(values: list[Any]) -> str:
    # Unlike orjson, json takes names of files that are no UTF-8.
    plain = json.dumps(values, separators=(",", ":")).encode()
    return base64.b85encode(zlib.compress(plain, 9)).decode() if values else ""


def _unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b85decode(text))) if text else []
