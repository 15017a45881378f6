"""Files that this program makes: for their owner alone; captures by one program at a time.

New files have the rights 0600 and new folders 0700: what was captured may hold secrets.  A folder that is there already
may want it otherwise, by a default ACL, and is obeyed; files that are there already keep their rights.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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


@contextmanager
def _for_the_owner() -> Iterator[None]:
    """Make what is new for its owner alone, unless a default ACL of its folder says otherwise: it takes no umask."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def opener(path: str, flags: int) -> int:
    """For ``open``: a new file is for its owner alone."""
    with _for_the_owner():
        return os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder with those above it, as far as they are missing."""
    with _for_the_owner():
        Path(path).mkdir(parents=True, exist_ok=True)


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole: who reads it meanwhile, or finds the disk full, has the one before.  Raises `OSError`.

    Links stay, and lead to the new file.  Pipes and devices are written as they are, and so is what is there already
    in a folder where nothing new may be made.
    """
    target = os.path.realpath(path)
    there = os.path.exists(target)
    if there and (not os.path.isfile(target) or not os.access(os.path.dirname(target), os.W_OK)):
        with open(target, "wb", opener=opener) as file:
            file.write(data)
        return
    new = f"{target}.{os.getpid()}.new"
    try:
        with open(new, "xb", opener=opener) as file:
            file.write(data)
        replace_file(new, target)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            with suppress(OSError):
                os.unlink(new)
        raise


def replace_file(new: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Put a new file in the place of another, whose rights it takes over."""
    with suppress(OSError):
        os.chmod(new, stat.S_IMODE(os.stat(path).st_mode))
    os.replace(new, path)


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
