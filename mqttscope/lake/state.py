"""What a flow remembers, as bytes: a fixed, versioned encoding of plain values and of this program's own dataclasses.

Not pickle: reading state runs no code and makes nothing but None, numbers, text, bytes, tuples, lists, dicts, sets,
members of enumerations and instances of the dataclasses that `lake.state` lets through, so that a checkpoint that
others can write is no way in.  Classes are written by name with the names of their fields.  A field that has come
since gets its default; one that is gone is a `StateError`, as is a class: what is remembered would mean something else.

    b"MQTS", version (1 byte), CRC-32 of the rest (4 bytes, big endian), b"z" and a zlib stream of one value, or b"p"
    and the value as it is

    value   one byte that says what it is, then as the table `_Writer` and `_Reader` share; lengths are 4 bytes.  Bytes
            from 128 on are the numbers from 0 to 127 themselves
    text    short ones that were written before are a reference
    object  number of its class in the order of first use (the first use holds its name and fields), then its fields;
            an instance that was written before is a reference, so that what is shared stays shared

Which classes may be written down and read again (`lake.state`), by which names, and with which fields.
"""

from __future__ import annotations

import dataclasses
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterable
from copy import copy
from enum import Enum
from functools import lru_cache, partial
from importlib import import_module
from itertools import chain
from operator import attrgetter
from typing import Any

PACKAGES = ("net", "mqtt", "session", "dissect", "lint", "lake", "events")
"""Packages of this program whose dataclasses and enumerations may be written down."""
LEFT_OUT = {("net.inflate.Inflater", "zlib_object"), ("session.subscriptions.Subscriptions", "index")}
"""Fields that are made anew from the others."""


_ROOT = "mqttscope."
_NAME = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)*\.[A-Za-z_][A-Za-z0-9_]*")
PLAIN = {"mqtt.properties.Properties": ("items",)}
"""Classes with slots that are no dataclasses."""


class StateError(ValueError):
    """State that cannot be read: damaged, of another version, or not of this program."""


class NotSerializableError(TypeError):
    """A value that is no plain data."""


_extra: dict[str, type] = {}


def allow(cls: type) -> type:
    """Let a dataclass of other code be written down too: the memory of a rule that comes from elsewhere."""
    _extra[f"{cls.__module__}.{cls.__qualname__}"] = cls
    return cls


def class_name(cls: type) -> str:
    """The name a class is written by; `NotSerializableError` when it may not be."""
    full = f"{cls.__module__}.{cls.__qualname__}"
    if full in _extra:
        return full
    name = full.removeprefix(_ROOT)
    if name != full and name.split(".")[0] in PACKAGES and _NAME.fullmatch(name):
        return name
    raise NotSerializableError(f"{full} is not among the classes that may be written down")


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
    if not isinstance(found, type) or found.__module__ != _ROOT + module or not may_be_read(found, name):
        raise StateError(f"{name} is not among the classes that may be read")
    return found


def may_be_read(cls: type, name: str) -> bool:
    """Whether a class of that name is one of plain data."""
    return dataclasses.is_dataclass(cls) or issubclass(cls, Enum) or name in PLAIN


def field_names(cls: type, name: str) -> tuple[str, ...]:
    """The fields of a class that are written."""
    if name in PLAIN:
        return PLAIN[name]
    return tuple(one.name for one in dataclasses.fields(cls) if (name, one.name) not in LEFT_OUT)


__all__ = ["MAGIC", "VERSION", "NotSerializableError", "StateError", "allow", "dump", "field_names", "load"]

MAGIC = b"MQTS"
VERSION = 4
MAX_BYTES = 1 << 30
"""Longest state that is read, inflated."""
_SHORT = 32
"""Texts up to this length are shared: code compares words such as phases by identity first."""
_NONE, _TRUE, _FALSE, _SMALL = b"NTF\x80"
_DIGITS = tuple(bytes((_SMALL + value,)) for value in range(128))
_EIGHT_BYTES = 1 << 63
_pack_long, _pack_length, _pack_number = (struct.Struct(form).pack for form in (">cq", ">cI", ">cH"))


@dataclasses.dataclass(slots=True)
class _Kind:
    """How one class is written."""

    number: bytes
    get: Callable[[Any], Iterable[Any]]


def dump(value: Any, *, compress: bool = True, shown: Callable[[Any], Any] | None = None) -> bytes:
    """A value as bytes; `NotSerializableError` where something in it is no plain data.

    ``shown`` gives the object that is written in the place of another.
    """
    writer = _Writer(shown)
    writer.write((value,))
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
        (value,) = reader.read(1)
    except StateError:
        raise
    except (zlib.error, struct.error, RecursionError, ValueError, TypeError, IndexError, KeyError) as error:
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


class _Writer:
    """Values to bytes."""

    def __init__(self, shown: Callable[[Any], Any] | None = None) -> None:
        self._shown = shown
        self.parts: list[bytes] = []
        self._kinds: dict[type, _Kind] = {}
        self._texts: dict[str, int] = {}
        self._written: dict[int, int] = {}
        self._alive: list[Any] = []
        self._made: list[Any] = []

    def write(self, values: Iterable[Any]) -> None:
        """Write some values."""
        add, how_to, text_number = self.parts.append, _WRITE.get, self._texts.get
        for value in values:
            kind = type(value)
            if kind is int:
                if 0 <= value < 128:
                    add(_DIGITS[value])
                elif -_EIGHT_BYTES <= value < _EIGHT_BYTES:
                    add(_pack_long(b"q", value))
                else:
                    self._int(value)
            elif value is None:
                add(b"N")
            elif kind is str and (known := text_number(value)) is not None:
                add(_pack_number(b"t", known))
            elif (how := how_to(kind)) is not None:
                how(self, value)
            elif isinstance(value, Enum):
                add(b"E" + self._class(kind).number)
                self.write((value.value,))
            else:
                self._object(value)

    def _int(self, value: int) -> None:
        size = (value.bit_length() >> 3) + 1
        if size > 255:
            raise NotSerializableError("the number is too large")
        self.parts += (b"i", bytes((size,)), value.to_bytes(size, "big", signed=True))

    def _text(self, value: str) -> None:
        raw = value.encode("utf-8", "surrogatepass")
        self.parts += (_pack_length(b"s", len(raw)), raw)
        if len(value) <= _SHORT and len(self._texts) < 65_536:
            self._texts[value] = len(self._texts)

    def _bytes(self, value: bytes) -> None:
        self.parts += (_pack_length(b"b", len(value)), value)

    def _bytearray(self, value: bytearray) -> None:
        # Tables of bits: most of them are empty from some place on.
        kept = bytes(value.rstrip(b"\0"))
        self.parts += (_pack_length(b"y", len(kept)), (len(value) - len(kept)).to_bytes(4, "big"), kept)

    def _float(self, value: float) -> None:
        raw = value.hex().encode()
        self.parts += (b"f", bytes((len(raw),)), raw)

    def _items(self, tag: bytes, items: Any) -> None:
        self.parts.append(_pack_length(tag, len(items)))
        if items:
            self.write(items)

    def _dict(self, value: dict[Any, Any]) -> None:
        self.parts.append(_pack_length(b"{", len(value)))
        if value:
            self.write(chain.from_iterable(value.items()))

    def _class(self, cls: type) -> _Kind:
        """How a class is written; its ``number`` stands for it, and that of its first use says what it is."""
        kind = self._kinds.get(cls)
        if kind is not None:
            return kind
        number = len(self._kinds).to_bytes(2, "big")
        names, described = _described(cls)
        get = attrgetter(*names) if len(names) > 1 else partial(_few, names)
        self._kinds[cls] = _Kind(number, get)
        return _Kind(b"".join((number, len(described).to_bytes(4, "big"), described)), get)

    def _object(self, value: Any) -> None:
        known = self._written.setdefault(id(value), len(self._alive))
        if known < len(self._alive):
            self.parts.append(_pack_length(b"R", known))
            return
        self._alive.append(value)
        if self._shown is not None:
            value = self._shown(value)
            self._made.append(value)  # what is written is told by where it lies
        kind = self._class(type(value))
        self.parts.append(b"O" + kind.number)
        self.write(kind.get(value))


def _few(names: tuple[str, ...], value: Any) -> list[Any]:
    return [getattr(value, name) for name in names]


@lru_cache(maxsize=1_024)
def _described(cls: type) -> tuple[tuple[str, ...], bytes]:
    """The fields of a class, and its name with theirs as the first use has them."""
    name = class_name(cls)
    if not may_be_read(cls, name):
        raise NotSerializableError(f"{name} is no dataclass")
    names = () if issubclass(cls, Enum) else field_names(cls, name)
    writer = _Writer()
    writer.write((name, names))
    return names, b"".join(writer.parts)


_WRITE: dict[type, Callable[[_Writer, Any], None]] = {
    bool: lambda writer, value: writer.parts.append(b"T" if value else b"F"),
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
        self._room = MAX_BYTES
        self._classes: list[_Found] = []
        self._texts: list[str] = []
        self._objects: list[Any] = []

    def read(self, count: int) -> list[Any]:
        """Read that many values."""
        data, how_to = self.data, _READ.get
        values: list[Any] = []
        add = values.append
        for _ in range(count):
            tag = data[self.at]
            self.at += 1
            if tag >= _SMALL:
                add(tag - _SMALL)
            elif tag == _NONE:
                add(None)
            elif tag in (_TRUE, _FALSE):
                add(tag == _TRUE)
            else:
                how = how_to(tag)
                if how is None:
                    raise StateError(f"the state is damaged: no value begins with {bytes((tag,))!r}")
                add(how(self))
        return values

    def _take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            raise StateError("the state is damaged: it ends early")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def _number(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def _sized(self) -> bytes:
        return self._take(self._number())

    def _bytearray(self) -> bytearray:
        length, more = self._number(), self._number()
        self._room -= more
        if self._room < 0:
            raise StateError("the state is damaged or too long")
        return bytearray(self._take(length)) + bytes(more)

    def _long(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def _int(self) -> int:
        return int.from_bytes(self._take(self._take(1)[0]), "big", signed=True)

    def _text(self) -> str:
        text = self._sized().decode("utf-8", "surrogatepass")
        if len(text) <= _SHORT:
            text = sys.intern(text)
            self._texts.append(text)
        return text

    def _text_again(self) -> str:
        return self._texts[int.from_bytes(self._take(2), "big")]

    def _float(self) -> float:
        return float.fromhex(self._take(self._take(1)[0]).decode())

    def _items(self) -> list[Any]:
        return self.read(self._number())

    def _dict(self) -> dict[Any, Any]:
        values = self.read(2 * self._number())
        return dict(zip(values[::2], values[1::2], strict=True))

    def _class(self) -> _Found:
        number = int.from_bytes(self._take(2), "big")
        if number < len(self._classes):
            return self._classes[number]
        if number != len(self._classes):
            raise StateError("the state is damaged: a class is used before it is named")
        found = _found(self._sized())
        self._classes.append(found)
        return found

    def _enum(self) -> Any:
        found = self._class()
        if not issubclass(found.cls, Enum):
            raise StateError("the state is damaged: this is no enumeration")
        return found.cls(self.read(1)[0])

    def _object(self) -> Any:
        place = len(self._objects)
        self._objects.append(None)
        found = self._class()
        if issubclass(found.cls, Enum):
            raise StateError("the state is damaged: this is no object")
        made = object.__new__(found.cls)
        # Known before its fields are read: they may refer to it.
        self._objects[place] = made
        give = object.__setattr__
        for name, value in zip(found.names, self.read(len(found.names)), strict=True):
            give(made, name, value)
        for name, default in found.missing:
            give(made, name, default())
        return made

    def _reference(self) -> Any:
        return self._objects[self._number()]


@lru_cache(maxsize=1_024)
def _found(described: bytes) -> _Found:
    """The class of that name with these fields; the same few come again and again."""
    reader = _Reader(described)
    name, names = reader.read(2)
    if reader.at != len(described) or not isinstance(name, str) or not isinstance(names, tuple):
        raise StateError("the state is damaged: a class has no name")
    cls = find_class(name)
    return _Found(cls, names, () if issubclass(cls, Enum) else _check(cls, name, names))


def _check(cls: type, name: str, names: tuple[str, ...]) -> tuple[tuple[str, Callable[[], Any]], ...]:
    """Whether the fields that were written are those of today; returns how to make what is missing."""
    today = field_names(cls, name)
    gone = set(names) - set(today)
    if gone or len(set(names)) != len(names):
        raise StateError(f"the state is of another version: {name} has no {', '.join(sorted(map(str, gone)))}")
    missing: list[tuple[str, Callable[[], Any]]] = []
    if name in PLAIN:
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


_READ: dict[int, Callable[[_Reader], Any]] = {
    ord(tag): how
    for tag, how in {
        "q": _Reader._long,
        "i": _Reader._int,
        "f": _Reader._float,
        "s": _Reader._text,
        "t": _Reader._text_again,
        "b": _Reader._sized,
        "y": _Reader._bytearray,
        "(": lambda reader: tuple(reader._items()),
        "[": _Reader._items,
        "<": lambda reader: set(reader._items()),
        ">": lambda reader: frozenset(reader._items()),
        "{": _Reader._dict,
        "E": _Reader._enum,
        "O": _Reader._object,
        "R": _Reader._reference,
    }.items()
}
