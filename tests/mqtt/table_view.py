"""Packets and what they look like as plain JSON values."""

from __future__ import annotations

from typing import Any

from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Pingreq,
    Properties,
    ProtocolVersion,
    Puback,
    Publish,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from tests.mqtt.case import V3_1, V3_1_1, V5

SHOWN: list[tuple[str, ControlPacket, ProtocolVersion, dict[str, Any]]] = [
    (
        "a PUBLISH of 5.0",
        Publish(
            qos=1,
            topic_name="",
            packet_identifier=10,
            properties=Properties(topic_alias=1, user_property=[("k", "v")]),
            payload=b"data",
        ),
        V5,
        {
            "dup": False,
            "qos": 1,
            "retain": False,
            "topic_name": "",
            "packet_identifier": 10,
            "properties": {"topic_alias": 1, "user_property": [{"name": "k", "value": "v"}]},
            "payload": {"length": 4, "text": "data"},
        },
    ),
    (
        "a PUBLISH of 3.1.1",
        Publish(retain=True, topic_name="t", payload=b"\x00\xff"),
        V3_1_1,
        {
            "dup": False,
            "qos": 0,
            "retain": True,
            "topic_name": "t",
            "packet_identifier": None,
            "payload": {"length": 2, "hex": "00ff"},
        },
    ),
    (
        "a PUBLISH whose payload was captured in part",
        Publish(topic_name="t", payload=b"dat", missing=7),
        V3_1_1,
        {
            "dup": False,
            "qos": 0,
            "retain": False,
            "topic_name": "t",
            "packet_identifier": None,
            "payload": {"length": 10, "text": "dat", "truncated": True},
        },
    ),
    (
        "a CONNECT of 5.0 with a will",
        Connect(
            protocol_level=5,
            keep_alive=5,
            client_identifier="c",
            properties=Properties(),
            will=Will("w", b"x", 1, True, Properties(will_delay_interval=0)),
            user_name="u",
            password=b"secret",
        ),
        V5,
        {
            "protocol_name": "MQTT",
            "protocol_level": 5,
            "clean_start": True,
            "keep_alive": 5,
            "properties": {},
            "client_identifier": "c",
            "will": {
                "will_topic": "w",
                "will_payload": {"length": 1, "text": "x"},
                "will_qos": 1,
                "will_retain": True,
                "properties": {"will_delay_interval": 0},
            },
            "user_name": "u",
            "password": {"length": 6, "redacted": True},
        },
    ),
    (
        "a CONNECT of 3.1.1 with nothing optional and odd flags",
        Connect(connect_flags=0xC2, will=None),
        V3_1_1,
        {
            "protocol_name": "MQTT",
            "protocol_level": 4,
            "connect_flags": 0xC2,
            "clean_start": True,
            "keep_alive": 0,
            "client_identifier": "",
            "will": None,
            "user_name": None,
            "password": None,
        },
    ),
    (
        "a CONNACK of 3.1.1",
        Connack(session_present=True, reason_code=5),
        V3_1_1,
        {"session_present": True, "reason_code": 5, "reason": "Connection Refused, not authorized"},
    ),
    (
        "a CONNACK of 3.1 with something in its reserved byte",
        Connack(acknowledge_flags=0x5A, session_present=None),
        V3_1,
        {"acknowledge_flags": 0x5A, "session_present": None, "reason_code": 0, "reason": "Connection Accepted"},
    ),
    (
        "a PUBACK that leaves out what it means",
        Puback(1),
        V5,
        {"packet_identifier": 1, "reason_code": 0, "reason": "Success", "properties": {}},
    ),
    ("a PUBACK of 3.1.1", Puback(1), V3_1_1, {"packet_identifier": 1}),
    ("a PUBREL with DUP", Pubrel(1, header_flags=10), V3_1, {"packet_identifier": 1, "header_flags": 10}),
    (
        "a SUBSCRIBE of 3.1.1",
        Subscribe(1, None, [Subscription("a/#", 1), Subscription("b", 2, reserved=0x80)]),
        V3_1_1,
        {
            "packet_identifier": 1,
            "subscriptions": [
                {"topic_filter": "a/#", "maximum_qos": 1},
                {"topic_filter": "b", "maximum_qos": 2, "reserved": 0x80},
            ],
        },
    ),
    (
        "a SUBSCRIBE of 5.0",
        Subscribe(1, Properties(subscription_identifier=7), [Subscription("a", 0, True, False, 2)]),
        V5,
        {
            "packet_identifier": 1,
            "properties": {"subscription_identifier": [7]},
            "subscriptions": [
                {
                    "topic_filter": "a",
                    "maximum_qos": 0,
                    "no_local": True,
                    "retain_as_published": False,
                    "retain_handling": 2,
                }
            ],
        },
    ),
    (
        "a SUBACK",
        Suback(1, Properties(), [0, 0x87]),
        V5,
        {
            "packet_identifier": 1,
            "properties": {},
            "reason_codes": [0, 0x87],
            "reasons": ["Granted QoS 0", "Not authorized"],
        },
    ),
    ("an UNSUBSCRIBE", Unsubscribe(1, None, ["a", "b"]), V3_1_1, {"packet_identifier": 1, "topic_filters": ["a", "b"]}),
    ("an UNSUBACK of 3.1.1", Unsuback(1), V3_1_1, {"packet_identifier": 1}),
    ("a PINGREQ", Pingreq(), V5, {}),
    ("a DISCONNECT of 3.1.1", Disconnect(), V3_1_1, {}),
    (
        "a DISCONNECT of 5.0",
        Disconnect(0),
        V5,
        {"reason_code": 0, "reason": "Normal disconnection", "properties": {}},
    ),
    (
        "an AUTH",
        Auth(0x18, Properties(authentication_method="m", authentication_data=b"\0")),
        V5,
        {
            "reason_code": 0x18,
            "reason": "Continue authentication",
            "properties": {"authentication_method": "m", "authentication_data": {"length": 1, "redacted": True}},
        },
    ),
]
