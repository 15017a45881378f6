"""Which captures a source stands for: files, directories, glob patterns; and what is wrong with those that are found.

What is named by itself is not looked at: whoever opens it says what is wrong.  What is found is, so that nothing is
waited for (a pipe without a writer) and nothing is passed over that is called a capture.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from typing import BinaryIO

from mqttscope.capture.compressed import ByteSource
from mqttscope.capture.pcap import PCAP_MAGICS
from mqttscope.capture.pcapng import PCAPNG_MAGIC
from mqttscope.net.frame import CaptureError

NOT_REGULAR = "is no regular file"
"""What is said of a pipe or a device that was found, or that would have to be read more than once."""
MISSING = "does not exist"
NO_MATCH = "matches no file"
NO_CAPTURES = "is a directory without captures"
NOTHING_THERE = (MISSING, NO_MATCH, NO_CAPTURES)
"""What is said of sources that stand for no capture."""
SINCE = " since it was found"
"""What is said of a capture that cannot be read any more, or would be another one, ends with this."""
REPLACED = f"is another file{SINCE}"
_DANGLING = "is a link to what does not exist"
_SNIFF_SIZE = 1 << 12
_CAPTURE_NAME = re.compile(
    r"\.(?:pcap|pcapng|ntar)(?:[-_.\d]*\d)?(?:\.(?:gz|zst|zstd|lz4|bz2|xz|zip|7z))?(?:[-_.\d]*\d)?\Z", re.IGNORECASE
)
"""How captures are called, those that are rotated (``x.pcap1``, ``x.pcap_00001``, ``x.pcap.gz.1``) and compressed ones,
too; also with what is not read, so that it is said."""


def expand(source: str) -> list[str | CaptureError] | None:
    """The captures that a directory or a glob pattern stands for, by name, links last; ``None`` for anything else.

    Directories: all captures directly in them, told by their content, and what is named like one.  Glob patterns
    (``**`` descends) count where no such path exists.  An error stands for what cannot be read, and for a source
    without any capture.
    """
    found: list[str | CaptureError]
    if os.path.isdir(source):
        try:
            names = os.listdir(source)
            # Who may list a directory may still be kept from entering it.
            os.stat(os.path.join(source, os.curdir))
        except OSError as error:
            return [CaptureError(source, why_not_opened(error))]
        found = [one for name in links_last(source, names) if (one := _in_directory(name)) is not None]
        return found or [CaptureError(source, NO_CAPTURES)]
    if os.path.lexists(source) or not glob.has_magic(source):
        return None
    paths = [path for path in glob.glob(source, recursive=True) if not os.path.isdir(path)]
    found = [path if (why := fault(path)) is None else CaptureError(path, why) for path in links_last("", paths)]
    return [*denied(source), *found] or [CaptureError(source, NO_MATCH)]


def links_last(directory: str, names: list[str]) -> list[str]:
    """Paths in a directory in the order of their names; links last, so that what they lead to has its own name."""
    paths = sorted(os.path.join(directory, name) for name in names)
    return sorted(paths, key=os.path.islink)


def identity(path: str) -> object:
    """Which file a path leads to, by whatever name; a link that leads nowhere is a file of its own."""
    for look in (os.stat, os.lstat):
        try:
            told = look(path)
        except OSError:
            continue
        except ValueError:
            return path  # no path at all
        if told.st_ino:
            return told.st_dev, told.st_ino
    return os.path.realpath(path)


def fault(path: str) -> str | None:
    """What keeps a path that was found from being read; ``None`` for a regular file, which opening may still refuse."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        return why_not_opened(error, path)
    return None if stat.S_ISREG(mode) else NOT_REGULAR


def is_named_like_capture(path: str) -> bool:
    """Whether a file of this name is to be read as a capture, so that it is said where it is none, or empty."""
    return _CAPTURE_NAME.search(path) is not None


def looks_like_capture(file: BinaryIO) -> bool:
    """Whether a file begins like a capture, compressed or not; `OSError` where it cannot be read at all."""
    file.read(1)
    file.seek(0)
    head = ByteSource(file, chunk_size=_SNIFF_SIZE).fill(b"", 4)
    return head[:4] in PCAP_MAGICS or head[:4] == PCAPNG_MAGIC


def why_not_opened(error: OSError | ValueError, path: str = "") -> str:
    """What to say of a capture that cannot be opened; ``path``: its own, where it is local."""
    if isinstance(error, FileNotFoundError):
        return _DANGLING if path and os.path.islink(path) else MISSING
    reason = error.strerror if isinstance(error, OSError) else None
    return f"cannot be opened: {reason or error}"


def denied(pattern: str) -> list[CaptureError]:
    """The directories on the way of a glob pattern that it cannot look into, each with why: it passes them over."""
    found: dict[str, CaptureError] = {}
    head, last = os.path.split(pattern)
    while last:
        for directory in [head] if not glob.has_magic(head) else glob.glob(head, recursive=True):
            if not os.path.isdir(directory or os.curdir):
                continue
            try:
                if glob.has_magic(last):
                    os.scandir(directory or os.curdir).close()
                os.stat(os.path.join(directory, os.curdir))
            except PermissionError as error:
                found.setdefault(directory, CaptureError(directory or os.curdir, why_not_opened(error)))
            except (OSError, ValueError):
                continue  # gone meanwhile
        head, last = os.path.split(head)
    return sorted(found.values(), key=lambda one: one.capture)


def _in_directory(path: str) -> str | CaptureError | None:
    """A file that is called or begins like a capture, or cannot be read; what is wrong with what is called one."""
    why = fault(path)
    if why is not None:
        return CaptureError(path, why) if is_named_like_capture(path) and not os.path.isdir(path) else None
    if is_named_like_capture(path):
        return path
    try:
        with open(path, "rb", buffering=0) as file:
            return path if looks_like_capture(file) else None
    except OSError:
        return path  # so that reading it says why
