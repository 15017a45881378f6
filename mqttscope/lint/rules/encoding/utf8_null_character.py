"""ENC102."""

from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.packets import Publish

_TOPICS = (
    "publish.topic_name,publish.properties.response_topic,connect.will.will_topic,"
    "connect.will.properties.response_topic,subscribe.subscriptions,unsubscribe.topic_filters"
)


class Utf8NullCharacter(Rule):
    """A UTF-8 string field holds the character U+0000.

    Receivers treat the packet as malformed and close the connection.  Those that keep strings in the manner of C cut
    the text off there, so that two topics can look alike on one side and differ on the other.  Mostly a buffer was
    sent with its terminating zero, or with the length of the buffer and not of the text in it.

    Instead, send the text without its terminator, and put binary data into the payload.
    """

    code = "ENC102"
    severity = Severity.ERROR
    reason_code = 0x81
    statements = {
        V5: {"MQTT-1.5.4-2": "", "MQTT-4.7.3-2": _TOPICS},
        V3_1_1: {"MQTT-1.5.3-2": "", "MQTT-4.7.3-2": _TOPICS},
        V3_1: {"V31-TOPIC-null": _TOPICS},
    }
    also = {V5: ("MQTT-1.5.7-1",)}
    malformed = (MalformedReason.UTF8_NULL_CHARACTER,)

    good = examples(
        lambda: [
            conversation("no U+0000", *opened(), client(Publish(topic_name="a/b", payload=b"hi"))),
            conversation("a payload may hold zeros", *opened(), client(Publish(topic_name="a/b", payload=b"\0\0"))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "inside a topic",
                *opened(),
                client(hexadecimal("30 08 00 03 61 00 62 00 68 69")).marked("topic_name"),
            ),
            conversation(
                "the terminator of a string in C, in MQTT 3.1.1",
                *opened(V3_1_1),
                client(hexadecimal("30 07 00 03 61 62 00 68 69")).marked("topic_name"),
            ),
            conversation(
                "inside a topic filter, in MQTT 3.1",
                *opened(V3_1),
                client(hexadecimal("82 08 00 0a 00 03 61 00 62 01")).marked("subscriptions[0].topic_filter"),
            ),
            conversation(
                "in the value of a user property",
                *opened(),
                client(hexadecimal("30 0d 00 03 61 2f 62 07 26 00 01 6b 00 01 00")).marked("properties.user_property"),
            ),
        ]
    )
