"""Captures by path, glob, directory or URI: listed in the order of their first frames, and opened for reading.

Local files are opened directly; URIs with a scheme (``s3``, ``gs``, ``abfss``, ``hdfs``) are opened through
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
"""Bytes requested from a remote store at a time."""
PARALLEL = 16
"""Number of captures inspected at a time."""

_MAGIC = re.compile(r"[*?[]")
T = TypeVar("T")
U = TypeVar("U")


class NoCapturesError(MqttscopeError, ValueError):
    """None of the named captures can be read."""

    def __init__(self, faulty: Sequence[Location] = ()) -> None:
        super().__init__("; ".join(f"{location.name} {location.fault}" for location in faulty) or "no capture is named")
        self.faulty = faulty
        """The named captures, each with its fault."""


@dataclass(slots=True, frozen=True)
class Location:
    """One capture to open, or the fault that prevents it."""

    name: str
    """The name from the user, or from a glob or directory: ``Frame.capture``."""
    target: str
    """Absolute path or URI to open."""
    size: int = 0
    first_ns: float = NO_FRAME
    """Time of the first frame to read."""
    fault: str | None = None
    """Reason why the capture cannot be opened."""
    behind: int = 0
    """Number of uncompressed bytes already read by an earlier run; reading begins after them."""
    begins: int | None = None
    """`fingerprint.head_crc` of the file, if known; a file with another value is not read."""
    written_ns: int | None = None
    """Modification time of an object in a store, as reported by the store: nanoseconds since the epoch."""

    @property
    def is_remote(self) -> bool:
        return "://" in self.target

    def known_as(self, seen: Mapping[str, StoredObject]) -> str | None:
        """Digest of an object in a store that an earlier run has read; ``None`` if it has to be read."""
        known = seen.get(self.name)
        return known[0] if known is not None and self.written_ns and known[1:] == [self.size, self.written_ns] else None


StoredObject = Sequence[Any]
"""An object of a store that an earlier run has read: digest of the content, size, `Location.written_ns`."""


def find(
    sources: Sequence[str], settings: Mapping[str, str] | None = None, seen: Mapping[str, StoredObject] | None = None
) -> list[Location]:
    """The captures in ``sources``, in the order that ``open_capture`` reads them.

    ``settings``: for the remote file systems, as in `open_location`.  ``seen``: objects of stores that an earlier run
    has read, by name; these are not opened (`Location.known_as`) and come first.  Faulty captures are included;
    `NoCapturesError` if all are faulty.
    """
    seen = seen or {}
    locations: list[Location] = []
    for source in sources:
        local = local_path(source)
        if local is None:
            named = {location.target for location in locations} | set(sources)
            listed = _find_remote(source, settings or {}, seen)
            locations += (location for location in listed if location.target == source or location.target not in named)
    # All local paths in one call: a file that is named and matches a glob is listed once.
    paths = [path for path in map(local_path, sources) if path is not None]
    for capture in capture_files.find_captures(paths):
        if isinstance(capture, CaptureError):
            locations.append(Location(capture.capture, os.path.abspath(capture.capture), fault=capture.message))
        else:
            locations.append(Location(capture, os.path.abspath(capture)))
    looked = list(_each(lambda location: _look(location, settings or {}, seen, alone=len(locations) == 1), locations))
    if all(location.fault is not None for location in looked):
        raise NoCapturesError(looked)
    return sorted(looked, key=lambda location: location.first_ns)


def open_location(target: str, settings: Mapping[str, str] | None = None) -> BinaryIO:
    """Open ``Location.target``, seekable.  Raises `OSError`.

    ``settings``: parameters of pyarrow's URIs for the file system: ``region``, ``endpoint_override``, ``scheme``.
    """
    if "://" not in target:
        return open(target, "rb", buffering=0)
    system, path = file_system(target, settings or {})
    with one_line():
        return cast(BinaryIO, _ReadAhead(system.open_input_file(path)))


def open_named(name: str, settings: Mapping[str, str] | None = None) -> BinaryIO:
    """Open a capture of an earlier run by its ``Location.name``.  Raises `OSError`."""
    path = local_path(name)
    return open_location(name if path is None else os.path.abspath(path), settings)


def why_replaced(file: BinaryIO, location: Location) -> str | None:
    """Reason why an open capture is not the file that was found; ``None`` if it is."""
    if location.begins is None or not is_replaced(file, location.size, location.begins):
        return None
    return capture_files.REPLACED


def local_path(source: str) -> str | None:
    """The path of a local source; ``None`` for a source in a store."""
    match = URI.match(source)
    if match is None:
        if source.startswith("dbfs:/"):
            return "/dbfs/" + source[6:]
        return source.removeprefix("file:") if source.startswith("file:/") else source
    if match["scheme"].lower() == "file":
        return "/" + unquote(match["key"])
    return None


def _look(
    location: Location, settings: Mapping[str, str], seen: Mapping[str, StoredObject], *, alone: bool
) -> Location:
    """Add the size and, unless this is the only capture, the time of the first frame."""
    if location.fault is not None or location.known_as(seen) is not None:
        return location
    if not location.is_remote and os.path.exists(location.target) and not os.path.isfile(location.target):
        # Opening a pipe blocks until it has a writer; a device may never end.
        return Location(location.name, location.target, fault=capture_files.NOT_REGULAR)
    try:
        with open_location(location.target, settings) as file:
            size = file.seek(0, os.SEEK_END)
            begins = head_crc(file, size)
            first_ns = NO_FRAME if alone else first_time(file)
            return replace(location, size=size, first_ns=first_ns, begins=begins)
    except (OSError, ValueError) as error:
        return Location(location.name, location.target, fault=capture_files.why_not_opened(error, location.target))


def _each(call: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    with ThreadPoolExecutor(PARALLEL) as pool:
        yield from pool.map(call, items)


def below(system: Any, path: str, *, recursive: bool) -> list[Any]:
    """Files and folders in a folder of a file system, by name; empty if the folder does not exist."""
    from pyarrow import fs

    listed = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=recursive))
    return sorted(listed, key=lambda file: file.path)


def _find_remote(source: str, settings: Mapping[str, str], seen: Mapping[str, StoredObject]) -> list[Location]:
    """The captures at a URI, by name."""
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
                files = [file for file in below(system, path.rstrip("/"), recursive=False) if file.is_file]
                objects = [_object(prefix + file.path[len(base) + 1 :], file) for file in files]
                looked = list(
                    _each(lambda each: each.known_as(seen) is not None or _is_capture(each, settings), objects)
                )
                captures = [location for location, is_capture in zip(objects, looked, strict=True) if is_capture]
                return captures or [Location(_name(source), source, fault=capture_files.NO_CAPTURES)]
            if not _MAGIC.search(path):
                return [Location(_name(source), source, fault=capture_files.MISSING)]
            fixed = path[: path.index(_MAGIC.search(path)[0])].rpartition("/")[0]  # type: ignore[index]
            listed = below(system, fixed, recursive="**" in path or "/" in path[len(fixed) + 1 :])
            wanted = _pattern(path)
            files = [file for file in listed if file.is_file and wanted.fullmatch(file.path)]
            captures = [_object(prefix + file.path[len(base) + 1 :], file) for file in files]
            return captures or [Location(_name(source), source, fault=capture_files.NO_MATCH)]
    except (OSError, ValueError) as error:
        return [Location(_name(source), source, fault=capture_files.why_not_opened(error))]


def _object(target: str, info: Any) -> Location:
    """The location of an object in a store; ``info``: the file information of pyarrow."""
    # Such names may be equal once their secrets are hidden; only the content distinguishes these objects.
    written_ns = None if "?" in target else info.mtime_ns
    return Location(_name(target), target, info.size or 0, written_ns=written_ns)


def _name(uri: str) -> str:
    """Name of a capture in rows, without credentials, so that it is stable when they change."""
    return shown_uri(uri).replace("://***@", "://", 1)


def _is_capture(location: Location, settings: Mapping[str, str]) -> bool:
    if capture_files.is_named_like_capture(location.target):
        return True
    try:
        with open_location(location.target, settings) as file:
            return capture_files.looks_like_capture(file)
    except OSError:
        return True  # so that reading it reports the reason


def _pattern(path: str) -> re.Pattern[str]:
    """A glob pattern as a regular expression for complete paths: ``**/`` is any number of directories."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]]+\])", path)
    meanings = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]", "": ""}
    expression = ""
    for part in parts:
        if part in meanings:
            expression += meanings[part]
        elif part.startswith("[") and part.endswith("]"):
            expression += "[" + part[1:-1].replace("\\", "\\\\").replace("!", "^", part[1] == "!") + "]"
        else:
            expression += re.escape(part)
    return re.compile(expression, re.S)


class _ReadAhead:
    """A remote file, read in large pieces, because each read costs a request."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0
        """Position in the buffer."""
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
        # At the end of an object, Google Cloud Storage returns an error, not zero bytes.
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
