"""ENC101, ENC102, ENC106, ENC108: bytes that are invalid in strings, numbers and packets."""

from mqttscope.lint.rules import V3_1, V3_1_1, V5, examples
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt.constants import MalformedReason


class Utf8IllFormed(MalformedRule):
    """A UTF-8 string field contains bytes that are not well-formed UTF-8.

    Receivers treat the packet as malformed and close the connection, or end up with topics that no filter can match.
    Overlong forms, surrogates and code points above U+10FFFF are ill-formed too.  Payload, password, correlation data
    and authentication data are binary and may contain any bytes.

    Instead, encode strings as UTF-8 (RFC 3629), and put binary data into the payload.
    """

    code = "ENC101"
    statements = {
        V5: {
            "MQTT-1.5.4-1": "",
            "MQTT-1.5.7-1": "any.properties.user_property",
            "MQTT-3.1.3-4": "connect.client_identifier",
            "MQTT-3.1.3-11": "connect.will.will_topic",
            "MQTT-3.1.3-12": "connect.user_name",
            "MQTT-3.3.2-1": "publish.topic_name",
            "MQTT-3.3.2-13": "publish.properties.response_topic",
            "MQTT-3.3.2-19": "publish.properties.content_type",
            "MQTT-3.8.3-1": "subscribe.subscriptions",
            "MQTT-3.10.3-1": "unsubscribe.topic_filters",
        },
        V3_1_1: {
            "MQTT-1.5.3-1": "",
            "MQTT-3.1.3-4": "connect.client_identifier",
            "MQTT-3.1.3-10": "connect.will.will_topic",
            "MQTT-3.1.3-11": "connect.user_name",
            "MQTT-3.3.2-1": "publish.topic_name",
            "MQTT-3.8.3-1": "subscribe.subscriptions",
            "MQTT-3.10.3-1": "unsubscribe.topic_filters",
        },
        V3_1: {"V31-PUBLISH-utf": ""},
    }
    malformed = (MalformedReason.UTF8_ILL_FORMED,)

    good = examples("""
        well-formed
            opened; > publish a/b hi
        a payload may contain any bytes
            opened; > publish a/b 0xff
    """)
    bad = examples("""
        0xFF is never part of UTF-8
            opened; > raw 30 08 0003612fff006869 !topic_name
        0xFF in a topic of MQTT 3.1.1
            opened 3.1.1; > raw 30 07 0003612fff6869 !topic_name
    """)


_TOPICS = (
    "publish.topic_name,publish.properties.response_topic,connect.will.will_topic,"
    "connect.will.properties.response_topic,subscribe.subscriptions,unsubscribe.topic_filters"
)


class Utf8NullCharacter(MalformedRule):
    """A UTF-8 string field contains the character U+0000.

    Receivers treat the packet as malformed and close the connection.  A receiver that stores C strings truncates the
    text there, so that two topics can be equal on one side and different on the other.  Usually the sender included the
    terminating zero, or used the length of the buffer instead of the text.

    Instead, send the text without its terminator, and put binary data into the payload.
    """

    code = "ENC102"
    statements = {
        V5: {"MQTT-1.5.4-2": "", "MQTT-4.7.3-2": _TOPICS},
        V3_1_1: {"MQTT-1.5.3-2": "", "MQTT-4.7.3-2": _TOPICS},
        V3_1: {"V31-TOPIC-null": _TOPICS},
    }
    also = {V5: ("MQTT-1.5.7-1",)}
    malformed = (MalformedReason.UTF8_NULL_CHARACTER,)

    good = examples("""
        no U+0000
            opened; > publish a/b hi
        a payload may contain zero bytes
            opened; > publish a/b 0x0000
    """)
    bad = examples("""
        inside a topic
            opened; > raw 30 08 0003610062006869 !topic_name
        the terminator of a C string, in MQTT 3.1.1
            opened 3.1.1; > raw 30 07 00036162006869 !topic_name
        inside a topic filter, in MQTT 3.1
            opened 3.1; > raw 82 08 000a000361006201 !subscriptions[0].topic_filter
        in the value of a user property
            opened; > raw 30 0d 0003 "a/b" 0726 0001 "k" 000100 !properties.user_property
    """)


class VarintTooLong(MalformedRule):
    """A Variable Byte Integer is longer than four bytes.

    The fourth byte announces a fifth, which no version allows.  In the Remaining Length, it makes everything after it
    unreadable: the start of the next packet is unknown, and the receiver closes the connection.  A wrong length in an
    earlier packet has the same effect.

    Instead, limit packets to 268,435,455 bytes after the fixed header, and check the packet before this one.
    """

    code = "ENC106"
    statements = {
        V5: {"V5-VBI-four-bytes": ""},
        V3_1_1: {"V311-VBI-four-bytes": ""},
        V3_1: {"V31-HEADER-remaining-length": ""},
    }
    malformed = (MalformedReason.REMAINING_LENGTH_TOO_LONG, MalformedReason.VARIABLE_BYTE_INTEGER_TOO_LONG)

    good = examples("""
        one byte
            opened; > publish a/b hi
        three bytes
            opened; > publish a/b 0x00*16384
    """)
    bad = examples("""
        a Remaining Length of five bytes
            opened; > raw 30 8080808001 !remaining_length
        in MQTT 3.1.1
            opened 3.1.1; > raw 30 8080808001 !remaining_length
        in MQTT 3.1
            opened 3.1; > raw 30 8080808001 !remaining_length
        a Subscription Identifier of five bytes
            opened; > raw 82 0f 000a060b8080808001 0003 "a/b" 01 !properties.subscription_identifier
    """)


class TrailingBytes(MalformedRule):
    """A packet has extra bytes after its last field.

    The receiver cannot interpret them and treats the packet as malformed.  Usually the sender encodes an
    acknowledgement in the layout of another version, or computes the Remaining Length from a buffer that is larger than
    the packet.  A PUBLISH cannot have extra bytes, since its payload takes everything that is left.

    Instead, end the packet with its last field.
    """

    code = "ENC108"
    statements = {V5: {"V5-LENGTH-trailing": ""}}
    also = {
        V5: ("MQTT-3.1.2-16", "MQTT-3.1.2-18"),
        V3_1_1: ("MQTT-3.1.2-11", "MQTT-3.1.2-18", "MQTT-3.1.2-20", "V311-LENGTH-overrun"),
    }
    malformed = (MalformedReason.TRAILING_BYTES,)

    good = examples("""
        a PUBACK of two bytes
            opened; < publish a qos=1 id=10; > puback 10
    """)
    bad = examples("""
        bytes after the properties of a PUBACK
            opened; < publish a qos=1 id=10; > raw 40 06 000a0000dead !
        bytes after the properties of a CONNACK
            > connect; < raw 20 04 0000002a !
        bytes after the properties of a DISCONNECT
            opened; > raw e0 03 000000 !
    """)
