"""Rows of good packets of every type."""

from __future__ import annotations

from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
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
    Will,
)
from tests.mqtt.case import ALL, V3, V3_1, V3_1_1, V5, Case, good


def _bridge(name: str, level: int, **fields: object) -> Connect:
    return Connect(protocol_name=name, protocol_level=level, **fields)  # type: ignore[arg-type]


CONNECT_3: list[Case] = [
    *good(
        "CONNECT with a client identifier",
        V3_1,
        """
        10 10                       # CONNECT, 16 bytes
        00 06 4d 51 49 73 64 70     # protocol name MQIsdp
        03                          # level 3
        02                          # flags: Clean Session
        00 1e                       # keep alive 30
        00 02 63 31                 # client identifier c1
        """,
        Connect(protocol_name="MQIsdp", protocol_level=3, keep_alive=30, client_identifier="c1"),
    ),
    *good(
        "CONNECT with will, user name and password",
        V3_1,
        """
        10 1d
        00 06 4d 51 49 73 64 70     # MQIsdp
        03
        ee                          # user name, password, will retain, will QoS 1, will, clean
        00 00                       # keep alive 0
        00 01 63                    # client identifier c
        00 01 77                    # will topic w
        00 02 00 ff                 # will payload, not text
        00 01 75                    # user name u
        00 02 70 77                 # password pw
        """,
        Connect(
            protocol_name="MQIsdp",
            protocol_level=3,
            client_identifier="c",
            will=Will("w", b"\x00\xff", 1, True),
            user_name="u",
            password=b"pw",
        ),
    ),
    *good(
        "CONNECT may announce a user name that does not come",
        V3_1,
        """
        10 0f
        00 06 4d 51 49 73 64 70
        03
        c2                          # user name and password flags, clean
        00 00
        00 01 63                    # client identifier, and nothing after it
        """,
        Connect(protocol_name="MQIsdp", protocol_level=3, client_identifier="c"),
    ),
    *good(
        "CONNECT may carry the user name alone although the password was announced",
        V3_1,
        """
        10 12
        00 06 4d 51 49 73 64 70
        03
        c2
        00 00
        00 01 63
        00 01 75                    # user name u
        """,
        Connect(protocol_name="MQIsdp", protocol_level=3, client_identifier="c", user_name="u"),
    ),
    *good(
        "CONNECT may have its reserved flag set and will bits without a will",
        V3_1,
        """
        10 0f
        00 06 4d 51 49 73 64 70
        03
        29                          # will retain, will QoS 1, reserved bit; no will, no clean session
        00 00
        00 01 63
        """,
        Connect(protocol_name="MQIsdp", protocol_level=3, client_identifier="c", clean_start=False),
    ),
    *good(
        "CONNECT of a bridge has bit 7 of the level set",
        V3_1,
        "10 0f 00 06 4d 51 49 73 64 70 83 02 00 00 00 01 62",
        _bridge("MQIsdp", 0x83, client_identifier="b"),
    ),
    *good(
        "CONNECT of a bridge has bit 7 of the level set",
        V3_1_1,
        "10 0d 00 04 4d 51 54 54 84 02 00 00 00 01 62",
        _bridge("MQTT", 0x84, client_identifier="b"),
    ),
    *good(
        "CONNECT with an empty client identifier",
        V3_1_1,
        """
        10 0c
        00 04 4d 51 54 54           # MQTT
        04
        02                          # clean
        ff ff                       # keep alive 65535
        00 00                       # client identifier: empty, not absent
        """,
        Connect(keep_alive=65535),
    ),
    *good(
        "CONNECT with everything",
        V3_1_1,
        """
        10 23
        00 04 4d 51 54 54
        04
        f4                          # user name, password, will retain, will QoS 2, will; session kept
        00 3c
        00 03 64 65 76              # dev
        00 06 73 74 61 74 75 73     # will topic status
        00 04 67 6f 6e 65           # will payload gone
        00 01 75
        00 01 70
        """,
        Connect(
            clean_start=False,
            keep_alive=60,
            client_identifier="dev",
            will=Will("status", b"gone", 2, True),
            user_name="u",
            password=b"p",
        ),
    ),
    *good(
        "CONNECT with empty user name, password and will payload",
        V3_1_1,
        """
        10 15
        00 04 4d 51 54 54
        04
        c6                          # user name, password, will, clean
        00 00
        00 00                       # client identifier
        00 01 77                    # will topic w
        00 00                       # will payload: empty
        00 00                       # user name: empty
        00 00                       # password: empty
        """,
        Connect(will=Will("w", b""), user_name="", password=b""),
    ),
    *good(
        "CONNECT with a user name and no password",
        V3_1_1,
        "10 0f 00 04 4d 51 54 54 04 82 00 00 00 00 00 01 75",
        Connect(user_name="u"),
    ),
    *good(
        "CONNECT with a password and no user name is for the linter to judge",
        V3_1_1,
        "10 0f 00 04 4d 51 54 54 04 42 00 00 00 00 00 01 70",
        Connect(password=b"p"),
    ),
    *good(
        "CONNECT may spell its Remaining Length in two bytes where one would do",
        V3_1_1,
        "10 8c 00 00 04 4d 51 54 54 04 02 00 00 00 00",
        Connect(),
        canonical=False,
    ),
]

CONNECT_5: list[Case] = [
    *good(
        "CONNECT with nothing to say",
        V5,
        """
        10 0d
        00 04 4d 51 54 54
        05
        00                          # no flags
        00 00
        00                          # Property Length 0: an empty block, not an absent one
        00 00
        """,
        Connect(protocol_level=5, clean_start=False, properties=Properties()),
    ),
    *good(
        "CONNECT with every property",
        V5,
        """
        10 42
        00 04 4d 51 54 54
        05
        02
        00 0a
        32                          # Property Length 50
        11 00 00 00 00              # Session Expiry Interval 0
        15 00 01 6d                 # Authentication Method m
        16 00 02 00 ff              # Authentication Data
        17 00                       # Request Problem Information 0
        19 01                       # Request Response Information 1
        21 00 14                    # Receive Maximum 20
        22 00 0a                    # Topic Alias Maximum 10
        27 00 00 ff ff              # Maximum Packet Size 65535
        26 00 01 61 00 01 31        # User Property a=1
        26 00 01 61 00 01 32        # a=2: the same name again
        26 00 01 62 00 01 33        # b=3
        00 03 64 65 76
        """,
        Connect(
            protocol_level=5,
            keep_alive=10,
            client_identifier="dev",
            properties=Properties(
                session_expiry_interval=0,
                authentication_method="m",
                authentication_data=b"\x00\xff",
                request_problem_information=0,
                request_response_information=1,
                receive_maximum=20,
                topic_alias_maximum=10,
                maximum_packet_size=65535,
                user_property=[("a", "1"), ("a", "2"), ("b", "3")],
            ),
        ),
    ),
    *good(
        "CONNECT with a will that has every property",
        V5,
        """
        10 4a
        00 04 4d 51 54 54
        05
        2e                          # will retain, will QoS 1, will, clean
        00 00
        00
        00 01 63
        36                          # Will Property Length 54
        18 00 00 00 05              # Will Delay Interval 5
        01 01                       # Payload Format Indicator 1
        02 00 00 00 00              # Message Expiry Interval 0
        03 00 0a 74 65 78 74 2f 70 6c 61 69 6e    # Content Type text/plain
        08 00 03 72 2f 74           # Response Topic r/t
        09 00 01 07                 # Correlation Data
        26 00 01 6b 00 01 76        # User Property k=v
        26 00 01 6b 00 01 77        # k=w
        26 00 00 00 00              # an empty name with an empty value
        00 01 77                    # will topic
        00 00                       # will payload: empty
        """,
        Connect(
            protocol_level=5,
            client_identifier="c",
            properties=Properties(),
            will=Will(
                "w",
                b"",
                1,
                True,
                Properties(
                    will_delay_interval=5,
                    payload_format_indicator=1,
                    message_expiry_interval=0,
                    content_type="text/plain",
                    response_topic="r/t",
                    correlation_data=b"\x07",
                    user_property=[("k", "v"), ("k", "w"), ("", "")],
                ),
            ),
        ),
    ),
    *good(
        "CONNECT with a password alone",
        V5,
        "10 10 00 04 4d 51 54 54 05 42 00 00 00 00 00 00 01 74",
        Connect(protocol_level=5, properties=Properties(), password=b"t"),
    ),
]

CONNACK: list[Case] = [
    *good("CONNACK with nothing set", V3_1_1, "20 02 00 00", Connack(session_present=False, reason_code=0)),
    *good("CONNACK with Session Present", V3_1_1, "20 02 01 00", Connack(session_present=True, reason_code=0)),
    *good("CONNACK has no Session Present", V3_1, "20 02 00 00", Connack(session_present=None, reason_code=0)),
    *good(
        "CONNACK byte 1 was reserved for a topic compression response and may hold anything",
        V3_1,
        "20 02 5a 04",
        Connack(session_present=None, reason_code=4),
    ),
    *good(
        "CONNACK with an empty property block",
        V5,
        "20 03 01 00 00",
        Connack(session_present=True, reason_code=0, properties=Properties()),
    ),
    *good(
        "CONNACK with every property",
        V5,
        """
        20 4e
        00                          # Session Present 0
        00                          # Success
        4b                          # Property Length 75
        11 ff ff ff ff              # Session Expiry Interval: never
        21 00 01                    # Receive Maximum 1
        24 00                       # Maximum QoS 0
        25 00                       # Retain Available 0
        27 00 00 00 80              # Maximum Packet Size 128
        12 00 02 69 64              # Assigned Client Identifier id
        22 00 00                    # Topic Alias Maximum 0
        1f 00 02 6f 6b              # Reason String ok
        26 00 01 6b 00 00           # User Property k with an empty value
        28 00                       # Wildcard Subscription Available 0
        29 01                       # Subscription Identifier Available 1
        2a 00                       # Shared Subscription Available 0
        13 00 1e                    # Server Keep Alive 30
        1a 00 04 72 65 73 70        # Response Information resp
        1c 00 09 68 6f 73 74 3a 31 38 38 33    # Server Reference host:1883
        15 00 05 53 43 52 41 4d     # Authentication Method SCRAM
        16 00 00                    # Authentication Data: empty
        """,
        Connack(
            session_present=False,
            reason_code=0,
            properties=Properties(
                session_expiry_interval=0xFFFFFFFF,
                receive_maximum=1,
                maximum_qos=0,
                retain_available=0,
                maximum_packet_size=128,
                assigned_client_identifier="id",
                topic_alias_maximum=0,
                reason_string="ok",
                user_property=[("k", "")],
                wildcard_subscription_available=0,
                subscription_identifier_available=1,
                shared_subscription_available=0,
                server_keep_alive=30,
                response_information="resp",
                server_reference="host:1883",
                authentication_method="SCRAM",
                authentication_data=b"",
            ),
        ),
    ),
]


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

ROWS = [*CONNECT_3, *CONNECT_5, *CONNACK, *PUBLISH, *ACKNOWLEDGEMENTS, *SUBSCRIPTIONS, *OTHERS]
