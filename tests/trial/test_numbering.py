"""Numbers of cases over several connections, and hashes of captures."""

from __future__ import annotations

import pytest

from mqttscope.mutate import NotApplicable, select
from mqttscope.mutate.cases import order
from mqttscope.trial.fit import flow_of
from mqttscope.trial.numbering import Numbering, capture_hash
from tests.trial.flows import HASH, V3_1_1, V5, script


def numbering(seed: int = 1) -> Numbering:
    flows = [flow_of(script(version), HASH, number) for number, version in enumerate((V3_1_1, V5))]
    return Numbering(flows, seed, "client")


def test_a_number_names_one_case_of_one_connection() -> None:
    made = numbering()
    found = list(made.cases("publish.topic_name", [0, 1]))

    assert {one.index for one in found} == {0, 1}
    for one in found[::20]:
        again = made.of(one.number)
        assert (again.index, again.case.flow.sent) == (one.index, one.case.flow.sent)


def test_numbers_do_not_depend_on_what_is_asked_for() -> None:
    made = numbering()
    every = {one.number: one.case.mutation.name for one in made.cases("publish:*,publish.topic_name", [0, 1])}

    assert {
        one.number: one.case.mutation.name for one in made.cases("publish.topic_name", [1])
    }.items() <= every.items()


def test_a_second_turn_goes_on_behind_the_first() -> None:
    made = numbering()
    total = len(select(version=V3_1_1, sender="client")) + len(select(version=V5, sender="client"))
    turns = list(made.cases("publish:qos-3", [0], turns=2))

    assert len(turns) == 2
    assert turns[0].number < total <= turns[1].number
    assert made.of(turns[1].number).case.number == turns[1].case.number


def test_another_seed_numbers_otherwise() -> None:
    first, second = (
        [one.case.mutation.name for one in numbering(seed).cases("publish.topic_name", [0])] for seed in (1, 2)
    )

    assert first != second
    assert sorted(set(first)) == sorted(set(second))


def test_a_case_that_has_nothing_to_do_says_so() -> None:
    made = numbering()
    names = [one.name for one in order(made.flows[0], 1, "client", 0)]
    # The client of this connection acknowledges nothing.
    hopeless = names.index("flow:acknowledge-wrong-type")

    with pytest.raises(NotApplicable):
        made.of(hopeless)


def test_the_hash_is_of_what_was_said() -> None:
    assert capture_hash([script()]) == capture_hash([script()])
    assert capture_hash([script()]) != capture_hash([script(V3_1_1)])
    assert capture_hash([script(), script()]) != capture_hash([script()])
