"""Paths of fields, values for them, and fields that are set and left out."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.lint.conversation_text import parse_packet
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Connect, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.replay.rewrite.links import RewriteError
from mqttscope.replay.rewrite.settings import (
    REFUSED,
    Rewrites,
    Setting,
    apply_settings,
    find_target,
    parse_value,
    refuse,
    rewrite,
    targets,
    with_setting,
)
from mqttscope.replay.script import Script
from tests.each import each
from tests.replay.recordings import (
    NAMES,
    V3_1_1,
    V5,
    captured,
    changed,
    check_links,
    check_untouched,
    packets,
    recorded,
    snapshot,
)


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
    target, number = find_target(path)

    assert (target.path, number) == (wanted, index)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("publish.topic", "did you mean publish.topic_name"),
        ("keep_alive", "did you mean connect.keep_alive"),
        ("conect.keep_alive", "did you mean connect.keep_alive"),
        ("nothing.at.all", "a path begins with one of connect, publish"),
        ("connack.reason_code", "only packets of clients can be set"),
        ("pingreq.x", "no fields"),
        ("publish.payload[0]", "only subscriptions and topic_filters have an index"),
    ],
)
def test_unknown_paths_say_what_may_be_meant(path: str, expected: str) -> None:
    with pytest.raises(RewriteError, match=expected):
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


@each("name", NAMES)
def test_without_rewrites_everything_is_as_it_was(name: str) -> None:
    scripts = captured(name)
    copies, changes = rewrite(scripts, Rewrites())

    assert not changes
    assert not Rewrites()
    check_untouched(scripts, copies)
    assert all(copy.connection is script.connection for script, copy in zip(scripts, copies, strict=True))


@each("name", NAMES)
def test_what_is_changed_has_the_bytes_of_its_packet(name: str) -> None:
    scripts = captured(name)
    before = snapshot(scripts)
    asked = Rewrites.parse(
        ["#=lab/#"],
        ["*=x-*"],
        ["publish.qos=1", "publish.payload=hex:00", "connect.keep_alive=5"],
        ["connect.user_name"],
    )
    copies, changes = rewrite(scripts, asked)

    assert changes or not scripts
    assert snapshot(scripts) == before
    check_links(copies)
    old = {id(entry.packet): entry for script in scripts for entry in script.entries}
    for script in copies:
        for entry in script.entries:
            same = old.get(id(entry.packet))
            if same is not None:
                assert entry.raw is same.raw
            else:
                assert not isinstance(entry.packet, Malformed)
                assert entry.raw == entry.packet.raw == encode(entry.packet, script.version)


def test_fields_that_are_set_hold_whatever_a_mapping_made_of_them() -> None:
    asked = Rewrites.parse(
        ["a=b"],
        ["c1=c2"],
        ["publish.payload=@one", "publish.retain=true"],
        password=b"secret",
        read_file=lambda name: name.encode(),
    )
    (script,), _ = rewrite(recorded("> publish a"), asked)
    hello, _, packet = packets(script)

    assert hello == Connect("MQTT", 5, client_identifier="c2", keep_alive=60, password=b"secret")
    assert packet == Publish(retain=True, topic_name="b", payload=b"one")


@pytest.mark.parametrize(
    "asked",
    [
        {"topics": ["a"]},
        {"clients": ["a"]},
        {"settings": ["publish.qos"]},
        {"settings": ["publish.qos=7"]},
        {"unset": ["publish.qos"]},
        {"settings": ["publish.payload=@file"]},
    ],
)
def test_mistakes_are_told_before_anything_is_done(asked: dict[str, list[str]]) -> None:
    with pytest.raises(RewriteError):
        Rewrites.parse(
            asked.get("topics", ()), asked.get("clients", ()), asked.get("settings", ()), asked.get("unset", ())
        )


def value(path: str, text: str, files: dict[str, bytes] | None = None) -> Any:
    def read(name: str) -> bytes:
        assert files is not None
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return parse_value(find_target(path)[0], text, None if files is None else read)


@pytest.mark.parametrize(
    ("path", "text", "wanted"),
    [
        ("connect.keep_alive", "30", 30),
        ("connect.keep_alive", "0x1e", 30),
        ("connect.keep_alive", "1m30s", 90),
        ("connect.maximum_packet_size", "10KiB", 10_240),
        ("connect.receive_maximum", "65535", 65_535),
        ("connect.clean_start", "TRUE", True),
        ("publish.retain", "0", False),
        ("publish.qos", "2", 2),
        ("publish.topic_name", "a/b c", "a/b c"),
        ("publish.payload", "grün", "grün".encode()),
        ("publish.payload", "", b""),
        ("publish.payload", "hex:00 ff", b"\x00\xff"),
        ("publish.payload", "text:hex:00", b"hex:00"),
        ("publish.payload", "@one", b"from a file"),
        ("publish.correlation_data", "hex:01", b"\x01"),
        ("publish.user_property", "a=b=c", ("a", "b=c")),
        ("subscribe.topic_filter", "$share/g/a/#", "$share/g/a/#"),
        ("disconnect.reason_code", "0x04", 4),
        ("connect.user_name", "", ""),
    ],
)
def test_values(path: str, text: str, wanted: Any) -> None:
    result = value(path, text, {"one": b"from a file"})

    assert result == wanted
    assert type(result) is type(wanted)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("connect.keep_alive", "65536", "connect.keep_alive: '65536' is not allowed, only 0 to 65535 seconds"),
        ("connect.keep_alive", "1.5s", "0 to 65535 seconds"),
        ("connect.keep_alive", "-1", "0 to 65535"),
        ("connect.receive_maximum", "0", "1 to 65535"),
        ("connect.maximum_packet_size", "5s", "1 to 4294967295 bytes"),
        ("connect.clean_start", "yes", "true or false"),
        ("publish.qos", "3", "0 to 2"),
        ("publish.qos", "", "0 to 2"),
        ("publish.topic_name", "a/+", r"a Topic Name \(wildcard\)"),
        ("publish.response_topic", "", r"a Topic Name \(empty\)"),
        ("subscribe.topic_filter", "a/#/b", "a Topic Filter"),
        ("publish.content_type", "a\0", "without U"),
        ("publish.payload", "hex:0", "pairs of hex digits"),
        ("publish.payload", "@none", "publish.payload: none: No such file"),
        ("publish.user_property", "a", "NAME=VALUE"),
        ("puback.reason_code", "0x01", "0x00, 0x10, 0x80"),
        ("connect.will", "x", "set one of the fields in it"),
        ("connect.properties", "x", "set one of the fields in it"),
    ],
)
def test_values_that_are_refused(path: str, text: str, expected: str) -> None:
    with pytest.raises(RewriteError, match=expected):
        value(path, text, {})


def test_without_files_there_are_none() -> None:
    with pytest.raises(RewriteError, match="text that begins with @"):
        value("publish.payload", "@one")


SET = [
    ("connect", "connect.keep_alive=30", "connect keep_alive=30"),
    ("connect", "connect.clean_start=false", "connect resume"),
    ("connect", "connect.user_name=me", "connect user_name=me"),
    ("connect", "connect.receive_maximum=5", "connect receive_maximum=5"),
    (
        "connect receive_maximum=1 topic_alias_maximum=2",
        "connect.receive_maximum=5",
        "connect receive_maximum=5 topic_alias_maximum=2",
    ),
    ("connect", "connect.will.will_qos=1", None),
    ("connect will=a", "connect.will.will_qos=1", "connect will=a will_qos=1"),
    ("connect will=a", "connect.will_delay_interval=1m", "connect will=a will.will_delay_interval=60"),
    ("publish - a missing=3", "publish.payload=b", "publish - b"),
    (
        "publish user_property=a:1 user_property=b:2 user_property=a:3",
        "publish.user_property=a=4",
        "publish user_property=a:4 user_property=b:2",
    ),
    ("publish user_property=a:1", "publish.user_property=b=2", "publish user_property=a:1 user_property=b:2"),
    ("subscribe 0 a b", "subscribe.subscriptions.maximum_qos=1", "subscribe 0 a:1 b:1"),
    ("subscribe 0 a b", "subscribe.subscriptions[1].no_local=true", "subscribe 0 a b:0,no_local"),
    ("subscribe 0 a", "subscribe.subscriptions[1].maximum_qos=1", None),
    ("unsubscribe 0 a b", "unsubscribe.topic_filters[0]=c", "unsubscribe 0 c b"),
    ("disconnect", "disconnect.reason_code=4", "disconnect code=4"),
]


def read(words: str | None) -> ControlPacket | None:
    """The packet that words describe."""
    return None if words is None else parse_packet(words.split(), V3_1_1, client_identifier="", keep_alive=0)


@each("words, setting, wanted", SET)
def test_fields_are_set(words: str, setting: str, wanted: str | None) -> None:
    packet = read(words)
    assert packet is not None
    before = repr(packet)

    assert with_setting(packet, Setting.parse(setting)) == read(wanted)
    assert repr(packet) == before


UNSET = [
    ("connect user_name=a", "connect.user_name", "connect"),
    ("connect password=a", "connect.password", "connect"),
    ("connect will=a", "connect.will", "connect"),
    ("connect receive_maximum=1", "connect.properties", "connect properties"),
    ("connect will=a will.will_delay_interval=1", "connect.will.properties", "connect will=a will.properties"),
    (
        "publish user_property=a:b user_property=c:d topic_alias=1",
        "publish.user_property",
        "publish topic_alias=1",
    ),
    ("disconnect code=4", "disconnect.reason_code", "disconnect"),
]


@each("words, path, wanted", UNSET)
def test_fields_are_left_out(words: str, path: str, wanted: str) -> None:
    packet = read(words)
    assert packet is not None
    assert with_setting(packet, Setting.parse_unset(path)) == read(wanted)


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
    actual_settings = [Setting.parse_unset(text) for text in unset] + [Setting.parse(setting) for setting in settings]
    copies, changes = changed(scripts, lambda copies, changes: apply_settings(copies, actual_settings, changes))
    return copies[0], changes.sentences


def test_only_what_clients_send_is_set() -> None:
    scripts = recorded("> publish a", "< publish a")
    script, texts = done(scripts, "publish.payload=x", "connect.keep_alive=1", "connect.keep_alive=2")

    assert packets(script)[2:] == [Publish(topic_name="a", payload=b"x"), Publish(topic_name="a")]
    assert packets(script)[0] == Connect("MQTT", 5, client_identifier="c1", keep_alive=2)
    same = [
        script_entry.raw is other.raw for script_entry, other in zip(script.entries, scripts[0].entries, strict=True)
    ]
    assert same == [False, True, False, True]
    assert texts == [
        "1 CONNECT packet set as asked",
        "1 PUBLISH packet set as asked",
        "publish.payload: deliveries to subscribers are still expected as recorded",
    ]


def test_what_a_version_or_a_packet_does_not_have_is_told() -> None:
    script, texts = done(
        recorded("> publish a", version=V3_1_1),
        "publish.content_type=x",
        "connect.will_topic=x",
        "auth.reason_code=0x18",
    )

    assert packets(script)[2] == Publish(topic_name="a")
    assert texts == [
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
    publishes = [packet for packet in packets(script) if isinstance(packet, Publish)]

    assert [publish.topic_name for publish in publishes] == names
    assert [entry.topic for entry in script.entries[2:]] == topics
    assert [publish.properties.topic_alias for publish in publishes if publish.properties is not None] == aliases


def test_a_session_that_begins_anew_is_not_present() -> None:
    hello = Connect(protocol_level=5, client_identifier="c", clean_start=False)
    script, texts = done(recorded((">", hello), "< connack present", client=None), "connect.clean_start=true")

    assert packets(script)[1] == Connack(session_present=False)
    assert "1 CONNACK packet expected to differ, since its request changed" in texts


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
    (packet,) = packets(script)

    assert isinstance(packet, Connect)
    assert (packet.user_name, packet.password) == (None, left)


def test_a_client_identifier_that_is_set_names_the_connection() -> None:
    script, _ = done(recorded(), "connect.client_identifier=other")

    assert script.name == "other"
