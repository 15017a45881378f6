"""Which statement is checked by which rule."""

from __future__ import annotations

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.coverage import STATES, coverage, totals
from mqttscope.lint.statements import all_statements

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
