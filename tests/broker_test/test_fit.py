"""Recorded connections made to fit a broker."""

from __future__ import annotations

import pytest

from mqttscope.broker_test.fit import Numbering, capture_hash, fitted, flow_of, recorded_failures
from mqttscope.mqtt import Connack, Connect, Properties, Publish, decode, encode
from mqttscope.mutate import NotApplicableError, select
from mqttscope.mutate.cases import order
from tests.broker_test.flows import HASH, V3_1_1, V5, script
from tests.replay.recordings import connect, conversation, publish


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

    with pytest.raises(NotApplicableError):
        made.of(hopeless)


def test_the_hash_is_of_what_was_said() -> None:
    assert capture_hash([script()]) == capture_hash([script()])
    assert capture_hash([script()]) != capture_hash([script(V3_1_1)])
    assert capture_hash([script(), script()]) != capture_hash([script()])


def live(**limits: int) -> Connack:
    made = decode(encode(Connack(session_present=False, properties=Properties(**limits)), V5), V5)
    assert isinstance(made, Connack)
    return made


def test_the_live_connack_takes_the_place_of_the_recorded_one() -> None:
    told = live(topic_alias_maximum=3)
    made = fitted(script(), told)

    assert made.connack is not None
    assert made.connack.packet is told
    assert flow_of(made, "hash", 4).entries[1].raw == told.raw


def test_the_client_keeps_to_the_limits_of_the_live_broker() -> None:
    made = fitted(script(), live(maximum_qos=0))
    sent = [one.packet for one in made.entries if one.from_client and isinstance(one.packet, Publish)]

    assert {one.qos for one in sent} == {0}
    # The recording is left as it was.
    assert {one.packet.qos for one in script().entries if isinstance(one.packet, Publish) and one.from_client} == {1, 2}


def test_credentials_are_replaced_without_a_connack_too() -> None:
    made = fitted(script(), None, user_name="tester", password=b"secret")
    first = made.entries[0]

    assert isinstance(first.packet, Connect)
    assert (first.packet.user_name, first.packet.password) == ("tester", b"secret")
    again = decode(first.raw, V5)
    assert isinstance(again, Connect)
    assert again.password == b"secret"


def test_before_5_0_there_is_no_password_without_a_user_name() -> None:
    for version, sent in ((V3_1_1, None), (V5, b"secret")):
        first = fitted(script(version), None, password=b"secret").entries[0].packet
        assert isinstance(first, Connect)
        assert first.password == sent


def test_what_was_refused_in_the_recording_is_known() -> None:
    told = conversation((">", connect()), ("<", Connack(reason_code=0x87, properties=Properties())), (">", publish()))

    assert recorded_failures(told) == {0x87}
