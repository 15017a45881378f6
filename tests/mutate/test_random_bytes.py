"""The baseline."""

from __future__ import annotations

import pytest

from mqttscope.mutate import Chance, Kind, Verdict, apply
from mqttscope.mutate.random_bytes import random_mutations
from tests.mutate.talk import V5, good

MUTATIONS = list(random_mutations())


@pytest.mark.parametrize("one", MUTATIONS, ids=lambda one: one.name)
def test_damage_follows_from_the_key_and_is_damage(one) -> None:  # type: ignore[no-untyped-def]
    flow = good(V5)
    made = [apply(one, flow, Chance("damage", number)) for number in range(20)]

    assert made == [apply(one, flow, Chance("damage", number)) for number in range(20)]
    for case in made:
        assert case.steps[case.at].data != flow.entries[case.at].raw
        assert case.changes


def test_nothing_is_promised_about_them() -> None:
    assert {one.kind for one in MUTATIONS} == {Kind.RANDOM}
    assert {one.verdict(V5) for one in MUTATIONS} == {Verdict.OPEN}
