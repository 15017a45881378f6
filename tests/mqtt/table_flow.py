"""Rows for PUBLISH, its acknowledgements, subscriptions, pings, DISCONNECT and AUTH."""

from __future__ import annotations

from mqttscope.mqtt import (
    Auth,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from tests.mqtt.case import ALL, V3, V3_1, V3_1_1, V5, Case, good

PUBLISH: list[Case] = [
    *good(
        "PUBLISH with QoS 1, identifier 10 and an empty payload (the worked example of every specification since 1999)",
        V3,
        """
        32 07                       # PUBLISH, DUP 0, QoS 1, RETAIN 0
        00 03 61 2f 62              # a/b
        00 0a                       # identifier 10
        """,
        Publish(qos=1, topic_name="a/b", packet_identifier=10),
    ),
    *good(
        "PUBLISH with QoS 1, identifier 10 and an empty property block (figure 3-9)",
        V5,
        """
        32 08
        00 03 61 2f 62              # a/b
        00 0a                       # identifier 10
        00                          # Property Length 0
        """,
        Publish(qos=1, topic_name="a/b", packet_identifier=10, properties=Properties()),
    ),
    *good(
        "PUBLISH with QoS 0 in the corrected length of a well-known example",
        V5,
        "30 0c 00 05 61 2f 62 2f 63 00 74 65 73 74",
        Publish(topic_name="a/b/c", properties=Properties(), payload=b"test"),
    ),
    *good(
        "PUBLISH with a length two too large takes two bytes of whatever follows",
        V5,
        "30 0e 00 05 61 2f 62 2f 63 00 74 65 73 74 c0 00",
        Publish(topic_name="a/b/c", properties=Properties(), payload=b"test\xc0\x00"),
    ),
    *good(
        "PUBLISH with a Topic Alias in the corrected length of a well-known example",
        V5,
        """
        32 0c
        00 00                       # empty topic
        00 0a                       # identifier 10
        03 23 00 01                 # Topic Alias 1
        64 61 74 61                 # data
        """,
        Publish(qos=1, topic_name="", packet_identifier=10, properties=Properties(topic_alias=1), payload=b"data"),
    ),
    *good(
        "PUBLISH with a length one too small loses the end of its payload",
        V5,
        "32 0b 00 00 00 0a 03 23 00 01 64 61 74",
        Publish(qos=1, topic_name="", packet_identifier=10, properties=Properties(topic_alias=1), payload=b"dat"),
    ),
    *good(
        "PUBLISH to a topic with a leading slash",
        V3_1_1,
        """
        32 2e                       # 46 bytes
        00 1d 2f 68 6f 6d 65 2f 66 6c 6f 6f 72 31 2f 73 65 63 75 72 69 74 79 2f 63 61 6d 65 72 61 32
        00 01                       # identifier 1
        43 61 74 20 64 65 74 65 63 74 65 64 21    # Cat detected!
        """,
        Publish(qos=1, topic_name="/home/floor1/security/camera2", packet_identifier=1, payload=b"Cat detected!"),
    ),
    *good(
        "PUBLISH with DUP, QoS 2 and RETAIN",
        V3,
        "3d 06 00 01 74 00 01 70",
        Publish(dup=True, qos=2, retain=True, topic_name="t", packet_identifier=1, payload=b"p"),
    ),
    *good(
        "PUBLISH with identifier 0 is for the linter to judge",
        V3,
        "32 05 00 01 74 00 00",
        Publish(qos=1, topic_name="t", packet_identifier=0),
    ),
    *good("PUBLISH with DUP at QoS 0", V3, "38 03 00 01 74", Publish(dup=True, topic_name="t")),
    *good("PUBLISH with an empty topic", V3, "30 02 00 00", Publish(topic_name="")),
    *good(
        "PUBLISH with a payload that is not text",
        V3,
        "31 06 00 01 74 c3 28 00",
        Publish(retain=True, topic_name="t", payload=b"\xc3\x28\x00"),
    ),
    *good(
        "PUBLISH with text from every plane and a byte order mark",
        V3,
        "30 0e 00 0c ef bb bf c3 a4 ef bf bf f0 9f 90 9f",
        Publish(topic_name="\ufeffä\uffff\U0001f41f"),
    ),
    *good(
        "PUBLISH with every property, some of them zero or empty",
        V5,
        """
        35 37
        00 01 74
        ff ff                       # identifier 65535
        31                          # Property Length 49
        01 00                       # Payload Format Indicator 0
        02 00 00 00 00              # Message Expiry Interval 0
        23 ff ff                    # Topic Alias 65535
        08 00 00                    # Response Topic: empty
        09 00 00                    # Correlation Data: empty
        26 00 01 61 00 01 31        # a=1
        26 00 01 61 00 01 32        # a=2
        26 00 01 62 00 01 33        # b=3
        0b 01                       # Subscription Identifier 1
        0b ff ff ff 7f              # Subscription Identifier 268435455
        03 00 02 74 65              # Content Type te
        """,
        Publish(
            qos=2,
            retain=True,
            topic_name="t",
            packet_identifier=65535,
            properties=Properties(
                payload_format_indicator=0,
                message_expiry_interval=0,
                topic_alias=65535,
                response_topic="",
                correlation_data=b"",
                user_property=[("a", "1"), ("a", "2"), ("b", "3")],
                subscription_identifier=[1, 268435455],
                content_type="te",
            ),
        ),
    ),
    *good(
        "PUBLISH with a property twice is for the linter to judge",
        V5,
        "30 0a 00 01 74 06 23 00 01 23 00 02",
        Publish(topic_name="t", properties=Properties.of([(0x23, 1), (0x23, 2)])),
    ),
]

ACKNOWLEDGEMENTS: list[Case] = [
    *good("PUBACK", ALL, "40 02 00 0a", Puback(10)),
    *good("PUBREC", ALL, "50 02 ff ff", Pubrec(65535)),
    *good("PUBREL", ALL, "62 02 00 01", Pubrel(1)),
    *good("PUBCOMP", ALL, "70 02 00 00", Pubcomp(0)),
    *good(
        "PUBACK may spell its Remaining Length in four bytes", V3, "40 82 80 80 00 00 0a", Puback(10), canonical=False
    ),
    *good("PUBREL may carry DUP", V3_1, "6a 02 00 01", Pubrel(1, header_flags=0xA)),
    *good("PUBACK may carry flags that mean nothing yet", V3_1, "4f 02 00 01", Puback(1, header_flags=0xF)),
    *good("PUBACK with a reason code and no properties", V5, "40 03 00 01 10", Puback(1, 0x10)),
    *good("PUBACK that says Success where it could be left out", V5, "40 03 00 01 00", Puback(1, 0)),
    *good("PUBREC with an empty property block", V5, "50 04 00 01 00 00", Pubrec(1, 0, Properties())),
    *good(
        "PUBREC with a Reason String and a User Property",
        V5,
        """
        50 13
        00 01
        97                          # Quota exceeded
        0f
        1f 00 04 66 75 6c 6c        # Reason String full
        26 00 02 6b 31 00 01 76     # k1=v
        """,
        Pubrec(1, 0x97, Properties(reason_string="full", user_property=[("k1", "v")])),
    ),
    *good("PUBREL with Packet Identifier not found", V5, "62 04 00 01 92 00", Pubrel(1, 0x92, Properties())),
    *good("PUBCOMP with Packet Identifier not found", V5, "70 03 00 01 92", Pubcomp(1, 0x92)),
]

SUBSCRIPTIONS: list[Case] = [
    *good(
        "SUBSCRIBE with two filters",
        V3,
        """
        82 0e
        00 0a
        00 03 61 2f 62              # a/b
        01                          # QoS 1
        00 03 63 2f 23              # c/#
        02                          # QoS 2
        """,
        Subscribe(10, None, [Subscription("a/b", 1), Subscription("c/#", 2)]),
    ),
    *good(
        "SUBSCRIBE may carry DUP",
        V3_1,
        "8a 06 00 01 00 01 61 00",
        Subscribe(1, None, [Subscription("a")], header_flags=10),
    ),
    *good(
        "SUBSCRIBE has bits 7 to 2 that mean nothing yet",
        V3_1,
        "82 06 00 01 00 01 61 fd",
        Subscribe(1, None, [Subscription("a", 1, reserved=0xFC)]),
    ),
    *good("SUBSCRIBE without a filter is for the linter to judge", V3, "82 02 00 01", Subscribe(1, None, [])),
    *good(
        "SUBSCRIBE with all options and properties",
        V5,
        """
        82 1a
        00 0a
        0c
        0b 80 01                    # Subscription Identifier 128
        26 00 01 6b 00 01 76 0b 01  # k=v, and a second Subscription Identifier
        00 01 61 2e                 # a: QoS 2, No Local, Retain As Published, Retain Handling 2
        00 01 62 00                 # b
        00 00 30                    # an empty filter with the reserved Retain Handling 3
        """,
        Subscribe(
            10,
            Properties.of([(0x0B, 128), (0x26, ("k", "v")), (0x0B, 1)]),
            [
                Subscription("a", 2, True, True, 2),
                Subscription("b"),
                Subscription("", 0, False, False, 3),
            ],
        ),
    ),
    *good("SUBACK with each granted QoS", V3_1, "90 05 00 0a 00 01 02", Suback(10, None, [0, 1, 2])),
    *good(
        "SUBACK with each granted QoS and failure", V3_1_1, "90 06 00 0a 00 01 02 80", Suback(10, None, [0, 1, 2, 0x80])
    ),
    *good("SUBACK without codes", V3, "90 02 00 01", Suback(1, None, [])),
    *good(
        "SUBACK with properties",
        V5,
        "90 0a 00 01 05 1f 00 02 6f 6b 00 a2",
        Suback(1, Properties(reason_string="ok"), [0, 0xA2]),
    ),
    *good("UNSUBSCRIBE with two filters", V3, "a2 08 00 01 00 01 61 00 01 62", Unsubscribe(1, None, ["a", "b"])),
    *good("UNSUBSCRIBE may carry DUP", V3_1, "aa 05 00 01 00 01 61", Unsubscribe(1, None, ["a"], header_flags=0xA)),
    *good(
        "UNSUBSCRIBE with a User Property",
        V5,
        "a2 0e 00 01 07 26 00 01 6b 00 01 76 00 02 61 2f",
        Unsubscribe(1, Properties(user_property=[("k", "v")]), ["a/"]),
    ),
    *good("UNSUBACK", V3, "b0 02 00 0a", Unsuback(10)),
    *good("UNSUBACK with codes", V5, "b0 05 00 0a 00 00 11", Unsuback(10, Properties(), [0, 0x11])),
    *good("UNSUBACK without codes", V5, "b0 03 00 0a 00", Unsuback(10, Properties(), [])),
]

OTHERS: list[Case] = [
    *good("PINGREQ", ALL, "c0 00", Pingreq()),
    *good("PINGRESP", ALL, "d0 00", Pingresp()),
    *good("PINGREQ may carry flags that mean nothing yet", V3_1, "c8 00", Pingreq(header_flags=8)),
    *good("PINGREQ may spell its Remaining Length in two bytes", V3, "c0 80 00", Pingreq(), canonical=False),
    *good("DISCONNECT", ALL, "e0 00", Disconnect()),
    *good("DISCONNECT with a reason code and no properties", V5, "e0 01 04", Disconnect(4)),
    *good("DISCONNECT that says Normal disconnection where it could be left out", V5, "e0 01 00", Disconnect(0)),
    *good("DISCONNECT with an empty property block", V5, "e0 02 8e 00", Disconnect(0x8E, Properties())),
    *good(
        "DISCONNECT with every property",
        V5,
        """
        e0 17
        9d                          # Server moved
        15
        11 00 00 00 01              # Session Expiry Interval 1
        1f 00 00                    # Reason String: empty
        26 00 00 00 00              # User Property: empty name, empty value
        1c 00 05 68 3a 31 2c 20     # Server Reference
        """,
        Disconnect(
            0x9D,
            Properties(session_expiry_interval=1, reason_string="", user_property=[("", "")], server_reference="h:1, "),
        ),
    ),
    *good("AUTH without anything", V5, "f0 00", Auth()),
    *good("AUTH with a reason code and no properties", V5, "f0 01 18", Auth(0x18)),
    *good(
        "AUTH with every property",
        V5,
        """
        f0 17
        19                          # Re-authenticate
        15
        15 00 01 6d                 # Authentication Method m
        16 00 01 00                 # Authentication Data
        1f 00 03 77 68 79           # Reason String why
        26 00 01 61 00 01 62        # a=b
        """,
        Auth(
            0x19,
            Properties(
                authentication_method="m",
                authentication_data=b"\0",
                reason_string="why",
                user_property=[("a", "b")],
            ),
        ),
    ),
]

ROWS = [*PUBLISH, *ACKNOWLEDGEMENTS, *SUBSCRIPTIONS, *OTHERS]
