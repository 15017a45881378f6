"""Topics in packets, and near misses."""

from __future__ import annotations

import pytest

from mqttscope.lint.examples import make_connect
from mqttscope.lint.topics import TopicField, difference, fold, named_topics, plain
from mqttscope.mqtt.packets import Pingreq, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties


@pytest.mark.parametrize(
    ("expected", "other", "what"),
    [
        ("Home/Temp", "home/temp", "upper and lower case"),
        ("/a/b", "a/b", "a leading '/'"),
        ("a/b/", "a/b", "a trailing '/'"),
        ("a /b", "a/b", "spaces"),
        ("/A/b", "a/b", "a leading '/' and upper and lower case"),
        (" /a", "a", "a leading '/'"),
        ("//a", "/a", "slashes at its ends"),
    ],
)
def test_near_misses_have_one_fold_and_a_named_difference(expected: str, other: str, what: str) -> None:
    assert fold(expected) == fold(other)
    assert difference(expected, other) == difference(other, expected) == what


@pytest.mark.parametrize(("expected", "other"), [("a/b", "a/c"), ("a//b", "a/b"), ("a/b", "ab")])
def test_other_topics_are_no_near_miss(expected: str, other: str) -> None:
    assert fold(expected) != fold(other)


def test_a_shared_subscription_is_compared_without_its_name() -> None:
    assert plain("$share/g/a/#") == "a/#"
    assert plain("a/#") == "a/#"


def test_the_topics_that_packets_name() -> None:
    will = Will("w", properties=Properties(response_topic="wr"))

    assert list(named_topics(make_connect(will=will))) == [
        TopicField("will.will_topic", "w"),
        TopicField("will.properties.response_topic", "wr"),
    ]
    assert list(named_topics(make_connect())) == []
    assert list(named_topics(Publish(topic_name="a", properties=Properties(response_topic="r")))) == [
        TopicField("topic_name", "a"),
        TopicField("properties.response_topic", "r"),
    ]
    assert list(named_topics(Publish(properties=Properties(topic_alias=1)))) == []
    assert list(named_topics(Subscribe(1, None, [Subscription("a/#")]))) == [
        TopicField("subscriptions[0].topic_filter", "a/#", is_filter=True)
    ]
    assert list(named_topics(Unsubscribe(1, None, ["a", "b"])))[1] == TopicField(
        "topic_filters[1]", "b", is_filter=True
    )
    assert list(named_topics(Pingreq())) == []
