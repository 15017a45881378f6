"""The memory of a flow as bytes: plain values and this program's own dataclasses, in MessagePack by msgspec.

Not pickle: reading state runs no code and creates only None, numbers, text, bytes, tuples, lists, dicts, sets,
members of enumerations and instances of the dataclasses that this module allows.  So a checkpoint that others can
write is not a way in.  A class is stored as its name and the names of its fields.  A field that is new since then
gets its default; a field or class that is gone is a `StateError`, since the memory would mean something else.

    b"MQTS", version (1 byte), CRC-32 of the rest (4 bytes, big endian), b"z" and a zlib stream of one MessagePack
    array, or b"p" and the array as it is

    array   [classes, value]; a class is [name, names of its fields]
    value   None, truth values, numbers of 64 bits, text, and bytes as they are; all else is an array of its kind and
            its content.  An object is the number of its class and its fields; an object that was written before is
            its number, so that shared objects stay shared

msgspec can write dataclasses itself, but does not record their classes or shared objects, and takes tuples for lists if
a field may hold anything.
"""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Callable, Iterable
from copy import copy
from enum import Enum
from functools import lru_cache, partial
from importlib import import_module
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec

from mqttscope.errors import MqttscopeError
from mqttscope.session.capture_time import CaptureTime

__all__ = ["MAGIC", "VERSION", "NotSerializableError", "StateError", "allow", "dump", "field_names", "load"]

MAGIC = b"MQTS"
VERSION = 11
MAX_BYTES = 1 << 30
"""Maximum size of a state, inflated."""
DAMAGE: Final = (
    msgspec.MsgspecError, zlib.error, RecursionError, MemoryError, ArithmeticError, ValueError, TypeError, LookupError,
    AttributeError,
)  # fmt: skip
"""Exceptions that reading hostile bytes may raise."""


class StateError(MqttscopeError, ValueError):
    """State that cannot be read: damaged, of another version, or not of this program."""


class NotSerializableError(MqttscopeError, TypeError):
    """A value that is not plain data."""


@dataclasses.dataclass(slots=True, frozen=True)
class ObjectReplacement:
    """Objects that are written in place of others."""

    classes: tuple[type, ...]
    """Classes to replace, with their subclasses."""
    shown: Callable[[Any], Any]
    """Returns the object to write; it may be the original."""


def dump(value: Any, *, compress: bool = True, shown: ObjectReplacement | None = None) -> bytes:
    """A value as bytes; `NotSerializableError` if something in it is not plain data.

    ``shown`` returns the objects that are written in place of others.
    """
    writer = _StateWriter(shown)
    (written,) = writer.write((value,), [])
    return packed((writer.classes, written), VERSION, compress=compress)


def packed(content: tuple[Any, Any], version: int, *, compress: bool) -> bytes:
    """The bytes of a state from its classes and its value, both as arrays."""
    plain = msgspec.msgpack.encode(content)
    body = b"z" + zlib.compress(plain, 1) if compress else b"p" + plain
    return b"".join((MAGIC, bytes((version,)), zlib.crc32(body).to_bytes(4, "big"), body))


def load(data: bytes) -> Any:
    """The value from bytes of `dump`; `StateError` for other bytes."""
    if data[:4] == MAGIC and data[4:5] != bytes((VERSION,)):
        raise StateError(f"the state has version {data[4] if len(data) > 4 else '?'}, this program reads {VERSION}")
    classes, written = unpacked(data)
    try:
        (value,) = _StateReader(classes).read((written,))
    except StateError:
        raise
    except DAMAGE as error:
        raise StateError(f"the state is damaged: {error}") from None
    return value


def unpacked(data: bytes) -> tuple[Any, Any]:
    """Classes and value of a state, as arrays, whatever its version; `StateError` for other bytes."""
    if data[:4] != MAGIC:
        raise StateError("these bytes are not a state")
    body = data[9:]
    if zlib.crc32(body) != int.from_bytes(data[5:9], "big"):
        raise StateError("the state is damaged")
    try:
        classes, written = msgspec.msgpack.decode(body[1:] if body[:1] == b"p" else _inflated(body))
    except StateError:
        raise
    except DAMAGE as error:
        raise StateError(f"the state is damaged: {error}") from None
    return classes, written


def _inflated(body: bytes) -> bytes:
    inflate = zlib.decompressobj()
    plain = inflate.decompress(body[1:], MAX_BYTES) if body[:1] == b"z" else b""
    if not inflate.eof or inflate.unused_data:
        raise StateError("the state is damaged or too long")
    return plain


PACKAGES = ("net", "mqtt", "session", "dissect", "lint", "lake", "events", "payloads")
"""Packages of this program with dataclasses and enumerations that may be stored."""
LEFT_OUT = {
    ("dissect.flow_state.FlowState", "names"),
    ("mqtt.stream.PacketStream", "budget"),
    ("net.websocket.Inflater", "zlib_object"),
    ("session.connection.Connection", "acknowledgments"),
    ("session.connection.Connection", "alarm"),
    ("session.connection.Connection", "resolved_name"),
    ("session.connection.Connection", "user_name"),
    ("session.history.History", "looked_at"),
    ("session.subscriptions.Subscriptions", "index"),
    ("lint.subscriber_table.SubscriberTable", "index"),
    ("lint.subscriber_table.SubscriberTable", "matched"),
    ("lint.subscriber_table.SubscriberTable", "matched_revision"),
}
"""Fields that are derived from the others or set by the reader, and names that a lake never has."""

_ROOT = "mqttscope."
_NAME = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)*\.[A-Za-z_][A-Za-z0-9_]*")
PLAIN = {
    "mqtt.properties.Properties": ("items",),
    "session.history.EndedExchange": ("exchange", "checksum", "by", "reason_code", "answer", "answers"),
}
"""Classes that are stored by other attributes than dataclass fields; all of these are required."""

_extra: dict[str, type] = {}


def allow(cls: type) -> type:
    """Allow a dataclass of other code to be stored: the memory of a third-party rule."""
    _extra[f"{cls.__module__}.{cls.__qualname__}"] = cls
    return cls


def class_name(cls: type) -> str:
    """The name that a class is stored by; `NotSerializableError` if it may not be stored."""
    full = f"{cls.__module__}.{cls.__qualname__}"
    if full in _extra:
        return full
    name = full.removeprefix(_ROOT)
    if name != full and name.split(".")[0] in PACKAGES and _NAME.fullmatch(name):
        return name
    raise NotSerializableError(f"{full} is not among the classes that may be stored")


def find_class(name: str) -> type:
    """The class of a stored name; `StateError` if it does not exist or may not be read."""
    if name in _extra:
        return _extra[name]
    if name.split(".")[0] not in PACKAGES or not _NAME.fullmatch(name):
        raise StateError(f"{name} is not among the classes that may be read")
    module, _, own = name.rpartition(".")
    try:
        cls = getattr(import_module(_ROOT + module), own)
    except (ImportError, AttributeError):
        raise StateError(f"{name} does not exist in this version") from None
    if not isinstance(cls, type) or cls.__module__ != _ROOT + module or not may_be_read(cls, name):
        raise StateError(f"{name} is not among the classes that may be read")
    return cls


def may_be_read(cls: type, name: str) -> bool:
    """Whether a class of that name is plain data."""
    return dataclasses.is_dataclass(cls) or issubclass(cls, Enum) or name in PLAIN


def field_names(cls: type, name: str) -> tuple[str, ...]:
    """The stored fields of a class."""
    if name in PLAIN:
        return PLAIN[name]
    return tuple(field.name for field in dataclasses.fields(cls) if (name, field.name) not in LEFT_OUT)


_LONG = 1 << 63
_LONGEST_NUMBER = 255
"""Maximum number of bytes of a number."""


# Kinds of arrays.
_LIST: Final = 0
TUPLE: Final = 1
_SET: Final = 2
_FROZENSET: Final = 3
_DICT: Final = 4
"""Keys and values in turn."""
_OBJECT: Final = 5
"""Number of its class, then its fields."""
_AGAIN: Final = 6
"""Number of an object that began earlier, in order."""
ENUM: Final = 7
"""Number of its class, and the value."""
_BYTEARRAY: Final = 8
"""Bytes, and the number of zeros after them."""
_TEXT: Final = 9
"""Text that is not UTF-8."""
_NUMBER: Final = 10
"""A number of more than 64 bits, as bytes, big endian."""
_TIME: Final = 11
"""A time after a step of the capture's clock: adjusted for durations, and as captured."""


class _ObjectClass:
    """A class with objects in the state."""

    def __init__(self, number: int, get: Callable[[Any], Iterable[Any]]) -> None:
        self.number = number
        """Its number among the classes of the state."""
        self.get = get
        """Returns the fields of an object."""


class _StateWriter:
    """Converts values to values that MessagePack can express."""

    def __init__(self, shown: ObjectReplacement | None = None) -> None:
        self._shown = shown
        self._may_be_shown: dict[type, bool] = {}
        self.classes: list[tuple[str, tuple[str, ...]]] = []
        self._kinds: dict[type, _ObjectClass] = {}
        self._members: dict[int, list[Any]] = {}
        """Members of enumerations by object identity: members of two enumerations may be equal."""
        self._written: dict[int, int] = {}
        self._alive: list[Any] = []
        self._replacements: list[Any] = []

    def write(self, values: Iterable[Any], written: list[Any]) -> list[Any]:
        """Append converted values to a list, and return it."""
        for value in values:
            kind = type(value)
            if kind is int:
                written.append(value if -_LONG <= value < _LONG else _number(value))
            elif value is None or kind is bool or kind is bytes or kind is float:
                written.append(value)
            elif kind is str:
                written.append(value if value.isascii() else _text(value))
            elif kind is tuple:
                written.append(self.write(value, [TUPLE]))
            elif kind is list:
                written.append(self.write(value, [_LIST]))
            elif kind is dict:
                written.append(self.write(chain.from_iterable(value.items()), [_DICT]))
            elif kind is set:
                written.append(self.write(value, [_SET]))
            elif kind is frozenset:
                written.append(self.write(value, [_FROZENSET]))
            elif kind is bytearray:
                written.append(_bytearray(value))
            elif kind is CaptureTime:
                written.append([_TIME, *self.write((int(value), value.captured_ns), [])])
            elif isinstance(value, Enum):
                written.append(self._member(value))
            else:
                written.append(self._object(value))
        return written

    def _member(self, value: Enum) -> list[Any]:
        written = self._members.get(id(value))
        if written is None:
            written = self.write((value.value,), [ENUM, self._kind(type(value)).number])
            self._members[id(value)] = written
        return written

    def _kind(self, cls: type) -> _ObjectClass:
        kind = self._kinds.get(cls)
        if kind is None:
            name, names = _described(cls)
            get = attrgetter(*names) if len(names) > 1 else partial(_few, names)
            kind = self._kinds[cls] = _ObjectClass(len(self.classes), get)
            self.classes.append((name, names))
        return kind

    def _object(self, value: Any) -> list[Any]:
        count = len(self._alive)
        known = self._written.get(id(value))
        if known is not None:
            return [_AGAIN, known]
        self._written[id(value)] = count
        self._alive.append(value)
        if self._shown is not None and self._is_shown(type(value)):
            value = self._shown.shown(value)
            self._replacements.append(value)  # keeps it alive: objects are identified by id()
        kind = self._kind(type(value))
        return self.write(kind.get(value), [_OBJECT, kind.number])

    def _is_shown(self, cls: type) -> bool:
        """Whether objects of a class may be replaced."""
        may_be_shown = self._may_be_shown.get(cls)
        if may_be_shown is None:
            may_be_shown = self._may_be_shown[cls] = self._shown is not None and issubclass(cls, self._shown.classes)
        return may_be_shown


def _number(value: int) -> list[Any]:
    size = (value.bit_length() >> 3) + 1
    if size > _LONGEST_NUMBER:
        raise NotSerializableError("the number is too large")
    return [_NUMBER, value.to_bytes(size, "big", signed=True)]


def _bytearray(value: bytearray) -> list[Any]:
    # Tables of bits: most of them are empty from some place on.
    content = bytes(value.rstrip(b"\0"))
    return [_BYTEARRAY, content, len(value) - len(content)]


def _few(names: tuple[str, ...], value: Any) -> list[Any]:
    return [getattr(value, name) for name in names]


def _text(value: str) -> str | list[Any]:
    try:
        value.encode()
    except UnicodeEncodeError:
        return [_TEXT, value.encode("utf-8", "surrogatepass")]
    return value


@lru_cache(maxsize=1_024)
def _described(cls: type) -> tuple[str, tuple[str, ...]]:
    name = class_name(cls)
    if not may_be_read(cls, name):
        raise NotSerializableError(f"{name} is not a dataclass")
    return name, () if issubclass(cls, Enum) else field_names(cls, name)


_PLAIN = frozenset((type(None), bool, float, bytes))


@dataclasses.dataclass(slots=True)
class _StoredClass:
    """A class as stored in the state."""

    cls: type
    names: tuple[str, ...]
    missing: tuple[tuple[str, Callable[[], Any]], ...]
    """New fields, and functions that return their defaults."""


class _StateReader:
    """Reads values back from MessagePack."""

    def __init__(self, classes: Any) -> None:
        self._room = MAX_BYTES
        self._classes = [_stored_class(name, tuple(names)) for name, names in classes]
        self._objects: list[Any] = []

    def read(self, written: Iterable[Any]) -> list[Any]:
        """Convert stored values."""
        values: list[Any] = []
        add = values.append
        for element in written:
            kind = type(element)
            if kind is list:
                add(_READ[element[0]](self, element))
            elif kind is str or kind is int or kind in _PLAIN:
                add(element)
            else:
                raise StateError(f"the state is damaged: it contains a {kind.__name__}")
        return values

    def _items(self, written: list[Any]) -> list[Any]:
        return self.read(written[1:])

    def _dict(self, written: list[Any]) -> dict[Any, Any]:
        values = self.read(written[1:])
        return dict(zip(values[::2], values[1::2], strict=True))

    def _bytearray(self, written: list[Any]) -> bytearray:
        _, content, zeros = written
        self._room -= zeros
        if self._room < 0 or zeros < 0:
            raise StateError("the state is damaged or too long")
        return bytearray(content) + bytes(zeros)

    def _enum(self, written: list[Any]) -> Any:
        _, number, value = written
        stored = self._classes[number]
        if not issubclass(stored.cls, Enum):
            raise StateError("the state is damaged: this is not an enumeration")
        return stored.cls(*self.read((value,)))

    def _object(self, written: list[Any]) -> Any:
        _, number, *fields = written
        stored = self._classes[number]
        if issubclass(stored.cls, Enum):
            raise StateError("the state is damaged: this is not an object")
        instance = stored.cls.__new__(stored.cls)
        # Registered before its fields are read: they may refer to it.
        self._objects.append(instance)
        give = object.__setattr__
        for name, value in zip(stored.names, self.read(fields), strict=True):
            give(instance, name, value)
        for name, default in stored.missing:
            give(instance, name, default())
        return instance


@lru_cache(maxsize=1_024)
def _stored_class(name: str, names: tuple[str, ...]) -> _StoredClass:
    """The class with a stored name and fields; cached, since the same few recur."""
    cls = find_class(name)
    return _StoredClass(cls, names, () if issubclass(cls, Enum) else _check(cls, name, names))


def _check(cls: type, name: str, names: tuple[str, ...]) -> tuple[tuple[str, Callable[[], Any]], ...]:
    """Check that stored fields still exist; return the new fields with functions for their defaults."""
    today = field_names(cls, name)
    gone = set(names) - set(today)
    if gone or len(set(names)) != len(names):
        raise StateError(f"the state is of another version: {name} has no {', '.join(sorted(map(str, gone)))}")
    missing: list[tuple[str, Callable[[], Any]]] = []
    if name in PLAIN:
        return ()
    for field in dataclasses.fields(cls):
        if field.name in names:
            continue
        if field.default_factory is not dataclasses.MISSING:
            missing.append((field.name, field.default_factory))
        elif field.default is not dataclasses.MISSING:
            missing.append((field.name, partial(copy, field.default)))
        else:
            raise StateError(f"the state is of another version: {name} needs {field.name}")
    return tuple(missing)


_READ: dict[int, Callable[[_StateReader, list[Any]], Any]] = {
    _LIST: _StateReader._items,
    TUPLE: lambda reader, written: tuple(reader._items(written)),
    _SET: lambda reader, written: set(reader._items(written)),
    _FROZENSET: lambda reader, written: frozenset(reader._items(written)),
    _DICT: _StateReader._dict,
    _OBJECT: _StateReader._object,
    _AGAIN: lambda reader, written: reader._objects[written[1]],
    ENUM: _StateReader._enum,
    _BYTEARRAY: _StateReader._bytearray,
    _TEXT: lambda reader, written: written[1].decode("utf-8", "surrogatepass"),
    _NUMBER: lambda reader, written: int.from_bytes(written[1], "big", signed=True),
    _TIME: lambda reader, written: CaptureTime(*reader._items(written)),
}
