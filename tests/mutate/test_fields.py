"""The fields come from the declarations."""

from __future__ import annotations

from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.properties import PROPERTIES
from mqttscope.mutate.fields import all_fields, blocks, fields_of
from tests.mutate.talk import V5


def test_every_property_is_a_field_of_every_packet_that_may_carry_it() -> None:
    found = [one for one in all_fields() if one.row is not None]

    assert len(found) == sum(len(row.packets) for row in PROPERTIES)
    assert all(one.versions == (V5,) for one in found)


def test_names_are_mutation_paths_without_indexes() -> None:
    names = [one.name for one in all_fields()]

    assert {
        "publish.topic_name",
        "publish.payload",
        "subscribe.subscriptions.topic_filter",
        "unsubscribe.topic_filters",
        "connect.will.will_topic",
        "connect.will.properties.content_type",
        "suback.reason_codes",
        "puback.reason_code",
    } <= set(names)
    assert len(set(names)) == len(names)


def test_fields_of_later_versions_say_so() -> None:
    reason = next(one for one in fields_of(PacketType.PUBACK) if one.path == "reason_code")

    assert reason.versions == (V5,)
    assert reason.optional


def test_blocks_are_those_of_the_packets_and_of_the_will() -> None:
    assert (PacketType.CONNECT, 0, "will.") in blocks()
    assert PacketType.PINGREQ not in {kind for kind, _, _ in blocks()}
    assert len(blocks()) == 14
