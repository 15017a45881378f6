"""ENC102."""

from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Rule
from mqttscope.mqtt.constants import MalformedReason

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
