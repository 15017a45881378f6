"""Values of payloads: text, JSON, CBOR and MessagePack, decoded, looked up by path, and formatted for output.

A value consists of Python's types for JSON, bytes, `Pairs`, `TaggedValue`, and the types that CBOR tags stand for.
`simplified` removes secrets and limits the size; `compact` and `pretty` format a value in the diagnostic notation of
CBOR (RFC 8949 section 8); `as_json` converts it to JSON.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from mqttscope.errors import MqttscopeError
from mqttscope.mqtt.view import PAYLOAD_LIMIT, binary, printable, text, utf8
from mqttscope.secrets.forms import SHORTEST, without_tokens
from mqttscope.secrets.names import MIN_DIGITS, looks_secret, secrecy

MAX_JSON_BYTES = 1 << 20
"""Maximum length of a payload that is parsed as JSON."""
MAX_JSON_DEPTH = 1_024
"""Maximum nesting that orjson accepts."""
NOT_JSON = "it is not JSON"
TOO_DEEP = "it is nested deeper than about 1,000 levels, which is not read as JSON"
MAX_STRUCTURED_BYTES = 16_384
"""Maximum length of decoded values: integer keys made to collide would make a dictionary quadratic."""
MAX_DEPTH = 40
"""Maximum depth shown; shared references may even make a value contain itself."""
MAX_ITEMS = 4_000
"""Maximum number of items shown of one value, since shared references can multiply them."""
MAX_DIGITS = 200
"""Maximum number of digits; longer integers are shown by their size."""


class UndecodableError(MqttscopeError):
    """Reason that bytes cannot be shown as requested."""


class Pairs(list[Any]):
    """A map with ordered and possibly repeated keys, as sent."""


@dataclass(frozen=True, slots=True)
class TaggedValue:
    """A value with a tag for its meaning."""

    tag: Any
    value: Any


class OmittedValue:
    """Placeholder for an omitted part of a value."""

    def __str__(self) -> str:
        return "..."


CUT: Final = OmittedValue()


def text_of(data: bytes, *, cut_off: bool) -> str | None:
    """Text of UTF-8 bytes without control characters; ``cut_off``: a character cut by the end is dropped."""
    shown = printable(data)
    if shown is None and cut_off:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return printable(data[: error.start])
    return shown


def from_text(data: bytes) -> str:
    """The text of bytes; `UndecodableError` if they are not UTF-8, or have control characters."""
    shown = text_of(data, cut_off=False)
    if shown is None:
        raise UndecodableError("it is not UTF-8 text, or has control characters")
    return shown


def is_json(data: bytes) -> bool:
    """Whether bytes are JSON text."""
    try:
        orjson.loads(data)
    except (orjson.JSONDecodeError, RecursionError):
        return False
    return True


def from_json(data: bytes) -> Any:
    """The value of JSON text; `UndecodableError` if it is invalid, or longer than `MAX_JSON_BYTES`."""
    if len(data) > MAX_JSON_BYTES:
        raise UndecodableError(f"longer than {MAX_JSON_BYTES} bytes")
    try:
        return orjson.loads(data)
    except (orjson.JSONDecodeError, RecursionError):
        raise UndecodableError(json_problem(data)) from None


def json_problem(data: bytes) -> str:
    """Why bytes that `is_json` rejects have no value: they are not JSON (RFC 8259), or JSON without a value here."""
    beyond = False

    def number(digits: str) -> float:
        nonlocal beyond
        beyond = beyond or math.isinf(float(digits))
        return 0.0

    try:
        json.loads(data.decode(), parse_int=number, parse_float=number, parse_constant=_no_constant)
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        return NOT_JSON
    if beyond:
        return "it is JSON with a number beyond the range of double precision"
    # Since Python 3.12, its own decoder goes deeper than orjson.
    if _depth(data) > MAX_JSON_DEPTH:
        return TOO_DEEP
    return "it is JSON with one half of a surrogate pair in a text, which is not a character"


def _depth(data: bytes) -> int:
    """Nesting of JSON text."""
    depth = deepest = 0
    for token in re.findall(rb'"(?:[^"\\]|\\.)*"|[][{}]', data):
        if token in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in b"]}":
            depth -= 1
    return deepest


def _no_constant(name: str) -> float:
    """Reject NaN and Infinity, which Python accepts although they are not JSON."""
    raise ValueError(name)


def from_cbor(data: bytes) -> Any:
    """The value of CBOR bytes; `UndecodableError` if they are invalid, too long, or cbor2 is not installed."""
    _bounded(data)
    try:
        import cbor2
    except ImportError:
        raise UndecodableError("cbor2 is not installed (pip install cbor2)") from None
    stream = io.BytesIO(data)
    try:
        value = cbor2.CBORDecoder(stream).decode()
    except Exception as error:  # tags make cbor2 call parsers for dates, addresses, patterns: they raise anything
        raise UndecodableError(_reason(error)) from None
    if stream.tell() < len(data):
        raise UndecodableError(f"the value ends at byte {stream.tell()} of {len(data)}")
    return value


def from_msgpack(data: bytes) -> Any:
    """The value of MessagePack bytes; `UndecodableError` if they are invalid, too long, or msgpack is not installed."""
    _bounded(data)
    try:
        import msgpack
    except ImportError:
        raise UndecodableError("msgpack is not installed (pip install msgpack)") from None
    try:
        return msgpack.unpackb(
            data, strict_map_key=False, object_pairs_hook=Pairs, unicode_errors="surrogateescape", timestamp=3
        )
    except Exception as error:
        raise UndecodableError(_reason(error)) from None


def _bounded(data: bytes) -> None:
    if len(data) > MAX_STRUCTURED_BYTES:
        raise UndecodableError(f"longer than {MAX_STRUCTURED_BYTES} bytes")


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:120]


@dataclass(slots=True)
class SimplifiedValue:
    """A value for output."""

    value: Any
    """Made of ``None``, flags, numbers, texts, bytes, lists, `Pairs`, `TaggedValue`, `CUT`, and types for CBOR tags."""
    hidden: bool = False
    """Whether secrets were replaced by asterisks."""
    cut: bool = False
    """Whether something was omitted: levels beyond `MAX_DEPTH`, items beyond `MAX_ITEMS`."""


def simplified(value: Any, *, show_secrets: bool = False) -> SimplifiedValue:
    """A value without its secrets, limited in size, since shared references can multiply it or make it contain itself.

    Secrets are texts, bytes and numbers under a name for secrets, and credentials of a known form.  Asterisks replace
    them.
    """
    result = SimplifiedValue(None)
    result.value = _Simplifier(result, show_secrets=show_secrets).value(value, 0, secret=False)
    return result


class _Simplifier:
    def __init__(self, result: SimplifiedValue, *, show_secrets: bool) -> None:
        self._result = result
        self._show_secrets = show_secrets
        self._left = MAX_ITEMS

    def value(self, value: Any, depth: int, *, secret: bool | None) -> Any:
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int | float):
            return self._number(value, secret=secret)
        if isinstance(value, str):
            return self._text(value, secret=secret)
        if isinstance(value, bytes | bytearray | memoryview):
            return self._bytes(bytes(value), secret=secret)
        if hasattr(value, "code") and hasattr(value, "data"):  # an extension of MessagePack, which is also a tuple
            return TaggedValue(f"ext {value.code}", self._bytes(bytes(value.data), secret=secret))
        pairs = _pairs(value)
        if pairs is not None or isinstance(value, list | tuple | set | frozenset):
            return self._items(value, pairs, depth, secret=secret)
        if hasattr(value, "tag") and hasattr(value, "value"):
            if depth >= MAX_DEPTH:
                return self._cut()
            return TaggedValue(value.tag, self.value(value.value, depth + 1, secret=secret))
        return value

    def _items(self, value: Any, pairs: list[Any] | None, depth: int, *, secret: bool | None) -> Any:
        items: list[Any] = list(value) if pairs is None else pairs
        simple: list[Any] = [] if pairs is None else Pairs()
        if items and depth >= MAX_DEPTH:
            return self._cut()
        # Metrics of Sparkplug B, and many other formats, have a name beside the value.
        named = secret if pairs is None else _secrecy_of_named(pairs, secret)
        columns = [] if pairs is None else _hidden_columns(pairs, secret)
        for item in items:
            self._left -= 1
            if self._left < 0:
                cut = self._cut()
                simple.append(cut if pairs is None else (cut, cut))
                break
            if pairs is None:
                simple.append(self.value(item, depth + 1, secret=secret))
            else:
                key = self.value(item[0], depth + 1, secret=False)
                hides = named if key == "value" else _secrecy(item[0], secret)
                if columns and key == "rows":
                    simple.append((key, [self._row(row, columns, depth + 2, secret) for row in item[1]]))
                else:
                    simple.append((key, self.value(item[1], depth + 1, secret=hides)))
        return simple

    def _row(self, row: Any, columns: list[bool | None], depth: int, outer: bool | None) -> Any:
        """A row of a data set."""
        if not isinstance(row, list):
            return self.value(row, depth, secret=outer)
        self._left -= len(row) + 1
        if self._left < 0:
            return self._cut()
        hides = [*columns, *[outer] * len(row)]
        return [self.value(part, depth + 1, secret=hides[place]) for place, part in enumerate(row)]

    def _cut(self) -> OmittedValue:
        self._result.cut = True
        return CUT

    def _number(self, value: float, *, secret: bool | None) -> float | str:
        # Python refuses to convert very long integers to decimal digits.
        is_long = isinstance(value, int) and value.bit_length() > 1_024
        digits = hex(int(value)) if is_long else str(value)
        hides = looks_secret(digits) if secret is None else secret and sum(map(str.isdigit, digits)) >= MIN_DIGITS
        if self._show_secrets or not hides:
            return value
        self._result.hidden = True
        return "*" * len(digits)

    def _text(self, value: str, *, secret: bool | None) -> str:
        if self._show_secrets or not value:
            return value
        if secret or (secret is None and looks_secret(value)):
            self._result.hidden = True
            return "*" * len(value)
        if len(value) < SHORTEST:
            return value
        data = value.encode("utf-8", "surrogatepass")
        covered = without_tokens(data)
        if covered is data:
            return value
        self._result.hidden = True
        return covered.decode("utf-8", "replace")

    def _bytes(self, value: bytes, *, secret: bool | None) -> bytes:
        if self._show_secrets or not value:
            return value
        hides = looks_secret(value.decode("latin-1")) if secret is None else secret
        covered = b"*" * len(value) if hides else without_tokens(value)
        self._result.hidden = self._result.hidden or covered is not value
        return covered


def _secrecy(key: Any, outer: bool | None) -> bool | None:
    """Whether a key's value is a secret, see `secrecy`."""
    return secrecy(key, outer) if isinstance(key, str) else outer


def _hidden_columns(pairs: list[Any], outer: bool | None) -> list[bool | None]:
    """Whether values are secrets, by the columns of a data set of Sparkplug B; empty for other maps."""
    if [key for key, _ in pairs] != ["columns", "types", "rows"] or not isinstance(pairs[0][1], list):
        return []
    return [_secrecy(name, outer) for name in pairs[0][1]]


def _secrecy_of_named(pairs: list[Any], outer: bool | None) -> bool | None:
    """Whether ``value`` beside ``name`` is a secret; ``None`` if the value decides."""
    for name in (item[1] for item in pairs if item[0] == "name" and isinstance(item[1], str)):
        outer = _secrecy(name, outer)
    return outer


def as_json(value: Any, limit: int = PAYLOAD_LIMIT) -> Any:
    """A value from `simplified`, converted to JSON.

    Bytes are objects as everywhere in JSON Lines, keys are text, and numbers outside JSON are text.  ``limit``: maximum
    bytes of each binary value.
    """
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else _number(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _number(value)
    if isinstance(value, bytes):
        return binary(value, limit)
    if isinstance(value, Pairs):
        return {_key(key): as_json(content, limit) for key, content in value}
    if isinstance(value, list):
        return [as_json(content, limit) for content in value]
    if isinstance(value, TaggedValue):
        return {"tag": as_json(value.tag), "value": as_json(value.value, limit)}
    return utf8(_other(value))


def _key(key: Any) -> str:
    return utf8(key if isinstance(key, str) else compact(key))


def _number(value: Any) -> str:
    return next(part for _, part in _scalar(value, 0, [1]))


def pick(value: Any, path: Sequence[str | int]) -> list[Any]:
    """The values that a path leads to, at most `MAX_ITEMS`; the path enters each item of a list.

    A step is a key of a map, the index of a list item, or the ``name`` of a map in a list.
    """
    ends = [value]
    for step in path:
        ends = [content for holder in ends for content in _step(holder, step)][:MAX_ITEMS]
    return [
        content for end in ends for content in (end if isinstance(end, list) and not isinstance(end, Pairs) else (end,))
    ][:MAX_ITEMS]


def _step(holder: Any, step: str | int) -> Iterator[Any]:
    for _ in range(MAX_DEPTH):
        if not (hasattr(holder, "tag") and hasattr(holder, "value")):
            break
        holder = holder.value
    pairs = _pairs(holder)
    if pairs is not None:
        for key, value in pairs:
            if key == step and not isinstance(key, bool):
                yield value
    elif isinstance(holder, list | tuple):
        if isinstance(step, int):
            if -len(holder) <= step < len(holder):
                yield holder[step]
            return
        for item in holder[:MAX_ITEMS]:
            pairs = _pairs(item)
            if pairs is None:
                continue
            if any(key == "name" and value == step for key, value in pairs):
                yield item
            else:
                yield from (value for key, value in pairs if key == step)


def compact(value: Any) -> str:
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
    """Pieces of text; a piece that begins a line has its depth, others have -1.  ``left`` counts the items down."""
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
        yield -1, str(value) if abs(value) < 10**MAX_DIGITS else f"({value.bit_length()}-bit integer)"
    elif isinstance(value, float):
        yield (
            -1,
            repr(value) if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity"}.get(str(value), "-Infinity"),
        )
    elif isinstance(value, OmittedValue):
        yield -1, "..."
    elif hasattr(value, "tag") and hasattr(value, "value"):
        yield -1, f"{value.tag}("
        if depth >= MAX_DEPTH:
            yield -1, "..."
        else:
            yield from _walk(value.value, depth + 1, left)
        yield -1, ")"
    else:
        yield -1, _other(value)


def _other(value: Any) -> str:
    """Dates, decimals, addresses and other types for tags."""
    try:
        isoformat = getattr(value, "isoformat", None)
        return str(isoformat() if isoformat is not None else value)[:1000]
    except Exception as error:  # str() of a fraction of huge integers, for example
        return f"({type(value).__name__}: {_reason(error)})"
