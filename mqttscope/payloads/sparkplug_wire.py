"""Reads and writes Sparkplug B payloads in the wire format of Protocol Buffers, without any package.

The schema is from the Sparkplug specification 3.0 (6.4).  A message is a dictionary of the fields that were sent, by
their names; repeated fields are lists.  Like the library protobuf, the reader accepts packed numbers, joins the parts
of a message that is sent twice, keeps the last of several values, and skips fields that the schema does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from mqttscope.compressed import decompress
from mqttscope.mqtt.wire import counted
from mqttscope.payloads.values import UndecodableError

MAX_PAYLOAD_BYTES: Final = 1 << 18
"""Maximum length of a payload, after decompression: a metric of two bytes takes a hundred bytes of memory."""
MAX_NESTING: Final = 100
"""Maximum nesting of messages, as in the library protobuf."""


class PayloadLimitError(UndecodableError):
    """A payload that may be valid, and is not read because of a limit or an unknown compression."""


COMPRESSED: Final = "SPBV1.0_COMPRESSED"
"""The ``uuid`` of a payload with another payload, compressed, in its ``body``."""
ALGORITHMS: Final = {"DEFLATE": "zlib", "GZIP": "gzip"}
"""Compressions that the metric ``algorithm`` of a compressed payload may name; DEFLATE by default."""

DATATYPES: Final = (
    "Unknown", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float", "Double", "Boolean",
    "String", "DateTime", "Text", "UUID", "DataSet", "Bytes", "File", "Template", "PropertySet", "PropertySetList",
    "Int8Array", "Int16Array", "Int32Array", "Int64Array", "UInt8Array", "UInt16Array", "UInt32Array", "UInt64Array",
    "FloatArray", "DoubleArray", "BooleanArray", "StringArray", "DateTimeArray",
)  # fmt: skip
"""Names of data types, by number (6.4.16)."""

SCALARS: Final = ("int_value", "long_value", "float_value", "double_value", "boolean_value", "string_value")
"""Fields for single numbers, truth values and texts."""
VALUES: Final = (
    *SCALARS, "bytes_value", "dataset_value", "template_value", "propertyset_value", "propertysets_value",
    "extension_value",
)  # fmt: skip
"""All fields for values; a message has one of them."""
_FIELD_OF_TYPE: Final = (
    "", "int_value", "int_value", "int_value", "long_value", "int_value", "int_value", "int_value", "long_value",
    "float_value", "double_value", "boolean_value", "string_value", "long_value", "string_value", "string_value",
    "dataset_value", "bytes_value", "bytes_value", "template_value", "propertyset_value", "propertysets_value",
)  # fmt: skip
_KINDS: Final = dict(zip(SCALARS, ("uint32", "uint64", "float", "double", "bool", "string"), strict=True))


def _values(first: int, *more: str) -> tuple[str, ...]:
    """Fields that hold the value, one of them at a time, numbered from ``first``."""
    scalars = [f"{name} {kind}" for name, kind in _KINDS.items()]
    return tuple(f"{number} {field}" for number, field in enumerate((*scalars, *more), first))


_SCHEMA: Final[dict[str, tuple[str, ...]]] = {
    "Payload": ("1 timestamp uint64", "2 metrics *Metric", "3 seq uint64", "4 uuid string", "5 body bytes"),
    "Metric": (
        "1 name string", "2 alias uint64", "3 timestamp uint64", "4 datatype uint32", "5 is_historical bool",
        "6 is_transient bool", "7 is_null bool", "8 metadata MetaData", "9 properties PropertySet",
        *_values(
            10, "bytes_value bytes", "dataset_value DataSet", "template_value Template", "extension_value bytes"
        ),
    ),
    "MetaData": (
        "1 is_multi_part bool", "2 content_type string", "3 size uint64", "4 seq uint64", "5 file_name string",
        "6 file_type string", "7 md5 string", "8 description string",
    ),
    "PropertySet": ("1 keys *string", "2 values *PropertyValue"),
    "PropertySetList": ("1 propertyset *PropertySet",),
    "PropertyValue": (
        "1 type uint32", "2 is_null bool",
        *_values(3, "propertyset_value PropertySet", "propertysets_value PropertySetList", "extension_value bytes"),
    ),
    "DataSet": ("1 num_of_columns uint64", "2 columns *string", "3 types *uint32", "4 rows *Row"),
    "Row": ("1 elements *Element",),
    "Element": _values(1, "extension_value bytes"),
    "Template": (
        "1 version string", "2 metrics *Metric", "3 parameters *Parameter", "4 template_ref string",
        "5 is_definition bool",
    ),
    "Parameter": ("1 name string", "2 type uint32", *_values(3, "extension_value bytes")),
}  # fmt: skip
"""Messages, with number, name and type of each field; an asterisk marks a repeated field."""

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_WIRE_TYPES: Final = {"uint32": _VARINT, "uint64": _VARINT, "bool": _VARINT, "float": _FIXED32, "double": _FIXED64}
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}


class _Field:
    """One row of the schema."""

    __slots__ = ("is_repeated", "is_value", "kind", "name", "number", "wire_type")

    def __init__(self, row: str) -> None:
        number, self.name, kind = row.split()
        self.number, self.is_repeated, self.kind = int(number), kind[0] == "*", kind.lstrip("*")
        self.is_value = self.name in VALUES
        self.wire_type = _WIRE_TYPES.get(self.kind, _LENGTH)


_FIELDS: Final = {name: [_Field(row) for row in rows] for name, rows in _SCHEMA.items()}
_BY_NUMBER: Final = {name: {field.number: field for field in fields} for name, fields in _FIELDS.items()}
META_DATA: Final = tuple(field.name for field in _FIELDS["MetaData"])

Message = dict[str, Any]


def value_field(datatype: int) -> str:
    """The field for values of a data type (6.4.17); empty for Unknown and for types that do not exist."""
    if len(_FIELD_OF_TYPE) <= datatype < len(DATATYPES):
        return "bytes_value"  # arrays
    return _FIELD_OF_TYPE[datatype] if datatype < len(_FIELD_OF_TYPE) else ""


def parse_message(data: bytes, name: str = "Payload") -> tuple[Message, int]:
    """A message, and the number of its fields that the schema does not have; `UndecodableError` if it is invalid."""
    if len(data) > MAX_PAYLOAD_BYTES:
        raise PayloadLimitError(f"longer than {MAX_PAYLOAD_BYTES} bytes")
    message: Message = {}
    return message, _read(data, 0, len(data), name, message, 0)


def _read(data: bytes, at: int, end: int, name: str, message: Message, depth: int) -> int:
    """Add the fields between two offsets to a message; returns the number of unknown fields."""
    if depth > MAX_NESTING:
        raise PayloadLimitError(f"more than {MAX_NESTING} nested messages")
    fields, unknown = _BY_NUMBER[name], 0
    while at < end:
        tag, at = _varint(data, at, end)
        wire_type, field = tag & 7, fields.get(tag >> 3)
        if not 0 < tag >> 3 < 1 << 29:
            raise UndecodableError(f"field {tag >> 3} cannot exist")
        if field is None or (wire_type != field.wire_type and not (field.is_repeated and wire_type == _LENGTH)):
            at = _skip(data, at, end, tag, depth)
            unknown += 1
            continue
        start, at = at, _end(data, at, end, wire_type)
        if wire_type != _LENGTH:
            value: Any = _number(data, start, at, field.kind)
        else:
            _, start = _varint(data, start, end)
            if field.kind in _FIELDS:
                inner: Message = {} if field.is_repeated else message.get(field.name, {})
                _read(data, start, at, field.kind, inner, depth + 1)
                value = inner
            elif field.wire_type == _VARINT:  # packed
                values = message.setdefault(field.name, [])
                while start < at:
                    number, start = _varint(data, start, at)
                    values.append(number & 0xFFFFFFFF)
                continue
            else:
                value = data[start:at] if field.kind == "bytes" else _text(data[start:at], field.name)
        if field.is_repeated:
            message.setdefault(field.name, []).append(value)
            continue
        if field.is_value and field.name not in message:
            for other in VALUES:
                message.pop(other, None)
        message[field.name] = value
    return unknown


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UndecodableError(f"{name} is not UTF-8") from None


def _number(data: bytes, start: int, end: int, kind: str) -> Any:
    if kind == "float":
        return struct.unpack("<f", data[start:end])[0]
    if kind == "double":
        return struct.unpack("<d", data[start:end])[0]
    number, _ = _varint(data, start, end)
    return number != 0 if kind == "bool" else number & 0xFFFFFFFF if kind == "uint32" else number


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """An unsigned number of at most 64 bits, and the offset after it."""
    number = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise UndecodableError(f"it ends within a number at byte {at}" if at >= end else f"no number at byte {at - 10}")


def _end(data: bytes, at: int, end: int, wire_type: int) -> int:
    """The offset after the content of a field that is not a group."""
    if wire_type == _VARINT:
        return _varint(data, at, end)[1]
    if wire_type == _LENGTH:
        length, at = _varint(data, at, end)
    elif wire_type in _FIXED_SIZES:
        length = _FIXED_SIZES[wire_type]
    else:
        raise UndecodableError(f"a field at byte {at} has the unknown wire type {wire_type}")
    if length > end - at:
        raise UndecodableError(f"a field of {counted(length, 'byte')} at byte {at} exceeds its message")
    return at + length


def _skip(data: bytes, at: int, end: int, tag: int, depth: int) -> int:
    """The offset after an unknown field."""
    if tag & 7 != _GROUP:
        return _end(data, at, end, tag & 7)
    if depth > MAX_NESTING:
        raise PayloadLimitError(f"more than {MAX_NESTING} nested messages")
    while at < end:
        inner, at = _varint(data, at, end)
        if inner & 7 == _GROUP_END:
            if inner >> 3 == tag >> 3:
                return at
            break
        at = _skip(data, at, end, inner, depth + 1)
    raise UndecodableError(f"a group at byte {at} has no end")


@lru_cache(maxsize=8)
def open_payload(data: bytes) -> tuple[Message, int, str]:
    """A payload, its number of unknown fields, and its compression or an empty text.

    A compressed payload is replaced by the payload in its body.  `UndecodableError` if one of them is invalid.  Do not
    change the result: it is shared by all who read the same payload.
    """
    message, unknown = parse_message(data)
    if message.get("uuid") != COMPRESSED:
        return message, unknown, ""
    algorithm = next(
        (metric.get("string_value", "") for metric in message.get("metrics", ()) if metric.get("name") == "algorithm"),
        "DEFLATE",
    )
    form = ALGORITHMS.get(algorithm.upper())
    if form is None:
        raise PayloadLimitError(f"compressed with an unknown algorithm {algorithm[:40]!r}")
    body, more, problem = decompress(message.get("body", b""), MAX_PAYLOAD_BYTES, form)
    if problem:
        raise UndecodableError(f"{form}: {problem}")
    if more:
        raise PayloadLimitError(f"more than {counted(MAX_PAYLOAD_BYTES, 'byte')} come out of the {form}")
    inner, unknown = parse_message(body)
    return {**{name: message[name] for name in ("timestamp", "seq") if name in message}, **inner}, unknown, form


def encode_message(message: Message, name: str = "Payload") -> bytes:
    """The bytes of a message, its fields by their numbers; `ValueError` for a field that the schema does not have."""
    unknown = message.keys() - {field.name for field in _FIELDS[name]}
    if unknown:
        raise ValueError(f"{name} has no field {min(unknown)!r}: {', '.join(field.name for field in _FIELDS[name])}")
    return b"".join(_encoded(message, name))


def _encoded(message: Message, name: str) -> Iterator[bytes]:
    for field in _FIELDS[name]:
        if field.name in message:
            values = message[field.name] if field.is_repeated else [message[field.name]]
            for value in values:
                content = encode_message(value, field.kind) if field.kind in _FIELDS else _WRITERS[field.kind](value)
                length = _number_bytes(len(content)) if field.wire_type == _LENGTH else b""
                yield _number_bytes(field.number << 3 | field.wire_type) + length + content


def _number_bytes(number: int) -> bytes:
    number &= 0xFFFFFFFFFFFFFFFF
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    pieces.append(number)
    return bytes(pieces)


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "uint32": lambda number: _number_bytes(number & 0xFFFFFFFF),
    "uint64": _number_bytes,
    "bool": lambda truth: b"\1" if truth else b"\0",
    "float": lambda number: struct.pack("<f", number),
    "double": lambda number: struct.pack("<d", number),
    "string": lambda text: text.encode(),
    "bytes": lambda text: text.encode() if isinstance(text, str) else text,
}
"""The bytes of a value, by the type of its field."""
