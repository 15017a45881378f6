"""Output that waits for the lines before it."""

from __future__ import annotations

from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO

from mqttscope.report.base import Sink

MAX_KEPT_BYTES = 1 << 20
"""Maximum number of bytes kept in memory."""


class DeferredOutput:
    """A sink that keeps its input until the first lines are known; large output goes to a file.

    `tempfile.SpooledTemporaryFile` is not used: it warns if a report is dropped before its first lines are known.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._buffer = bytearray()
        self._file: IO[bytes] | None = None

    def write(self, data: bytes) -> None:
        """Keep bytes."""
        self._buffer += data
        if len(self._buffer) > MAX_KEPT_BYTES:
            self._file = self._file or TemporaryFile()  # noqa: SIM115
            self._file.write(self._buffer)
            self._buffer.clear()

    def release(self, first: bytes) -> None:
        """Write the first lines and all kept bytes."""
        self._sink.write(first)
        if self._file is not None:
            self._file.seek(0)
            copyfileobj(self._file, self._sink)
            self._file.close()
        self._sink.write(bytes(self._buffer))
