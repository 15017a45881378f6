"""Cases: numbers, seeds, the JSON form, and the same bytes every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from mqttscope.mqtt import Malformed, PacketType, decode
from mqttscope.mutate import (
    Action,
    Chance,
    FlowVerdict,
    apply,
    case,
    case_from_json,
    cases,
    flow_from_json,
    mutation,
    select,
)
from mqttscope.mutate.cases import exceeded_limit
from mqttscope.mutate.flow import CLIENT, SERVER, RecordedFlow
from mqttscope.mutate.mutation import target_at
from mqttscope.report.broker_test.outcome import CASE
from tests.conftest import ROOT
from tests.each import each, some
from tests.mutate.pinned import SEEDS, digest
from tests.mutate.talk import V3_1, V3_1_1, V5, check_not_applicable, good, limited, mutated, spoken
from tests.replay.talk import said_bytes

ROWS = [
    ("publish a", ""),
    (f"publish a {'x' * 1_000}", "Maximum Packet Size 1000"),
    ("publish a topic_alias=1", "a lower Topic Alias Maximum"),
    ("publish a qos=1 id=1", "a lower Maximum QoS"),
    ("publish a retain", "Retain Available 0"),
    ("subscribe 1 a/#:0", "Wildcard Subscription Available 0"),
    ("subscribe 1 $share/g/a:0", "Shared Subscription Available 0"),
    ("subscribe 1 a:0 subscription_identifier=1", "Subscription Identifier Available 0"),
    ("subscribe 1 a:0", ""),
]


@each("words, limit", ROWS)
def test_what_goes_beyond_an_announcement(words: str, limit: str) -> None:
    assert exceeded_limit(said_bytes("", words, V5), target_at(limited(), 0, Chance())) == limit


def test_earlier_versions_announce_nothing() -> None:
    assert exceeded_limit(said_bytes("", "publish a qos=2 id=1", V3_1), target_at(good(V3_1), 0, Chance())) == ""


def test_a_client_that_wants_no_reasons_gets_none() -> None:
    text = "puback 1 code=0 reason_string=x"
    flow = spoken(V5, f"> connect request_problem_information=0\n< connack\n< {text}")

    assert exceeded_limit(said_bytes("", text), target_at(flow, 2, Chance())) == "Request Problem Information 0"
    assert exceeded_limit(said_bytes("", "puback 1"), target_at(flow, 2, Chance())) == ""


FLOW = replace(good(V5), capture_hash="c0ffee", connection=3)
PINNED = {
    ("v31-qos", 1): "65070be1d7f7fb53",
    ("v31-qos", 2): "c08d98948d73099a",
    ("v311-qos", 1): "6f1898f5675f28fc",
    ("v311-qos", 2): "e85ba7b6979563ae",
    ("v5-qos", 1): "1299025b154f1e6a",
    ("v5-qos", 2): "8543ffa1a20846ac",
}
"""Hashes of whole catalogues (`tests.mutate.pinned`), by capture and seed.

They change only when mutations do, and never with the version of Python: those of CPython 3.11 to 3.14 are the same.
"""


@pytest.mark.parametrize(("name", "seed"), some(PINNED, several=True))
def test_the_same_seed_gives_the_same_bytes_everywhere(name: str, seed: int) -> None:
    assert digest(name, seed) == PINNED[name, seed]


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
@pytest.mark.long
def test_the_hash_seed_of_python_changes_nothing(hash_seed: str) -> None:
    words = [sys.executable, "-m", "tests.mutate.pinned", "v311-qos"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)

    for seed in SEEDS:
        assert f'("v311-qos", {seed}): "{PINNED["v311-qos", seed]}"' in done.stdout


def test_a_case_is_made_again_from_its_number() -> None:
    for mutation_case in cases(FLOW, 5, "publish", limit=30):
        other = case(FLOW, 5, mutation_case.number)
        assert other.mutation is mutation_case.mutation
        assert other.flow == mutation_case.flow


def test_a_case_is_made_again_from_its_json_form() -> None:
    for mutation_case in cases(FLOW, 5, "publish,flow,connect", limit=60):
        document = json.loads(json.dumps(CASE.view(mutation_case)))
        assert case_from_json(FLOW, document).flow == mutation_case.flow
        assert flow_from_json(document).steps == [replace(step) for step in mutation_case.flow.steps]
        assert flow_from_json(document).changes == mutation_case.flow.changes


def test_a_case_of_another_capture_is_not_made() -> None:
    document = CASE.view(next(iter(cases(FLOW, 5, "publish"))))

    with pytest.raises(ValueError, match="another flow"):
        case_from_json(good(V5), document)


def test_the_json_form_tells_what_the_case_is() -> None:
    mutation_case = next(iter(cases(FLOW, 5, "publish:qos-3")))
    document = CASE.view(mutation_case)

    assert {key: document[key] for key in ("schema", "capture_hash", "connection", "seed", "mutation", "sender")} == {
        "schema": 1,
        "capture_hash": "c0ffee",
        "connection": 3,
        "seed": 5,
        "mutation": "publish:qos-3",
        "sender": "client",
    }
    assert document["statements"] == ["5.0 MQTT-3.3.1-4"]
    assert document["reaction"]["demand"] == "close"
    assert document["changes"][0]["offset"] == 0
    assert document["steps"][document["at"]]["mutated"]
    assert mutation_case.verdict is FlowVerdict.VIOLATION


@pytest.mark.long
def test_numbers_do_not_depend_on_what_is_asked_for() -> None:
    every = {mutation_case.number: mutation_case.mutation.name for mutation_case in cases(FLOW, 9, "*")}
    some = {mutation_case.number: mutation_case.mutation.name for mutation_case in cases(FLOW, 9, "puback")}

    assert some
    assert some.items() <= every.items()


def test_turns_go_through_the_catalogue_in_other_orders() -> None:
    count = len(select(version=V5, sender=CLIENT))
    mutation_cases = list(cases(FLOW, 1, "disconnect", turns=2))
    first = [mutation_case.mutation.name for mutation_case in mutation_cases if mutation_case.number < count]
    second = [mutation_case.mutation.name for mutation_case in mutation_cases if mutation_case.number >= count]

    assert sorted(first) == sorted(second)
    assert first != second
    later = cases(FLOW, 1, "disconnect", start=mutation_cases[3].number, limit=2)
    assert [mutation_case.number for mutation_case in later] == [
        mutation_case.number for mutation_case in mutation_cases[3:5]
    ]


def test_other_seeds_give_other_bytes() -> None:
    mutation_case, two = (next(iter(cases(FLOW, seed, "random:bytes"))) for seed in (1, 2))

    assert mutation_case.flow.sent != two.flow.sent


def test_a_packet_that_the_flow_lacks_is_put_in_on_the_open_connection() -> None:
    mutated_flow = mutated("unsubscribe:empty", flow=limited())
    step = mutated_flow.steps[mutated_flow.at]

    assert step.data[0] >> 4 == PacketType.UNSUBSCRIBE
    assert step.entry is None
    assert mutated_flow.at >= 2
    assert [flow_step.data for flow_step in mutated_flow.steps if not flow_step.mutated] == [
        packet.raw for packet in limited().entries
    ]


def test_what_cannot_be_put_in_is_not_applicable() -> None:
    check_not_applicable("pubrel:reserved-flag-0", flow=limited())
    check_not_applicable("publish:qos-3", sender=SERVER, flow=limited())
    check_not_applicable("connect:will-qos-3", sender=SERVER, match="cannot be sent by a server")
    check_not_applicable("disconnect:extra-byte", V3_1_1, sender=SERVER)


def test_before_the_mutation_everything_is_as_recorded() -> None:
    for mutation_case in cases(FLOW, 3, "publish", limit=40):
        steps = mutation_case.flow.steps[: mutation_case.flow.at]
        assert [step.data for step in steps] == [packet.raw for packet in FLOW.entries[: mutation_case.flow.at]]


def test_the_recorded_packets_are_not_touched() -> None:
    flow = good(V5)
    before = [(recorded_packet.raw, repr(recorded_packet.packet)) for recorded_packet in flow.entries]
    for _ in cases(flow, 3, "connect,publish,subscribe"):
        pass

    assert [(recorded_packet.raw, repr(recorded_packet.packet)) for recorded_packet in flow.entries] == before


def test_legal_packets_are_well_formed() -> None:
    for side in (CLIENT, SERVER):
        for mutation_case in cases(FLOW, 3, sender=side):
            if mutation_case.verdict is FlowVerdict.LEGAL and mutation_case.mutation.change_packet is not None:
                data = mutation_case.flow.steps[mutation_case.flow.at].data
                assert not isinstance(decode(data, V5), Malformed), mutation_case.mutation.name


def test_an_empty_flow_has_few_cases() -> None:
    assert list(cases(RecordedFlow([], V5), 1, "publish")) == []
    alone = spoken(V5, "> connect")
    assert {mutation_case.mutation.name.partition(":")[0] for mutation_case in cases(alone, 1, "flow")} == {"flow"}


def test_any_packet_can_be_hit_by_a_blind_mutation() -> None:
    places = {apply(mutation("random:bits"), FLOW, Chance(number)).at for number in range(200)}

    assert places == {index for index, packet in enumerate(FLOW.entries) if packet.from_client}
    assert Action.SEND in {step.action for step in apply(mutation("random:bits"), FLOW, Chance(1)).steps}
