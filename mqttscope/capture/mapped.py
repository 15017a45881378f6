"""Maps a capture file into memory, for readers in native code."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Sequence


def map_capture(captures: Sequence[str]) -> mmap.mmap | None:
    """The content of the capture, if there is just one, and it is a regular local file that is not empty."""
    if len(captures) != 1 or captures[0] == "-":
        return None
    try:
        # Before it is opened: a pipe has only one reader.
        status = os.stat(captures[0])
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return None
        with open(captures[0], "rb", buffering=0) as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
