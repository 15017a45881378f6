"""The JSON document, against its schema."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from jsonschema import validators

from mqttscope.explain.fates import Fate
from mqttscope.explain.model import Cause, Certainty
from tests.conftest import ROOT
from tests.report.explanations.samples import report, traces

TEXT, WHOLE = {"type": "string"}, {"type": "integer", "minimum": 0}


def maybe(one: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [one, {"type": "null"}]}


def each(one: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": one}


def closed(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": sorted(properties), "additionalProperties": False,
    }  # fmt: skip


EVIDENCE = closed(text=TEXT, frame=maybe(WHOLE), timestamp_ns=maybe({"type": "integer"}))
CAUSE = {"enum": [str(one) for one in Cause]}
CERTAINTY = {"enum": [str(one) for one in Certainty]}
BROKEN = closed(
    rule=TEXT, slug=TEXT, by={"enum": ["client", "server"]}, statements=each(TEXT), message=TEXT, confidence=TEXT,
    frame=WHOLE, timestamp_ns=WHOLE,
)  # fmt: skip
CANDIDATE = closed(
    cause=CAUSE, certainty=CERTAINTY, headline=TEXT, reason_code=maybe(WHOLE), **{"for": each(EVIDENCE)},
    against=each(EVIDENCE), broken=each(BROKEN), advice=each(TEXT),
)  # fmt: skip
MOMENT = closed(timestamp_ns=WHOLE, frame=WHOLE, by=maybe({"enum": ["client", "server"]}), text=TEXT)
EXPLANATION = closed(
    connection=WHOLE, capture=TEXT, client=TEXT, server=TEXT, client_identifier=maybe(TEXT), version=TEXT,
    version_known={"type": "boolean"}, transport=TEXT, opened_ns=WHOLE, opened_frame=WHOLE, ended_ns=WHOLE,
    ended_frame=WHOLE, ended_by=maybe({"enum": ["client", "server"]}), ended_how=TEXT, cause=CAUSE,
    certainty=CERTAINTY, headline=TEXT, reason_code=maybe(WHOLE), causes={**each(CANDIDATE), "minItems": 1},
    timeline=each(MOMENT), left_out=WHOLE, afterwards=each(EVIDENCE), notes=each(TEXT),
)  # fmt: skip
TOTALS = closed(
    connections=WHOLE, normal=WHOLE, open=WHOLE, unreadable=WHOLE,
    causes={"type": "object", "additionalProperties": WHOLE}, dropped={"type": "object", "additionalProperties": WHOLE},
)  # fmt: skip
PUBLISHED = closed(
    client=TEXT, connection=WHOLE, frame=WHOLE, timestamp_ns=WHOLE, qos=WHOLE, retain={"type": "boolean"},
    reason_code=maybe(WHOLE),
)  # fmt: skip
CLIENT = closed(
    client=TEXT, connection=maybe(WHOLE), fate={"enum": [str(one) for one in Fate]}, text=TEXT, frame=maybe(WHOLE),
    timestamp_ns=maybe(WHOLE), advice=each(TEXT),
)  # fmt: skip
MESSAGE = closed(topic=TEXT, summary=TEXT, published=maybe(PUBLISHED), evidence=each(EVIDENCE), clients=each(CLIENT))
SCHEMA = closed(
    schema={"const": 1}, explanations=each(EXPLANATION), totals=maybe(TOTALS), messages=each(MESSAGE),
    remarks=each(TEXT),
)  # fmt: skip

NAMES = sorted(path.parent.name for path in (ROOT / "captures").glob("*/about.toml"))


VALIDATOR = validators.validator_for(SCHEMA)(SCHEMA)


def test_the_schema_is_one() -> None:
    VALIDATOR.check_schema(SCHEMA)


@pytest.mark.parametrize("name", NAMES)
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
    words = set(re.findall(r"[a-z_]+", (ROOT / "docs" / "explain.md").read_text()))
    tables = (EXPLANATION, CANDIDATE, BROKEN, MOMENT, TOTALS, MESSAGE, CLIENT, EVIDENCE, SCHEMA)
    keys = {key for table in tables for key in table["properties"]}

    assert keys - words == set()
    assert {str(one) for one in (*Cause, *Fate, *Certainty)} - words == set()
