"""What PUBLISH, SUBSCRIBE and UNSUBSCRIBE say."""

from __future__ import annotations

from mqttscope.mqtt import MalformedReason, Subscribe
from mqttscope.mqtt.topics import is_valid_topic_filter
from mqttscope.mutate import FlowVerdict, mutation
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.requests import BAD_FILTERS, BAD_SHARES, GOOD_FILTERS
from tests.mutate.talk import V3_1, V3_1_1, V5, check_faults, check_not_applicable, decoded, good, limited, packet_of


def test_what_is_malformed() -> None:
    check_faults(
        {
            "publish:qos-3": MalformedReason.QOS_INVALID,
            "subscribe.subscriptions.maximum_qos:3": MalformedReason.SUBSCRIPTION_QOS_INVALID,
            "subscribe.subscriptions.reserved:bit-6": MalformedReason.SUBSCRIPTION_OPTIONS_RESERVED,
            "subscribe.subscriptions.reserved:bit-7": MalformedReason.SUBSCRIPTION_OPTIONS_RESERVED,
        }
    )


def test_dup_at_qos_0() -> None:
    result = decoded("publish:dup-with-qos-0")

    assert (result.dup, result.qos, result.packet_identifier) == (True, 0, None)
    assert mutation("publish:dup-with-qos-0").verdict(V3_1) is FlowVerdict.LEGAL


def test_aliases_at_and_above_the_limit_of_the_receiver() -> None:
    assert decoded("publish.topic_alias:at-maximum").properties.topic_alias == 5
    for sender in (CLIENT, SERVER):
        assert decoded("publish.topic_alias:above-maximum", sender=sender).properties.topic_alias == 6
    check_not_applicable("publish.topic_alias:at-maximum", flow=limited())


def test_what_the_server_announced_not_to_have() -> None:
    assert decoded("publish.qos:above-maximum", flow=limited()).qos == 1
    assert decoded("publish.retain:not-available", flow=limited()).retain
    assert len(packet_of("publish:maximum-packet-size-exceeded", flow=limited())) > 1_000
    unavailable = [f"subscribe:{slug}-unavailable" for slug in ("wildcard", "shared", "identifier")]
    assert all(packet_of(name, flow=limited()) for name in unavailable)
    announced = "publish.qos:above-maximum", "publish.retain:not-available", "publish:maximum-packet-size-exceeded"
    for name in (*announced, *unavailable):
        check_not_applicable(name, flow=good(V5))


def test_statements_are_those_of_the_sender() -> None:
    other_mutation = mutation("publish.topic_alias:above-maximum")

    assert "5.0 MQTT-3.3.2-9" in other_mutation.broken(V5, CLIENT)
    assert "5.0 MQTT-3.3.2-11" in other_mutation.broken(V5, SERVER)


def test_every_property_at_once() -> None:
    assert len(decoded("publish:every-property").properties) >= 6


def test_bad_filters_are_bad_and_good_ones_are_good() -> None:
    assert not any(is_valid_topic_filter(text) for text, _ in (*BAD_FILTERS.values(), *BAD_SHARES.values()))
    assert all(is_valid_topic_filter(text) for text in GOOD_FILTERS.values())


def test_bits_that_mean_something_in_5_0_are_reserved_before() -> None:
    assert packet_of("subscribe.subscriptions.reserved:bit-2", V3_1_1)
    check_not_applicable("subscribe.subscriptions.reserved:bit-2", V5)


def test_the_forest_has_every_choice_of_wildcards() -> None:
    result = decoded("subscribe.subscriptions:wildcard-forest")

    assert isinstance(result, Subscribe)
    filters = {row.topic_filter for row in result.subscriptions}
    assert len(filters) == 256
    assert all(is_valid_topic_filter(text) for text in filters)


def test_nothing_to_subscribe_to() -> None:
    assert decoded("subscribe:empty").subscriptions == []
    assert decoded("unsubscribe:empty").topic_filters == []
