"""Rows that break the layout of their version: every reason at least once, with field and offset of the first fault."""

from __future__ import annotations

from tests.mqtt.case import bad

FIXED_HEADER = """
nothing at all
    all | nothing | truncated remaining_length 0
one byte
    all | 30 | truncated remaining_length 1
three bytes of a Remaining Length that continues
    all | 30 ff ff ff | truncated remaining_length 4
PUBLISH that the input ends in
    all | 30 0e 00 05 61 2f 62 | truncated 7
CONNECT that the input ends in
    all | 10 0c 00 04 4d 51 54 54 04 02 | truncated 10
a Remaining Length that asks for a fifth byte
    all | 30 ff ff ff ff 7f | remaining_length_too_long remaining_length 4
a Remaining Length that asks for a fifth byte although its value is small
    all | c0 80 80 80 80 00 | remaining_length_too_long remaining_length 4
a Remaining Length in two bytes where one would do
    5.0 | c0 80 00 | variable_byte_integer_not_minimal remaining_length 1
a CONNECT with a Remaining Length in two bytes where one would do
    5.0 | 10 8d 00 00 04 4d 51 54 54 05 00 00 00 00 00 00 | variable_byte_integer_not_minimal remaining_length 1
packet type 0
    all | 00 00 | packet_type_reserved packet_type 0
packet type 0 with a body
    all | 00 01 00 | packet_type_reserved packet_type 0
AUTH before it was invented
    3.1 3.1.1 | f0 02 18 00 | packet_type_reserved packet_type 0
bytes after the end of the packet
    all | c0 00 c0 | trailing_bytes 2
SUBSCRIBE with flags 0000
    3.1.1 | 80 06 00 01 00 01 61 00 | fixed_header_flags header_flags 0
SUBSCRIBE with flags 0000
    5.0 | 80 07 00 01 00 00 01 61 00 | fixed_header_flags header_flags 0
PUBREL with flags 0000
    3.1.1 5.0 | 60 02 00 01 | fixed_header_flags header_flags 0
PUBREL with DUP
    3.1.1 5.0 | 6a 02 00 01 | fixed_header_flags header_flags 0
UNSUBSCRIBE with DUP
    3.1.1 | aa 05 00 01 00 01 61 | fixed_header_flags header_flags 0
PINGREQ with flags 0001
    3.1.1 5.0 | c1 00 | fixed_header_flags header_flags 0
CONNECT with flags 0001
    3.1.1 | 11 0c 00 04 4d 51 54 54 04 02 00 00 00 00 | fixed_header_flags header_flags 0
PUBLISH with QoS 3
    3.1 3.1.1 | 36 05 00 01 74 00 01 | qos_invalid qos 0
PUBLISH with QoS 3
    5.0 | 36 06 00 01 74 00 01 00 | qos_invalid qos 0
PUBACK of three bytes
    3.1 3.1.1 | 40 03 00 01 00 | remaining_length_wrong remaining_length 1
PUBACK of one byte
    all | 40 01 00 | remaining_length_wrong remaining_length 1
UNSUBACK with codes
    3.1 3.1.1 | b0 03 00 01 00 | remaining_length_wrong remaining_length 1
PINGREQ with a body
    all | c0 01 00 | remaining_length_wrong remaining_length 1
DISCONNECT with a reason code
    3.1 3.1.1 | e0 01 00 | remaining_length_wrong remaining_length 1
CONNACK with properties
    3.1 3.1.1 | 20 03 00 00 00 | remaining_length_wrong remaining_length 1
CONNACK without a body
    all | 20 00 | remaining_length_wrong remaining_length 1
"""

FIELDS = """
PUBLISH whose topic length overruns the packet
    all | 30 05 00 ff 61 62 63 | field_overrun topic_name 2
PUBLISH without room for a topic length
    all | 30 01 00 | field_overrun topic_name 2
PUBLISH with QoS 1 that ends before its identifier
    all | 32 04 00 01 74 00 | field_overrun packet_identifier 5
PUBLISH that ends before its Property Length
    5.0 | 30 03 00 01 74 | property_length_missing properties 5
SUBSCRIBE whose filter overruns the packet
    3.1 3.1.1 | 82 06 00 01 00 09 61 00 | field_overrun subscriptions[0].topic_filter 4
SUBSCRIBE that ends before the options of its second filter
    3.1 3.1.1 | 82 09 00 01 00 01 61 00 00 01 62 | field_overrun subscriptions[1].options 11
UNSUBSCRIBE whose second filter overruns the packet
    3.1 3.1.1 | a2 07 00 01 00 01 61 00 05 | field_overrun topic_filters[1] 7
UNSUBSCRIBE with one byte of a filter length
    5.0 | a2 04 00 01 00 00 | field_overrun topic_filters[0] 5
SUBACK that ends inside its identifier
    all | 90 01 00 | field_overrun packet_identifier 2
CONNECT that ends inside its keep alive
    3.1.1 | 10 09 00 04 4d 51 54 54 04 02 00 | field_overrun keep_alive 10
CONNECT without a protocol level
    3.1.1 | 10 06 00 04 4d 51 54 54 | field_overrun protocol_level 8
CONNECT without a body
    3.1.1 | 10 00 | field_overrun protocol_name 2
DISCONNECT with bytes after its properties
    5.0 | e0 03 00 00 00 | trailing_bytes 4
PUBACK with bytes after its properties
    5.0 | 40 06 00 01 00 00 aa bb | trailing_bytes 6
topic with an invalid continuation byte
    all | 30 07 00 05 61 c3 28 62 00 | utf8_ill_formed topic_name 5
topic with an encoded surrogate
    all | 30 06 00 03 ed a0 80 00 | utf8_ill_formed topic_name 4
topic with an overlong slash
    all | 30 05 00 02 c0 af 00 | utf8_ill_formed topic_name 4
topic above the last plane
    all | 30 07 00 04 f4 90 80 80 00 | utf8_ill_formed topic_name 4
topic with U+0000
    all | 30 06 00 03 61 00 62 00 | utf8_null_character topic_name 5
filter with U+0000
    3.1 3.1.1 | a2 07 00 01 00 03 61 00 62 | utf8_null_character topic_filters[0] 7
options with reserved bits
    3.1.1 | 82 06 00 01 00 01 61 05 | subscription_options_reserved subscriptions[0].reserved 7
options with reserved bits
    5.0 | 82 07 00 01 00 00 01 61 41 | subscription_options_reserved subscriptions[0].reserved 8
options that ask for QoS 3
    3.1 3.1.1 | 82 06 00 01 00 01 61 03 | subscription_qos_invalid subscriptions[0].maximum_qos 7
options that ask for QoS 3 in the second filter
    5.0 | 82 0b 00 01 00 00 01 61 00 00 01 62 03 | subscription_qos_invalid subscriptions[1].maximum_qos 12
CONNACK with return code 6
    3.1 3.1.1 | 20 02 00 06 | reason_code_invalid reason_code 3
SUBACK with failure
    3.1 | 90 04 00 01 00 80 | reason_code_invalid reason_codes[1] 5
SUBACK with a code in between
    3.1.1 | 90 05 00 01 00 03 80 | reason_code_invalid reason_codes[1] 5
PUBREL with a code of PUBACK
    5.0 | 62 03 00 01 10 | reason_code_invalid reason_code 4
UNSUBACK with a granted QoS
    5.0 | b0 04 00 01 00 01 | reason_code_invalid reason_codes[0] 5
CONNACK with bits 7 to 1 of its flags
    3.1.1 | 20 02 80 00 | connack_flags_reserved acknowledge_flags 2
CONNACK with bits 7 to 1 of its flags
    5.0 | 20 03 03 00 00 | connack_flags_reserved acknowledge_flags 2
"""

PROPERTIES = """
Property Length beyond the packet
    5.0 | 30 05 00 01 74 05 01 | property_length_overrun properties 5
property that crosses the end of its block
    5.0 | 30 08 00 01 74 02 02 00 00 00 | property_length_overrun properties.message_expiry_interval 7
property identifier that crosses the end of its block
    5.0 | 30 06 00 01 74 01 80 01 | property_length_overrun properties.property_identifier 6
Property Length of five bytes
    5.0 | 30 09 00 01 74 80 80 80 80 01 00 | variable_byte_integer_too_long properties.property_length 5
Property Length in two bytes where one would do
    5.0 | 30 05 00 01 74 80 00 | variable_byte_integer_not_minimal properties.property_length 5
property identifier in two bytes where one would do
    5.0 | 30 07 00 01 74 03 81 00 01 | variable_byte_integer_not_minimal properties.property_identifier 6
Subscription Identifier of five bytes
    5.0 | 30 0a 00 01 74 06 0b ff ff ff ff 7f | variable_byte_integer_too_long properties.subscription_identifier 7
Subscription Identifier in two bytes where one would do
    5.0 | 30 07 00 01 74 03 0b 81 00 | variable_byte_integer_not_minimal properties.subscription_identifier 7
unknown property
    5.0 | 30 06 00 01 74 02 7e 00 | property_unknown properties.unknown_0x7e 6
unknown property with an identifier of two bytes
    5.0 | 30 07 00 01 74 03 80 01 00 | property_unknown properties.unknown_0x80 6
property of another packet
    5.0 | 30 07 00 01 74 03 13 00 1e | property_not_allowed properties.server_keep_alive 6
property of the will in a CONNECT
    5.0 | 10 12 00 04 4d 51 54 54 05 02 00 00 05 18 00 00 00 01 00 00 |
    property_not_allowed properties.will_delay_interval 13
property of the CONNECT in a will
    5.0 | 10 16 00 04 4d 51 54 54 05 06 00 00 00 00 00 03 21 00 01 00 01 77 00 00 |
    property_not_allowed will.properties.receive_maximum 16
User Property with an ill-formed name
    5.0 | 30 0b 00 01 74 07 26 00 01 ff 00 01 62 | utf8_ill_formed properties.user_property 9
User Property with U+0000 in its value
    5.0 | 30 0b 00 01 74 07 26 00 01 61 00 01 00 | utf8_null_character properties.user_property 12
CONNACK without a Property Length
    5.0 | 20 02 00 00 | property_length_missing properties 4
SUBSCRIBE without a Property Length
    5.0 | 82 02 00 01 | property_length_missing properties 4
Will Property Length beyond the packet
    5.0 | 10 14 00 04 4d 51 54 54 05 06 00 00 00 00 00 60 00 01 77 00 01 78 | property_length_overrun will.properties 15
"""

CONNECT = """
CONNECT of another protocol
    3.1.1 | 10 0c 00 04 48 54 54 50 04 02 00 00 00 00 | protocol_name_invalid protocol_name 2
CONNECT with the name in lower case
    3.1.1 | 10 0c 00 04 6d 71 74 74 04 02 00 00 00 00 | protocol_name_invalid protocol_name 2
CONNECT with level 6
    3.1.1 | 10 0c 00 04 4d 51 54 54 06 02 00 00 00 00 | protocol_version_unknown protocol_level 8
CONNECT with the old name and the new level
    3.1.1 | 10 0e 00 06 4d 51 49 73 64 70 04 02 00 00 00 00 | protocol_version_unknown protocol_level 10
CONNECT with its reserved flag
    3.1.1 | 10 0c 00 04 4d 51 54 54 04 03 00 00 00 00 | connect_flags_reserved connect_flags 9
CONNECT with its reserved flag
    5.0 | 10 0d 00 04 4d 51 54 54 05 03 00 00 00 00 00 | connect_flags_reserved connect_flags 9
CONNECT with will QoS 3
    3.1.1 | 10 12 00 04 4d 51 54 54 04 1e 00 00 00 00 00 01 77 00 01 78 | will_qos_invalid connect_flags 9
CONNECT with will retain and no will
    3.1.1 | 10 0c 00 04 4d 51 54 54 04 22 00 00 00 00 | will_flags_without_will connect_flags 9
CONNECT with will QoS and no will
    5.0 | 10 0d 00 04 4d 51 54 54 05 0a 00 00 00 00 00 | will_flags_without_will connect_flags 9
CONNECT without a client identifier
    3.1.1 | 10 0a 00 04 4d 51 54 54 04 02 00 00 | client_identifier_missing client_identifier 12
CONNECT that ends inside the length of its client identifier
    5.0 | 10 0c 00 04 4d 51 54 54 05 02 00 00 00 00 | client_identifier_missing client_identifier 13
CONNECT whose client identifier overruns the packet
    3.1.1 | 10 0d 00 04 4d 51 54 54 04 02 00 00 00 09 61 | field_overrun client_identifier 12
CONNECT that announces a will and brings none
    3.1.1 | 10 0c 00 04 4d 51 54 54 04 06 00 00 00 00 | connect_payload_mismatch will 14
CONNECT that announces a user name and brings none
    3.1.1 | 10 0c 00 04 4d 51 54 54 04 82 00 00 00 00 | connect_payload_mismatch user_name 14
CONNECT that announces a password and brings none
    5.0 | 10 0d 00 04 4d 51 54 54 05 42 00 00 00 00 00 | connect_payload_mismatch password 15
CONNECT whose user name overruns the packet
    3.1.1 | 10 0f 00 04 4d 51 54 54 04 82 00 00 00 00 00 02 75 | field_overrun user_name 14
CONNECT whose will payload overruns the packet
    3.1.1 | 10 11 00 04 4d 51 54 54 04 06 00 00 00 00 00 01 77 00 05 | field_overrun will.will_payload 17
CONNECT with a user name that was not announced
    3.1.1 | 10 0f 00 04 4d 51 54 54 04 02 00 00 00 00 00 01 75 | connect_payload_mismatch 14
CONNECT with U+0000 in its client identifier
    3.1.1 | 10 0e 00 04 4d 51 54 54 04 02 00 3c 00 02 01 00 | utf8_null_character client_identifier 15
CONNECT with an ill-formed will topic
    3.1.1 | 10 12 00 04 4d 51 54 54 04 06 00 00 00 00 00 01 80 00 01 78 | utf8_ill_formed will.will_topic 16
"""

MANY_FAULTS = "10 15 00 04 6d 71 74 74 04 1f 00 00 00 01 00 00 01 ff 00 01 78 00 00"
"""A CONNECT with a wrong name, a reserved flag, Will QoS 3, two ill-formed texts and bytes too many."""

ROWS = bad(FIXED_HEADER + FIELDS + PROPERTIES + CONNECT)
