"""What the tables hold beside what is always in them, and which rules run where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.dissect import Options
from mqttscope.lake.options import LakeOptions
from mqttscope.lint.finding import Scope
from tests.lake.reading import all_of_them


def test_options_leave_wide_rules_to_others_and_count_by_connection() -> None:
    options = LakeOptions(dissect=Options(ports={99: "mqtt"}), rules=all_of_them())

    assert {rule.scope for rule in options.narrow_rules()} <= {Scope.PACKET, Scope.CONNECTION}
    assert options.reading() == Options(ports={99: "mqtt"}, count_by_connection=True)
    assert not options.dissect.count_by_connection


def test_each_rule_is_either_narrow_or_wide() -> None:
    lake_options = LakeOptions(rules=all_of_them())
    narrow, wide = lake_options.narrow_rules(), lake_options.wide_rules()

    assert {rule.scope for rule in wide} == {Scope.SESSION, Scope.BROKER}
    assert sorted([*narrow, *wide], key=lambda rule: rule.code) == sorted(
        lake_options.rules, key=lambda rule: rule.code
    )


@pytest.mark.parametrize(
    ("scopes", "widest"),
    [
        ((), None),
        ((Scope.PACKET, Scope.CONNECTION), None),
        ((Scope.PACKET, Scope.SESSION), Scope.SESSION),
        ((Scope.SESSION, Scope.BROKER), Scope.BROKER),
        ((Scope.BROKER, Scope.CONNECTION), Scope.BROKER),
    ],
)
def test_the_widest_scope_is_that_of_a_server_before_that_of_a_session(
    scopes: tuple[Scope, ...], widest: Scope | None
) -> None:
    lake_options = LakeOptions(rules=tuple(rule for rule in all_of_them() if rule.scope in scopes))

    assert lake_options.widest() is widest
    assert replace(lake_options, rules=lake_options.rules[::-1]).widest() is widest
