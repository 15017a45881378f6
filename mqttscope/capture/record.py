"""Writing a capture while it goes on: a file, or a ring of files of which the oldest are removed.

What was written is readable at any moment, whatever ends the program: blocks are gathered and handed to the system in
one piece, several times a second, so that a file ends between two blocks, and at worst inside its last one.
"""

from __future__ import annotations

import os
from collections import deque
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import BinaryIO, cast

from mqttscope.capture.own_file import open_alone
from mqttscope.capture.write import PcapngWriter
from mqttscope.net.frame import Frame

GATHERED_BYTES = 1 << 18
"""More than this is not held back."""


class Recorder:
    """Frames to a pcapng file, or to a ring of them.

    ``ring_bytes``: a file that has grown past it is followed by the next, ``NAME_00001_20260102T030405.pcapng`` with
    the time (UTC) of its first frame.  ``ring_files``: so many of them are kept.  Files that were there before are
    never removed.  `OSError` when they cannot be written.
    """

    def __init__(self, path: str, *, ring_bytes: int | None = None, ring_files: int | None = None) -> None:
        self.path = Path(path)
        self.ring_bytes = ring_bytes
        self.ring_files = ring_files
        self.frames = 0
        self.files = 0
        """Files begun."""
        self.removed = 0
        """Files removed again, to keep the ring in its size."""
        self.current: Path | None = None
        self._kept: deque[Path] = deque()
        self._gathered: _Gathered | None = None
        self._writer: PcapngWriter | None = None
        if ring_bytes is None:
            self._open(self.path)
        elif not os.access(self.path.parent, os.W_OK | os.X_OK):
            error = FileNotFoundError if not self.path.parent.exists() else PermissionError
            raise error(None, "the folder cannot be written to", str(self.path.parent))

    def write(self, frame: Frame) -> None:
        """Append a frame."""
        if self._writer is None or (self.ring_bytes is not None and self._size() >= self.ring_bytes):
            self._next(frame.timestamp_ns)
        assert self._writer is not None
        assert self._gathered is not None
        self._writer.write(frame)
        self.frames += 1
        if self._gathered.held >= GATHERED_BYTES:
            self._gathered.flush()

    def flush(self) -> None:
        """Hand what was gathered to the system."""
        if self._gathered is not None:
            self._gathered.flush()

    def close(self) -> None:
        """Finish the file."""
        if self._gathered is not None:
            try:
                self._gathered.flush()
            finally:
                self._gathered.close()
                self._gathered = self._writer = None

    def told(self) -> str:
        """What was written, for people."""
        frames = f"{self.frames:,} frame{'' if self.frames == 1 else 's'}"
        if self.ring_bytes is None:
            return f"wrote {frames} to {self.path}"
        removed = f", {self.removed:,} of them removed again" if self.removed else ""
        last = f", the last is {self.current}" if self.current is not None else ""
        return f"wrote {frames} to {self.files:,} file{'' if self.files == 1 else 's'}{removed}{last}"

    def _size(self) -> int:
        return 0 if self._gathered is None else self._gathered.size

    def _next(self, timestamp_ns: int) -> None:
        self.close()
        # Before the next one is begun, so that the ring never takes more than was asked for.
        while self.ring_files is not None and len(self._kept) >= self.ring_files:
            oldest = self._kept.popleft()
            oldest.unlink(missing_ok=True)
            self.removed += 1
        time = datetime.fromtimestamp(max(0, timestamp_ns) // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%S")
        suffix = self.path.suffix or ".pcapng"
        self._open(self.path.with_name(f"{self.path.stem}_{self.files + 1:05d}_{time}{suffix}"))

    def _open(self, path: Path) -> None:
        self._gathered = _Gathered(path, fresh=self.ring_bytes is not None)
        path = self._gathered.path
        try:
            self._writer = PcapngWriter(cast(BinaryIO, self._gathered))
            self._gathered.flush()
        except OSError:
            if not os.path.getsize(path):
                path.unlink(missing_ok=True)
            raise
        self.files += 1
        self.current = path
        self._kept.append(path)


class _Gathered:
    """A file that is written in few large pieces.

    ``fresh``: one that is there already is left alone, and the name gets a number.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.size = 0
        self.held = 0
        self.path = path
        self._parts: list[bytes] = []
        others = count(2)
        while True:
            try:
                self._descriptor = open_alone(self.path, fresh=fresh)
                break
            except FileExistsError:
                if not fresh:
                    raise
                self.path = path.with_name(f"{path.stem}-{next(others)}{path.suffix}")

    def write(self, data: bytes) -> int:
        self._parts.append(data)
        self.held += len(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        left = b"".join(self._parts)
        self._parts, self.held = [], 0
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            error.filename = str(self.path)
            raise

    def close(self) -> None:
        os.close(self._descriptor)
