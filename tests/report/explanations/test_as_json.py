"""The JSON document, against its schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests import tools

tools.package("jsonschema")

import jsonschema
from jsonschema import validators

from mqttscope.explain.fates import Fate
from mqttscope.explain.model import Cause, Certainty
from tests.conftest import ROOT
from tests.dev.schemas import closed, shipped
from tests.each import some
from tests.report.explanations.samples import report, traces

SCHEMA = closed(shipped("explanations"))

NAMES = sorted(path.parent.name for path in (ROOT / "captures").glob("*/about.toml"))


def keys_of(schema: Any) -> Iterator[str]:
    """All keys of objects in a schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from keys_of(inner)


VALIDATOR = validators.validator_for(SCHEMA)(SCHEMA)


@pytest.mark.parametrize("name", some(NAMES))
def test_every_document_is_of_the_schema(name: str) -> None:
    VALIDATOR.validate(json.loads(report("json", name, every=True)))


def test_messages_are_of_the_schema() -> None:
    made = json.loads(traces("json", "undelivered", "plant/#"))

    jsonschema.validate(made, SCHEMA)
    assert made["explanations"] == []
    assert {one["fate"] for one in made["messages"][0]["clients"]} > {"delivered", "unsubscribed"}
    assert made["totals"] is None


def test_the_most_probable_cause_stands_at_the_top() -> None:
    (one,) = json.loads(report("json", "half-open"))["explanations"]

    assert (one["cause"], one["certainty"], one["headline"]) == (
        one["causes"][0]["cause"], one["causes"][0]["certainty"], one["causes"][0]["headline"],
    )  # fmt: skip


def test_the_page_names_every_key_cause_and_fate() -> None:
    words = set(re.findall(r"[a-z_]+", (ROOT / "docs" / "explain.md").read_text("utf-8")))
    keys = set(keys_of(SCHEMA))

    assert keys - words == {"qos", "retain", "hex", "length"}  # as everywhere
    assert {str(one) for one in (*Cause, *Fate, *Certainty)} - words == set()
