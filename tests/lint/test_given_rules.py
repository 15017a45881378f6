"""Which rules run; what one lacks: tests/api/test_linting.py."""

from __future__ import annotations

import pytest

from mqttscope.errors import ArgumentError
from mqttscope.lint.catalogue import all_rules, find, select
from mqttscope.lint.given_rules import chosen_rules, given_rules, names_of
from mqttscope.lint.rule import Rule

TOLERANCE = find("message-expiry-not-decremented")


def test_without_names_the_usual_rules_run() -> None:
    assert [rule.code for rule in chosen_rules((), (), ())] == list(select())
    assert chosen_rules((), (), ("ALL",)) == []


def test_a_rule_of_the_catalogue_may_be_given_with_other_settings() -> None:
    given = TOLERANCE({"tolerance": 7})
    (usual,) = chosen_rules((TOLERANCE.code,), (), ())
    assert usual.set["tolerance"] == 2
    for selected in ((TOLERANCE.code,), (), ("PUB101",)):
        (found,) = [rule for rule in chosen_rules(selected, (), (), [given]) if isinstance(rule, TOLERANCE)]
        assert found is given, selected
    assert chosen_rules(("PUB101",), (), ("PUB101", TOLERANCE.code), [given]) == []


def test_a_rule_is_given_once_and_has_a_code_of_its_own() -> None:
    assert [type(rule) for rule in given_rules(all_rules().values())] == list(all_rules().values())
    both: list[list[type[Rule] | Rule]] = [[TOLERANCE, TOLERANCE({"tolerance": 7})], [type("Other", (TOLERANCE,), {})]]
    for twice in both:
        with pytest.raises(ArgumentError, match=f"{TOLERANCE.code} is the code of another rule"):
            given_rules(twice)


def test_a_text_is_one_name() -> None:
    assert names_of("PUB") == ("PUB",)
    assert names_of(["PUB", "SUB"]) == ("PUB", "SUB")
