"""Output documents, declared once: keys of objects, types of values, and their sources in the program.

A `ValueType` is the JSON Schema of a value and creates the value.  `record` combines types to the type of an object:

    PLACE = record({"field": TEXT, "offset": maybe(COUNT), "capture": NAME.at("connection.capture")})
    PLACE.view(finding)  # {"field": ..., "offset": ..., "capture": ...}

A key is read from the attribute of that name unless `ValueType.at` names another one, or a function.  `dev.schemas`
generates the shipped schemas (``mqttscope/schemas``) from these declarations, so a document always matches its schema.
Schemas allow further keys: keys are added within schema 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import EnumMeta
from operator import attrgetter
from typing import Any

from mqttscope.mqtt.view import text, utf8
from mqttscope.report.base import Clock
from mqttscope.session.capture_time import captured

Schema = dict[str, Any]
Make = Callable[[Any], Any]


def itself(value: Any) -> Any:
    """The value itself; as a source (`ValueType.at`) the object that contains the key."""
    return value


class ValueType(Schema):
    """The JSON Schema of a value, and the function that creates the value."""

    def __init__(self, schema: Schema, view: Make = itself, source: Make | None = None) -> None:
        """``view`` creates the JSON value; ``source`` reads its input from the object of a key."""
        super().__init__(schema)
        self.view = view
        self.source = source

    def at(self, source: str | Make) -> ValueType:
        """This type, read from another source: the path of an attribute, or a function of the object."""
        return ValueType(self, self.view, attrgetter(source) if isinstance(source, str) else source)


SCHEMA = 1
TEXT = ValueType({"type": "string"})
ESCAPED = ValueType(TEXT, utf8)
"""Text; bytes that are not UTF-8 are escaped."""
BOOL = ValueType({"type": "boolean"})
WHOLE = ValueType({"type": "integer"})
COUNT = ValueType({"type": "integer", "minimum": 0})
NUMBER = ValueType({"type": "number"})
SECONDS = ValueType(NUMBER, lambda seconds: round(seconds, 6))
TIME = ValueType(WHOLE, captured)
"""Nanoseconds since 1970, as captured."""
MOMENT = ValueType(TEXT, Clock().iso)
NULL: Schema = {"type": "null"}
HEX = ValueType({"type": "string", "pattern": "^([0-9a-f]{2})*$"}, bytes.hex)
DIGITS = ValueType(HEX)
"""Hexadecimal digits as text."""
ANY = ValueType({})


def constant(value: Any) -> ValueType:
    """A constant value."""
    return ValueType({"const": value}, source=lambda _: value)


VERSION_1 = ValueType({"const": SCHEMA, "description": "Version of this interface."}, source=lambda _: SCHEMA)


def _typed(schema: Schema) -> ValueType:
    return schema if isinstance(schema, ValueType) else ValueType(schema)


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> ValueType:
    """An object with these keys; optional keys are left out if the value is ``None``."""
    properties = {**required, **(optional or {})}
    types = {name: _typed(schema) for name, schema in properties.items()}
    keys = [(name, kind.source or attrgetter(name), kind.view) for name, kind in types.items()]
    # Attributes are read together: reading one by one took a third of the time, and so did calls of identity functions.
    paths = {name: find.__reduce__()[1][0] for name, find, _ in keys[: len(required)] if isinstance(find, attrgetter)}
    read = attrgetter(*paths.values()) if len(paths) > 1 else None
    together = tuple(paths) if read is not None else ()
    others = [(name, find) for name, find, _ in keys[: len(required)] if name not in together]
    empty = dict.fromkeys(required)
    changed = [(name, make) for name, _, make in keys[: len(required)] if make is not itself]
    sometimes = keys[len(required) :]

    def view(value: Any) -> Schema:
        shown: Schema = empty.copy()
        if read is not None:
            shown.update(zip(together, read(value), strict=True))
        for name, find in others:
            shown[name] = find(value)
        for name, make in changed:
            shown[name] = make(shown[name])
        for name, find, make in sometimes:
            value_ = find(value)
            if value_ is not None:
                shown[name] = make(value_)
        return shown

    return ValueType({"type": "object", "properties": properties, "required": list(required)}, view)


def merged(*parts: tuple[Mapping[str, Schema], Make]) -> ValueType:
    """An object with the keys of several parts, each read from the result of a function of the value."""
    records = [(record(keys), find) for keys, find in parts]
    schema = record({name: kind for keys, _ in parts for name, kind in keys.items()})

    def view(value: Any) -> Schema:
        shown: Schema = {}
        for part, find in records:
            shown |= part.view(find(value))
        return shown

    return ValueType(schema, view)


def reordered(kind: ValueType, *first: str) -> ValueType:
    """An object with certain keys before the others in its schema."""
    names = dict.fromkeys((*first, *kind["properties"]))
    properties = {name: kind["properties"][name] for name in names}
    return ValueType(
        {**kind, "properties": properties, "required": [n for n in names if n in kind["required"]]}, kind.view
    )


def mapping(values: Schema) -> ValueType:
    """An object with data as keys."""
    make = _typed(values).view
    schema = {"type": "object", "additionalProperties": values}
    return ValueType(schema, lambda counts_: {name: make(value) for name, value in counts_.items()})


def by_name(values: Schema) -> ValueType:
    """A mapping sorted by key."""
    kind = mapping(values)
    return ValueType(kind, lambda counts_: kind.view(dict(sorted(counts_.items()))))


def counts(*names: str) -> ValueType:
    """Counts by name, 0 for names without a count."""
    return ValueType(record(dict.fromkeys(names, COUNT)), lambda counted: {name: counted[name] for name in names})


def each(items: Schema) -> ValueType:
    """A list; `ValueType.at` selects the part of each item that is shown."""
    kind = _typed(items)
    find, make = kind.source or itself, kind.view
    schema = {"type": "array", "items": items}
    if find is make is itself:
        return ValueType(schema, list)
    return ValueType(schema, lambda values: [make(find(value)) for value in values])


def some(items: Schema) -> ValueType:
    """A list with at least one item."""
    kind = each(items)
    return ValueType({**kind, "minItems": 1}, kind.view)


def rows(name: str, kind: ValueType, number: str) -> ValueType:
    """Counts, highest first: an object for each with its name and number."""
    schema = each(record({name: kind, number: COUNT}))
    return ValueType(schema, lambda counted: [{name: kind.view(item), number: n} for item, n in counted.most_common()])


def maybe(schema_: Schema) -> ValueType:
    """This type, or ``null``."""
    kind = _typed(schema_)
    schema, make = {"anyOf": [schema_, NULL]}, kind.view
    if make is itself:
        return ValueType(schema, itself, kind.source)
    return ValueType(schema, lambda value: None if value is None else make(value), kind.source)


def unless_empty(schema_: Schema) -> ValueType:
    """This type, or ``null`` if the value is empty."""
    kind = maybe(schema_)
    return ValueType(kind, lambda value: kind.view(value or None), kind.source)


def any_of(*those: Schema) -> ValueType:
    return ValueType({"anyOf": list(those)})


def word(*words: object) -> ValueType:
    """One of these words; an enumeration contributes all its values."""
    listed: list[str] = []
    for option in words:
        listed += map(str, option) if isinstance(option, EnumMeta) else [str(option)]
    plain = all(type(option) is str for option in words)
    return ValueType({"enum": list(dict.fromkeys(listed))}, itself if plain else str)


def times(*names: str) -> dict[str, ValueType]:
    """Keys of times: each as text, and in nanoseconds since 1970."""
    return {key: kind for name in names for key, kind in ((name, MOMENT.at(f"{name}_ns")), (f"{name}_ns", TIME))}


def both(values: ValueType) -> ValueType:
    """A pair of values by direction."""
    schema = record({"client_to_server": values, "server_to_client": values})
    make = values.view
    if make is itself:
        return ValueType(schema, lambda pair: {"client_to_server": pair[0], "server_to_client": pair[1]})
    return ValueType(schema, lambda pair: {"client_to_server": make(pair[0]), "server_to_client": make(pair[1])})


NAME = ValueType(any_of(TEXT, record({"length": COUNT, "hex": HEX})), text)
"""Captured text, or its bytes if it is not UTF-8."""
BINARY: Schema = {
    **record({"length": COUNT}, {"text": TEXT, "hex": HEX, "truncated": BOOL, "redacted": BOOL}),
    "anyOf": [{"required": [key]} for key in ("text", "hex", "redacted")],
}
DIRECTION = word("client_to_server", "server_to_client")
SIDE = word("client", "server")
PROTOCOL = word("3.1", "3.1.1", "5.0")
TRANSPORT = word("tcp", "websocket", "tls")
CAPTURE_ERROR = record({"capture": NAME, "message": TEXT, "offset": maybe(WHOLE), "frames": COUNT})
PACKET = ValueType(
    {"anyOf": [{"$ref": f"#/$defs/event_{name}"} for name in ("packet", "malformed", "gap", "unparsed")]}
)
"""A packet within another document, as ``inspect`` writes it, defined in `dev.schemas`."""
