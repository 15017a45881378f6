"""CBOR and MessagePack as text in the manner of CBOR's diagnostic notation (RFC 8949 section 8)."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

MAX_BYTES = 16_384
"""Longer values are not decoded: integer keys made to collide would make a dictionary of them quadratic."""
MAX_DEPTH = 40
"""Deeper levels are shown as an ellipsis; shared references may even make a value contain itself."""
MAX_ITEMS = 4_000
"""Items that are shown of one value, since shared references can multiply them."""
MAX_DIGITS = 200
"""Longer integers are shown by their size."""

HINT = "pip install 'mqttscope[payload]'"


class Undecodable(Exception):  # noqa: N818 - it only carries the reason to the note
    """Why bytes are not shown as asked for."""


class Pairs(list[Any]):
    """A map with its keys in order and repeated as they were sent."""


def from_cbor(data: bytes) -> Any:
    """The value of CBOR bytes; `Undecodable` when they are none, or cbor2 is not installed."""
    try:
        import cbor2
    except ImportError:
        raise Undecodable(f"cbor2 is not installed ({HINT})") from None
    stream = io.BytesIO(data)
    try:
        value = cbor2.CBORDecoder(stream).decode()
    except Exception as error:  # tags make cbor2 call parsers for dates, addresses, patterns: they raise anything
        raise Undecodable(_reason(error)) from None
    if stream.tell() < len(data):
        raise Undecodable(f"the value ends at byte {stream.tell()} of {len(data)}")
    return value


def from_msgpack(data: bytes) -> Any:
    """The value of MessagePack bytes; `Undecodable` when they are none, or msgpack is not installed."""
    try:
        import msgpack
    except ImportError:
        raise Undecodable(f"msgpack is not installed ({HINT})") from None
    try:
        return msgpack.unpackb(
            data, strict_map_key=False, object_pairs_hook=Pairs, unicode_errors="surrogateescape", timestamp=3
        )
    except Exception as error:
        raise Undecodable(_reason(error)) from None


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:120]


def compact(value: Any) -> str:
    """A value in one line."""
    return "".join(part if part not in (": ", ", ") else part[0] for _, part in _walk(value, 0, [MAX_ITEMS]))


def pretty(value: Any) -> Iterator[str]:
    """A value in indented lines."""
    line = ""
    for depth, part in _walk(value, 0, [MAX_ITEMS]):
        if depth >= 0:
            yield line.removesuffix(" ")
            line = "  " * depth
        line += part
    yield line


def _walk(value: Any, depth: int, left: list[int]) -> Iterator[tuple[int, str]]:
    """Pieces of text; one that begins a line carries its depth, others -1.  ``left`` counts the items down."""
    left[0] -= 1
    if left[0] < 0:
        yield -1, "..."
        return
    pairs = _pairs(value)
    if pairs is None and not isinstance(value, list | tuple | set | frozenset):
        yield from _scalar(value, depth, left)
        return
    items: list[Any] = list(value) if pairs is None else pairs
    opening, closing = ("[", "]") if pairs is None else ("{", "}")
    yield -1, opening
    if depth >= MAX_DEPTH and items:
        yield -1, "..." + closing
        return
    for index, item in enumerate(items):
        if left[0] <= 0:
            yield depth + 1, "..."
            break
        if pairs is None:
            yield depth + 1, ""
            yield from _walk(item, depth + 1, left)
        else:
            yield depth + 1, ""
            yield from _walk(item[0], depth + 1, left)
            yield -1, ": "
            yield from _walk(item[1], depth + 1, left)
        if index + 1 < len(items):
            yield -1, ", "
    if items:
        yield depth, ""
    yield -1, closing


def _pairs(value: Any) -> list[Any] | None:
    if isinstance(value, Pairs):
        return value
    return list(value.items()) if isinstance(value, Mapping) else None


def _scalar(value: Any, depth: int, left: list[int]) -> Iterator[tuple[int, str]]:
    if isinstance(value, bool) or value is None:
        yield -1, {True: "true", False: "false", None: "null"}[value]
    elif isinstance(value, str):
        yield -1, '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    elif isinstance(value, bytes | bytearray):
        yield -1, f"h'{value.hex()}'"
    elif isinstance(value, int):
        yield -1, str(value) if value.bit_length() < MAX_DIGITS * 3 else f"({value.bit_length()}-bit integer)"
    elif isinstance(value, float):
        yield (
            -1,
            repr(value) if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity"}.get(str(value), "-Infinity"),
        )
    elif hasattr(value, "tag") and hasattr(value, "value"):
        yield -1, f"{value.tag}("
        if depth >= MAX_DEPTH:
            yield -1, "..."
        else:
            yield from _walk(value.value, depth + 1, left)
        yield -1, ")"
    elif hasattr(value, "code") and hasattr(value, "data"):
        yield -1, f"ext({value.code}, h'{value.data.hex()}')"
    else:
        yield -1, _other(value)


def _other(value: Any) -> str:
    """Dates, decimals, addresses and what else tags stand for."""
    try:
        isoformat = getattr(value, "isoformat", None)
        return str(isoformat() if isoformat is not None else value)[:1000]
    except Exception as error:  # str() of a fraction of huge integers, for one
        return f"({type(value).__name__}: {_reason(error)})"
