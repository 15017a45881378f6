"""What is broken before a version is named."""

from __future__ import annotations

from mqttscope.mutate import catalogue, mutation
from mqttscope.mutate.unversioned import cited_instead
from tests.mutate.talk import V3_1, V3_1_1, V5


def test_what_comes_before_the_level_may_be_cited_by_another_version() -> None:
    first = mutation("flow:first-packet-puback")

    assert cited_instead(first, V5) == cited_instead(first, V3_1) == ("3.1.1 MQTT-3.1.0-1",)
    assert cited_instead(first, V3_1_1) == ()
    assert cited_instead(mutation("connect.protocol_name:cut-inside"), V5) == ("3.1.1 V311-LENGTH-overrun",)


def test_what_comes_behind_it_may_not() -> None:
    assert cited_instead(mutation("publish:qos-3"), V5) == ()
    assert cited_instead(mutation("connect.keep_alive:cut-before"), V5) == ()


def test_there_are_not_many() -> None:
    found = [one.name for one in catalogue() if cited_instead(one, V5)]

    assert all(name.startswith(("connect.", "flow:")) for name in found)
    assert 10 < len(found) < 20
