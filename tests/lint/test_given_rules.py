"""Which rules run; what one lacks: tests/api/test_linting.py."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from mqttscope.errors import ArgumentError
from mqttscope.lint.catalogue import all_rules, find, select
from mqttscope.lint.finding import Severity
from mqttscope.lint.given_rules import chosen_rules, given_rules, names_of
from mqttscope.lint.rule import Rule
from tests.each import each

TOLERANCE = find("message-expiry-not-decremented")


def test_without_names_the_usual_rules_run() -> None:
    assert [rule.code for rule in chosen_rules((), (), ())] == list(select())
    assert chosen_rules((), (), ("ALL",)) == []


def test_a_rule_of_the_catalogue_may_be_given_with_other_settings() -> None:
    input_rule = TOLERANCE({"tolerance": 7})
    (usual,) = chosen_rules((TOLERANCE.code,), (), ())
    assert usual.set["tolerance"] == 2
    for selected in ((TOLERANCE.code,), (), ("PUB101",)):
        (actual_rule,) = [rule for rule in chosen_rules(selected, (), (), [input_rule]) if isinstance(rule, TOLERANCE)]
        assert actual_rule is input_rule, selected
    assert chosen_rules(("PUB101",), (), ("PUB101", TOLERANCE.code), [input_rule]) == []


def test_a_rule_is_given_once_and_has_a_code_of_its_own() -> None:
    assert [type(rule) for rule in given_rules(all_rules().values())] == list(all_rules().values())
    both: list[list[type[Rule] | Rule]] = [[TOLERANCE, TOLERANCE({"tolerance": 7})], [type("Other", (TOLERANCE,), {})]]
    for twice in both:
        with pytest.raises(ArgumentError, match=f"{TOLERANCE.code} is the code of another rule"):
            given_rules(twice)


def test_a_text_is_one_name() -> None:
    assert names_of("PUB") == ("PUB",)
    assert names_of(["PUB", "SUB"]) == ("PUB", "SUB")


class Timed(Rule):
    """A rule with settings."""

    code = "OWN109"
    severity = Severity.INFO
    settings: ClassVar = {"timeout": 30, "words": ["a"], "lowest": -1}


@each(
    "settings, expected",
    [
        ({"typo": 1}, "Timed: 'typo' is not one of its settings; it has timeout, words, lowest"),
        ({"timeout": "x"}, "Timed: the setting timeout must be like its default 30, not 'x'"),
        ({"timeout": -5}, "Timed: the setting timeout must be like its default 30, not -5"),
        ({"timeout": True}, "the setting timeout must be like its default 30"),
        ({"words": "a"}, "the setting words must be like its default"),
        ({"words": [1]}, "the setting words must be like its default"),
    ],
)
def test_settings_are_checked_as_those_of_the_configuration(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ArgumentError, match=expected):
        given_rules([Timed(settings)])


def test_settings_that_exist_are_taken() -> None:
    (rule,) = given_rules([Timed({"timeout": 2.5, "words": []})])
    assert rule.set == {"timeout": 2.5, "words": [], "lowest": -1}

    class Bare(Timed):
        code = "OWN108"

        def __init__(self) -> None:
            pass

    with pytest.raises(ArgumentError, match=r"its __init__ has to call Rule\.__init__"):
        given_rules([Bare()])
