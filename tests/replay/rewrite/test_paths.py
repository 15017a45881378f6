"""Paths of fields."""

from __future__ import annotations

import pytest

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.replay.rewrite.links import RewriteError
from mqttscope.replay.rewrite.paths import REFUSED, find_target, refuse, targets


@pytest.mark.parametrize(
    ("path", "wanted", "index"),
    [
        ("connect.keep_alive", "connect.keep_alive", None),
        ("connect.clean_start", "connect.clean_start", None),
        ("publish.topic_name", "publish.topic_name", None),
        ("publish.properties.content_type", "publish.properties.content_type", None),
        ("publish.content_type", "publish.properties.content_type", None),
        ("connect.user_property", "connect.properties.user_property", None),
        ("connect.will.user_property", "connect.will.properties.user_property", None),
        ("connect.will_delay_interval", "connect.will.properties.will_delay_interval", None),
        ("connect.will.will_delay_interval", "connect.will.properties.will_delay_interval", None),
        ("connect.will_topic", "connect.will.will_topic", None),
        ("subscribe.subscriptions[3].maximum_qos", "subscribe.subscriptions.maximum_qos", 3),
        ("subscribe.maximum_qos", "subscribe.subscriptions.maximum_qos", None),
        ("unsubscribe.topic_filters[0]", "unsubscribe.topic_filters", 0),
    ],
)
def test_paths(path: str, wanted: str, index: int | None) -> None:
    target, found = find_target(path)

    assert (target.path, found) == (wanted, index)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("publish.topic", "did you mean publish.topic_name"),
        ("keep_alive", "did you mean connect.keep_alive"),
        ("conect.keep_alive", "did you mean connect.keep_alive"),
        ("nothing.at.all", "a path begins with one of connect, publish"),
        ("connack.reason_code", "only what clients send can be set"),
        ("pingreq.x", "no fields"),
        ("publish.payload[0]", "only subscriptions and topic_filters have an index"),
    ],
)
def test_unknown_paths_say_what_may_be_meant(path: str, told: str) -> None:
    with pytest.raises(RewriteError, match=told):
        find_target(path)


def test_secrets_and_what_follows_from_other_fields_are_refused() -> None:
    assert REFUSED.keys() <= targets().keys()
    with pytest.raises(RewriteError, match="from the environment or a file"):
        refuse(find_target("connect.password")[0])
    with pytest.raises(RewriteError, match="ties packets to their answers"):
        refuse(find_target("publish.packet_identifier")[0])
    refuse(find_target("connect.user_name")[0])


def test_properties_and_options_of_5_0_are_known_as_such() -> None:
    five = {path for path, target in targets().items() if target.since == ProtocolVersion.V5}

    assert {path for path in targets() if ".properties" in path} < five
    assert "subscribe.subscriptions.no_local" in five
    assert "puback.reason_code" in five
    assert "connect.will.will_qos" not in five
    optional = {path for path, target in targets().items() if target.optional and ".properties" not in path}
    assert {"connect.will", "connect.user_name", "connect.password", "disconnect.reason_code"} <= optional
    assert "publish.topic_name" not in optional
