"""What a flow remembers, as bytes: plain values and this program's own dataclasses, in MessagePack by msgspec.

Not pickle: reading state runs no code and makes nothing but None, numbers, text, bytes, tuples, lists, dicts, sets,
members of enumerations and instances of the dataclasses that this module lets through, so that a checkpoint that
others can write is no way in.  Classes are written by name with the names of their fields.  A field that has come
since gets its default; one that is gone is a `StateError`, as is a class: what is remembered would mean something else.

    b"MQTS", version (1 byte), CRC-32 of the rest (4 bytes, big endian), b"z" and a zlib stream of one MessagePack
    array, or b"p" and the array as it is

    array   [classes, value]; a class is [name, names of its fields]
    value   None, truth values, numbers of 64 bits, text, and bytes as they are; all else is an array of what it is
            and its content.  An object holds the number of its class and its fields; one that was written before is
            its number, so that what is shared stays shared

msgspec by itself writes dataclasses too, but neither says of which class one is nor keeps what is shared, and takes
tuples for lists where a field may hold anything.
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
VERSION = 10
MAX_BYTES = 1 << 30
"""Longest state that is read, inflated."""
DAMAGE: Final = (
    msgspec.MsgspecError, zlib.error, RecursionError, MemoryError, ArithmeticError, ValueError, TypeError, LookupError,
    AttributeError,
)  # fmt: skip
"""What reading hostile bytes may raise."""


class StateError(MqttscopeError, ValueError):
    """State that cannot be read: damaged, of another version, or not of this program."""


class NotSerializableError(MqttscopeError, TypeError):
    """A value that is no plain data."""


@dataclasses.dataclass(slots=True, frozen=True)
class Replacing:
    """What is written in the place of some objects."""

    classes: tuple[type, ...]
    """Those of which it may be another object, and all that derive from them."""
    shown: Callable[[Any], Any]
    """Gives the object that is written; it may be the same."""


def dump(value: Any, *, compress: bool = True, shown: Replacing | None = None) -> bytes:
    """A value as bytes; `NotSerializableError` where something in it is no plain data.

    ``shown`` gives the objects that are written in the place of others.
    """
    writer = _Writer(shown)
    (written,) = writer.write((value,), [])
    plain = msgspec.msgpack.encode((writer.classes, written))
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
        classes, written = msgspec.msgpack.decode(body[1:] if body[:1] == b"p" else _inflated(body))
        (value,) = _Reader(classes).read((written,))
    except StateError:
        raise
    except DAMAGE as error:
        raise StateError(f"the state is damaged: {error}") from None
    return value


def _inflated(body: bytes) -> bytes:
    inflate = zlib.decompressobj()
    plain = inflate.decompress(body[1:], MAX_BYTES) if body[:1] == b"z" else b""
    if not inflate.eof or inflate.unused_data:
        raise StateError("the state is damaged or too long")
    return plain


PACKAGES = ("net", "mqtt", "session", "dissect", "lint", "lake", "events")
"""Packages of this program whose dataclasses and enumerations may be written down."""
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
"""Fields that are made again from the others, or by who continues, and names that no lake has."""

_ROOT = "mqttscope."
_NAME = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)*\.[A-Za-z_][A-Za-z0-9_]*")
PLAIN = {
    "mqtt.properties.Properties": ("items",),
    "session.history.Ended": ("exchange", "checksum", "by", "reason_code", "answer", "answers"),
}
"""Classes that are written by other attributes than the fields of dataclasses, all of which are needed."""

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


_LONG = 1 << 63
_LONGEST_NUMBER = 255
"""Bytes of a number."""


# What an array is.
_LIST: Final = 0
_TUPLE: Final = 1
_SET: Final = 2
_FROZENSET: Final = 3
_DICT: Final = 4
"""Keys and values in turn."""
_OBJECT: Final = 5
"""Number of its class, then its fields."""
_AGAIN: Final = 6
"""Number of an object in the order in which they begin."""
_ENUM: Final = 7
"""Number of its class, and the value."""
_BYTEARRAY: Final = 8
"""Its bytes, and how many zeros follow."""
_TEXT: Final = 9
"""What is not UTF-8."""
_NUMBER: Final = 10
"""One of more than 64 bits, as bytes, big endian."""
_TIME: Final = 11
"""A time after a step of the capture's clock: for durations, and as the capture has it."""


class _Kind:
    """A class of objects that are written."""

    def __init__(self, number: int, get: Callable[[Any], Iterable[Any]]) -> None:
        self.number = number
        """Its place among the classes of a state."""
        self.get = get
        """The fields of an object."""


class _Writer:
    """Writes values as what MessagePack can express."""

    def __init__(self, shown: Replacing | None = None) -> None:
        self._shown = shown
        self._may_be_shown: dict[type, bool] = {}
        self.classes: list[tuple[str, tuple[str, ...]]] = []
        self._kinds: dict[type, _Kind] = {}
        self._members: dict[int, list[Any]] = {}
        """Members of enumerations that were written, by where they lie: those of two may be equal."""
        self._written: dict[int, int] = {}
        self._alive: list[Any] = []
        self._made: list[Any] = []

    def write(self, values: Iterable[Any], made: list[Any]) -> list[Any]:
        """Some values, after what is in a list."""
        for value in values:
            kind = type(value)
            if kind is int:
                made.append(value if -_LONG <= value < _LONG else _number(value))
            elif value is None or kind is bool or kind is bytes or kind is float:
                made.append(value)
            elif kind is str:
                made.append(value if value.isascii() else _text(value))
            elif kind is tuple:
                made.append(self.write(value, [_TUPLE]))
            elif kind is list:
                made.append(self.write(value, [_LIST]))
            elif kind is dict:
                made.append(self.write(chain.from_iterable(value.items()), [_DICT]))
            elif kind is set:
                made.append(self.write(value, [_SET]))
            elif kind is frozenset:
                made.append(self.write(value, [_FROZENSET]))
            elif kind is bytearray:
                made.append(_bytearray(value))
            elif kind is CaptureTime:
                made.append([_TIME, *self.write((int(value), value.captured_ns), [])])
            elif isinstance(value, Enum):
                made.append(self._member(value))
            else:
                made.append(self._object(value))
        return made

    def _member(self, value: Enum) -> list[Any]:
        made = self._members.get(id(value))
        if made is None:
            made = self.write((value.value,), [_ENUM, self._kind(type(value)).number])
            self._members[id(value)] = made
        return made

    def _kind(self, cls: type) -> _Kind:
        kind = self._kinds.get(cls)
        if kind is None:
            name, names = _described(cls)
            get = attrgetter(*names) if len(names) > 1 else partial(_few, names)
            kind = self._kinds[cls] = _Kind(len(self.classes), get)
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
            self._made.append(value)  # what is written is told by where it lies
        kind = self._kind(type(value))
        return self.write(kind.get(value), [_OBJECT, kind.number])

    def _is_shown(self, cls: type) -> bool:
        """Whether another object may be written in the place of one of a class."""
        found = self._may_be_shown.get(cls)
        if found is None:
            found = self._may_be_shown[cls] = self._shown is not None and issubclass(cls, self._shown.classes)
        return found


def _number(value: int) -> list[Any]:
    size = (value.bit_length() >> 3) + 1
    if size > _LONGEST_NUMBER:
        raise NotSerializableError("the number is too large")
    return [_NUMBER, value.to_bytes(size, "big", signed=True)]


def _bytearray(value: bytearray) -> list[Any]:
    # Tables of bits: most of them are empty from some place on.
    kept = bytes(value.rstrip(b"\0"))
    return [_BYTEARRAY, kept, len(value) - len(kept)]


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
    """The name of a class, and its fields."""
    name = class_name(cls)
    if not may_be_read(cls, name):
        raise NotSerializableError(f"{name} is no dataclass")
    return name, () if issubclass(cls, Enum) else field_names(cls, name)


_PLAIN = frozenset((type(None), bool, float, bytes))


@dataclasses.dataclass(slots=True)
class _Found:
    """A class as the state has it."""

    cls: type
    names: tuple[str, ...]
    missing: tuple[tuple[str, Callable[[], Any]], ...]
    """Fields that have come since, and how to make their defaults."""


class _Reader:
    """Reads values back from what MessagePack holds."""

    def __init__(self, classes: Any) -> None:
        self._room = MAX_BYTES
        self._classes = [_found(name, tuple(names)) for name, names in classes]
        self._objects: list[Any] = []

    def read(self, written: Iterable[Any]) -> list[Any]:
        """Some values."""
        values: list[Any] = []
        add = values.append
        for one in written:
            kind = type(one)
            if kind is list:
                add(_READ[one[0]](self, one))
            elif kind is str or kind is int or kind in _PLAIN:
                add(one)
            else:
                raise StateError(f"the state is damaged: it holds a {kind.__name__}")
        return values

    def _items(self, written: list[Any]) -> list[Any]:
        return self.read(written[1:])

    def _dict(self, written: list[Any]) -> dict[Any, Any]:
        values = self.read(written[1:])
        return dict(zip(values[::2], values[1::2], strict=True))

    def _bytearray(self, written: list[Any]) -> bytearray:
        _, kept, zeros = written
        self._room -= zeros
        if self._room < 0 or zeros < 0:
            raise StateError("the state is damaged or too long")
        return bytearray(kept) + bytes(zeros)

    def _enum(self, written: list[Any]) -> Any:
        _, number, value = written
        found = self._classes[number]
        if not issubclass(found.cls, Enum):
            raise StateError("the state is damaged: this is no enumeration")
        return found.cls(*self.read((value,)))

    def _object(self, written: list[Any]) -> Any:
        _, number, *fields = written
        found = self._classes[number]
        if issubclass(found.cls, Enum):
            raise StateError("the state is damaged: this is no object")
        made = found.cls.__new__(found.cls)
        # Known before its fields are read: they may refer to it.
        self._objects.append(made)
        give = object.__setattr__
        for name, value in zip(found.names, self.read(fields), strict=True):
            give(made, name, value)
        for name, default in found.missing:
            give(made, name, default())
        return made


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


_READ: dict[int, Callable[[_Reader, list[Any]], Any]] = {
    _LIST: _Reader._items,
    _TUPLE: lambda reader, written: tuple(reader._items(written)),
    _SET: lambda reader, written: set(reader._items(written)),
    _FROZENSET: lambda reader, written: frozenset(reader._items(written)),
    _DICT: _Reader._dict,
    _OBJECT: _Reader._object,
    _AGAIN: lambda reader, written: reader._objects[written[1]],
    _ENUM: _Reader._enum,
    _BYTEARRAY: _Reader._bytearray,
    _TEXT: lambda reader, written: written[1].decode("utf-8", "surrogatepass"),
    _NUMBER: lambda reader, written: int.from_bytes(written[1], "big", signed=True),
    _TIME: lambda reader, written: CaptureTime(*reader._items(written)),
}
