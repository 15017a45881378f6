"""ENC101, ENC102, ENC106, ENC108: bytes that no string, no number and no packet may have."""

from mqttscope.lint.rules import V3_1, V3_1_1, V5, examples
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt.constants import MalformedReason


class Utf8IllFormed(MalformedRule):
    """A UTF-8 string field holds bytes that are not well-formed UTF-8.

    Receivers treat the packet as malformed and close the connection, or compare topics that no subscriber can name.
    Overlong forms, surrogates and code points above U+10FFFF are ill-formed too; payload, password, correlation data
    and authentication data are binary and may hold anything.

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
        a payload may hold any bytes
            opened; > publish a/b 0xff
    """)
    bad = examples("""
        0xFF is never part of UTF-8
            opened; > raw 30 08 0003612fff006869 !topic_name
        the same in MQTT 3.1.1
            opened 3.1.1; > raw 30 07 0003612fff6869 !topic_name
    """)


_TOPICS = (
    "publish.topic_name,publish.properties.response_topic,connect.will.will_topic,"
    "connect.will.properties.response_topic,subscribe.subscriptions,unsubscribe.topic_filters"
)


class Utf8NullCharacter(MalformedRule):
    """A UTF-8 string field holds the character U+0000.

    Receivers treat the packet as malformed and close the connection.  Those that keep strings in the manner of C cut
    the text off there, so that two topics can look alike on one side and differ on the other.  Mostly a buffer was
    sent with its terminating zero, or with the length of the buffer and not of the text in it.

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
        a payload may hold zeros
            opened; > publish a/b 0x0000
    """)
    bad = examples("""
        inside a topic
            opened; > raw 30 08 0003610062006869 !topic_name
        the terminator of a string in C, in MQTT 3.1.1
            opened 3.1.1; > raw 30 07 00036162006869 !topic_name
        inside a topic filter, in MQTT 3.1
            opened 3.1; > raw 82 08 000a000361006201 !subscriptions[0].topic_filter
        in the value of a user property
            opened; > raw 30 0d 0003 "a/b" 0726 0001 "k" 000100 !properties.user_property
    """)


class VarintTooLong(MalformedRule):
    """A Variable Byte Integer runs past four bytes.

    The fourth byte announces a fifth, which no version allows.  As the Remaining Length it makes all that follows
    unreadable: nobody can tell where the next packet begins, and the receiver closes the connection.  It is also what
    a receiver sees when the length of an earlier packet was wrong.

    Instead, keep packets to 268,435,455 bytes after the fixed header, and check what goes before this packet.
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
    """A packet has bytes left over after its last field.

    The receiver has no place for them and treats the packet as malformed.  Mostly the sender writes an acknowledgement
    in another layout than its peer expects, or computes the Remaining Length from a buffer that holds more than the
    packet.  A PUBLISH cannot have them, since its payload takes all that is left.

    Instead, let the packet end with its last field.
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
