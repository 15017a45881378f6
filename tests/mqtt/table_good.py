"""Rows of good packets of every type."""

from __future__ import annotations

from tests.mqtt.case import good

CONNECT_3 = """
CONNECT with a client identifier
    3.1 | connect 3.1 client=c1 keep_alive=30 |
    10 10                       # CONNECT, 16 bytes
    00 06 4d 51 49 73 64 70     # protocol name MQIsdp
    03                          # level 3
    02                          # flags: Clean Session
    00 1e                       # keep alive 30
    00 02 63 31                 # client identifier c1
CONNECT with will, user name and password
    3.1 | connect 3.1 client=c keep_alive=0 will=w will_payload=0x00ff will_qos=1 will_retain user_name=u password=pw |
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
CONNECT may announce a user name that does not come
    3.1 | connect 3.1 client=c keep_alive=0 |
    10 0f
    00 06 4d 51 49 73 64 70
    03
    c2                          # user name and password flags, clean
    00 00
    00 01 63                    # client identifier, and nothing after it
CONNECT may carry the user name alone although the password was announced
    3.1 | connect 3.1 client=c keep_alive=0 user_name=u |
    10 12
    00 06 4d 51 49 73 64 70
    03
    c2
    00 00
    00 01 63
    00 01 75                    # user name u
CONNECT may have its reserved flag set and will bits without a will
    3.1 | connect 3.1 client=c keep_alive=0 resume |
    10 0f
    00 06 4d 51 49 73 64 70
    03
    29                          # will retain, will QoS 1, reserved bit; no will, no clean session
    00 00
    00 01 63
CONNECT of a bridge has bit 7 of the level set
    3.1 | connect client=b keep_alive=0 protocol_name=MQIsdp protocol_level=0x83 |
    10 0f 00 06 4d 51 49 73 64 70 83 02 00 00 00 01 62
CONNECT of a bridge has bit 7 of the level set
    3.1.1 | connect client=b keep_alive=0 protocol_level=0x84 | 10 0d 00 04 4d 51 54 54 84 02 00 00 00 01 62
CONNECT with an empty client identifier
    3.1.1 | connect 3.1.1 client=- keep_alive=65535 |
    10 0c
    00 04 4d 51 54 54           # MQTT
    04
    02                          # clean
    ff ff                       # keep alive 65535
    00 00                       # client identifier: empty, not absent
CONNECT with everything
    3.1.1 | connect 3.1.1 client=dev keep_alive=60 resume will=status will_payload=gone will_qos=2 will_retain
      user_name=u password=p |
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
CONNECT with empty user name, password and will payload
    3.1.1 | connect 3.1.1 client=- keep_alive=0 will=w will_payload=- user_name=- password=- |
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
CONNECT with a user name and no password
    3.1.1 | connect 3.1.1 client=- keep_alive=0 user_name=u | 10 0f 00 04 4d 51 54 54 04 82 00 00 00 00 00 01 75
CONNECT with a password and no user name is for the linter to judge
    3.1.1 | connect 3.1.1 client=- keep_alive=0 password=p | 10 0f 00 04 4d 51 54 54 04 42 00 00 00 00 00 01 70
"""

CONNECT_5 = """
CONNECT with nothing to say
    5.0 | connect 5.0 client=- keep_alive=0 resume properties |
    10 0d
    00 04 4d 51 54 54
    05
    00                          # no flags
    00 00
    00                          # Property Length 0: an empty block, not an absent one
    00 00
CONNECT with every property
    5.0 | connect 5.0 client=dev keep_alive=10 session_expiry_interval=0 authentication_method=m
      authentication_data=0x00ff request_problem_information=0 request_response_information=1 receive_maximum=20
      topic_alias_maximum=10 maximum_packet_size=65535 user_property=a:1 user_property=a:2 user_property=b:3 |
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
CONNECT with a will that has every property
    5.0 | connect 5.0 client=c keep_alive=0 will=w will_payload=- will_qos=1 will_retain will.will_delay_interval=5
      will.payload_format_indicator=1 will.message_expiry_interval=0 will.content_type=text/plain
      will.response_topic=r/t will.correlation_data=0x07 will.user_property=k:v will.user_property=k:w
      will.user_property="":"" properties |
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
CONNECT with a password alone
    5.0 | connect 5.0 client=- keep_alive=0 password=t properties |
    10 10 00 04 4d 51 54 54 05 42 00 00 00 00 00 00 01 74
"""

CONNACK = """
CONNACK with nothing set
    3.1.1 | connack | 20 02 00 00
CONNACK with Session Present
    3.1.1 | connack present | 20 02 01 00
CONNACK has no Session Present
    3.1 | connack | 20 02 00 00
CONNACK byte 1 was reserved for a topic compression response and may hold anything
    3.1 | connack code=4 | 20 02 5a 04
CONNACK with an empty property block
    5.0 | connack present properties | 20 03 01 00 00
CONNACK with every property
    5.0 | connack session_expiry_interval=4294967295 receive_maximum=1 maximum_qos=0 retain_available=0
      maximum_packet_size=128 assigned_client_identifier=id topic_alias_maximum=0 reason_string=ok user_property=k:""
      wildcard_subscription_available=0 subscription_identifier_available=1 shared_subscription_available=0
      server_keep_alive=30 response_information=resp server_reference=host:1883 authentication_method=SCRAM
      authentication_data=- |
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
"""

PUBLISH = """
PUBLISH with QoS 1, identifier 10 and an empty payload (the worked example of every specification since 1999)
    3.1 3.1.1 | publish a/b qos=1 id=10 |
    32 07                       # PUBLISH, DUP 0, QoS 1, RETAIN 0
    00 03 61 2f 62              # a/b
    00 0a                       # identifier 10
PUBLISH with QoS 1, identifier 10 and an empty property block (figure 3-9)
    5.0 | publish a/b qos=1 id=10 properties |
    32 08
    00 03 61 2f 62              # a/b
    00 0a                       # identifier 10
    00                          # Property Length 0
PUBLISH with QoS 0 in the corrected length of a well-known example
    5.0 | publish a/b/c test properties | 30 0c 00 05 61 2f 62 2f 63 00 74 65 73 74
PUBLISH with a length two too large takes two bytes of whatever follows
    5.0 | publish a/b/c 0x74657374c000 properties | 30 0e 00 05 61 2f 62 2f 63 00 74 65 73 74 c0 00
PUBLISH with a Topic Alias in the corrected length of a well-known example
    5.0 | publish - data qos=1 id=10 topic_alias=1 |
    32 0c
    00 00                       # empty topic
    00 0a                       # identifier 10
    03 23 00 01                 # Topic Alias 1
    64 61 74 61                 # data
PUBLISH with a length one too small loses the end of its payload
    5.0 | publish - dat qos=1 id=10 topic_alias=1 | 32 0b 00 00 00 0a 03 23 00 01 64 61 74
PUBLISH to a topic with a leading slash
    3.1.1 | publish /home/floor1/security/camera2 "Cat detected!" qos=1 id=1 |
    32 2e                       # 46 bytes
    00 1d 2f 68 6f 6d 65 2f 66 6c 6f 6f 72 31 2f 73 65 63 75 72 69 74 79 2f 63 61 6d 65 72 61 32
    00 01                       # identifier 1
    43 61 74 20 64 65 74 65 63 74 65 64 21    # Cat detected!
PUBLISH with DUP, QoS 2 and RETAIN
    3.1 3.1.1 | publish t p dup retain qos=2 id=1 | 3d 06 00 01 74 00 01 70
PUBLISH with identifier 0 is for the linter to judge
    3.1 3.1.1 | publish t qos=1 id=0 | 32 05 00 01 74 00 00
PUBLISH with DUP at QoS 0
    3.1 3.1.1 | publish t dup | 38 03 00 01 74
PUBLISH with an empty topic
    3.1 3.1.1 | publish - | 30 02 00 00
PUBLISH with a payload that is not text
    3.1 3.1.1 | publish t 0xc32800 retain | 31 06 00 01 74 c3 28 00
PUBLISH with text from every plane and a byte order mark
    3.1 3.1.1 | publish "\ufeff\u00e4\uffff\U0001f41f" | 30 0e 00 0c ef bb bf c3 a4 ef bf bf f0 9f 90 9f
PUBLISH with every property, some of them zero or empty
    5.0 | publish t retain qos=2 id=65535 payload_format_indicator=0 message_expiry_interval=0 topic_alias=65535
      response_topic=- correlation_data=- user_property=a:1 user_property=a:2 user_property=b:3
      subscription_identifier=1 subscription_identifier=268435455 content_type=te |
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
PUBLISH with a property twice is for the linter to judge
    5.0 | publish t topic_alias=1 topic_alias=2 | 30 0a 00 01 74 06 23 00 01 23 00 02
"""

ACKNOWLEDGEMENTS = """
PUBACK
    all | puback 10 | 40 02 00 0a
PUBREC
    all | pubrec 65535 | 50 02 ff ff
PUBREL
    all | pubrel 1 | 62 02 00 01
PUBCOMP
    all | pubcomp 0 | 70 02 00 00
PUBREL may carry DUP
    3.1 | pubrel 1 header_flags=0xa | 6a 02 00 01
PUBACK may carry flags that mean nothing yet
    3.1 | puback 1 header_flags=0xf | 4f 02 00 01
PUBACK with a reason code and no properties
    5.0 | puback 1 code=0x10 | 40 03 00 01 10
PUBACK that says Success where it could be left out
    5.0 | puback 1 code=0 | 40 03 00 01 00
PUBREC with an empty property block
    5.0 | pubrec 1 code=0 properties | 50 04 00 01 00 00
PUBREC with a Reason String and a User Property
    5.0 | pubrec 1 code=0x97 reason_string=full user_property=k1:v |
    50 13
    00 01
    97                          # Quota exceeded
    0f
    1f 00 04 66 75 6c 6c        # Reason String full
    26 00 02 6b 31 00 01 76     # k1=v
PUBREL with Packet Identifier not found
    5.0 | pubrel 1 code=0x92 properties | 62 04 00 01 92 00
PUBCOMP with Packet Identifier not found
    5.0 | pubcomp 1 code=0x92 | 70 03 00 01 92
"""

SUBSCRIPTIONS = """
SUBSCRIBE with two filters
    3.1 3.1.1 | subscribe 10 a/b:1 c/#:2 |
    82 0e
    00 0a
    00 03 61 2f 62              # a/b
    01                          # QoS 1
    00 03 63 2f 23              # c/#
    02                          # QoS 2
SUBSCRIBE may carry DUP
    3.1 | subscribe 1 header_flags=0xa a:0 | 8a 06 00 01 00 01 61 00
SUBSCRIBE has bits 7 to 2 that mean nothing yet
    3.1 | subscribe 1 a:1,reserved=0xfc | 82 06 00 01 00 01 61 fd
SUBSCRIBE without a filter is for the linter to judge
    3.1 3.1.1 | subscribe 1 empty | 82 02 00 01
SUBSCRIBE with all options and properties
    5.0 | subscribe 10 a:2,no_local,retain_as_published,retain_handling=2 b:0 "":0,retain_handling=3
      subscription_identifier=128 user_property=k:v subscription_identifier=1 |
    82 1a
    00 0a
    0c
    0b 80 01                    # Subscription Identifier 128
    26 00 01 6b 00 01 76 0b 01  # k=v, and a second Subscription Identifier
    00 01 61 2e                 # a: QoS 2, No Local, Retain As Published, Retain Handling 2
    00 01 62 00                 # b
    00 00 30                    # an empty filter with the reserved Retain Handling 3
SUBACK with each granted QoS
    3.1 | suback 10 0 1 2 | 90 05 00 0a 00 01 02
SUBACK with each granted QoS and failure
    3.1.1 | suback 10 0 1 2 0x80 | 90 06 00 0a 00 01 02 80
SUBACK without codes
    3.1 3.1.1 | suback 1 empty | 90 02 00 01
SUBACK with properties
    5.0 | suback 1 0 0xa2 reason_string=ok | 90 0a 00 01 05 1f 00 02 6f 6b 00 a2
UNSUBSCRIBE with two filters
    3.1 3.1.1 | unsubscribe 1 a b | a2 08 00 01 00 01 61 00 01 62
UNSUBSCRIBE may carry DUP
    3.1 | unsubscribe 1 header_flags=0xa a | aa 05 00 01 00 01 61
UNSUBSCRIBE with a User Property
    5.0 | unsubscribe 1 a/ user_property=k:v | a2 0e 00 01 07 26 00 01 6b 00 01 76 00 02 61 2f
UNSUBACK
    3.1 3.1.1 | unsuback 10 | b0 02 00 0a
UNSUBACK with codes
    5.0 | unsuback 10 0 0x11 properties | b0 05 00 0a 00 00 11
UNSUBACK without codes
    5.0 | unsuback 10 empty properties | b0 03 00 0a 00
"""

OTHERS = """
PINGREQ
    all | pingreq | c0 00
PINGRESP
    all | pingresp | d0 00
PINGREQ may carry flags that mean nothing yet
    3.1 | pingreq header_flags=8 | c8 00
DISCONNECT
    all | disconnect | e0 00
DISCONNECT with a reason code and no properties
    5.0 | disconnect code=4 | e0 01 04
DISCONNECT that says Normal disconnection where it could be left out
    5.0 | disconnect code=0 | e0 01 00
DISCONNECT with an empty property block
    5.0 | disconnect code=0x8e properties | e0 02 8e 00
DISCONNECT with every property
    5.0 | disconnect code=0x9d session_expiry_interval=1 reason_string=- user_property="":"" server_reference="h:1, " |
    e0 17
    9d                          # Server moved
    15
    11 00 00 00 01              # Session Expiry Interval 1
    1f 00 00                    # Reason String: empty
    26 00 00 00 00              # User Property: empty name, empty value
    1c 00 05 68 3a 31 2c 20     # Server Reference
AUTH without anything
    5.0 | auth | f0 00
AUTH with a reason code and no properties
    5.0 | auth code=0x18 | f0 01 18
AUTH with every property
    5.0 | auth code=0x19 authentication_method=m authentication_data=0x00 reason_string=why user_property=a:b |
    f0 17
    19                          # Re-authenticate
    15
    15 00 01 6d                 # Authentication Method m
    16 00 01 00                 # Authentication Data
    1f 00 03 77 68 79           # Reason String why
    26 00 01 61 00 01 62        # a=b
"""

SPELLED_OTHERWISE = """
CONNECT may spell its Remaining Length in two bytes where one would do
    3.1.1 | connect 3.1.1 client=- keep_alive=0 | 10 8c 00 00 04 4d 51 54 54 04 02 00 00 00 00
PUBACK may spell its Remaining Length in four bytes
    3.1 3.1.1 | puback 10 | 40 82 80 80 00 00 0a
PINGREQ may spell its Remaining Length in two bytes
    3.1 3.1.1 | pingreq | c0 80 00
"""
"""Packets with a Remaining Length of more bytes than the encoder uses."""

ROWS = [
    *good(CONNECT_3 + CONNECT_5 + CONNACK + PUBLISH + ACKNOWLEDGEMENTS + SUBSCRIPTIONS + OTHERS),
    *good(SPELLED_OTHERWISE, canonical=False),
]
