"""Captures by path, glob, directory or URI: found in the order of their first frames, and opened for reading.

Local files are opened as everywhere else; what has a scheme (``s3``, ``gs``, ``abfss``, ``hdfs``) is opened through
``pyarrow.fs`` (`capture.stores`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import unquote

from mqttscope.capture import files as capture_files
from mqttscope.capture.fingerprint import head_crc, is_replaced
from mqttscope.capture.read import NO_FRAME, first_time
from mqttscope.capture.stores import URI, file_system, one_line, shown_uri
from mqttscope.errors import MqttscopeError
from mqttscope.net.frame import CaptureError

READ_AHEAD_BYTES = 4 << 20
"""How much is asked of a remote store at a time."""
PARALLEL = 16
"""How many captures are looked into at a time."""

_MAGIC = re.compile(r"[*?[]")
T = TypeVar("T")
U = TypeVar("U")


class NoCapturesError(MqttscopeError, ValueError):
    """Nothing that was named can be read."""

    def __init__(self, faulty: Sequence[Location] = ()) -> None:
        super().__init__("; ".join(f"{one.name} {one.fault}" for one in faulty) or "no capture is named")
        self.faulty = faulty
        """What was named, each with its fault."""


@dataclass(slots=True, frozen=True)
class Location:
    """One capture."""

    name: str
    """As the user gave it, or as a glob or directory gave it: ``Frame.capture``."""
    target: str
    """What to open: an absolute path, or a URI."""
    size: int = 0
    first_ns: float = NO_FRAME
    """Time of the first frame that is to be read."""
    fault: str | None = None
    """Why it cannot be opened."""
    behind: int = 0
    """So many bytes of it were read before, uncompressed: only what follows is."""
    begins: int | None = None
    """`fingerprint.head_crc` of the file, where it is known: another one is not read."""
    written_ns: int | None = None
    """When an object of a store was written, nanoseconds since the epoch, as the store says it."""

    @property
    def is_remote(self) -> bool:
        return "://" in self.target

    def known_as(self, seen: Mapping[str, Seen]) -> str | None:
        """The digest of its content where it is an object that was seen before; ``None`` where it has to be read."""
        found = seen.get(self.name)
        return found[0] if found is not None and self.written_ns and found[1:] == [self.size, self.written_ns] else None


Seen = Sequence[Any]
"""What was seen of an object of a store: digest of its content, bytes, when it was written (`Location.written_ns`)."""


def find(
    sources: Sequence[str], settings: Mapping[str, str] | None = None, seen: Mapping[str, Seen] | None = None
) -> list[Location]:
    """The captures that ``sources`` stand for, in the order in which ``open_capture`` reads them.

    ``settings``: for the remote file systems, as in `open_location`.  ``seen``: objects of stores that were read
    before, by name, which are not opened (`Location.known_as`) and stand before all others.  What is faulty stands
    among the others; `NoCapturesError` where there is nothing else.
    """
    seen = seen or {}
    found: list[Location] = []
    for source in sources:
        local = local_path(source)
        if local is None:
            named = {one.target for one in found} | set(sources)
            listed = _find_remote(source, settings or {}, seen)
            found += (one for one in listed if one.target == source or one.target not in named)
    # Together: what a glob finds is not read again where it is named as well.
    paths = [path for path in map(local_path, sources) if path is not None]
    for one in capture_files.find_captures(paths):
        if isinstance(one, CaptureError):
            found.append(Location(one.capture, os.path.abspath(one.capture), fault=one.message))
        else:
            found.append(Location(one, os.path.abspath(one)))
    looked = list(_each(lambda one: _look(one, settings or {}, seen, alone=len(found) == 1), found))
    if all(one.fault is not None for one in looked):
        raise NoCapturesError(looked)
    return sorted(looked, key=lambda one: one.first_ns)


def open_location(target: str, settings: Mapping[str, str] | None = None) -> BinaryIO:
    """Open ``Location.target``, seekable.  Raises `OSError`.

    ``settings``: for the file system, as pyarrow's URIs have them: ``region``, ``endpoint_override``, ``scheme``.
    """
    if "://" not in target:
        return open(target, "rb", buffering=0)
    system, path = file_system(target, settings or {})
    with one_line():
        return cast(BinaryIO, _ReadAhead(system.open_input_file(path)))


def open_named(name: str, settings: Mapping[str, str] | None = None) -> BinaryIO:
    """Open ``Location.name``, which is all that is known of a capture of an earlier run.  Raises `OSError`."""
    path = local_path(name)
    return open_location(name if path is None else os.path.abspath(path), settings)


def why_replaced(file: BinaryIO, one: Location) -> str | None:
    """Why a capture that is open is not what was found; ``None`` where it is."""
    if one.begins is None or not is_replaced(file, one.size, one.begins):
        return None
    return capture_files.REPLACED


def local_path(source: str) -> str | None:
    """The path of a local source; ``None`` for that of a store."""
    match = URI.match(source)
    if match is None:
        if source.startswith("dbfs:/"):
            return "/dbfs/" + source[6:]
        return source.removeprefix("file:") if source.startswith("file:/") else source
    if match["scheme"].lower() == "file":
        return "/" + unquote(match["key"])
    return None


def _look(one: Location, settings: Mapping[str, str], seen: Mapping[str, Seen], *, alone: bool) -> Location:
    """With size and, unless it is the only one, time of the first frame."""
    if one.fault is not None or one.known_as(seen) is not None:
        return one
    if not one.is_remote and os.path.exists(one.target) and not os.path.isfile(one.target):
        # A pipe would wait for its writer, a device may never end.
        return Location(one.name, one.target, fault=capture_files.NOT_REGULAR)
    try:
        with open_location(one.target, settings) as file:
            size = file.seek(0, os.SEEK_END)
            begins = head_crc(file, size)
            first_ns = NO_FRAME if alone else first_time(file)
            return replace(one, size=size, first_ns=first_ns, begins=begins)
    except (OSError, ValueError) as error:
        return Location(one.name, one.target, fault=capture_files.why_not_opened(error, one.target))


def _each(call: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    with ThreadPoolExecutor(PARALLEL) as pool:
        yield from pool.map(call, items)


def below(system: Any, path: str, *, recursive: bool) -> list[Any]:
    """What lies in a folder of a file system, by name; nothing where there is no such folder."""
    from pyarrow import fs

    listed = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=recursive))
    return sorted(listed, key=lambda one: one.path)


def _find_remote(source: str, settings: Mapping[str, str], seen: Mapping[str, Seen]) -> list[Location]:
    """The captures that a URI stands for, by name."""
    from pyarrow import fs

    try:
        system, path = file_system(source, settings)
        with one_line():
            info = system.get_file_info(path.rstrip("/"))
            if info.type == fs.FileType.File:
                return [_object(source, info)]
            prefix = f"{source[: URI.match(source).end('authority')]}/"  # type: ignore[union-attr]
            base = path.partition("/")[0]
            if info.type == fs.FileType.Directory:
                files = [one for one in below(system, path.rstrip("/"), recursive=False) if one.is_file]
                objects = [_object(prefix + one.path[len(base) + 1 :], one) for one in files]
                looked = list(_each(lambda one: one.known_as(seen) is not None or _is_capture(one, settings), objects))
                found = [one for one, is_capture in zip(objects, looked, strict=True) if is_capture]
                return found or [Location(_name(source), source, fault=capture_files.NO_CAPTURES)]
            if not _MAGIC.search(path):
                return [Location(_name(source), source, fault=capture_files.MISSING)]
            fixed = path[: path.index(_MAGIC.search(path)[0])].rpartition("/")[0]  # type: ignore[index]
            listed = below(system, fixed, recursive="**" in path or "/" in path[len(fixed) + 1 :])
            wanted = _pattern(path)
            files = [one for one in listed if one.is_file and wanted.fullmatch(one.path)]
            found = [_object(prefix + one.path[len(base) + 1 :], one) for one in files]
            return found or [Location(_name(source), source, fault=capture_files.NO_MATCH)]
    except (OSError, ValueError) as error:
        return [Location(_name(source), source, fault=capture_files.why_not_opened(error))]


def _object(target: str, info: Any) -> Location:
    """An object of a store; ``info``: what its file system says of it."""
    # Two names that look the same once secrets are hidden: only the content tells such objects apart.
    written_ns = None if "?" in target else info.mtime_ns
    return Location(_name(target), target, info.size or 0, written_ns=written_ns)


def _name(uri: str) -> str:
    """What a capture is called in rows; who may read it is no part of that, so that captures stay known by it."""
    return shown_uri(uri).replace("://***@", "://", 1)


def _is_capture(one: Location, settings: Mapping[str, str]) -> bool:
    if capture_files.is_named_like_capture(one.target):
        return True
    try:
        with open_location(one.target, settings) as file:
            return capture_files.looks_like_capture(file)
    except OSError:
        return True  # so that reading it says why


def _pattern(path: str) -> re.Pattern[str]:
    """A glob pattern as an expression for whole paths: ``**/`` is any number of directories."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]]+\])", path)
    meanings = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]", "": ""}
    made = ""
    for part in parts:
        if part in meanings:
            made += meanings[part]
        elif part.startswith("[") and part.endswith("]"):
            made += "[" + part[1:-1].replace("\\", "\\\\").replace("!", "^", part[1] == "!") + "]"
        else:
            made += re.escape(part)
    return re.compile(made, re.S)


class _ReadAhead:
    """A remote file, read in large pieces: each costs a request."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0
        """Place in the buffer."""
        self._base = 0
        """Offset of the buffer in the file."""

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size >= READ_AHEAD_BYTES:
            data = self._buffer[self._at :]
            self._base += self._at
            self._buffer, self._at = b"", 0
            more: bytes = self._get(self._base + len(data), None if size < 0 else size - len(data))
            self._base += len(data) + len(more)
            return data + more
        if self._at >= len(self._buffer):
            self._base += len(self._buffer)
            self._buffer, self._at = self._get(self._base, READ_AHEAD_BYTES), 0
        data = self._buffer[self._at : self._at + size]
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            offset += self._file.size()
        elif whence == os.SEEK_CUR:
            offset += self._base + self._at
        if self._base <= offset <= self._base + len(self._buffer):
            self._at = offset - self._base
        else:
            self._base, self._buffer, self._at = offset, b"", 0
        return offset

    def _get(self, offset: int, size: int | None) -> bytes:
        # At the end, the store of Google answers with an error instead of with nothing.
        if offset >= self._file.size():
            return b""
        with one_line():
            self._file.seek(offset)
            return cast(bytes, self._file.read() if size is None else self._file.read(size))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> BinaryIO:
        return cast(BinaryIO, self)

    def __exit__(self, *_: object) -> None:
        self.close()
