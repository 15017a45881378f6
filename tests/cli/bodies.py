"""Packets of every type in hexadecimal, and the JSON object of each, key by key."""

from __future__ import annotations

from typing import Any

V5 = ("--mqtt-version", "5.0")
WITH_WILL = (
    "10 3c 0004 4d515454 05 ce 003c 05 11 00000e10 0003 616263"
    "  0e 18 0000003c 26 0001 6b 0001 76 01 01 0003 772f74 0003 627965 0004 75736572 0006 736563726574"
)
BODIES: list[tuple[str, str, tuple[str, ...], dict[str, Any]]] = [
    (
        "CONNECT with a Will that has properties of its own, user name and password",
        WITH_WILL,
        (),
        {
            "protocol_name": "MQTT",
            "protocol_level": 5,
            "clean_start": True,
            "keep_alive": 60,
            "properties": {"session_expiry_interval": 3600},
            "client_identifier": "abc",
            "will": {
                "will_topic": "w/t",
                "will_payload": {"length": 3, "text": "bye"},
                "will_qos": 1,
                "will_retain": False,
                "properties": {
                    "will_delay_interval": 60,
                    "user_property": [{"name": "k", "value": "v"}],
                    "payload_format_indicator": 1,
                },
            },
            "user_name": "user",
            "password": {"length": 6, "redacted": True},
        },
    ),
    (
        "CONNECT of 3.1.1 without anything",
        "10 0c 0004 4d515454 04 02 000a 0000",
        (),
        {
            "protocol_name": "MQTT",
            "protocol_level": 4,
            "clean_start": True,
            "keep_alive": 10,
            "client_identifier": "",
            "will": None,
            "user_name": None,
            "password": None,
        },
    ),
    (
        "CONNACK",
        "20 06 01 00 03 22 000a",
        V5,
        {
            "session_present": True,
            "reason_code": 0,
            "reason": "Success",
            "properties": {"topic_alias_maximum": 10},
        },
    ),
    (
        "CONNACK of 3.1.1 that refuses",
        "20 02 00 05",
        ("--mqtt-version", "3.1.1"),
        {"session_present": False, "reason_code": 5, "reason": "Connection Refused, not authorized"},
    ),
    (
        "PUBLISH with user properties and a subscription identifier, which are always lists",
        "30 16 0001 61 10 0b 05 26 0001 6b 0001 76 26 0001 6b 0001 77 ff 00",
        V5,
        {
            "dup": False,
            "qos": 0,
            "retain": False,
            "topic_name": "a",
            "packet_identifier": None,
            "properties": {
                "subscription_identifier": [5],
                "user_property": [{"name": "k", "value": "v"}, {"name": "k", "value": "w"}],
            },
            "payload": {"length": 2, "hex": "ff00"},
        },
    ),
    (
        "PUBACK whose reason code was left out",
        "40 02 000a",
        V5,
        {"packet_identifier": 10, "reason_code": 0, "reason": "Success", "properties": {}},
    ),
    ("PUBACK of 3.1.1", "40 02 000a", ("--mqtt-version", "3.1.1"), {"packet_identifier": 10}),
    (
        "PUBREC with a reason",
        "50 03 000a 87",
        V5,
        {"packet_identifier": 10, "reason_code": 135, "reason": "Not authorized", "properties": {}},
    ),
    ("PUBREL of 3.1.1", "62 02 000a", ("--mqtt-version", "3.1.1"), {"packet_identifier": 10}),
    (
        "PUBCOMP with a reason",
        "70 03 000a 92",
        V5,
        {"packet_identifier": 10, "reason_code": 146, "reason": "Packet Identifier not found", "properties": {}},
    ),
    (
        "SUBSCRIBE with all options",
        "82 0c 0001 02 0b 07 0004 612f2f23 2d",
        V5,
        {
            "packet_identifier": 1,
            "properties": {"subscription_identifier": [7]},
            "subscriptions": [
                {
                    "topic_filter": "a//#",
                    "maximum_qos": 1,
                    "no_local": True,
                    "retain_as_published": True,
                    "retain_handling": 2,
                }
            ],
        },
    ),
    (
        "SUBSCRIBE of 3.1.1",
        "82 06 0001 0001 23 02",
        ("--mqtt-version", "3.1.1"),
        {"packet_identifier": 1, "subscriptions": [{"topic_filter": "#", "maximum_qos": 2}]},
    ),
    (
        "SUBACK",
        "90 05 0001 00 01 87",
        V5,
        {
            "packet_identifier": 1,
            "properties": {},
            "reason_codes": [1, 135],
            "reasons": ["Granted QoS 1", "Not authorized"],
        },
    ),
    (
        "UNSUBSCRIBE",
        "a2 09 0001 00 0001 61 0001 62",
        V5,
        {"packet_identifier": 1, "properties": {}, "topic_filters": ["a", "b"]},
    ),
    (
        "UNSUBACK",
        "b0 04 0001 00 11",
        V5,
        {
            "packet_identifier": 1,
            "properties": {},
            "reason_codes": [17],
            "reasons": ["No subscription existed"],
        },
    ),
    ("UNSUBACK of 3.1.1", "b0 02 0001", ("--mqtt-version", "3.1.1"), {"packet_identifier": 1}),
    ("PINGREQ", "c0 00", (), {}),
    ("PINGRESP", "d0 00", (), {}),
    (
        "DISCONNECT of 5.0 with nothing means success",
        "e0 00",
        V5,
        {"reason_code": 0, "reason": "Normal disconnection", "properties": {}},
    ),
    (
        "DISCONNECT with a reason string",
        "e0 07 82 05 1f 0002 6f6b",
        V5,
        {"reason_code": 130, "reason": "Protocol Error", "properties": {"reason_string": "ok"}},
    ),
    ("DISCONNECT of 3.1.1", "e0 00", ("--mqtt-version", "3.1.1"), {}),
    (
        "AUTH",
        "f0 07 18 05 15 0002 4b31",
        V5,
        {
            "reason_code": 24,
            "reason": "Continue authentication",
            "properties": {"authentication_method": "K1"},
        },
    ),
]
