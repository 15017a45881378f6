"""Rows that break the layout of their version: every reason at least once, with field and offset of the first fault."""

from __future__ import annotations

from mqttscope.mqtt import MalformedReason as R
from tests.mqtt.case import ALL, V3, V3_1, V3_1_1, V5, Case, bad

FIXED_HEADER: list[Case] = [
    *bad("nothing at all", ALL, "", R.TRUNCATED, "remaining_length", 0),
    *bad("one byte", ALL, "30", R.TRUNCATED, "remaining_length", 1),
    *bad("three bytes of a Remaining Length that continues", ALL, "30 ff ff ff", R.TRUNCATED, "remaining_length", 4),
    *bad("PUBLISH that the input ends in", ALL, "30 0e 00 05 61 2f 62", R.TRUNCATED, "", 7),
    *bad("CONNECT that the input ends in", ALL, "10 0c 00 04 4d 51 54 54 04 02", R.TRUNCATED, "", 10),
    *bad(
        "a Remaining Length that asks for a fifth byte",
        ALL,
        "30 ff ff ff ff 7f",
        R.REMAINING_LENGTH_TOO_LONG,
        "remaining_length",
        4,
    ),
    *bad(
        "a Remaining Length that asks for a fifth byte although its value is small",
        ALL,
        "c0 80 80 80 80 00",
        R.REMAINING_LENGTH_TOO_LONG,
        "remaining_length",
        4,
    ),
    *bad(
        "a Remaining Length in two bytes where one would do",
        V5,
        "c0 80 00",
        R.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,
        "remaining_length",
        1,
    ),
    *bad(
        "a CONNECT with a Remaining Length in two bytes where one would do",
        V5,
        "10 8d 00 00 04 4d 51 54 54 05 00 00 00 00 00 00",
        R.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,
        "remaining_length",
        1,
    ),
    *bad("packet type 0", ALL, "00 00", R.PACKET_TYPE_RESERVED, "packet_type", 0),
    *bad("packet type 0 with a body", ALL, "00 01 00", R.PACKET_TYPE_RESERVED, "packet_type", 0),
    *bad("AUTH before it was invented", V3, "f0 02 18 00", R.PACKET_TYPE_RESERVED, "packet_type", 0),
    *bad("bytes after the end of the packet", ALL, "c0 00 c0", R.TRAILING_BYTES, "", 2),
    *bad("SUBSCRIBE with flags 0000", (V3_1_1,), "80 06 00 01 00 01 61 00", R.FIXED_HEADER_FLAGS, "header_flags", 0),
    *bad("SUBSCRIBE with flags 0000", V5, "80 07 00 01 00 00 01 61 00", R.FIXED_HEADER_FLAGS, "header_flags", 0),
    *bad("PUBREL with flags 0000", (V3_1_1, V5), "60 02 00 01", R.FIXED_HEADER_FLAGS, "header_flags", 0),
    *bad("PUBREL with DUP", (V3_1_1, V5), "6a 02 00 01", R.FIXED_HEADER_FLAGS, "header_flags", 0),
    *bad("UNSUBSCRIBE with DUP", V3_1_1, "aa 05 00 01 00 01 61", R.FIXED_HEADER_FLAGS, "header_flags", 0),
    *bad("PINGREQ with flags 0001", (V3_1_1, V5), "c1 00", R.FIXED_HEADER_FLAGS, "header_flags", 0),
    *bad(
        "CONNECT with flags 0001",
        V3_1_1,
        "11 0c 00 04 4d 51 54 54 04 02 00 00 00 00",
        R.FIXED_HEADER_FLAGS,
        "header_flags",
        0,
    ),
    *bad("PUBLISH with QoS 3", V3, "36 05 00 01 74 00 01", R.QOS_INVALID, "qos", 0),
    *bad("PUBLISH with QoS 3", V5, "36 06 00 01 74 00 01 00", R.QOS_INVALID, "qos", 0),
    *bad("PUBACK of three bytes", V3, "40 03 00 01 00", R.REMAINING_LENGTH_WRONG, "remaining_length", 1),
    *bad("PUBACK of one byte", ALL, "40 01 00", R.REMAINING_LENGTH_WRONG, "remaining_length", 1),
    *bad("UNSUBACK with codes", V3, "b0 03 00 01 00", R.REMAINING_LENGTH_WRONG, "remaining_length", 1),
    *bad("PINGREQ with a body", ALL, "c0 01 00", R.REMAINING_LENGTH_WRONG, "remaining_length", 1),
    *bad("DISCONNECT with a reason code", V3, "e0 01 00", R.REMAINING_LENGTH_WRONG, "remaining_length", 1),
    *bad("CONNACK with properties", V3, "20 03 00 00 00", R.REMAINING_LENGTH_WRONG, "remaining_length", 1),
    *bad("CONNACK without a body", ALL, "20 00", R.REMAINING_LENGTH_WRONG, "remaining_length", 1),
]

FIELDS: list[Case] = [
    *bad(
        "PUBLISH whose topic length overruns the packet", ALL, "30 05 00 ff 61 62 63", R.FIELD_OVERRUN, "topic_name", 2
    ),
    *bad("PUBLISH without room for a topic length", ALL, "30 01 00", R.FIELD_OVERRUN, "topic_name", 2),
    *bad(
        "PUBLISH with QoS 1 that ends before its identifier",
        ALL,
        "32 04 00 01 74 00",
        R.FIELD_OVERRUN,
        "packet_identifier",
        5,
    ),
    *bad(
        "PUBLISH that ends before its Property Length", V5, "30 03 00 01 74", R.PROPERTY_LENGTH_MISSING, "properties", 5
    ),
    *bad(
        "SUBSCRIBE whose filter overruns the packet",
        V3,
        "82 06 00 01 00 09 61 00",
        R.FIELD_OVERRUN,
        "subscriptions[0].topic_filter",
        4,
    ),
    *bad(
        "SUBSCRIBE that ends before the options of its second filter",
        V3,
        "82 09 00 01 00 01 61 00 00 01 62",
        R.FIELD_OVERRUN,
        "subscriptions[1].options",
        11,
    ),
    *bad(
        "UNSUBSCRIBE whose second filter overruns the packet",
        V3,
        "a2 07 00 01 00 01 61 00 05",
        R.FIELD_OVERRUN,
        "topic_filters[1]",
        7,
    ),
    *bad(
        "UNSUBSCRIBE with one byte of a filter length", V5, "a2 04 00 01 00 00", R.FIELD_OVERRUN, "topic_filters[0]", 5
    ),
    *bad("SUBACK that ends inside its identifier", ALL, "90 01 00", R.FIELD_OVERRUN, "packet_identifier", 2),
    *bad(
        "CONNECT that ends inside its keep alive",
        V3_1_1,
        "10 09 00 04 4d 51 54 54 04 02 00",
        R.FIELD_OVERRUN,
        "keep_alive",
        10,
    ),
    *bad("CONNECT without a protocol level", V3_1_1, "10 06 00 04 4d 51 54 54", R.FIELD_OVERRUN, "protocol_level", 8),
    *bad("CONNECT without a body", V3_1_1, "10 00", R.FIELD_OVERRUN, "protocol_name", 2),
    *bad("DISCONNECT with bytes after its properties", V5, "e0 03 00 00 00", R.TRAILING_BYTES, "", 4),
    *bad("PUBACK with bytes after its properties", V5, "40 06 00 01 00 00 aa bb", R.TRAILING_BYTES, "", 6),
    *bad(
        "topic with an invalid continuation byte", ALL, "30 07 00 05 61 c3 28 62 00", R.UTF8_ILL_FORMED, "topic_name", 5
    ),
    *bad("topic with an encoded surrogate", ALL, "30 06 00 03 ed a0 80 00", R.UTF8_ILL_FORMED, "topic_name", 4),
    *bad("topic with an overlong slash", ALL, "30 05 00 02 c0 af 00", R.UTF8_ILL_FORMED, "topic_name", 4),
    *bad("topic above the last plane", ALL, "30 07 00 04 f4 90 80 80 00", R.UTF8_ILL_FORMED, "topic_name", 4),
    *bad("topic with U+0000", ALL, "30 06 00 03 61 00 62 00", R.UTF8_NULL_CHARACTER, "topic_name", 5),
    *bad("filter with U+0000", V3, "a2 07 00 01 00 03 61 00 62", R.UTF8_NULL_CHARACTER, "topic_filters[0]", 7),
    *bad(
        "options with reserved bits",
        V3_1_1,
        "82 06 00 01 00 01 61 05",
        R.SUBSCRIPTION_OPTIONS_RESERVED,
        "subscriptions[0].reserved",
        7,
    ),
    *bad(
        "options with reserved bits",
        V5,
        "82 07 00 01 00 00 01 61 41",
        R.SUBSCRIPTION_OPTIONS_RESERVED,
        "subscriptions[0].reserved",
        8,
    ),
    *bad(
        "options that ask for QoS 3",
        V3,
        "82 06 00 01 00 01 61 03",
        R.SUBSCRIPTION_QOS_INVALID,
        "subscriptions[0].maximum_qos",
        7,
    ),
    *bad(
        "options that ask for QoS 3 in the second filter",
        V5,
        "82 0b 00 01 00 00 01 61 00 00 01 62 03",
        R.SUBSCRIPTION_QOS_INVALID,
        "subscriptions[1].maximum_qos",
        12,
    ),
    *bad("CONNACK with return code 6", V3, "20 02 00 06", R.REASON_CODE_INVALID, "reason_code", 3),
    *bad("SUBACK with failure", V3_1, "90 04 00 01 00 80", R.REASON_CODE_INVALID, "reason_codes[1]", 5),
    *bad("SUBACK with a code in between", V3_1_1, "90 05 00 01 00 03 80", R.REASON_CODE_INVALID, "reason_codes[1]", 5),
    *bad("PUBREL with a code of PUBACK", V5, "62 03 00 01 10", R.REASON_CODE_INVALID, "reason_code", 4),
    *bad("UNSUBACK with a granted QoS", V5, "b0 04 00 01 00 01", R.REASON_CODE_INVALID, "reason_codes[0]", 5),
    *bad(
        "CONNACK with bits 7 to 1 of its flags", V3_1_1, "20 02 80 00", R.CONNACK_FLAGS_RESERVED, "acknowledge_flags", 2
    ),
    *bad(
        "CONNACK with bits 7 to 1 of its flags", V5, "20 03 03 00 00", R.CONNACK_FLAGS_RESERVED, "acknowledge_flags", 2
    ),
]

ROWS = [*FIXED_HEADER, *FIELDS]
