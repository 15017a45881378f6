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
from tests.report.explanations.samples import nodes, report, traces

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
    document = json.loads(traces("json", "undelivered", "plant/#"))

    jsonschema.validate(document, SCHEMA)
    assert document["explanations"] == []
    assert {row["fate"] for row in document["messages"][0]["clients"]} > {"delivered", "unsubscribed"}
    assert document["totals"] is None


def test_the_most_probable_cause_stands_at_the_top() -> None:
    (row,) = json.loads(report("json", "half-open"))["explanations"]

    assert (row["cause"], row["certainty"], row["headline"]) == (
        row["causes"][0]["cause"], row["causes"][0]["certainty"], row["causes"][0]["headline"],
    )  # fmt: skip


def test_the_page_names_every_key_cause_and_fate() -> None:
    words = set(re.findall(r"[a-z_]+", (ROOT / "docs" / "explain.md").read_text("utf-8")))
    keys = set(keys_of(SCHEMA))

    assert keys - words == {"qos", "hex", "length"}  # as everywhere
    assert {str(each) for each in (*Cause, *Fate, *Certainty)} - words == set()


def test_answers_about_edge_nodes_are_of_the_schema() -> None:
    document = json.loads(nodes("json"))

    jsonschema.validate(document, SCHEMA)
    assert [(row["node"], row["question"], row["certainty"]) for row in document["edge_nodes"]] == [
        ("g/e", "offline", "likely"), ("g/e", "rebirth", "likely"), ("g/e", "no_birth", "certain"),
    ]  # fmt: skip
    assert "edge_nodes" not in json.loads(report("json", "half-open"))
