"""Arrow arrays of column values, made of buffers.

`pyarrow.array` examines the type of each value, nulls too, and loads pandas if it is installed, which takes half a
second.  Here the type of a column is known, most of its values are null or recur, and work on each value is done
by the interpreter's own loops in C.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate, chain, compress, repeat
from operator import is_not
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_BYTE, _NUMBER, _BOOL, _STRING = pa.int8(), pa.int32(), pa.bool_(), pa.string()
_CODES = {
    _BYTE: "b", pa.int16(): "h", _NUMBER: "i", pa.int64(): "q", pa.timestamp("us", "UTC"): "q", pa.float64(): "d",
}  # fmt: skip
"""Type codes of `array.array` for types of a fixed width."""
_FEW = frozenset((_BOOL, pa.int16(), _STRING))
"""Types of columns that tend to have few distinct values."""
_LOOKED_AT = 256
"""Number of values that decide whether a column of text has few distinct ones."""


def batch_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """A record batch of rows, each with its values in the order of the columns; `ValueError` if they do not fit."""
    columns = zip(schema, zip(*rows, strict=True), strict=True) if rows else ((column, ()) for column in schema)
    return pa.RecordBatch.from_arrays([array_of(values, column.type) for column, values in columns], schema=schema)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of values of one type; any of them may be ``None``.

    A struct is a dict; keys outside the type are ignored.
    """
    count = len(values)
    if kind in _FEW and _recurs(values, kind):
        return _repeated(values, kind)
    if not count or (values[0] is None and values.count(None) == count):
        return pa.nulls(count, kind)
    if pa.types.is_nested(kind):
        # Most are null, or one object in many rows.
        several = dict(zip(map(id, values), values, strict=True))
        if 2 * len(several) <= count:
            places = dict(zip(several, range(len(several)), strict=True))
            return _nested(list(several.values()), kind).take(
                _full(list(map(places.__getitem__, map(id, values))), _NUMBER)
            )
        return _nested(values, kind)
    if values[0] is not None:
        # Nearly all columns that begin with a value have no nulls: checking that first would cost more.
        with suppress(TypeError):
            return _full(values, kind)
    marks = _marks(values)
    return _full(list(compress(values, marks)), kind).take(_places(marks))


def _recurs(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether a column has few distinct values, judging by its first ones."""
    if kind != _STRING:
        return True
    some = values[:_LOOKED_AT]
    return len(set(some)) * 2 <= len(some)


def _repeated(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of recurring values; each distinct one is converted once."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    distinct = list(numbers)
    if distinct == [None]:
        return pa.nulls(len(values), kind)
    if None in numbers:
        marks = _marks(distinct)
        converted = _full(list(compress(distinct, marks)), kind).take(_places(marks))
    else:
        converted = _full(distinct, kind)
    return converted.take(_full(list(map(numbers.__getitem__, values)), _NUMBER))


def _marks(values: Sequence[Any]) -> bytes:
    """1 for each value, 0 for each ``None``."""
    return bytes(map(is_not, values, repeat(None)))


def _validity_bitmap(marks: bytes) -> pa.Buffer | None:
    """The validity bitmap of an array; ``None`` if nothing is null."""
    if 0 not in marks:
        return None
    return pa.Array.from_buffers(_BYTE, len(marks), [None, pa.py_buffer(marks)]).cast(_BOOL).buffers()[1]


def _places(marks: bytes) -> pa.Array:
    """The index of each row's value among the rows with a value; null without a value."""
    count = len(marks)
    flags = pa.Array.from_buffers(_BYTE, count, [None, pa.py_buffer(marks)])
    places = pc.subtract(pc.cumulative_sum(flags.cast(_NUMBER)), _ONE)
    return pa.Array.from_buffers(_NUMBER, count, [_validity_bitmap(marks), places.buffers()[1]])


def _full(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of values without ``None``."""
    count = len(values)
    code = _CODES.get(kind)
    if code is not None:
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(array(code, values))])
    if kind == _BOOL:
        return pa.Array.from_buffers(_BYTE, count, [None, pa.py_buffer(bytes(values))]).cast(_BOOL)
    if kind == _STRING:
        text = "".join(values)
        data = text.encode()
        if len(data) != len(text):
            values = list(map(str.encode, values))
    else:
        data = b"".join(values)
    return pa.Array.from_buffers(kind, count, [None, _offsets(map(len, values)), pa.py_buffer(data)])


def _nested(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return _structs(values, kind) if pa.types.is_struct(kind) else _lists(values, kind)


def _structs(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    count, marks = len(values), _marks(values)
    present = list(compress(values, marks))
    places = _places(marks) if len(present) < count else None
    known = frozenset().union(*present)
    children = []
    for at in range(kind.num_fields):
        field = kind.field(at)
        if field.name not in known:
            children.append(pa.nulls(count, field.type))
            continue
        child = array_of([struct.get(field.name) for struct in present], field.type)
        children.append(child if places is None else child.take(places))
    return pa.Array.from_buffers(kind, count, [_validity_bitmap(marks)], children=children)


def _lists(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    marks = _marks(values)
    items = array_of(list(chain.from_iterable(compress(values, marks))), kind.value_type)
    lengths = [0 if content is None else len(content) for content in values]
    return pa.Array.from_buffers(kind, len(values), [_validity_bitmap(marks), _offsets(lengths)], children=[items])


def _offsets(lengths: Iterable[int]) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate(lengths, initial=0)))


_ONE = _full([1], _NUMBER)[0]
