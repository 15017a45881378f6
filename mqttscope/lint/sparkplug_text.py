"""Sparkplug B payloads as text, for examples: ``spb(seq=0 bdSeq:Int64=3 T#1:Int32=-5 "A B":String=x)``.

Words before the metrics are fields of the payload; ``compressed=GZIP`` or ``DEFLATE`` wraps it.  A metric is its name,
``#`` and its alias, ``:`` and its data type (a name or a number), ``=`` and its value, and further fields as JSON:
``T:Int32=5{"timestamp":null}``.  Payload and metrics have the timestamp `TIMESTAMP` unless one is named; ``null``, or
``timestamp=-`` for the payload, leaves it out.  ``state(online=true timestamp=5)`` is the JSON of a STATE.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any, Final

from mqttscope.payloads.sparkplug_wire import COMPRESSED, DATATYPES, encode_message, value_field

TIMESTAMP: Final = 1_700_000_000_000
"""Milliseconds since 1970 of payloads and metrics that name no timestamp."""
_QUOTED = r'"(?:[^"\\]|\\.)*"'
TOKEN: Final = rf'(?:spb|state)\((?:{_QUOTED}|[^")])*\)'
"""A payload within a line of a conversation."""
_WORD = re.compile(rf"(?:{_QUOTED}|[^\s\"])+")
_PAYLOAD_FIELD = re.compile(r"(timestamp|seq|uuid|compressed)=(.+)")
_METRIC = re.compile(
    rf"(?P<name>{_QUOTED}|[\w/.-]*)(?:#(?P<alias>\d+))?(?::(?P<datatype>\w+))?(?:=(?P<value>{_QUOTED}|[^\s\"{{]+))?"
    r"(?P<more>\{.*\})?"
)


def parse_payload(word: str) -> bytes:
    """The bytes of ``spb(...)`` or ``state(...)``; `ValueError` if the text is wrong."""
    if word.startswith("state("):
        pairs = (text.partition("=")[::2] for text in _WORD.findall(word[len("state(") : -1]))
        state = {"timestamp": TIMESTAMP} | {name: _literal(value) for name, value in pairs}
        return json.dumps({name: value for name, value in state.items() if value != "-"}).encode()
    payload: dict[str, Any] = {"timestamp": TIMESTAMP}
    metrics: list[dict[str, Any]] = []
    compressed = ""
    for text in _words(word[len("spb(") : -1]):
        field = _PAYLOAD_FIELD.fullmatch(text)
        if field is None:
            metrics.append(_metric(text))
        elif field[1] == "compressed":
            compressed = field[2]
        elif field[2] == "-":
            payload.pop(field[1], None)
        else:
            payload[field[1]] = field[2] if field[1] == "uuid" else int(field[2])
    raw = encode_message({**payload, "metrics": metrics})
    if not compressed:
        return raw
    body = gzip.compress(raw, mtime=0) if compressed == "GZIP" else zlib.compress(raw)
    algorithm = {"name": "algorithm", "datatype": DATATYPES.index("String"), "string_value": compressed}
    return encode_message({"uuid": COMPRESSED, "metrics": [algorithm], "body": body})


def _words(text: str) -> Iterator[str]:
    """The words of a payload; JSON may have spaces and lines."""
    joined = ""
    for word in _WORD.findall(text):
        joined += word
        if joined.count("{") == joined.count("}"):
            yield joined
            joined = ""
    if joined:
        raise ValueError(f"a brace is missing in {joined!r}")


def _metric(text: str) -> dict[str, Any]:
    match = _METRIC.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a metric, such as T#1:Int32=5")
    metric: dict[str, Any] = {"timestamp": TIMESTAMP}
    if match["name"]:
        metric["name"] = json.loads(match["name"]) if match["name"][0] == '"' else match["name"]
    if match["alias"]:
        metric["alias"] = int(match["alias"])
    name, value = match["datatype"], match["value"]
    if name is not None:
        if not name.isdigit() and name not in DATATYPES:
            raise ValueError(f"{name!r} is not a data type: {', '.join(DATATYPES)}")
        metric["datatype"] = int(name) if name.isdigit() else DATATYPES.index(name)
    if value is not None:
        read = _literal(value)
        field = value_field(metric.get("datatype", 0)) or _field_of(read)
        if isinstance(read, str) and field != "string_value":
            raise ValueError(f"{value!r} is not a value of the data type {name}")
        metric[field] = value if field == "string_value" and not isinstance(read, str) else read
    metric |= json.loads(match["more"]) if match["more"] else {}
    return {field: content for field, content in metric.items() if content is not None}


def _literal(text: str) -> Any:
    """A JSON value, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _field_of(value: Any) -> str:
    """The field for a value without a data type."""
    if isinstance(value, bool):
        return "boolean_value"
    if isinstance(value, int):
        return "int_value" if -(1 << 31) <= value < 1 << 32 else "long_value"
    return "double_value" if isinstance(value, float) else "string_value"
