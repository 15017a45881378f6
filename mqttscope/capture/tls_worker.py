"""One tshark that decrypts while it is fed: frames in, and for each of them what was decrypted with it.

tshark reads pcapng from its standard input and prints a line for each frame: its number, its protocols and the data
that was inside TLS, in hexadecimal.  Unlike exported PDUs these come at once, and they say of every frame that tshark
is done with it.  Neither side waits for the other: what the pipe does not take is kept here.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from mqttscope.capture.tls import ARGUMENTS
from mqttscope.capture.tshark import TsharkProcess
from mqttscope.net.frame import Frame

T = TypeVar("T")

FRAME_COST = 1_000
"""Bytes by which tshark grows with each frame, beside its payload (measured: 700 to 800)."""
STALL_SECONDS = 30.0
"""A tshark that says nothing for so long, though it has frames to read, is given up."""
_AWAY_SECONDS = 1.0
"""Whoever did not look for so long was stopped or had to wait himself."""
FIELDS = ("-l", "-T", "fields", "-e", "frame.number", "-e", "frame.protocols", "-e", "data.data")
"""What is printed, a line at once."""


class Tshark(Generic[T]):
    """A running tshark.  ``command``: what it is called with, `{keys}` being the key log.

    What is fed with a frame comes back with its answer.  `OSError` where it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.cost = 0
        """About how many bytes it has grown by."""
        self.users = 0
        """Connections that it decrypts; for the owner to count."""
        self.fault: str | None = None
        """What it failed at."""
        self.waiting: deque[T] = deque()
        """What was fed and not answered, one for each frame."""
        self.unanswered = 0
        """Bytes of these frames."""
        self._sizes: deque[int] = deque()
        self._answered = 0
        self._given: set[bytes] = set()
        self._rest = b""
        self._looked_at = self._moved_at = time.monotonic()
        self._keys, path = _private()
        keep = (self._keys,) if path.startswith("/dev/fd/") else ()
        self._path = "" if keep else path
        words = [word.replace("{keys}", path) for word in (*command, *ARGUMENTS, *FIELDS)]
        try:
            self._process = TsharkProcess(words, keep)
        except BaseException:
            self._forget_keys()
            raise

    def keys(self, lines: bytes) -> None:
        """Add lines to the key log; before the frames that need them are fed."""
        for line in lines.splitlines(keepends=True):
            if line.startswith(b"RSA"):
                # They come with every connection.
                if line in self._given:
                    continue
                self._given.add(line)
            self.cost += len(line)
            with suppress(OSError):
                os.write(self._keys, line)

    def feed(self, frame: Frame, owner: T) -> None:
        """Give it a frame; ``owner`` comes back with the answer."""
        size = len(frame.data)
        self.cost += FRAME_COST + size
        self.unanswered += size
        self._sizes.append(size)
        self.waiting.append(owner)
        if self.fault is None:
            self._process.feed(frame)

    def answers(self) -> Iterator[tuple[T, list[bytes]]]:
        """Pass on what it can take, and yield what it is done with: the owner and what each record held."""
        if self.fault is None:
            self._process.push()
            moved = False
            for line in self._lines():
                moved = True
                number, protocols, data = (*line.split(b"\t"), b"", b"")[:3]
                if not self.waiting or number != b"%d" % (self._answered + 1):
                    self._fail(f"said {line[:40]!r}")
                    return
                self._answered += 1
                self.unanswered -= self._sizes.popleft()
                # Data right inside TCP is none that was decrypted.
                records = data.split(b",") if data and b"tcp:data" not in protocols else ()
                yield self.waiting.popleft(), [bytes.fromhex(one.decode()) for one in records if one]
            self._watch(moved=moved)

    def watched(self) -> list[int]:
        """Descriptors on which something comes when there is something to do."""
        if self.fault is not None:
            return []
        process = self._process
        return [process.output, process.errors] if process.complains else [process.output]

    def close(self) -> None:
        """End it now."""
        self._process.close()
        self._forget_keys()

    def _lines(self) -> Iterator[bytes]:
        while True:
            self._process.listen()
            data = self._process.read()
            if data is None:
                return
            if not data:
                self._fail("ended early")
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from lines
            if self.fault is not None:
                return
            self._process.push()

    def _watch(self, *, moved: bool) -> None:
        now = time.monotonic()
        if moved or not self.waiting or now - self._looked_at > _AWAY_SECONDS:
            self._moved_at = now
        elif now - self._moved_at > STALL_SECONDS and self.fault is None:
            self._fail(f"silent for {STALL_SECONDS:.0f} s")
        self._looked_at = now

    def _fail(self, what: str) -> None:
        if self.fault is None:
            how, last = self._process.give_up(0.2)
            self.fault = f"failed while it decrypted TLS ({what}{how}){last}; what it had not decrypted is missing"

    def _forget_keys(self) -> None:
        with suppress(OSError):
            os.close(self._keys)
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)
            self._path = ""


def _private() -> tuple[int, str]:
    """A file for keys that nobody else can read, and how tshark opens it.

    In memory where the system has that: then it cannot stay behind, however this program ends.
    """
    if sys.platform.startswith("linux") and hasattr(os, "memfd_create") and os.path.isdir("/dev/fd"):
        with suppress(OSError):
            file = os.memfd_create("mqttscope-keys")
            return file, f"/dev/fd/{file}"
    return tempfile.mkstemp(prefix="mqttscope-keys-")
