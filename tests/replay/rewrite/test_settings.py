"""Fields that are set and left out."""

from __future__ import annotations

import pytest

from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Connect, Disconnect, Publish, Suback, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import EMPTY, Properties
from mqttscope.replay.rewrite.changes import Changes, RewriteError
from mqttscope.replay.rewrite.links import copy_scripts
from mqttscope.replay.rewrite.settings import Setting, apply_settings, with_setting
from mqttscope.replay.script import Script
from tests.replay.recordings import V3_1_1, V5, packets, recorded, snapshot

SET: list[tuple[ControlPacket, str, ControlPacket | None]] = [
    (Connect(), "connect.keep_alive=30", Connect(keep_alive=30)),
    (Connect(), "connect.clean_start=false", Connect(clean_start=False)),
    (Connect(), "connect.user_name=me", Connect(user_name="me")),
    (Connect(), "connect.receive_maximum=5", Connect(properties=Properties(receive_maximum=5))),
    (
        Connect(properties=Properties(receive_maximum=1, topic_alias_maximum=2)),
        "connect.receive_maximum=5",
        Connect(properties=Properties(receive_maximum=5, topic_alias_maximum=2)),
    ),
    (Connect(), "connect.will.will_qos=1", None),
    (Connect(will=Will("a")), "connect.will.will_qos=1", Connect(will=Will("a", will_qos=1))),
    (
        Connect(will=Will("a")),
        "connect.will_delay_interval=1m",
        Connect(will=Will("a", properties=Properties(will_delay_interval=60))),
    ),
    (Publish(missing=3, payload=b"a"), "publish.payload=b", Publish(payload=b"b")),
    (
        Publish(properties=Properties(user_property=[("a", "1"), ("b", "2"), ("a", "3")])),
        "publish.user_property=a=4",
        Publish(properties=Properties(user_property=[("a", "4"), ("b", "2")])),
    ),
    (
        Publish(properties=Properties(user_property=[("a", "1")])),
        "publish.user_property=b=2",
        Publish(properties=Properties(user_property=[("a", "1"), ("b", "2")])),
    ),
    (
        Subscribe(subscriptions=[Subscription("a"), Subscription("b")]),
        "subscribe.subscriptions.maximum_qos=1",
        Subscribe(subscriptions=[Subscription("a", 1), Subscription("b", 1)]),
    ),
    (
        Subscribe(subscriptions=[Subscription("a"), Subscription("b")]),
        "subscribe.subscriptions[1].no_local=true",
        Subscribe(subscriptions=[Subscription("a"), Subscription("b", 0, True)]),
    ),
    (Subscribe(subscriptions=[Subscription("a")]), "subscribe.subscriptions[1].maximum_qos=1", None),
    (Unsubscribe(topic_filters=["a", "b"]), "unsubscribe.topic_filters[0]=c", Unsubscribe(topic_filters=["c", "b"])),
    (Disconnect(), "disconnect.reason_code=4", Disconnect(4)),
]


@pytest.mark.parametrize(("packet", "setting", "wanted"), SET)
def test_fields_are_set(packet: ControlPacket, setting: str, wanted: ControlPacket | None) -> None:
    before = repr(packet)

    assert with_setting(packet, Setting.parse(setting)) == wanted
    assert repr(packet) == before


UNSET: list[tuple[ControlPacket, str, ControlPacket]] = [
    (Connect(user_name="a"), "connect.user_name", Connect()),
    (Connect(password=b"a"), "connect.password", Connect()),
    (Connect(will=Will("a")), "connect.will", Connect()),
    (Connect(properties=Properties(receive_maximum=1)), "connect.properties", Connect(properties=EMPTY)),
    (
        Connect(will=Will("a", properties=Properties(will_delay_interval=1))),
        "connect.will.properties",
        Connect(will=Will("a", properties=EMPTY)),
    ),
    (
        Publish(properties=Properties(user_property=[("a", "b"), ("c", "d")], topic_alias=1)),
        "publish.user_property",
        Publish(properties=Properties(topic_alias=1)),
    ),
    (Disconnect(0x04), "disconnect.reason_code", Disconnect()),
]


@pytest.mark.parametrize(("packet", "path", "wanted"), UNSET)
def test_fields_are_left_out(packet: ControlPacket, path: str, wanted: ControlPacket) -> None:
    assert with_setting(packet, Setting.parse_unset(path)) == wanted


@pytest.mark.parametrize(
    "path", ["publish.topic_name", "connect.keep_alive", "publish.qos", "connect.client_identifier"]
)
def test_what_is_not_optional_cannot_be_left_out(path: str) -> None:
    with pytest.raises(RewriteError, match="not optional"):
        Setting.parse_unset(path)


def test_a_password_comes_from_elsewhere() -> None:
    with pytest.raises(RewriteError, match="from the environment or a file"):
        Setting.parse("connect.password=secret")
    assert with_setting(Connect(user_name="a"), Setting.password(b"b")) == Connect(user_name="a", password=b"b")


def done(scripts: list[Script], *settings: str, unset: tuple[str, ...] = ()) -> tuple[Script, list[str]]:
    changes = Changes()
    before = snapshot(scripts)
    copies = copy_scripts(scripts)
    found = [Setting.parse_unset(one) for one in unset] + [Setting.parse(one) for one in settings]
    apply_settings(copies, found, changes)
    assert snapshot(scripts) == before
    return copies[0], changes.sentences


def test_only_what_clients_send_is_set() -> None:
    scripts = recorded((">", Publish(topic_name="a")), ("<", Publish(topic_name="a")))
    script, told = done(scripts, "publish.payload=x", "connect.keep_alive=1", "connect.keep_alive=2")

    assert packets(script)[2:] == [Publish(topic_name="a", payload=b"x"), Publish(topic_name="a")]
    assert packets(script)[0] == Connect("MQTT", 5, client_identifier="c1", keep_alive=2)
    assert [one.raw is other.raw for one, other in zip(script.entries, scripts[0].entries, strict=True)] == [
        False,
        True,
        False,
        True,
    ]
    assert told == [
        "1 CONNECT packet set as asked",
        "1 PUBLISH packet set as asked",
        "publish.payload: what subscribers receive is still expected as it was recorded",
    ]


def test_what_a_version_or_a_packet_does_not_have_is_told() -> None:
    script, told = done(
        recorded((">", Publish(topic_name="a")), version=V3_1_1),
        "publish.content_type=x",
        "connect.will_topic=x",
        "auth.reason_code=0x18",
    )

    assert packets(script)[2] == Publish(topic_name="a")
    assert told == [
        "1 CONNECT packet left as it is: it has no Will",
        "1 PUBLISH packet without publish.properties.content_type: MQTT 3.1.1 has no such field",
        "publish.properties.content_type applied to no packet",
        "connect.will.will_topic applied to no packet",
        "auth.reason_code applied to no packet",
    ]


@pytest.mark.parametrize(
    ("settings", "unset", "names", "topics", "aliases"),
    [
        (("publish.topic_name=x",), (), ["x", "x", "x"], ["x", "x", "x"], [1, 1, 2]),
        (("publish.topic_alias=5",), (), ["a", "a", "b"], ["a", "a", "b"], [5, 5, 5]),
        ((), ("publish.topic_alias",), ["a", "a", "b"], ["a", "a", "b"], [None, None, None]),
    ],
)
def test_topics_and_aliases_stay_true(
    settings: tuple[str, ...], unset: tuple[str, ...], names: list[str], topics: list[str], aliases: list[int | None]
) -> None:
    def publish(topic: str, alias: int) -> tuple[str, ControlPacket]:
        return ">", Publish(topic_name=topic, properties=Properties(topic_alias=alias))

    script, _ = done(recorded(publish("a", 1), publish("", 1), publish("b", 2)), *settings, unset=unset)
    found = [one for one in packets(script) if isinstance(one, Publish)]

    assert [one.topic_name for one in found] == names
    assert [entry.topic for entry in script.entries[2:]] == topics
    assert [one.properties.topic_alias for one in found if one.properties is not None] == aliases


def test_a_session_that_begins_anew_is_not_present() -> None:
    hello = Connect(protocol_level=5, client_identifier="c", clean_start=False)
    script, told = done(
        recorded((">", hello), ("<", Connack(session_present=True)), client=None), "connect.clean_start=true"
    )

    assert packets(script)[1] == Connack(session_present=False)
    assert "1 CONNACK packet expected otherwise, since its request changed" in told


@pytest.mark.parametrize(
    ("asked", "granted", "setting", "wanted"),
    [
        ([2, 2], [2, 1], "0", [0, 0]),
        ([2, 2], [2, 1], "1", [1, 1]),
        ([1, 1], [1, 0x80], "2", [2, 0x80]),
        ([1, 0], [0, 0], "2", [0, 2]),
    ],
)
def test_granted_qos_follows_what_is_asked_for(
    asked: list[int], granted: list[int], setting: str, wanted: list[int]
) -> None:
    rows = [Subscription("a", qos) for qos in asked]
    scripts = recorded((">", Subscribe(1, subscriptions=rows)), ("<", Suback(1, reason_codes=granted)))
    script, _ = done(scripts, f"subscribe.maximum_qos={setting}")

    assert packets(script)[3] == Suback(1, reason_codes=wanted)


@pytest.mark.parametrize(("version", "left"), [(V3_1_1, None), (V5, b"p")])
def test_before_5_0_a_password_goes_with_its_user_name(version: int, left: bytes | None) -> None:
    hello = Connect(protocol_level=version, client_identifier="c", user_name="u", password=b"p")
    script, _ = done(recorded((">", hello), client=None), unset=("connect.user_name",))
    (found,) = packets(script)

    assert isinstance(found, Connect)
    assert (found.user_name, found.password) == (None, left)


def test_a_client_identifier_that_is_set_names_the_connection() -> None:
    script, _ = done(recorded(), "connect.client_identifier=other")

    assert script.name == "other"
