"""Keys that are pressed while a screen is shown: read one by one, without waiting, and without echo.

Only a terminal that this process may read from has keys: a process in the background has none, and neither has one
whose standard input is something else.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
from typing import Any

try:
    import termios
    import tty
except ImportError:  # A system without POSIX terminals.
    termios = None  # type: ignore[assignment]

MAX_BYTES = 4096
"""Bytes of keys that are taken at a time: somebody may paste a file."""
_SEQUENCE = re.compile(r"\x1b[\[O][0-9;?<]*[ -/]*[@-~]?")
"""What arrows, function keys and the mouse send."""


class Keyboard:
    """The keys of a terminal, from :meth:`open` to :meth:`close`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._over = False

    def open(self) -> None:
        """Take keys as they are pressed, and show none of them."""
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSANOW)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._before is None:
            return
        before, self._before = self._before, None
        if self.is_ours():
            termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

    def watched(self) -> tuple[int, ...]:
        """The descriptor that a key makes readable."""
        return () if self._before is None or self._over or not self.is_ours() else (self._descriptor,)

    def pressed(self) -> list[str]:
        """The keys that were pressed since the last call: a character each, U+001B for Esc."""
        if not self.watched():
            return []
        self._claim()
        if not select.select([self._descriptor], [], [], 0)[0]:
            return []
        try:
            data = os.read(self._descriptor, MAX_BYTES)
        except OSError:
            data = b""
        # The terminal has gone: it stays readable, and would be asked without end.
        self._over = not data
        return list(_SEQUENCE.sub("", self._decoder.decode(data)))

    def _claim(self) -> None:
        """A shell that had stopped the program may have given it back with another mode."""
        try:
            if termios.tcgetattr(self._descriptor)[3] & termios.ICANON:
                tty.setcbreak(self._descriptor, termios.TCSANOW)
        except (termios.error, OSError):
            self._over = True

    def is_ours(self) -> bool:
        """Whether this process is in the foreground: another one would be stopped for touching the terminal."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False


def keyboard() -> Keyboard | None:
    """The keys of standard input; none where it is not a terminal of this process."""
    if termios is None or sys.stdin is None or not sys.stdin.isatty():
        return None
    found = Keyboard(sys.stdin.fileno())
    return found if found.is_ours() else None
