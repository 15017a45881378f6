"""What the comparison of ``mutate`` counts, and that all of its parts run; no times are asserted."""

from __future__ import annotations

import pytest

from mqttscope.broker_test.drivers.run import longest_s
from mqttscope.broker_test.verdict import Observation
from mqttscope.mqtt import (
    ControlPacket,
    Disconnect,
    Malformed,
    ProtocolVersion,
    Puback,
    Publish,
    Suback,
    Unsuback,
    decode,
)
from mqttscope.mutate import Demand, catalogue
from mqttscope.mutate.catalogue import matches
from tests import tools
from tests.bench import mutate
from tests.broker_test.flows import make_case, script
from tests.cli.running import capture
from tests.mutate.talk import V3_1_1, V5, good


def seen(*answers: ControlPacket | Malformed, ended: str = "") -> mutate.Seen:
    """The reaction to some packets and an end."""
    return mutate.reaction(Observation(answers=list(answers), ended=ended))


def test_a_reaction_is_types_codes_and_the_end() -> None:
    assert seen() == (frozenset(), False)
    assert seen(Disconnect(reason_code=0x81), ended="fin") == (frozenset({"DISCONNECT 0x81"}), True)
    assert seen(Suback(1, reason_codes=[0, 0x80])) == (frozenset({"SUBACK 0x00", "SUBACK 0x80"}), False)
    assert seen(Unsuback(1)) == (frozenset({"UNSUBACK"}), False)
    assert seen(decode(b"\x20\x01\x00", V3_1_1)) == (frozenset({"malformed"}), False)


def test_order_and_number_make_no_other_reaction() -> None:
    publish, two = Publish(topic_name="a"), Puback(1, reason_code=0x10)

    assert seen(publish, two, two) == seen(two, publish)
    assert seen(publish, ended="fin") == seen(publish, ended="reset") != seen(publish)
    assert seen(Puback(1, reason_code=0x10)) != seen(Puback(1, reason_code=0x97))


def test_what_is_typed_is_connect_and_the_mutation() -> None:
    flow = script(V5)
    connect = flow.entries[0].raw
    later, first = make_case("publish:qos-3", flow), make_case("connect:will-qos-3", flow)

    assert mutate.typed(later) == connect + later.flow.steps[later.flow.at].data
    assert mutate.typed(first) == first.flow.steps[0].data != connect
    assert mutate.typed(make_case("flow:drop", flow)) == connect
    assert mutate.typed(make_case("flow:first-packet-pingreq", flow)) == connect + b"\xc0\x00"


def test_structured_and_random_are_the_whole_catalogue() -> None:
    for mutation in catalogue():
        assert matches(mutation.name, mutate.STRUCTURED) != matches(mutation.name, mutate.RANDOM), mutation.name


def test_as_many_of_each_kind_and_none_that_pauses() -> None:
    for pattern in (mutate.RANDOM, "flow"):
        cases = list(mutate.without_pauses(good(V5), pattern, 60, 1))

        assert len(cases) == 60
        assert not [case for case in cases if longest_s(case)]
        assert len({case.number for case in cases}) == 60


def test_all_are_watched_alike() -> None:
    for name in ("publish:qos-3", "publish.payload:empty", "random:bits"):
        case = make_case(name, script(V5))
        assert mutate.watched_alike(case).reaction.demand is Demand.ANY
        assert mutate.watched_alike(case).flow is case.flow


def test_the_captures_have_every_version() -> None:
    versions = {script.version for name in mutate.CAPTURES for script in mutate.recorded(capture(name))}

    assert versions == set(ProtocolVersion)


def test_what_is_missing_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(mutate, "PROGRAMS", {"mosquitto-of-another-name": "mosquitto"})

    assert not mutate.measure(texts.append)
    assert texts == ["Not measured: mosquitto-of-another-name (package mosquitto) is missing."]


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.long
def test_all_of_it_runs() -> None:
    if absent := mutate.missing():
        tools.missing(f"{' and '.join(name for name, _ in absent)} is not installed")
    texts: list[str] = []

    assert mutate.measure(texts.append, 3, 1, 4, 1)
    assert sum(line.startswith("| `") for line in texts) == 4
    assert texts[-1].startswith("| seed 1 |")
