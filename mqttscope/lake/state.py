"""What a flow remembers, as bytes: a fixed, versioned encoding of plain values and of this program's own dataclasses.

Not pickle: reading state runs no code and makes nothing but None, numbers, text, bytes, tuples, lists, dicts, sets,
members of enumerations and instances of the dataclasses of `PACKAGES`, so that a checkpoint that others can write is no
way in.  Classes are written by name with the names of their fields.  A field that has come since gets its default, one
that is gone or a class that is gone is a `StateError`: what is remembered would not mean the same.

    b"MQTS", version (1 byte), CRC-32 of the rest (4 bytes, big endian), b"z" and a zlib stream of one value, or b"p"
    and the value as it is

    value   one byte that says what it is, then as the table `_Writer` and `_Reader` share; lengths are 4 bytes
    object  number of its class in the order of first use (the first use holds its name and fields), then its fields;
            an instance that was written before is a reference, so that what is shared stays shared
"""

from __future__ import annotations

import dataclasses
import re
import sys
import zlib
from collections.abc import Callable
from copy import copy
from enum import Enum
from functools import lru_cache, partial
from importlib import import_module
from operator import attrgetter
from typing import Any

MAGIC = b"MQTS"
VERSION = 1
PACKAGES = ("net", "mqtt", "session", "dissect", "lint", "lake", "events")
"""Packages of this program whose dataclasses and enumerations may be written down."""
MAX_BYTES = 1 << 30
"""Longest state that is read, inflated."""
LEFT_OUT = {("net.inflate.Inflater", "zlib_object")}
"""Fields that are made anew from the others."""

_ROOT = "mqttscope."
_NAME = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)*\.[A-Za-z_][A-Za-z0-9_]*")
_SHORT = 32
"""Texts up to this length are shared: code compares words such as phases by identity first."""
_PLAIN = {"mqtt.properties.Properties": ("items",)}
"""Classes with slots that are no dataclasses."""


class StateError(ValueError):
    """State that cannot be read: damaged, of another version, or not of this program."""


class Unwritable(TypeError):  # noqa: N818 - it says what the value is
    """A value that is no plain data."""


@dataclasses.dataclass(slots=True)
class _Kind:
    """How one class is written."""

    number: int
    names: tuple[str, ...]
    get: Callable[[Any], Any]


_extra: dict[str, type] = {}


def allow(cls: type) -> type:
    """Let a dataclass of other code be written down too: the memory of a rule that comes from elsewhere."""
    _extra[f"{cls.__module__}.{cls.__qualname__}"] = cls
    return cls


def dump(value: Any, *, compress: bool = True) -> bytes:
    """A value as bytes; `Unwritable` where something in it is no plain data."""
    writer = _Writer()
    writer.write(value)
    plain = b"".join(writer.parts)
    body = b"z" + zlib.compress(plain, 1) if compress else b"p" + plain
    return b"".join((MAGIC, bytes((VERSION,)), zlib.crc32(body).to_bytes(4, "big"), body))


def load(data: bytes) -> Any:
    """The value of `dump`; `StateError` where these are not such bytes."""
    if data[:4] != MAGIC:
        raise StateError("this is no state")
    if data[4:5] != bytes((VERSION,)):
        raise StateError(f"the state has version {data[4] if len(data) > 4 else '?'}, this program reads {VERSION}")
    body = data[9:]
    if zlib.crc32(body) != int.from_bytes(data[5:9], "big"):
        raise StateError("the state is damaged")
    try:
        plain = body[1:] if body[:1] == b"p" else _inflated(body)
        reader = _Reader(plain)
        value = reader.read()
    except StateError:
        raise
    except (zlib.error, RecursionError, ValueError, TypeError, IndexError, KeyError) as error:
        raise StateError(f"the state is damaged: {error}") from None
    if reader.at != len(plain):
        raise StateError("the state is damaged: bytes are left over")
    return value


def _inflated(body: bytes) -> bytes:
    inflate = zlib.decompressobj()
    plain = inflate.decompress(body[1:], MAX_BYTES) if body[:1] == b"z" else b""
    if not inflate.eof or inflate.unused_data:
        raise StateError("the state is damaged or too long")
    return plain


def class_name(cls: type) -> str:
    """The name a class is written by; `Unwritable` when it may not be."""
    full = f"{cls.__module__}.{cls.__qualname__}"
    if full in _extra:
        return full
    name = full.removeprefix(_ROOT)
    if name != full and name.split(".")[0] in PACKAGES and _NAME.fullmatch(name):
        return name
    raise Unwritable(f"{full} is not among the classes that may be written down")


def find_class(name: str) -> type:
    """The class of a name; `StateError` when there is none that may be read."""
    if name in _extra:
        return _extra[name]
    if name.split(".")[0] not in PACKAGES or not _NAME.fullmatch(name):
        raise StateError(f"{name} is not among the classes that may be read")
    module, _, own = name.rpartition(".")
    try:
        found = getattr(import_module(_ROOT + module), own)
    except (ImportError, AttributeError):
        raise StateError(f"there is no {name} in this version") from None
    if not isinstance(found, type) or found.__module__ != _ROOT + module or not _may_be_read(found, name):
        raise StateError(f"{name} is not among the classes that may be read")
    return found


def _may_be_read(cls: type, name: str) -> bool:
    return dataclasses.is_dataclass(cls) or issubclass(cls, Enum) or name in _PLAIN


def field_names(cls: type, name: str) -> tuple[str, ...]:
    """The fields of a class that are written."""
    if name in _PLAIN:
        return _PLAIN[name]
    return tuple(one.name for one in dataclasses.fields(cls) if (name, one.name) not in LEFT_OUT)


class _Writer:
    """Values to bytes."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._kinds: dict[type, _Kind] = {}
        self._written: dict[int, int] = {}
        self._alive: list[Any] = []

    def write(self, value: Any) -> None:
        """Write one value."""
        how = _WRITE.get(type(value))
        if how is not None:
            how(self, value)
        elif isinstance(value, Enum):
            self.parts.append(b"E")
            self._class(type(value))
            self.write(value.value)
        else:
            self._object(value)

    def _length(self, tag: bytes, length: int) -> None:
        self.parts += (tag, length.to_bytes(4, "big"))

    def _int(self, value: int) -> None:
        size = (value.bit_length() >> 3) + 1
        if size > 255:
            raise Unwritable("the number is too large")
        self.parts += (b"i", bytes((size,)), value.to_bytes(size, "big", signed=True))

    def _text(self, value: str) -> None:
        raw = value.encode("utf-8", "surrogatepass")
        self._length(b"s", len(raw))
        self.parts.append(raw)

    def _bytes(self, value: bytes) -> None:
        self._length(b"b", len(value))
        self.parts.append(value)

    def _bytearray(self, value: bytearray) -> None:
        self._length(b"y", len(value))
        self.parts.append(bytes(value))

    def _float(self, value: float) -> None:
        raw = value.hex().encode()
        self.parts += (b"f", bytes((len(raw),)), raw)

    def _items(self, tag: bytes, items: Any) -> None:
        self._length(tag, len(items))
        for one in items:
            self.write(one)

    def _dict(self, value: dict[Any, Any]) -> None:
        self._length(b"{", len(value))
        for key, one in value.items():
            self.write(key)
            self.write(one)

    def _class(self, cls: type) -> _Kind:
        kind = self._kinds.get(cls)
        if kind is not None:
            self.parts.append(kind.number.to_bytes(2, "big"))
            return kind
        names, described = _described(cls)
        kind = self._kinds[cls] = _Kind(len(self._kinds), names, attrgetter(*names) if names else lambda _: ())
        self.parts += (kind.number.to_bytes(2, "big"), described)
        return kind

    def _object(self, value: Any) -> None:
        known = self._written.get(id(value))
        if known is not None:
            self.parts += (b"R", known.to_bytes(4, "big"))
            return
        self._written[id(value)] = len(self._written)
        self._alive.append(value)
        self.parts.append(b"O")
        kind = self._class(type(value))
        if len(kind.names) == 1:
            self.write(kind.get(value))
        else:
            for one in kind.get(value):
                self.write(one)


@lru_cache(maxsize=1_024)
def _described(cls: type) -> tuple[tuple[str, ...], bytes]:
    """The fields of a class, and its name with theirs as the first use has them."""
    name = class_name(cls)
    if not _may_be_read(cls, name):
        raise Unwritable(f"{name} is no dataclass")
    names = () if issubclass(cls, Enum) else field_names(cls, name)
    writer = _Writer()
    writer.write(name)
    writer.write(names)
    return names, b"".join(writer.parts)


_WRITE: dict[type, Callable[[_Writer, Any], None]] = {
    type(None): lambda writer, value: writer.parts.append(b"N"),
    bool: lambda writer, value: writer.parts.append(b"T" if value else b"F"),
    int: _Writer._int,
    float: _Writer._float,
    str: _Writer._text,
    bytes: _Writer._bytes,
    bytearray: _Writer._bytearray,
    tuple: lambda writer, value: writer._items(b"(", value),
    list: lambda writer, value: writer._items(b"[", value),
    set: lambda writer, value: writer._items(b"<", value),
    frozenset: lambda writer, value: writer._items(b">", value),
    dict: _Writer._dict,
}


@dataclasses.dataclass(slots=True)
class _Found:
    """A class as the state has it."""

    cls: type
    names: tuple[str, ...]
    missing: tuple[tuple[str, Callable[[], Any]], ...]
    """Fields that have come since, and how to make their defaults."""


class _Reader:
    """Bytes to values."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self._classes: list[_Found] = []
        self._objects: list[Any] = []

    def read(self) -> Any:
        """Read one value."""
        tag = self._take(1)
        how = _READ.get(tag)
        if how is None:
            raise StateError(f"the state is damaged: no value begins with {tag!r}")
        return how(self)

    def _take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            raise StateError("the state is damaged: it ends early")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def _sized(self) -> bytes:
        return self._take(int.from_bytes(self._take(4), "big"))

    def _int(self) -> int:
        return int.from_bytes(self._take(self._take(1)[0]), "big", signed=True)

    def _text(self) -> str:
        text = self._sized().decode("utf-8", "surrogatepass")
        return sys.intern(text) if len(text) <= _SHORT else text

    def _float(self) -> float:
        return float.fromhex(self._take(self._take(1)[0]).decode())

    def _items(self) -> list[Any]:
        read = self.read
        return [read() for _ in range(int.from_bytes(self._take(4), "big"))]

    def _dict(self) -> dict[Any, Any]:
        read = self.read
        return {read(): read() for _ in range(int.from_bytes(self._take(4), "big"))}

    def _class(self) -> _Found:
        number = int.from_bytes(self._take(2), "big")
        if number < len(self._classes):
            return self._classes[number]
        name, names = self.read(), self.read()
        if number != len(self._classes) or not isinstance(name, str) or not isinstance(names, tuple):
            raise StateError("the state is damaged: a class is used before it is named")
        found = _found(name, names)
        self._classes.append(found)
        return found

    def _enum(self) -> Any:
        found = self._class()
        if not issubclass(found.cls, Enum):
            raise StateError("the state is damaged: this is no enumeration")
        return found.cls(self.read())

    def _object(self) -> Any:
        place = len(self._objects)
        self._objects.append(None)
        found = self._class()
        if issubclass(found.cls, Enum):
            raise StateError("the state is damaged: this is no object")
        made = object.__new__(found.cls)
        # Known before its fields are read: they may refer to it.
        self._objects[place] = made
        for name in found.names:
            object.__setattr__(made, name, self.read())
        for name, default in found.missing:
            object.__setattr__(made, name, default())
        return made

    def _reference(self) -> Any:
        return self._objects[int.from_bytes(self._take(4), "big")]


@lru_cache(maxsize=1_024)
def _found(name: str, names: tuple[str, ...]) -> _Found:
    """The class of that name with these fields; the same few come again and again."""
    cls = find_class(name)
    return _Found(cls, names, () if issubclass(cls, Enum) else _check(cls, name, names))


def _check(cls: type, name: str, names: tuple[str, ...]) -> tuple[tuple[str, Callable[[], Any]], ...]:
    """Whether the fields that were written are those of today; returns how to make what is missing."""
    today = field_names(cls, name)
    gone = set(names) - set(today)
    if gone or len(set(names)) != len(names):
        raise StateError(f"the state is of another version: {name} has no {', '.join(sorted(map(str, gone)))}")
    missing: list[tuple[str, Callable[[], Any]]] = []
    if name in _PLAIN:
        return ()
    for one in dataclasses.fields(cls):
        if one.name in names:
            continue
        if one.default_factory is not dataclasses.MISSING:
            missing.append((one.name, one.default_factory))
        elif one.default is not dataclasses.MISSING:
            missing.append((one.name, partial(copy, one.default)))
        else:
            raise StateError(f"the state is of another version: {name} needs {one.name}")
    return tuple(missing)


_READ: dict[bytes, Callable[[_Reader], Any]] = {
    b"N": lambda reader: None,
    b"T": lambda reader: True,
    b"F": lambda reader: False,
    b"i": _Reader._int,
    b"f": _Reader._float,
    b"s": _Reader._text,
    b"b": _Reader._sized,
    b"y": lambda reader: bytearray(reader._sized()),
    b"(": lambda reader: tuple(reader._items()),
    b"[": _Reader._items,
    b"<": lambda reader: set(reader._items()),
    b">": lambda reader: frozenset(reader._items()),
    b"{": _Reader._dict,
    b"E": _Reader._enum,
    b"O": _Reader._object,
    b"R": _Reader._reference,
}
