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
            if not lock(descriptor):
                raise OSError(errno.EWOULDBLOCK, "another program is writing it")
            os.ftruncate(descriptor, 0)
    except OSError as error:
        os.close(descriptor)
        error.filename = os.fspath(path)
        raise
    return descriptor


def lock(descriptor: int) -> bool:
    """Keep others from locking this file as long as it is open here; whether nobody else has.

    It is true as well where there are no such locks: on Windows, and on some network file systems.
    """
    with suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True
