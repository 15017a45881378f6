"""Definitions for parts that recur in a schema."""

from __future__ import annotations

import json
from typing import Any

from mqttscope.report.documents import Schema

HOISTED = 160
"""Minimum length in characters of a recurring part that gets its own definition."""


def shared(schema: Schema) -> Schema:
    """The schema with recurring parts as definitions, named by the key of their first occurrence."""
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
    existing: Schema = schema.get("$defs", {})
    definitions: Schema = {}
    used = set(existing)

    def place(part: Any, key: str) -> Any:
        if isinstance(part, list):
            return [place(item, key) for item in part]
        if not isinstance(part, dict):
            return part
        text = json.dumps(part, sort_keys=True)
        if "type" in part and counts.get(text, 0) > 1 and len(text) > HOISTED:
            if text not in names:
                name, number = key, 2
                while name in used:
                    name, number = f"{key}_{number}", number + 1
                used.add(name)
                names[text] = name
                definitions[name] = inside(part, key)
            return {"$ref": f"#/$defs/{names[text]}"}
        return inside(part, key)

    def inside(part: Schema, key: str) -> Schema:
        result: Schema = {}
        for name, value in part.items():
            keys = name == "properties"
            result[name] = {key_: place(value[key_], key_) for key_ in value} if keys else place(value, key)
        return result

    shown = inside({name: value for name, value in schema.items() if name != "$defs"}, "document")
    definitions |= {name: inside(definition, name) for name, definition in existing.items()}
    return {**shown, "$defs": dict(sorted(definitions.items()))} if definitions else shown
