"""Key logs of TLS sessions (NSS format): read at once, or followed while programs write to them.

A followed log may not exist yet; it may be replaced, truncated or removed, and its last line may be incomplete.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from mqttscope.errors import MqttscopeError
from mqttscope.system import at_once_flags

MAX_SESSIONS = 10_000
"""Maximum number of sessions kept from a followed log, about 1 kB each; the oldest is dropped first."""
MAX_BACKLOG = 16 << 20
"""Maximum number of bytes read from an existing log: about the size of the lines of `MAX_SESSIONS` sessions."""
MAX_LINE = 4_096
MAX_OTHERS = 1_000
"""Maximum number of lines kept without a client random (RSA)."""
_READ = 1 << 20
_CHECKED = 256
"""Bytes before the read position that are compared, to detect a replaced log."""

_KEY_LINE = re.compile(
    rb"^(?:CLIENT|SERVER|RSA|EXPORTER|EARLY)[A-Z0-9_]* +(?:Session-ID:|Master-Key:)?[0-9a-fA-F]{16}", re.M
)
_OF_SESSION = re.compile(rb"([A-Z][A-Z0-9_]*) +([0-9a-fA-F]{64}) +[0-9a-fA-F]+\s*")
_OF_OTHERS = re.compile(rb"RSA +\S.*")
_BOTH_SIDES = (b"CLIENT_TRAFFIC_SECRET_0 ", b"SERVER_TRAFFIC_SECRET_0 ")


class BadKeysError(MqttscopeError):
    """A key log cannot be read."""


def read_keys(path: str) -> bytes:
    """Content of a key log file (NSS format), empty if it has only comments; `BadKeysError` if it is not one."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise _bad(path, error) from None
    if not _KEY_LINE.search(data):
        # OpenSSL writes a comment as soon as a program opens the log.
        if any(line and not line.startswith(b"#") for line in map(bytes.strip, data.split(b"\n"))):
            raise _no_lines(path)
        return b""
    return data if data.endswith(b"\n") else data + b"\n"


class Keys:
    """The lines of key logs, by the client random of their session.

    ``max_sessions`` and ``max_others``: maximum numbers kept; the oldest are dropped.
    """

    def __init__(self, data: bytes = b"", *, max_sessions: int = sys.maxsize, max_others: int = sys.maxsize) -> None:
        self._max_sessions, self._max_others = max_sessions, max_others
        self._sessions: dict[bytes, list[bytes]] = {}
        self._others: dict[bytes, None] = {}
        self._rest = b""
        """Beginning of an incomplete line."""
        self._skipping = False
        """Whether the beginning of this line is missing, or the line is too long."""
        self._strange = False
        """Whether a line was neither a key nor a comment."""
        self.add(data)

    def add(self, data: bytes) -> bool:
        """Add complete lines of a key log; returns whether they contain keys."""
        return self._take(data + b"\n")

    def complete(self, random: bytes) -> bool:
        """Whether the keys suffice to decrypt both directions of the session with this client random."""
        lines = self._sessions.get(random, ())
        return any(line.startswith(b"CLIENT_RANDOM ") for line in lines) or all(
            any(line.startswith(label) for line in lines) for label in _BOTH_SIDES
        )

    def lines(self, random: bytes) -> bytes:
        """Key lines of a session, with the RSA lines, which may serve any session; empty if there are neither."""
        return b"".join((*self._sessions.get(random, ()), *self._others))

    def _take(self, data: bytes) -> bool:
        new = False
        for line in self._lines(data):
            new |= self._line(line)
        return new

    def _lines(self, data: bytes) -> Iterator[bytes]:
        *whole, rest = (self._rest + data).split(b"\n")
        for line in whole:
            if not self._skipping:
                yield line
            self._skipping = False
        if len(rest) > MAX_LINE:
            rest, self._skipping, self._strange = b"", True, True
        self._rest = rest

    def _line(self, line: bytes) -> bool:
        match = _OF_SESSION.fullmatch(line)
        if match is not None:
            random = bytes.fromhex(match[2].decode())
            lines = self._sessions.setdefault(random, [])
            line = line.strip() + b"\n"
            # Two programs may log one session.
            if line not in lines and len(lines) < 16:
                lines.append(line)
            while len(self._sessions) > self._max_sessions:
                del self._sessions[next(iter(self._sessions))]
            return True
        if _OF_OTHERS.fullmatch(line):
            self._others[line.strip() + b"\n"] = None
            while len(self._others) > self._max_others:
                del self._others[next(iter(self._others))]
            return True
        self._strange = self._strange or bool(line.strip() and not line.lstrip().startswith(b"#"))
        return False


class KeyLog(Keys):
    """A key log that grows.

    ``path`` may not exist yet; `BadKeysError` if it can never become a key log.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.exists = False
        """Whether the file existed at the last poll."""
        super().__init__(max_sessions=MAX_SESSIONS, max_others=MAX_OTHERS)
        self._file = -1
        self._offset = 0
        self._state: tuple[int, int, int, int] | None = None
        """Device, inode, size and modification time at the last poll."""
        self._before = b""
        """Last bytes before the read position."""
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise BadKeysError(
                    f"key log {path}: {'Is a directory' if os.path.isdir(path) else 'is not a regular file'}"
                )
            os.close(os.open(path, os.O_RDONLY | at_once_flags()))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise _bad(path, error) from None
        self.poll()
        if self._strange and not self._sessions and not self._others:
            self.close()
            raise _no_lines(path)

    def poll(self) -> bool:
        """Read newly written lines; returns whether they contain keys."""
        try:
            status = os.stat(self.path)
        except (OSError, ValueError):
            status = None
        self.exists = status is not None
        state = None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if state is not None and state == self._state:
            return False
        new = False
        if self._file >= 0 and (state is None or self._state is None or state[:2] != self._state[:2]):
            # Another file has this path now.  Read the last lines of the old file, too.
            new = self._read() | self._take(b"\n")
            self.close()
        self._state = state
        if state is None:
            return new
        if self._file < 0:
            try:
                self._file = os.open(self.path, os.O_RDONLY | at_once_flags())
            except OSError:
                self._state = None
                return new
            self._start(max(0, state[2] - MAX_BACKLOG))
        elif state[2] < self._offset or self._checked() != self._before:
            self._start(0)
        return self._read() | new

    def settle(self) -> None:
        """Treat a last line without line end as complete, because nothing followed for long."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._line(rest)

    def close(self) -> None:
        """Close the file; the next poll opens it again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _start(self, offset: int) -> None:
        self._offset, self._rest = offset, b""
        self._skipping = offset > 0
        self._before = self._checked()

    def _checked(self) -> bytes:
        size = min(_CHECKED, self._offset)
        try:
            return os.pread(self._file, size, self._offset - size)
        except OSError:
            return b""

    def _read(self) -> bool:
        new = False
        while True:
            try:
                data = os.pread(self._file, _READ, self._offset)
            except OSError:
                data = b""
            if not data:
                return new
            self._offset += len(data)
            self._before = (self._before + data[-_CHECKED:])[-_CHECKED:]
            new |= self._take(data)


def _bad(path: str, error: OSError | ValueError) -> BadKeysError:
    return BadKeysError(f"key log {path}: {getattr(error, 'strerror', None) or error}")


def _no_lines(path: str) -> BadKeysError:
    return BadKeysError(f"key log {path}: holds no lines like CLIENT_RANDOM ... or CLIENT_TRAFFIC_SECRET_0 ...")
