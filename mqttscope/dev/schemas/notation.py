"""A short notation for JSON Schema: each name is a schema, or makes one of others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import EnumMeta
from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
BOOL: Schema = {"type": "boolean"}
WHOLE: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
NULL: Schema = {"type": "null"}
HEX: Schema = {"type": "string", "pattern": "^([0-9a-f]{2})*$"}
ANY: Schema = {}
VERSION_1: Schema = {"const": 1, "description": "Version of this interface."}


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these keys; later releases of the same schema may add others."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def each(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def maybe(one: Schema) -> Schema:
    return {"anyOf": [one, NULL]}


def any_of(*those: Schema) -> Schema:
    return {"anyOf": list(those)}


def word(*words: object) -> Schema:
    """One of these words; an enumeration stands for all of its own."""
    listed: list[str] = []
    for one in words:
        listed += map(str, one) if isinstance(one, EnumMeta) else [str(one)]
    return {"enum": list(dict.fromkeys(listed))}


def times(*names: str) -> dict[str, Schema]:
    """Keys of moments: each as text, and in nanoseconds since 1970."""
    return {key: schema for name in names for key, schema in ((name, TEXT), (f"{name}_ns", WHOLE))}


def both(values: Schema) -> Schema:
    return record({"client_to_server": values, "server_to_client": values})


NAME: Schema = any_of(TEXT, record({"length": COUNT, "hex": HEX}))
"""Text of a capture, or the bytes of one that is not UTF-8."""
BINARY: Schema = {
    **record({"length": COUNT}, {"text": TEXT, "hex": HEX, "truncated": BOOL, "redacted": BOOL}),
    "anyOf": [{"required": [key]} for key in ("text", "hex", "redacted")],
}
"""A binary value."""
DIRECTION = word("client_to_server", "server_to_client")
SIDE = word("client", "server")
PROTOCOL = word("3.1", "3.1.1", "5.0")

HOISTED = 160
"""Characters of the shortest part that has a definition of its own where it recurs."""


def shared(schema: Schema) -> Schema:
    """The same schema with parts that recur written once, as definitions by the key that they first stand under."""
    counts: dict[str, int] = {}

    def count(part: Any) -> None:
        if isinstance(part, dict):
            text = json.dumps(part, sort_keys=True)
            counts[text] = counts.get(text, 0) + 1
            if counts[text] > 1:
                return
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            count(inner)

    count(schema)
    names: dict[str, str] = {}
    given: Schema = schema.get("$defs", {})
    definitions: Schema = {}
    taken = set(given)

    def place(part: Any, key: str) -> Any:
        if isinstance(part, list):
            return [place(one, key) for one in part]
        if not isinstance(part, dict):
            return part
        text = json.dumps(part, sort_keys=True)
        if "type" in part and counts.get(text, 0) > 1 and len(text) > HOISTED:
            if text not in names:
                name, number = key, 2
                while name in taken:
                    name, number = f"{key}_{number}", number + 1
                taken.add(name)
                names[text] = name
                definitions[name] = inside(part, key)
            return {"$ref": f"#/$defs/{names[text]}"}
        return inside(part, key)

    def inside(part: Schema, key: str) -> Schema:
        made: Schema = {}
        for name, value in part.items():
            keys = name == "properties"
            made[name] = {one: place(value[one], one) for one in value} if keys else place(value, key)
        return made

    shown = inside({name: value for name, value in schema.items() if name != "$defs"}, "document")
    definitions |= {name: inside(one, name) for name, one in given.items()}
    return {**shown, "$defs": dict(sorted(definitions.items()))} if definitions else shown
