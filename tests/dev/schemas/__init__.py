"""The shipped JSON Schemas: what is written fits them, and they have every key that is written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from mqttscope.dev.schemas import SCHEMAS


def closed(schema: Any) -> Any:
    """The same schema without the freedom that later releases need: a key that it does not name is an error."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if made.get("type") == "object" and "properties" in made:
        made.setdefault("additionalProperties", False)
    return made


def shipped(name: str) -> dict[str, Any]:
    """A schema of the package."""
    text = files("mqttscope").joinpath(f"schemas/{name}.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


STRICT = {name: Draft202012Validator(closed(shipped(name))) for name in SCHEMAS}
EVENTS = {
    event: Draft202012Validator({**closed(shipped("event-line")), "oneOf": [{"$ref": f"#/$defs/event_{event}"}]})
    for event in (
        "packet", "malformed", "gap", "unparsed", "discarded", "connection_opened", "connection_ending",
        "connection_closed", "capture_error",
    )
}  # fmt: skip
"""The schema of the lines of one event: faster than all of them one after the other, and clearer where it fails."""


def fits(name: str, values: Iterable[Any]) -> int:
    """Hold values against a schema; how many there were."""
    listed = list(values)
    for value in listed:
        judge = EVENTS[value["event"]] if name == "event-line" else STRICT[name]
        judge.validate(value)
    return len(listed)
