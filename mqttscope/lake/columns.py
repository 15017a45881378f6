"""Arrow arrays of the values of columns, made of buffers.

`pyarrow.array` looks at each value for what it may be, those that are null as well, and loads pandas where that is
installed, which takes half a second.  Here the type of a column is known, most of its values are null or say what
others say too, and whatever is done for each value is done by the interpreter's own loops in C.
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
_CODES = {_BYTE: "b", pa.int16(): "h", _NUMBER: "i", pa.int64(): "q", pa.timestamp("us", "UTC"): "q"}
"""Type codes of `array.array` for types of a fixed width."""
_FEW = frozenset((_BOOL, pa.int16(), _STRING))
"""Types of which columns tend to say the same in many rows."""
_LOOKED_AT = 256
"""So many values say whether that is so for a column of text."""


def batch_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """A record batch of rows, each with its values in the order of the columns; `ValueError` where they do not fit."""
    columns = zip(schema, zip(*rows, strict=True), strict=True) if rows else ((one, ()) for one in schema)
    return pa.RecordBatch.from_arrays([array_of(values, one.type) for one, values in columns], schema=schema)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of values of one type, of which any may be ``None``.

    A struct is a dict; what is in it and not in the type does not count.
    """
    count = len(values)
    if kind in _FEW and _recurs(values, kind):
        return _repeated(values, kind)
    if not count or (values[0] is None and values.count(None) == count):
        return pa.nulls(count, kind)
    if pa.types.is_nested(kind):
        # Most are null, or the very same object as others.
        several = dict(zip(map(id, values), values, strict=True))
        if 2 * len(several) <= count:
            places = dict(zip(several, range(len(several)), strict=True))
            return _nested(list(several.values()), kind).take(
                _full(list(map(places.__getitem__, map(id, values))), _NUMBER)
            )
        return _nested(values, kind)
    if values[0] is not None:
        # Nearly all columns that begin with a value have no nulls: to find out beforehand would cost more.
        with suppress(TypeError):
            return _full(values, kind)
    marks = _marks(values)
    return _full(list(compress(values, marks)), kind).take(_places(marks))


def _recurs(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether a column, by its first values, says the same again and again."""
    if kind != _STRING:
        return True
    some = values[:_LOOKED_AT]
    return len(set(some)) * 2 <= len(some)


def _repeated(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of values that recur, each of which is converted once."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    found = list(numbers)
    if found == [None]:
        return pa.nulls(len(values), kind)
    if None in numbers:
        marks = _marks(found)
        told = _full(list(compress(found, marks)), kind).take(_places(marks))
    else:
        told = _full(found, kind)
    return told.take(_full(list(map(numbers.__getitem__, values)), _NUMBER))


def _marks(values: Sequence[Any]) -> bytes:
    """1 for each value, 0 for each ``None``."""
    return bytes(map(is_not, values, repeat(None)))


def _valid(marks: bytes) -> pa.Buffer | None:
    """The bitmap of an array; ``None`` where nothing is null."""
    if 0 not in marks:
        return None
    return pa.Array.from_buffers(_BYTE, len(marks), [None, pa.py_buffer(marks)]).cast(_BOOL).buffers()[1]


def _places(marks: bytes) -> pa.Array:
    """For each row that has a value its place among those that have one, else null."""
    count = len(marks)
    flags = pa.Array.from_buffers(_BYTE, count, [None, pa.py_buffer(marks)])
    places = pc.subtract(pc.cumulative_sum(flags.cast(_NUMBER)), _ONE)
    return pa.Array.from_buffers(_NUMBER, count, [_valid(marks), places.buffers()[1]])


def _full(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of values none of which is ``None``."""
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
        found = array_of([one.get(field.name) for one in present], field.type)
        children.append(found if places is None else found.take(places))
    return pa.Array.from_buffers(kind, count, [_valid(marks)], children=children)


def _lists(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    marks = _marks(values)
    items = array_of(list(chain.from_iterable(compress(values, marks))), kind.value_type)
    lengths = [0 if one is None else len(one) for one in values]
    return pa.Array.from_buffers(kind, len(values), [_valid(marks), _offsets(lengths)], children=[items])


def _offsets(lengths: Iterable[int]) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate(lengths, initial=0)))


_ONE = _full([1], _NUMBER)[0]
