"""A file as it was when somebody looked: what was written behind that is not there."""

from __future__ import annotations

import os
from typing import BinaryIO


class Limited:
    """The first bytes of an open, seekable file, as a file that is at its beginning."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._at = file.seek(0)

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most ``size``; none at the end."""
        left = max(0, self._size - self._at)
        data = self._file.read(left if size < 0 else min(size, left))
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset; returns the one from the beginning."""
        if whence == os.SEEK_END:
            offset += min(self._size, self._file.seek(0, os.SEEK_END))
        elif whence == os.SEEK_CUR:
            offset += self._at
        self._at = self._file.seek(offset)
        return self._at

    def tell(self) -> int:
        """The offset of the next byte."""
        return self._at
