"""Rows for CONNECT and CONNACK."""

from __future__ import annotations

from mqttscope.mqtt import Connack, Connect, Properties, Will
from tests.mqtt.case import V3_1, V3_1_1, V5, Case, good


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

ROWS = [*CONNECT_3, *CONNECT_5, *CONNACK]
