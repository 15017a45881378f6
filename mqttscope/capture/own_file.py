"""Files that captures are written to: for their owner alone, and by one program at a time."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

PRIVATE = 0o600
"""Rights of new captures: what is in them may hold passwords."""


def open_alone(path: str | os.PathLike[str], *, fresh: bool = False) -> int:
    """The descriptor of a new or emptied file, for writing.

    `OSError` where it cannot be made or another program is writing it, whose blocks ours would lie between.  ``fresh``:
    `FileExistsError` where there is one already.  Pipes and devices are opened as they are.
    """
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | (os.O_EXCL if fresh else 0), PRIVATE)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _lock(descriptor)
            os.ftruncate(descriptor, 0)
    except OSError as error:
        os.close(descriptor)
        error.filename = os.fspath(path)
        raise
    return descriptor


def _lock(descriptor: int) -> None:
    with suppress(ImportError):  # Windows has no such locks
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Some network file systems know no locks.
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise OSError(error.errno, "another program is writing it") from None
