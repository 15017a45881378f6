"""ENC101."""

from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Rule
from mqttscope.mqtt.constants import MalformedReason


class Utf8IllFormed(Rule):
    """A UTF-8 string field holds bytes that are not well-formed UTF-8.

    Receivers treat the packet as malformed and close the connection, or compare topics that no subscriber can name.
    Overlong forms, surrogates and code points above U+10FFFF are ill-formed too; payload, password, correlation data
    and authentication data are binary and may hold anything.

    Instead, encode strings as UTF-8 (RFC 3629), and put binary data into the payload.
    """

    code = "ENC101"
    severity = Severity.ERROR
    reason_code = 0x81
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
