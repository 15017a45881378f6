"""permessage-deflate of one direction (RFC 7692): compressed messages in any chunking come in, their bytes go out."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

MAX_INFLATE_BYTES = 1024 * 1024
"""Longest piece of inflated payload.  One call of ``feed`` yields at most about 1030 times the bytes it was given."""
MAX_PENDING_BYTES = 64 * 1024
"""Compressed bytes of an unfinished message that are kept so that ``Inflater`` can be written down."""
MAX_FINAL_BLOCKS = 16
"""DEFLATE blocks with BFINAL set in one message, each of which restarts zlib."""
WINDOW_BYTES = 32 * 1024
_INFLATE_STEP = 64 * 1024
_FLUSH = b"\x00\x00\xff\xff"
_LAST_BLOCK = b"\x01\x00\x00\xff\xff"


@dataclass(slots=True)
class Inflater:
    """Inflates the messages of one direction.

    ``zlib_object`` (up to 32 KiB of window and some tables) lives as long as a message and may be set to ``None``
    between any two calls, for instance to write this object down: it is rebuilt from the other fields, which are plain
    data.  Only a message with more than ``MAX_PENDING_BYTES`` compressed bytes so far cannot be continued then, and
    becomes an error.

    After an error the window is empty.  Messages that refer to lost history then fail too, rather than inflate to other
    bytes, for every later window is a true suffix of what was sent.
    """

    context_takeover: bool
    window: bytearray = field(default_factory=bytearray)  # output before the current message; its last 32 KiB count
    tail: bytearray = field(default_factory=bytearray)  # output of the current message, likewise
    pending: bytearray = field(default_factory=bytearray)  # its compressed bytes, empty when they are too many
    fed: int = 0  # how many compressed bytes the current message has had
    finals: int = 0  # how many final blocks it has had
    restart: bool = False  # the last byte ended a final block
    zlib_object: Any = field(default=None, repr=False, compare=False)

    def feed(self, data: bytes, last: bool, out: list[bytes]) -> str | None:
        """Append the inflated bytes of the next part of a message to ``out``; returns what is wrong, if anything."""
        error = None
        had, delivered = self.fed, len(out)
        if self.zlib_object is None and self.fed and not self.restart:
            error = self._replay()
        for at in range(0, len(data), _INFLATE_STEP):
            error = error or self._run(data[at : at + _INFLATE_STEP], out)
        if error is None and last and self.fed and not self.restart:
            # After a final block there is nothing to flush when the sender left out the byte that RFC 7692
            # section 7.2.3.4 asks for.
            before = len(out)
            error = self._run(_FLUSH, out) or self._end()
            if error:
                del out[before:]  # inside a block the flush was read as data
        if error:
            if len(self.pending) == had:
                self._salvage(data + _FLUSH if last else data, out, sum(map(len, out[delivered:])))
            self.reset()
        elif last:
            self._finish()
        elif self.fed <= MAX_PENDING_BYTES:
            self.pending += data
        else:
            self.pending.clear()
        return error

    def reset(self) -> None:
        """Forget the current message and all history."""
        self.tail.clear()
        self.window.clear()
        self._finish()

    def _end(self) -> str | None:
        """Take an empty last block, which ends everything when the blocks before it were whole."""
        if self.zlib_object is not None:
            with suppress(zlib.error):
                self.zlib_object.decompress(_LAST_BLOCK)
            if self.zlib_object.eof:
                return None
        return "the message ends inside a block"

    def _finish(self) -> None:
        if self.context_takeover:
            self.window += self.tail
            if len(self.window) > 2 * WINDOW_BYTES:
                del self.window[:-WINDOW_BYTES]
        self.zlib_object = None
        self.fed = self.finals = 0
        self.restart = False
        self.tail.clear()
        self.pending.clear()

    def _salvage(self, data: bytes, out: list[bytes], delivered: int) -> None:
        """Append what ``data`` holds before the byte that is wrong: zlib drops it, as much as the chunking has it."""
        self.zlib_object = None
        self.fed = self.finals = 0
        self.tail.clear()
        self._run(bytes(self.pending), [])
        found: list[bytes] = []
        for at in range(len(data)):
            if self._run(data[at : at + 1], found):
                break
        rest = b"".join(found)[delivered:]
        out += [rest[at : at + MAX_INFLATE_BYTES] for at in range(0, len(rest), MAX_INFLATE_BYTES)]

    def _replay(self) -> str | None:
        if len(self.pending) != self.fed:
            return f"the state inside a message of more than {MAX_PENDING_BYTES} compressed bytes was not kept"
        self.fed = self.finals = 0
        self.tail.clear()
        return self._run(bytes(self.pending), [])

    def _run(self, data: bytes, out: list[bytes]) -> str | None:
        self.fed += len(data)
        while True:
            if self.zlib_object is None:
                history = bytes((self.window + self.tail)[-WINDOW_BYTES:])
                self.zlib_object = zlib.decompressobj(-15, zdict=history) if history else zlib.decompressobj(-15)
                self.restart = False
            try:
                piece = self.zlib_object.decompress(data, MAX_INFLATE_BYTES)
            except zlib.error as error:
                return str(error)
            if piece:
                out.append(piece)
                self.tail += piece[-WINDOW_BYTES:]
                if len(self.tail) > 2 * WINDOW_BYTES:
                    del self.tail[:-WINDOW_BYTES]
            self.restart = self.zlib_object.eof
            if self.restart:
                data = self.zlib_object.unused_data
                self.zlib_object = None
                self.finals += 1
                if self.finals > MAX_FINAL_BLOCKS:
                    return f"more than {MAX_FINAL_BLOCKS} final blocks in one message"
            else:
                data = self.zlib_object.unconsumed_tail
            if not data and (self.restart or len(piece) < MAX_INFLATE_BYTES):
                return None
