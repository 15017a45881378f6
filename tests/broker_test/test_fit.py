"""Recorded connections made to fit a broker."""

from __future__ import annotations

import pytest

from mqttscope.broker_test.fit import CaseNumbering, capture_hash, fit_script, flow_of, recorded_failures
from mqttscope.mqtt import Connack, Connect, Properties, Publish, decode, encode
from mqttscope.mutate import NotApplicableError, select
from mqttscope.mutate.cases import order
from tests.broker_test.flows import HASH, V3_1_1, V5, script
from tests.replay.recordings import connect, conversation, publish


def numbering(seed: int = 1) -> CaseNumbering:
    flows = [flow_of(script(version), HASH, number) for number, version in enumerate((V3_1_1, V5))]
    return CaseNumbering(flows, seed, "client")


def test_a_number_names_one_case_of_one_connection() -> None:
    case_numbering = numbering()
    numbered_cases = list(case_numbering.cases("publish.topic_name", [0, 1]))

    assert {case.index for case in numbered_cases} == {0, 1}
    for numbered_case in numbered_cases[::20]:
        again = case_numbering.of(numbered_case.number)
        assert (again.index, again.case.flow.sent) == (numbered_case.index, numbered_case.case.flow.sent)


def test_numbers_do_not_depend_on_what_is_asked_for() -> None:
    case_numbering = numbering()
    every = {
        numbered_case.number: numbered_case.case.mutation.name
        for numbered_case in case_numbering.cases("publish:*,publish.topic_name", [0, 1])
    }

    assert {
        numbered_case.number: numbered_case.case.mutation.name
        for numbered_case in case_numbering.cases("publish.topic_name", [1])
    }.items() <= every.items()


def test_a_second_turn_goes_on_behind_the_first() -> None:
    case_numbering = numbering()
    total = len(select(version=V3_1_1, sender="client")) + len(select(version=V5, sender="client"))
    turns = list(case_numbering.cases("publish:qos-3", [0], turns=2))

    assert len(turns) == 2
    assert turns[0].number < total <= turns[1].number
    assert case_numbering.of(turns[1].number).case.number == turns[1].case.number


def test_another_seed_numbers_otherwise() -> None:
    first, second = (
        [numbered_case.case.mutation.name for numbered_case in numbering(seed).cases("publish.topic_name", [0])]
        for seed in (1, 2)
    )

    assert first != second
    assert sorted(set(first)) == sorted(set(second))


def test_a_case_that_has_nothing_to_do_says_so() -> None:
    case_numbering = numbering()
    names = [mutation.name for mutation in order(case_numbering.flows[0], 1, "client", 0)]
    # The client of this connection acknowledges nothing.
    hopeless = names.index("flow:acknowledge-wrong-type")

    with pytest.raises(NotApplicableError):
        case_numbering.of(hopeless)


def test_the_hash_is_of_what_was_said() -> None:
    assert capture_hash([script()]) == capture_hash([script()])
    assert capture_hash([script()]) != capture_hash([script(V3_1_1)])
    assert capture_hash([script(), script()]) != capture_hash([script()])


def live(**limits: int) -> Connack:
    packet = decode(encode(Connack(session_present=False, properties=Properties(**limits)), V5), V5)
    assert isinstance(packet, Connack)
    return packet


def test_the_live_connack_takes_the_place_of_the_recorded_one() -> None:
    connack = live(topic_alias_maximum=3)
    new_script = fit_script(script(), connack)

    assert new_script.connack is not None
    assert new_script.connack.packet is connack
    assert flow_of(new_script, "hash", 4).entries[1].raw == connack.raw


def test_the_client_keeps_to_the_limits_of_the_live_broker() -> None:
    new_script = fit_script(script(), live(maximum_qos=0))
    sent = [
        script_entry.packet
        for script_entry in new_script.entries
        if script_entry.from_client and isinstance(script_entry.packet, Publish)
    ]

    assert {publish.qos for publish in sent} == {0}
    # The recording is left as it was.
    assert {
        script_entry.packet.qos
        for script_entry in script().entries
        if isinstance(script_entry.packet, Publish) and script_entry.from_client
    } == {1, 2}


def test_credentials_are_replaced_without_a_connack_too() -> None:
    new_script = fit_script(script(), None, user_name="tester", password=b"secret")
    first = new_script.entries[0]

    assert isinstance(first.packet, Connect)
    assert (first.packet.user_name, first.packet.password) == ("tester", b"secret")
    again = decode(first.raw, V5)
    assert isinstance(again, Connect)
    assert again.password == b"secret"


def test_before_5_0_there_is_no_password_without_a_user_name() -> None:
    for version, sent in ((V3_1_1, None), (V5, b"secret")):
        first = fit_script(script(version), None, password=b"secret").entries[0].packet
        assert isinstance(first, Connect)
        assert first.password == sent


def test_what_was_refused_in_the_recording_is_known() -> None:
    reported_script = conversation(
        (">", connect()), ("<", Connack(reason_code=0x87, properties=Properties())), (">", publish())
    )

    assert recorded_failures(reported_script) == {0x87}
