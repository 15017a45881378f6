"""A connection without a mutation: what it is, and what is told of it."""

from __future__ import annotations

from mqttscope.mqtt import PacketType
from mqttscope.mutate import Demand
from mqttscope.mutate.catalogue import catalogue
from mqttscope.trial.fit import flow_of
from mqttscope.trial.rehearsal import NOTHING, Rehearsal, unmutated
from tests.trial.flows import HASH, V5, script


def test_everything_is_as_recorded_and_looked_at() -> None:
    own = script(V5)
    case = unmutated(flow_of(own, HASH, 0))

    assert case.flow.sent == b"".join(one.raw for one in own.entries if one.from_client)
    assert (case.flow.at, case.reaction.demand, case.statements) == (0, Demand.ACCEPT, ())
    assert NOTHING.name not in {one.name for one in catalogue()}


def test_what_is_told() -> None:
    found = Rehearsal(frozenset({PacketType.PUBREC, PacketType.SUBACK}), frozenset({0x87}), ended=True)

    assert found.told() == "gives no PUBREC, SUBACK and refuses with 0x87 and ends the connection"
    assert Rehearsal().told() == ""
