"""Property blocks."""

from __future__ import annotations

from mqttscope.mqtt import Malformed, MalformedReason
from mqttscope.mqtt.properties import PROPERTIES
from mqttscope.mutate import FlowVerdict, mutation
from mqttscope.mutate.fields import blocks
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.property_blocks import property_mutations
from tests.mutate.talk import V5, check_faults, decoded

NAMES = {property_mutation.name for property_mutation in property_mutations()}


def test_every_property_is_tried_in_every_packet_where_it_is_not_allowed() -> None:
    wrong = sum(owner not in row.packets for row in PROPERTIES for _, owner, _ in blocks())

    assert len([name for name in NAMES if ":with-" in name]) == wrong
    assert "puback.properties:with-topic-alias" in NAMES
    assert "connect.will.properties:with-receive-maximum" in NAMES


def test_what_is_wrong_is_the_only_thing() -> None:
    check_faults(
        {
            "subscribe.properties:with-topic-alias": MalformedReason.PROPERTY_NOT_ALLOWED,
            "connect.will.properties:with-topic-alias": MalformedReason.PROPERTY_NOT_ALLOWED,
            "publish.properties:unknown-7f": MalformedReason.PROPERTY_UNKNOWN,
            "publish.properties:unknown-two-bytes": MalformedReason.PROPERTY_UNKNOWN,
            "publish.properties.property_length:overrun": MalformedReason.PROPERTY_LENGTH_OVERRUN,
            "publish.properties.property_length:minus-one": MalformedReason.PROPERTY_LENGTH_OVERRUN,
            "publish.properties.property_length:not-minimal": MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,
            "connect.will.properties.property_length:five-bytes": MalformedReason.VARIABLE_BYTE_INTEGER_TOO_LONG,
            "disconnect.properties:identifier-not-minimal": MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,
        }
    )


def test_what_comes_twice() -> None:
    assert decoded("connect.properties.receive_maximum:repeated").properties.all(0x21) == [20, 20]


def test_several_subscription_identifiers_are_wrong_from_a_client_only() -> None:
    other_mutation = mutation("publish.properties.subscription_identifier:repeated")

    assert other_mutation.verdict(V5, CLIENT) is FlowVerdict.VIOLATION
    assert other_mutation.verdict(V5, SERVER) is FlowVerdict.OPEN


def test_acknowledgements_may_end_before_their_properties() -> None:
    assert mutation("puback.properties:missing").verdict(V5) is FlowVerdict.LEGAL
    assert mutation("connack.properties:missing").verdict(V5, SERVER) is FlowVerdict.VIOLATION
    assert not isinstance(decoded("puback.properties:missing"), Malformed)


def test_a_thousand_user_properties() -> None:
    assert len(decoded("publish.properties.user_property:thousand").properties.user_property) == 1_000
