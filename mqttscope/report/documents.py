"""Output documents, declared once: the keys of an object, what each value is, and where the program has it.

A `ValueType` is the JSON Schema of a value and makes the value.  `record` puts types together to that of an object:

    PLACE = record({"field": TEXT, "offset": maybe(COUNT), "capture": NAME.at("connection.capture")})
    PLACE.view(finding)  # {"field": ..., "offset": ..., "capture": ...}

A key is read from the attribute of that name unless `ValueType.at` names another one, or a function.  `dev.schemas`
generates the shipped schemas (``mqttscope/schemas``) from these declarations, so that a document and its schema cannot
differ.  Schemas leave open which further keys an object has: within schema 1 keys are added.
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
    """The value; as the source of a key (`ValueType.at`) the object that the key is of."""
    return value


class ValueType(Schema):
    """The JSON Schema of a value, and how the value is made."""

    def __init__(self, schema: Schema, view: Make = itself, source: Make | None = None) -> None:
        """``view`` makes the JSON value of what the program has, ``source`` finds that in the object of a key."""
        super().__init__(schema)
        self.view = view
        self.source = source

    def at(self, source: str | Make) -> ValueType:
        """The same kind of value at another place: the path of an attribute, or a function of the object."""
        return ValueType(self, self.view, attrgetter(source) if isinstance(source, str) else source)


SCHEMA = 1
TEXT = ValueType({"type": "string"})
ESCAPED = ValueType(TEXT, utf8)
"""Text in which bytes that are not UTF-8 are escapes."""
BOOL = ValueType({"type": "boolean"})
WHOLE = ValueType({"type": "integer"})
COUNT = ValueType({"type": "integer", "minimum": 0})
NUMBER = ValueType({"type": "number"})
SECONDS = ValueType(NUMBER, lambda seconds: round(seconds, 6))
TIME = ValueType(WHOLE, captured)
"""Nanoseconds since 1970, as the capture has them."""
MOMENT = ValueType(TEXT, Clock().iso)
NULL: Schema = {"type": "null"}
HEX = ValueType({"type": "string", "pattern": "^([0-9a-f]{2})*$"}, bytes.hex)
DIGITS = ValueType(HEX)
"""Hexadecimal digits that are text already."""
ANY = ValueType({})


def constant(value: Any) -> ValueType:
    """Always the same value."""
    return ValueType({"const": value}, source=lambda _: value)


VERSION_1 = ValueType({"const": SCHEMA, "description": "Version of this interface."}, source=lambda _: SCHEMA)


def _typed(schema: Schema) -> ValueType:
    return schema if isinstance(schema, ValueType) else ValueType(schema)


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> ValueType:
    """An object with these keys; optional ones are left out where the value is ``None``."""
    properties = {**required, **(optional or {})}
    types = {name: _typed(schema) for name, schema in properties.items()}
    keys = [(name, kind.source or attrgetter(name), kind.view) for name, kind in types.items()]
    # Attributes are read together: one by one took a third of the time, and so did calls of what changes nothing.
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
            found = find(value)
            if found is not None:
                shown[name] = make(found)
        return shown

    return ValueType({"type": "object", "properties": properties, "required": list(required)}, view)


def merged(*parts: tuple[Mapping[str, Schema], Make]) -> ValueType:
    """An object with the keys of several parts, each read from what a function makes of the value."""
    records = [(record(keys), find) for keys, find in parts]
    schema = record({name: kind for keys, _ in parts for name, kind in keys.items()})

    def view(value: Any) -> Schema:
        shown: Schema = {}
        for part, find in records:
            shown |= part.view(find(value))
        return shown

    return ValueType(schema, view)


def reordered(kind: ValueType, *first: str) -> ValueType:
    """An object whose schema has some keys before the others."""
    names = dict.fromkeys((*first, *kind["properties"]))
    properties = {name: kind["properties"][name] for name in names}
    return ValueType(
        {**kind, "properties": properties, "required": [n for n in names if n in kind["required"]]}, kind.view
    )


def mapping(values: Schema) -> ValueType:
    """An object whose keys are data."""
    make = _typed(values).view
    schema = {"type": "object", "additionalProperties": values}
    return ValueType(schema, lambda found: {name: make(value) for name, value in found.items()})


def by_name(values: Schema) -> ValueType:
    """A mapping in the order of its keys."""
    kind = mapping(values)
    return ValueType(kind, lambda found: kind.view(dict(sorted(found.items()))))


def counts(*names: str) -> ValueType:
    """Counts by name, 0 for those that were not counted."""
    return ValueType(record(dict.fromkeys(names, COUNT)), lambda counted: {name: counted[name] for name in names})


def each(items: Schema) -> ValueType:
    """A list; what is shown of each item may be in one of its attributes (`ValueType.at`)."""
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
    """What was counted, most first: an object for each, with what it is and how often it was."""
    schema = each(record({name: kind, number: COUNT}))
    return ValueType(schema, lambda counted: [{name: kind.view(one), number: n} for one, n in counted.most_common()])


def maybe(one: Schema) -> ValueType:
    """This kind of value, or ``null``."""
    kind = _typed(one)
    schema, make = {"anyOf": [one, NULL]}, kind.view
    if make is itself:
        return ValueType(schema, itself, kind.source)
    return ValueType(schema, lambda value: None if value is None else make(value), kind.source)


def unless_empty(one: Schema) -> ValueType:
    """This kind of value, or ``null`` where it is empty."""
    kind = maybe(one)
    return ValueType(kind, lambda value: kind.view(value or None), kind.source)


def any_of(*those: Schema) -> ValueType:
    return ValueType({"anyOf": list(those)})


def word(*words: object) -> ValueType:
    """One of these words; an enumeration stands for all of its own."""
    listed: list[str] = []
    for one in words:
        listed += map(str, one) if isinstance(one, EnumMeta) else [str(one)]
    plain = all(type(one) is str for one in words)
    return ValueType({"enum": list(dict.fromkeys(listed))}, itself if plain else str)


def times(*names: str) -> dict[str, ValueType]:
    """Keys of moments: each as text, and in nanoseconds since 1970."""
    return {key: kind for name in names for key, kind in ((name, MOMENT.at(f"{name}_ns")), (f"{name}_ns", TIME))}


def both(values: ValueType) -> ValueType:
    """A pair of values by direction."""
    schema = record({"client_to_server": values, "server_to_client": values})
    make = values.view
    if make is itself:
        return ValueType(schema, lambda pair: {"client_to_server": pair[0], "server_to_client": pair[1]})
    return ValueType(schema, lambda pair: {"client_to_server": make(pair[0]), "server_to_client": make(pair[1])})


NAME = ValueType(any_of(TEXT, record({"length": COUNT, "hex": HEX})), text)
"""Text of a capture, or the bytes of one that is not UTF-8."""
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
"""A packet within another document, as ``inspect`` writes it: `dev.schemas` has these definitions."""
