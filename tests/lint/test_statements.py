"""The sentences of the specifications."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from mqttscope.lint.statements import all_statements, statement
from mqttscope.mqtt.constants import ProtocolVersion
from tests.conftest import ROOT

SOURCE = ROOT.parent / "shared" / "spec" / "statements.jsonl"


def test_the_same_number_is_another_sentence_in_another_version() -> None:
    old = statement(ProtocolVersion.V3_1_1, "MQTT-3.1.2-22")
    new = statement(ProtocolVersion.V5, "MQTT-3.1.2-22")

    assert old is not None
    assert new is not None
    assert old.summary != new.summary


def test_every_numbered_statement_is_there() -> None:
    numbered = Counter(one.version for one in all_statements().values() if one.identifier.startswith("MQTT-"))

    assert numbered == {"5.0": 251, "3.1.1": 141}


def test_what_cannot_be_seen_says_so() -> None:
    assert {one.visible for one in all_statements().values()} == {
        "packet", "connection", "session", "broker", "indirect", "no",
    }  # fmt: skip
    assert all(one.summary and one.section for one in all_statements().values())


@pytest.mark.skipif(not SOURCE.is_file(), reason="the list of statements is not beside the project")
def test_they_are_those_of_the_list() -> None:
    rows = [json.loads(line) for line in SOURCE.read_text("utf-8").splitlines()]
    versions = ("3.1", "3.1.1", "5.0")

    assert {(row["version"], row["id"]) for row in rows if row["version"] in versions} == {
        (one.version, one.identifier) for one in all_statements().values()
    }
