"""The sentences of the specifications."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.statements import STATES, all_statements, coverage, statement, totals
from mqttscope.mqtt.constants import ProtocolVersion
from tests.conftest import ROOT

ROWS = {row.statement.key: row for row in coverage()}


def test_every_statement_of_both_versions_is_there_once() -> None:
    wanted = [key for key, one in all_statements().items() if one.version in ("5.0", "3.1.1")]

    assert len(coverage()) == len(ROWS) == len(wanted)
    assert set(ROWS) == set(wanted)
    assert [row.statement.version for row in coverage()] == sorted((key.split()[0] for key in wanted), reverse=True)


def test_a_statement_names_the_rules_that_check_it() -> None:
    assert "ENC101" in ROWS["5.0 MQTT-1.5.4-1"].rules
    assert ROWS["5.0 MQTT-1.5.4-1"].state == "checked"
    assert "CON212" in ROWS["5.0 MQTT-3.1.0-2"].partly


def test_the_same_identifier_means_something_else_in_another_version() -> None:
    assert ROWS["5.0 MQTT-3.2.2-11"].rules != ROWS["3.1.1 MQTT-3.1.0-1"].rules
    assert coverage(["3.1"])[0].statement.version == "3.1"


def test_a_statement_without_rules_says_why() -> None:
    for row in ROWS.values():
        assert row.state in STATES
        assert bool(row.why) == (row.state not in ("checked", "partly"))
        if row.state == "planned":
            assert row.statement.planned not in all_rules()
            assert f"{row.statement.planned}" in row.why
        if row.state == "invisible":
            assert row.statement.visible == "no"


def test_totals_count_every_statement() -> None:
    found = totals(coverage())

    assert list(found) == ["5.0", "3.1.1"]
    assert sum(counts.total() for counts in found.values()) == len(ROWS)


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
