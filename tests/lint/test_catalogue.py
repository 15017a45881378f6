"""Laws that hold for every rule, the selection of rules, and the statements of the specifications."""

from __future__ import annotations

import csv
import inspect
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from mqttscope.lint.catalogue import (
    STATES,
    VERSIONS,
    UnknownRuleError,
    all_rules,
    all_statements,
    coverage,
    expand,
    find,
    select,
    statement,
    totals,
)
from mqttscope.lint.rule import SPARKPLUG, Rule
from mqttscope.mqtt.constants import MalformedReason, ProtocolVersion
from tests import corpora
from tests.each import each
from tests.report.findings.samples import real

RULES = all_rules()
each_rule = each("rule", RULES.values(), ids=RULES)


@each_rule
def test_the_docstring_says_what_why_and_what_instead(rule: type[Rule]) -> None:
    what, *why, instead = rule.paragraphs()

    assert re.fullmatch(r"[^.]+(\.\d[^.]*)*\.", what), "one sentence that ends in a full stop"
    assert len(what) <= 110
    assert why, "a paragraph that says why"
    assert instead.startswith("Instead, ")


@each_rule
def test_a_rule_has_examples_and_says_what_it_looks_at(rule: type[Rule]) -> None:
    assert rule.good
    assert rule.bad
    looks = [
        name
        for name in ("check", "check_damaged", "check_foreign", "check_unparsed", "check_opened", "check_close")
        if rule.implements(name)
    ]
    assert looks or rule.malformed or rule.implements("check_violation")
    assert ("check" in looks) == bool(rule.looks_at)
    assert rule.versions


def family(rule: type[Rule]) -> list[type[Rule]]:
    """The rules of the file of a rule, in the order of the file."""
    return sorted(
        (other for other in RULES.values() if other.__module__ == rule.__module__),
        key=lambda other: inspect.getsourcelines(other)[1],
    )


@each_rule
def test_the_class_is_named_after_the_rule(rule: type[Rule]) -> None:
    assert rule.__name__.lower() == rule.slug.replace("-", "")
    assert re.fullmatch(r"[A-Z]{3}[1-5]\d\d", rule.code)
    assert rule.__module__.startswith("mqttscope.lint.rules.")


@each("rule", [rule for rule in RULES.values() if len(family(rule)) == 1], ids=lambda rule: str(rule.code))
def test_the_file_of_one_rule_is_named_after_it(rule: type[Rule]) -> None:
    assert Path(inspect.getfile(rule)).stem.replace("_", "-") == rule.slug


def test_rules_in_one_file_are_a_family() -> None:
    """They have a base of their own, and their file names the code of each: alone, or as an end of ``to``."""
    families = {rule.__module__: family(rule) for rule in RULES.values() if len(family(rule)) > 1}

    assert len(families) > 10
    for module, rules in families.items():
        codes, _, what = (inspect.getdoc(sys.modules[module]) or "").partition(": ")
        assert named(codes) == sorted(rule.code for rule in rules), module
        assert what.endswith("."), module
        assert set.intersection(*({*rule.__mro__} for rule in rules)) - {Rule, object}, module


def named(codes: str) -> list[str]:
    """Codes in words: ``SUB101, SUB105 to SUB109``."""
    listed: list[str] = []
    for part in codes.split(", "):
        first, _, last = part.partition(" to ")
        numbers = range(int(first[3:]), int((last or first)[3:]) + 1)
        listed += (f"{first[:3]}{number}" for number in numbers)
    return sorted(listed)


@each_rule
def test_every_statement_exists_in_the_version_it_is_cited_for(rule: type[Rule]) -> None:
    for version, rows in rule.statements.items():
        assert version in (*rule.versions, SPARKPLUG)
        for identifier in rows:
            assert statement(version, identifier) is not None, (version.text, identifier)
    for version, identifiers in rule.also.items():
        for identifier in identifiers:
            assert statement(version, identifier) is not None, (version.text, identifier)


def test_every_reason_of_the_decoder_is_explained_by_exactly_one_rule() -> None:
    owners: dict[MalformedReason, list[str]] = {reason: [] for reason in MalformedReason}
    for rule in RULES.values():
        for reason in rule.malformed:
            owners[reason].append(rule.code)

    assert {reason: codes for reason, codes in owners.items() if len(codes) != 1} == {}


def table(name: str) -> list[dict[str, str]]:
    """The rows of a table of tests/data, which was written apart from the rules."""
    with (corpora.DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


CATALOGUE = table("rules.tsv")


def test_the_catalogue_has_every_rule_once() -> None:
    assert sorted(row["code"] for row in CATALOGUE) == sorted(RULES)
    for rule in RULES.values():
        titles = [conversation.title for conversation in (*rule.good, *rule.bad)]
        assert len(set(titles)) == len(titles), rule.code


@each("row", CATALOGUE, ids=lambda row: row["code"])
def test_a_rule_is_as_the_catalogue_has_it(row: dict[str, str]) -> None:
    rule = RULES[row["code"]]

    assert (rule.slug, rule.scope) == (row["slug"], row["scope"])
    assert (rule.severity, rule.confidence) == (row["severity"], row["confidence"])
    assert [version.text for version in rule.versions] == row["versions"].split()
    cited: dict[str, set[str]] = {specification.text: set() for specification in (*ProtocolVersion, SPARKPLUG)}
    for statements in (rule.statements, rule.also):
        for version, identifiers in statements.items():
            cited[version.text].update(identifiers)
    assert cited == {version: set(row[version].split()) for version in cited}


def test_selection_goes_by_prefix_and_the_longer_name_decides() -> None:
    assert {code[:3] for code in select(["ENC"])} == {"ENC"}
    assert "PUB209" not in select(["PUB"], ignored=["PUB209"])
    assert "PUB209" in select(["PUB209"], ignored=["PUB"])
    assert not any(rule.is_practice() for rule in select().values())
    assert set(select(["ALL"])) == set(RULES)


def test_a_slug_names_its_rule_and_an_unknown_name_gets_a_suggestion() -> None:
    assert find("utf8-ill-formed").code == "ENC101"
    assert expand("utf8-ill-formed") == ["ENC101"]
    for name, hint in (("ENC100", "ENC1"), ("PUBB", "PUB"), ("utf8-illformed", "utf8-ill-formed")):
        with pytest.raises(UnknownRuleError, match=hint):
            expand(name)


def source_of(rule: type[Rule]) -> str:
    """The file of the rule; of a family the class and its bases."""
    if len(family(rule)) == 1:
        return inspect.getsource(sys.modules[rule.__module__])
    return "".join(inspect.getsource(cls) for cls in rule.__mro__ if cls not in (Rule, object))


@each_rule
def test_a_rule_names_all_severities_that_its_findings_have(rule: type[Rule]) -> None:
    named = rule.severities or (rule.severity,)

    assert {finding.severity for finding in real(rule.code) if finding.rule == rule.code} <= {*named}
    assert list(named) == sorted(named, key=lambda severity: -severity.rank)
    assert rule.worst() is named[0]
    assert not rule.severities or len(rule.severities) > 1
    if "severity=" in source_of(rule):
        assert rule.severities, "its reports differ in severity"


ROWS = {row.statement.key: row for row in coverage()}


def test_every_numbered_statement_is_there_once_and_in_the_totals() -> None:
    wanted = [key for key, statement in all_statements().items() if statement.version != "3.1"]
    actual_counts = totals(coverage())

    assert len(coverage()) == len(ROWS) == len(wanted)
    assert set(ROWS) == set(wanted)
    assert list(dict.fromkeys(row.statement.version for row in coverage())) == [*VERSIONS]
    assert list(actual_counts) == ["5.0", "3.1.1", "sparkplug 3.0"]
    assert sum(counts.total() for counts in actual_counts.values()) == len(ROWS)


def test_a_statement_names_the_rules_that_check_it() -> None:
    assert "ENC101" in ROWS["5.0 MQTT-1.5.4-1"].rules
    assert ROWS["5.0 MQTT-1.5.4-1"].state == "checked"
    assert "CON212" in ROWS["5.0 MQTT-3.1.0-2"].partly


def test_the_same_identifier_means_something_else_in_another_version() -> None:
    old, new = (statement(version, "MQTT-3.1.2-22") for version in (ProtocolVersion.V3_1_1, ProtocolVersion.V5))

    assert old is not None
    assert new is not None
    assert old.summary != new.summary
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


def test_statements_are_those_of_the_list() -> None:
    statements = all_statements().values()
    numbered = Counter(
        statement.version for statement in statements if statement.identifier.startswith(("MQTT-", "tck-id-"))
    )
    columns = ("version", "identifier", "section", "packet", "sender", "visible")

    assert numbered == {"5.0": 251, "3.1.1": 141, "sparkplug 3.0": 299}
    assert {statement.visible for statement in statements} == {
        "packet",
        "connection",
        "session",
        "broker",
        "indirect",
        "payload",
        "state",
        "configuration",
        "no",
    }
    assert all(statement.summary and statement.section for statement in statements)
    assert sorted(tuple(row[name] for name in columns) for row in table("statements.tsv")) == sorted(
        (statement.version, statement.identifier, statement.section, statement.packet, statement.who, statement.visible)
        for statement in statements
    )
