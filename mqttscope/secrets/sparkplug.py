"""Finds values with the name of a secret in payloads of Sparkplug B, by their bytes.

A payload may be incomplete, so reading ends at the first field that is not valid.  Names are in births, or in the
message itself: a metric with an alias alone is not recognised here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from mqttscope.compressed import decompress
from mqttscope.secrets.names import MIN_DIGITS, looks_secret, secrecy

COMPRESSED: Final = b"SPBV1.0_COMPRESSED"
"""The ``uuid`` of a payload with a compressed one in its ``body``."""
MAX_NESTING: Final = 16
"""Maximum nesting of templates and property sets that is searched; deeper ones are hidden if their holder is."""
_BEGINNINGS: Final = (b"\x08", b"\x12", b"\x18", b"\x22\x12" + COMPRESSED)
"""First bytes of a payload: a timestamp, a metric, ``seq``, or the ``uuid`` of a compressed one."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
Ranges = Iterator[tuple[int, int]]
_Field = tuple[int, int, int, int]
"""Number, wire type, and the range of the content."""


def sparkplug_values(data: bytes, limit: int) -> Ranges:
    """Ranges of secrets in a payload of Sparkplug B.

    ``limit``: maximum number of unpacked bytes that are searched; a longer body is hidden.
    """
    if not data.startswith(_BEGINNINGS):
        return
    fields = [*_fields(data, 0, len(data))]
    is_compressed = any(number == 4 and data[start:end] == COMPRESSED for number, _, start, end in fields)
    for number, wire, start, end in fields:
        if number == 2 and wire == _LENGTH:
            yield from _metric(data, start, end, False, 0)
        elif number == 5 and is_compressed and _hides_body(data[start:end], limit):
            yield start, end


def _hides_body(body: bytes, limit: int) -> bool:
    """Whether a compressed payload has a secret, or is too long to be searched."""
    for form in ("zlib", "gzip"):
        inner, more, problem = decompress(body, limit, form)
        if not problem:
            return more or any(True for _ in sparkplug_values(inner, limit))
    return False


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """The fields of a message, up to the first one that is not valid; the last one may be incomplete."""
    while at < end:
        tag, at = _varint(data, at, end)
        wire, start = tag & 7, at
        if wire == _VARINT:
            at = _varint(data, at, end)[1]
        elif wire == _LENGTH:
            length, start = _varint(data, at, end)
            at = min(start + length, end)
        elif wire in (_FIXED32, _FIXED64):
            at = min(at + (4 if wire == _FIXED32 else 8), end)
        else:
            return
        yield tag >> 3, wire, start, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    number = shift = 0
    while at < end and shift < 64:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    return number, at


def _metric(data: bytes, at: int, end: int, outer: bool | None, depth: int) -> Ranges:
    fields = [*_fields(data, at, end)]
    for name in _texts(data, fields, 1):
        hides = secrecy(name, outer)
        break
    else:
        hides = outer
    for number, wire, start, stop in fields:
        if number == 9:
            yield from _properties(data, start, stop, outer, depth + 1)
        elif number == 17:
            yield from _data_set(data, start, stop, hides)
        elif number == 18:
            yield from _template(data, start, stop, hides, depth + 1)
        elif number >= 10:
            yield from _value(data, number - 10, wire, start, stop, hides)


def _texts(data: bytes, fields: Sequence[_Field], number: int) -> Iterator[str]:
    """The texts of a field."""
    for place, wire, start, end in fields:
        if place == number and wire == _LENGTH:
            yield data[start:end].decode("utf-8", "replace")


def _value(data: bytes, place: int, wire: int, start: int, end: int, hides: bool | None) -> Ranges:
    """A number (field 0 to 3 of the values), text (5) or other bytes, if it is a secret; not a truth value (4)."""
    if hides is False or place == 4 or start == end:
        return
    if wire == _LENGTH:
        is_secret = hides or looks_secret(data[start:end].decode("utf-8" if place == 5 else "latin-1", "replace"))
    else:
        if wire == _VARINT:
            digits = str(_varint(data, start, end)[0])
        else:
            form = "<f" if wire == _FIXED32 else "<d"
            digits = str(struct.unpack(form, data[start:end])[0]) if end - start == struct.calcsize(form) else "0000"
        is_secret = sum(map(str.isdigit, digits)) >= MIN_DIGITS if hides else looks_secret(digits)
    if is_secret:
        yield start, end


def _properties(data: bytes, at: int, end: int, outer: bool | None, depth: int) -> Ranges:
    if depth > MAX_NESTING:
        yield from [(at, end)] if outer else []
        return
    fields = [*_fields(data, at, end)]
    values = [(start, stop) for number, wire, start, stop in fields if number == 2 and wire == _LENGTH]
    for name, (first, last) in zip(_texts(data, fields, 1), values, strict=False):
        hides = secrecy(name, outer)
        for number, wire, start, stop in _fields(data, first, last):
            if number == 9:
                yield from _properties(data, start, stop, hides, depth + 1)
            elif number == 10:
                for _, _, begin, finish in _fields(data, start, stop):
                    yield from _properties(data, begin, finish, hides, depth + 1)
            elif number >= 3:
                yield from _value(data, number - 3, wire, start, stop, hides)


def _data_set(data: bytes, at: int, end: int, outer: bool | None) -> Ranges:
    fields = [*_fields(data, at, end)]
    hidden = [secrecy(name, outer) for name in _texts(data, fields, 2)]
    for number, _, first, last in fields:
        if number == 4:
            for place, (_, _, start, stop) in enumerate(_fields(data, first, last)):
                hides = hidden[place] if place < len(hidden) else outer
                for element, wire, begin, finish in _fields(data, start, stop):
                    yield from _value(data, element - 1, wire, begin, finish, hides)


def _template(data: bytes, at: int, end: int, outer: bool | None, depth: int) -> Ranges:
    if depth > MAX_NESTING:
        yield from [(at, end)] if outer else []
        return
    for number, _, start, stop in _fields(data, at, end):
        if number == 2:
            yield from _metric(data, start, stop, outer, depth)
        elif number == 3:
            fields = [*_fields(data, start, stop)]
            hides = secrecy(next(_texts(data, fields, 1), ""), outer)
            for place, wire, begin, finish in fields:
                if place >= 3:
                    yield from _value(data, place - 3, wire, begin, finish, hides)
