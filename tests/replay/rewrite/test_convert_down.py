"""What 3.1.1 can do without."""

from __future__ import annotations

import pytest

from mqttscope.mqtt.codec import decode, encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import EMPTY, Properties
from mqttscope.replay.rewrite.changes import Changes
from mqttscope.replay.rewrite.convert_down import Losses, to_3_1_1
from mqttscope.replay.script import Entry


def converted(packet: ControlPacket, *, from_client: bool, topic: str | None = None) -> ControlPacket:
    losses = Losses()
    found = to_3_1_1(packet, Entry(from_client, packet, topic, 0, 0), Changes(), losses)
    assert losses.found == []
    assert found is not None
    return found


def lost(packet: ControlPacket, *, from_client: bool) -> tuple[ControlPacket | None, Losses]:
    losses = Losses()
    return to_3_1_1(packet, Entry(from_client, packet, None, 0, 0), Changes(), losses), losses


def hello(**fields: object) -> Connect:
    return Connect("MQTT", 5, **{"client_identifier": "c", "properties": EMPTY, **fields})  # type: ignore[arg-type]


FINE: list[tuple[bool, ControlPacket, ControlPacket]] = [
    (True, hello(), Connect(client_identifier="c")),
    (
        True,
        hello(clean_start=False, properties=Properties(session_expiry_interval=0xFFFFFFFF)),
        Connect(client_identifier="c", clean_start=False),
    ),
    (
        True,
        hello(
            properties=Properties(
                session_expiry_interval=0,
                receive_maximum=65_535,
                topic_alias_maximum=9,
                request_problem_information=0,
                request_response_information=0,
            )
        ),
        Connect(client_identifier="c"),
    ),
    (
        True,
        hello(will=Will("a", properties=Properties(will_delay_interval=0))),
        Connect(client_identifier="c", will=Will("a")),
    ),
    (False, Connack(reason_code=0x87, properties=EMPTY), Connack(reason_code=5)),
    (
        False,
        Connack(properties=Properties(assigned_client_identifier="x", receive_maximum=20, maximum_qos=1)),
        Connack(),
    ),
    (True, Publish(topic_name="", properties=Properties(topic_alias=1)), Publish(topic_name="resolved")),
    (True, Publish(topic_name="a", properties=Properties(payload_format_indicator=0)), Publish(topic_name="a")),
    (False, Puback(1, 0x10), Puback(1)),
    (False, Pubrec(1, 0x00, EMPTY), Pubrec(1)),
    (True, Pubrel(1, 0x00), Pubrel(1)),
    (False, Pubcomp(1), Pubcomp(1)),
    (
        True,
        Subscribe(1, EMPTY, subscriptions=[Subscription("a", 2)]),
        Subscribe(1, subscriptions=[Subscription("a", 2)]),
    ),
    (False, Suback(1, EMPTY, [0, 1, 2, 0x80]), Suback(1, reason_codes=[0, 1, 2, 0x80])),
    (True, Unsubscribe(1, EMPTY, ["a"]), Unsubscribe(1, topic_filters=["a"])),
    (False, Unsuback(1, EMPTY, [0, 0x11]), Unsuback(1)),
    (True, Pingreq(), Pingreq()),
    (True, Disconnect(0), Disconnect()),
]


@pytest.mark.parametrize(("from_client", "packet", "wanted"), FINE)
def test_what_3_1_1_says_too(from_client: bool, packet: ControlPacket, wanted: ControlPacket) -> None:
    found = converted(packet, from_client=from_client, topic="resolved")

    assert found == wanted
    assert found is not packet


LOST: list[tuple[bool, ControlPacket, str]] = [
    (True, hello(clean_start=False), "properties.session_expiry_interval"),
    (True, hello(properties=Properties(session_expiry_interval=5)), "properties.session_expiry_interval"),
    (True, hello(properties=Properties(session_expiry_interval=0xFFFFFFFF)), "properties.session_expiry_interval"),
    (True, hello(properties=Properties(receive_maximum=5)), "properties.receive_maximum"),
    (True, hello(properties=Properties(user_property=[("a", "b")])), "properties.user_property"),
    (True, hello(properties=Properties(request_response_information=1)), "properties.request_response_information"),
    (True, hello(will=Will("a", properties=Properties(will_delay_interval=5))), "will.properties.will_delay_interval"),
    (True, hello(will=Will("a", properties=Properties(response_topic="r"))), "will.properties.response_topic"),
    (True, hello(password=b"p"), "password"),
    (True, hello(client_identifier="", clean_start=False), "client_identifier"),
    (True, hello(connect_flags=3), "connect_flags"),
    (False, Connack(reason_code=0x89), "reason_code"),
    (False, Connack(properties=Properties(server_keep_alive=5)), "properties.server_keep_alive"),
    (False, Connack(properties=Properties(response_information="x")), "properties.response_information"),
    (True, Publish(properties=Properties(response_topic="r"), topic_name="a"), "properties.response_topic"),
    (
        True,
        Publish(topic_name="a", properties=Properties(payload_format_indicator=1)),
        "properties.payload_format_indicator",
    ),
    (True, Publish(properties=Properties(topic_alias=1)), "topic_name"),
    (False, Puback(1, 0x87), "reason_code"),
    (True, Puback(1, 0x10), "reason_code"),
    (False, Puback(1, 0, Properties(reason_string="why")), "properties.reason_string"),
    (True, Subscribe(1, Properties(subscription_identifier=1)), "properties.subscription_identifier"),
    (True, Subscribe(1, subscriptions=[Subscription("a", no_local=True)]), "subscriptions[0].no_local"),
    (
        True,
        Subscribe(1, subscriptions=[Subscription("a"), Subscription("a", retain_handling=2)]),
        "subscriptions[1].retain_handling",
    ),
    (True, Subscribe(1, subscriptions=[Subscription("$share/g/a")]), "subscriptions[0].topic_filter"),
    (False, Suback(1, EMPTY, [0, 0x87]), "reason_codes[1]"),
    (True, Unsubscribe(1, EMPTY, ["$share/g/a"]), "topic_filters[0]"),
    (False, Unsuback(1, EMPTY, [0x80]), "reason_codes[0]"),
    (True, Disconnect(4), "reason_code"),
    (True, Disconnect(0, Properties(session_expiry_interval=5)), "properties.session_expiry_interval"),
    (False, Disconnect(0x8E), ""),
    (True, Auth(0x18), ""),
]


@pytest.mark.parametrize(("from_client", "packet", "field"), LOST)
def test_what_3_1_1_has_no_form_for(from_client: bool, packet: ControlPacket, field: str) -> None:
    found, losses = lost(packet, from_client=from_client)

    (loss,) = losses.found
    assert loss.field == field
    assert loss.why
    assert loss.instead
    assert found is not packet
    if found is not None:
        # What is said in its place is 3.1.1.
        read = decode(encode(found, ProtocolVersion.V3_1_1), ProtocolVersion.V3_1_1)
        assert not isinstance(read, Malformed), read


def test_all_of_a_packet_is_told_at_once() -> None:
    rows = [Subscription("$share/g/a", no_local=True), Subscription("b", 1, retain_handling=2)]
    found, losses = lost(Subscribe(1, Properties(subscription_identifier=1), rows), from_client=True)

    assert [one.field for one in losses.found] == [
        "subscriptions[0].topic_filter", "subscriptions[0].no_local", "subscriptions[1].retain_handling",
        "properties.subscription_identifier",
    ]  # fmt: skip
    assert found == Subscribe(1, subscriptions=[Subscription("$share/g/a"), Subscription("b", 1)])


@pytest.mark.parametrize(
    ("from_client", "packet", "wanted"),
    [
        (True, hello(clean_start=False), Connect(client_identifier="c", clean_start=False)),
        (True, hello(properties=Properties(session_expiry_interval=5)), Connect(client_identifier="c")),
        (True, hello(client_identifier="", clean_start=False), Connect(clean_start=True)),
        (True, hello(password=b"p"), Connect(client_identifier="c")),
        (False, Connack(reason_code=0x89), Connack(reason_code=3)),
        (False, Connack(reason_code=0x8A), Connack(reason_code=5)),
        (False, Suback(1, EMPTY, [0, 0x87]), Suback(1, reason_codes=[0, 0x80])),
        (False, Pubrec(1, 0x87), None),
        (False, Puback(1, 0x87), Puback(1)),
        (True, Disconnect(4), None),
        (True, Auth(0x18), None),
    ],
)
def test_what_is_said_instead(from_client: bool, packet: ControlPacket, wanted: ControlPacket | None) -> None:
    assert lost(packet, from_client=from_client)[0] == wanted
