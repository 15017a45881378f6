"""The shipped JSON Schemas: what is written fits them, and they have every key that is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from tests import tools


def closed(schema: Any) -> Any:
    """The same schema without the freedom that later releases need: a key that it does not name is an error."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    document = {key: closed(value) for key, value in schema.items()}
    if document.get("type") == "object" and "properties" in document:
        document.setdefault("additionalProperties", False)
    return document


def shipped(name: str) -> dict[str, Any]:
    """A schema of the package."""
    text = files("mqttscope").joinpath(f"schemas/{name}.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def validator(schema: Any) -> Any:
    """What holds values against a schema; the calling test is skipped without jsonschema."""
    tools.package("jsonschema")
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema)


@cache
def strict(name: str, event: str = "") -> Any:
    """A schema without freedom.

    ``event``: that of its lines alone, which is faster than all of them one after the other, and clearer if it fails.
    """
    schema = closed(shipped(name))
    return validator({**schema, "oneOf": [{"$ref": f"#/$defs/event_{event}"}]} if event else schema)


def fits(name: str, values: Iterable[Any]) -> int:
    """Hold values against a schema; how many there were."""
    listed = list(values)
    for value in listed:
        strict(name, value["event"] if name == "event-line" else "").validate(value)
    return len(listed)


def unnoticed(name: str, document: Any) -> set[str]:
    """The keys of a document that may have another name, and the shipped schema still takes it: ``errors[].offset``.

    Each is tried in the first entry of each list.  What is left has to be keys that are data, or may be missing.
    """
    judge = validator(shipped(name))
    short = _short(document)
    judge.validate(short)
    texts = set()
    for path, holder, key in list(_keys(short, "")):
        value = holder.pop(key)
        holder[f"{key} "] = value
        if judge.is_valid(short):
            texts.add(path)
        del holder[f"{key} "]
        holder[key] = value
    return texts


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items()}
    return [_short(each) for each in value[:1]] if isinstance(value, list) else value


def _keys(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            inner = f"{path}.{key}" if path else key
            yield inner, value, key
            yield from _keys(each, inner)
    elif isinstance(value, list):
        for each in value:
            yield from _keys(each, f"{path}[]")
