"""Parts that recur in a schema, written once."""

from __future__ import annotations

import json
from typing import Any

from mqttscope.report.documents import Schema

HOISTED = 160
"""Characters of the shortest part that has a definition of its own where it recurs."""


def shared(schema: Schema) -> Schema:
    """The schema with parts that recur written once, as definitions by the key that they are under first."""
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
