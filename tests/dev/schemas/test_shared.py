"""The parts that schemas are made of."""

from __future__ import annotations

import pytest

from tests import tools

tools.package("jsonschema")

from jsonschema import Draft202012Validator

from mqttscope.dev.schemas import SCHEMAS
from mqttscope.dev.schemas.shared import shared
from tests.conftest import ROOT
from tests.dev.schemas import shipped
from tests.each import each


@pytest.mark.long
@each("name", SCHEMAS)
def test_it_is_a_schema(name: str) -> None:
    schema = shipped(name)

    Draft202012Validator.check_schema(schema)
    assert SCHEMAS[name][0] in schema["title"]


def test_parts_that_recur_are_written_once() -> None:
    part = {"type": "object", "properties": {f"key{number}": {"type": "integer"} for number in range(9)}}
    whole = {"type": "object", "properties": {"first": part, "second": {"anyOf": [part, {"type": "null"}]}}}
    document = shared(whole)

    assert document["$defs"] == {"first": part}
    assert document["properties"] == {
        "first": {"$ref": "#/$defs/first"},
        "second": {"anyOf": [{"$ref": "#/$defs/first"}, {"type": "null"}]},
    }


def test_the_documentation_names_each() -> None:
    page = (ROOT / "docs" / "schemas.md").read_text("utf-8")

    assert [name for name in SCHEMAS if f"`{name}.json`" not in page] == []
