"""Deliveries: what differs is found by its name, on Shared Subscriptions over all members."""

from __future__ import annotations

import pytest

from mqttscope.replay.verify.verify import compare
from tests.replay.talk import (
    ALL,
    OPENED,
    Different,
    Equal,
    Found,
    check,
    delivered,
    pairs,
    told,
)

DIFFERENT: Different = {
    "a lower QoS, and what is delivered with it": (
        OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x qos=1 id=1\nsub > puback 1",
        OPENED.replace("suback 1 2", "suback 1 0")
        + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x",
        [("granted-qos", "reason_codes[0]", 1)],
    ),
    "a message is missing": (delivered(*ALL), delivered(*ALL[:2]), [("missing-delivery", "", 0)]),
    "a message too many": (delivered(*ALL), delivered(*ALL, "publish t/a one"), [("extra-delivery", "", 0)]),
    "a payload that nobody published": (
        delivered(*ALL),
        delivered("publish t/a eno", *ALL[1:]),
        [("payload", "payload", 0)],
    ),
    "another message of the topic": (
        delivered("publish t/a one"),
        delivered("publish t/a three"),
        [("missing-delivery", "", 0), ("extra-delivery", "", 0)],
    ),
    "another QoS": (
        delivered("publish t/a one", *ALL[1:]),
        delivered("publish t/a one qos=1 id=1", *ALL[1:]),
        [("delivery-qos", "qos", 0)],
    ),
    "a RETAIN flag": (
        delivered(*ALL),
        delivered("publish t/a one retain", *ALL[1:]),
        [("retain", "retain", 0)],
    ),
    "a content type lost": (
        delivered("publish t/a one content_type=json"),
        delivered("publish t/a one"),
        [("property", "properties.content_type", 0)],
    ),
    "another response topic": (
        delivered("publish t/a one response_topic=a"),
        delivered("publish t/a one response_topic=b"),
        [("property", "properties.response_topic", 0)],
    ),
    "another correlation": (
        delivered("publish t/a one correlation_data=a"),
        delivered("publish t/a one correlation_data=b"),
        [("property", "properties.correlation_data", 0)],
    ),
    "a payload that is text no more": (
        delivered("publish t/a one payload_format_indicator=1"),
        delivered("publish t/a one"),
        [("property", "properties.payload_format_indicator", 0)],
    ),
    "user properties of a message in another order": (
        delivered("publish t/a one user_property=a:1 user_property=a:2"),
        delivered("publish t/a one user_property=a:2 user_property=a:1"),
        [("property", "properties.user_property", 0)],
    ),
    "another subscription identifier": (
        delivered("publish t/a one subscription_identifier=1"),
        delivered("publish t/a one subscription_identifier=2"),
        [("property", "properties.subscription_identifier", 0)],
    ),
    "an expiry interval that is not there": (
        delivered("publish t/a one message_expiry_interval=9"),
        delivered("publish t/a one"),
        [("property", "properties.message_expiry_interval", 0)],
    ),
    "no PUBREL": (
        OPENED + "pub > publish t/a x\nsub < publish t/a x qos=2 id=1\nsub > pubrec 1\nsub < pubrel 1\nsub > pubcomp 1",
        OPENED + "pub > publish t/a x\nsub < publish t/a x qos=2 id=1\nsub > pubrec 1",
        [("missing-answer", "", 0)],
    ),
}

EQUAL: Equal = {
    "packet identifiers": (
        delivered("publish t/a one qos=1 id=1", *ALL[1:]),
        delivered("publish t/a one qos=1 id=700", *ALL[1:]),
    ),
    "aliases": (
        delivered("publish t/a one topic_alias=1", ALL[1], "publish - three topic_alias=1"),
        delivered("publish t/a one topic_alias=5", ALL[1], "publish - three topic_alias=5"),
    ),
    "an alias that one side uses": (delivered(*ALL), delivered("publish t/a one topic_alias=1", *ALL[1:])),
    "subscription identifiers as a set": (
        delivered("publish t/a one subscription_identifier=1"),
        delivered("publish t/a one subscription_identifier=1"),
    ),
    "the broker's own topics": (delivered(*ALL), delivered("publish $SYS/uptime 1", *ALL)),
    "once more with DUP": (
        delivered("publish t/a one qos=1 id=1", *ALL[1:]),
        delivered("publish t/a one qos=1 id=1", "publish t/a one qos=1 id=1 dup", *ALL[1:]),
    ),
    "once more on the next connection": (
        OPENED + "pub > publish t/a x\nsub < publish t/a x qos=1 id=1\nsub > fin\nsub > connect resume\nsub < connack",
        OPENED + "pub > publish t/a x\nsub < publish t/a x qos=1 id=1\nsub > fin\nsub > connect resume\nsub < connack\n"
        "sub < publish t/a x qos=1 id=1 dup",
    ),
    "the expiry interval counted down": (
        delivered("publish t/a old message_expiry_interval=9").replace(
            "publish t/a one", "publish t/a old message_expiry_interval=10", 1
        ),
        delivered("+4 sub < publish t/a old message_expiry_interval=6")
        .replace("sub < +4", "+4")
        .replace("publish t/a one", "publish t/a old message_expiry_interval=10", 1),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_found(name: str) -> None:
    check(*DIFFERENT[name])


@pytest.mark.parametrize("name", EQUAL)
def test_what_means_the_same_is_no_difference(name: str) -> None:
    check(*EQUAL[name], [])


SHARED = """
    a > connect
    a < connack
    a > subscribe 1 $share/g/t/#:1 own:0
    a < suback 1 1 0
    b > connect
    b < connack
    b > subscribe 1 $share/g/t/#:0
    b < suback 1 0
    pub > connect
    pub < connack
    pub > publish t/1 x
    pub > publish t/2 y
    pub > publish own z
"""


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ("b < publish t/1 x\na < publish t/2 y\na < publish own z", []),
        ("b < publish t/2 y\nb < publish t/1 x subscription_identifier=4\na < publish own z", []),
        ("a < publish own z\nb < publish t/1 x", [("missing-delivery", "", 0)]),
        (
            "a < publish t/1 x\nb < publish t/2 y\nb < publish own z",
            [("missing-delivery", "", 0), ("extra-delivery", "", 0)],
        ),
        (
            "a < publish t/1 x\nb < publish t/1 x\nb < publish t/2 y\na < publish own z\na < publish t/1 x",
            [("extra-delivery", "", 0), ("extra-delivery", "", 0)],
        ),
    ],
)
def test_a_shared_subscription_is_compared_over_its_members(live: str, expected: list[Found]) -> None:
    rest = "\na > pingreq\na < pingresp\nb > pingreq\nb < pingresp"
    recorded = SHARED + "a < publish t/1 x\nb < publish t/2 y\na < publish own z" + rest

    assert told(compare(pairs(recorded, SHARED + live + rest))) == expected


@pytest.mark.parametrize(("left", "grows"), [(10, False), (11, True), (4, False), (0, True)])
def test_an_expiry_interval_may_not_grow_nor_lose_more_than_time_passed(left: int, *, grows: bool) -> None:
    published = OPENED + "pub > publish t/a x message_expiry_interval=10\n"
    found = compare(
        pairs(
            published + "+1 sub < publish t/a x message_expiry_interval=9",
            published + f"+5 sub < publish t/a x message_expiry_interval={left}",
        )
    )

    assert told(found) == ([("property", "properties.message_expiry_interval", 0)] if grows else [])


def test_topics_may_be_ignored() -> None:
    both = pairs(delivered(*ALL), delivered())

    assert told(compare(both, ignored_topics=("t/#",))) == []
    assert len(compare(both)) == 3
