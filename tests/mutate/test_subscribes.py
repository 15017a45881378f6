"""SUBSCRIBE and UNSUBSCRIBE."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, MalformedReason, Subscribe, decode
from mqttscope.mqtt.topics import is_valid_topic_filter
from mqttscope.mutate import NotApplicableError
from mqttscope.mutate.subscribes import BAD_FILTERS, BAD_SHARES, GOOD_FILTERS
from tests.mutate.talk import V3_1_1, V5, good, limited, packet_of


def test_bad_filters_are_bad_and_good_ones_are_good() -> None:
    assert not any(is_valid_topic_filter(text) for text, _ in (*BAD_FILTERS.values(), *BAD_SHARES.values()))
    assert all(is_valid_topic_filter(text) for text in GOOD_FILTERS.values())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("subscribe.subscriptions.maximum_qos:3", MalformedReason.SUBSCRIPTION_QOS_INVALID),
        ("subscribe.subscriptions.reserved:bit-6", MalformedReason.SUBSCRIPTION_OPTIONS_RESERVED),
        ("subscribe.subscriptions.reserved:bit-7", MalformedReason.SUBSCRIPTION_OPTIONS_RESERVED),
    ],
)
def test_options(name: str, reason: MalformedReason) -> None:
    found = decode(packet_of(name), V5)

    assert isinstance(found, Malformed)
    assert found.reason is reason


def test_bits_that_mean_something_in_5_0_are_reserved_before() -> None:
    assert packet_of("subscribe.subscriptions.reserved:bit-2", V3_1_1)
    with pytest.raises(NotApplicableError):
        packet_of("subscribe.subscriptions.reserved:bit-2", V5)


def test_the_forest_has_every_choice_of_wildcards() -> None:
    found = decode(packet_of("subscribe.subscriptions:wildcard-forest"), V5)

    assert isinstance(found, Subscribe)
    filters = {row.topic_filter for row in found.subscriptions}
    assert len(filters) == 256
    assert all(is_valid_topic_filter(text) for text in filters)


def test_what_the_server_does_not_have() -> None:
    for slug in ("wildcard", "shared", "identifier"):
        assert packet_of(f"subscribe:{slug}-unavailable", flow=limited())
        with pytest.raises(NotApplicableError):
            packet_of(f"subscribe:{slug}-unavailable", flow=good(V5))


def test_nothing_to_subscribe_to() -> None:
    assert decode(packet_of("subscribe:empty"), V5).subscriptions == []  # type: ignore[union-attr]
    assert decode(packet_of("unsubscribe:empty"), V5).topic_filters == []  # type: ignore[union-attr]
