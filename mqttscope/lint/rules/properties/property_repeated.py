from collections.abc import Iterable
from typing import Any

from mqttscope.lint.rules import V5, Findings, Report, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.lint.strings import WITH_STRINGS
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.properties import BY_NAME, Properties, property_name

_USER_PROPERTY, _SUBSCRIPTION_IDENTIFIER = 0x26, 0x0B
_EXPLICIT_FOR_WILL_ONLY = tuple(
    BY_NAME[name].identifier for name in ("payload_format_indicator", "message_expiry_interval")
)


class PropertyRepeated(Rule):
    """A property that may appear only once appears several times in one packet.

    The receiver cannot decide which value applies; the standard defines this as a protocol error, and the connection is
    closed.  Only User Properties may always be repeated, and Subscription Identifiers when a server delivers a
    message.  For Payload Format Indicator and Message Expiry Interval the standard forbids repetition explicitly only
    in the Will, so in PUBLISH it is a warning.

    Instead, set each property once; only User Property may have several values.
    """

    code = "PRP105"
    severities = (Severity.ERROR, Severity.WARNING)
    reason_code = 0x82
    versions = (V5,)
    statements = {
        V5: {
            "V5-PROP-repeat-CONNECT": "connect.properties",
            "V5-PROP-repeat-WILL": "connect.will",
            "V5-PROP-repeat-CONNACK": "connack",
            "V5-PROP-repeat-PUBLISH": "publish",
            "V5-PROP-repeat-ACKS": "puback,pubrec,pubrel,pubcomp",
            "V5-PROP-repeat-SUBSCRIBE": "subscribe",
            "V5-PROP-repeat-SUBACK": "suback",
            "V5-PROP-repeat-UNSUBACK": "unsuback",
            "V5-PROP-repeat-DISCONNECT": "disconnect",
            "V5-PROP-repeat-AUTH": "auth",
        }
    }
    looks_at = WITH_STRINGS
    when = "properties"
    always = (Connect,)
    signs = ("repeated",)

    good = examples("""
        each property once, several User Properties
            opened user_property=k:v user_property=k:v topic_alias_maximum=5 < topic_alias_maximum=10
            > publish a/b topic_alias=1 user_property=k:1 user_property=k:2
        a message for two subscriptions
            opened; > subscribe 1 a:0 subscription_identifier=1; < suback 1 0
            > subscribe 2 #:0 subscription_identifier=2; < suback 2 0
            < publish a subscription_identifier=1 subscription_identifier=2
        the Will has its own properties
            opened will=a will_payload=gone will.user_property=k:v will.will_delay_interval=5 user_property=k:v
    """)
    bad = examples("""
        two Topic Aliases
            opened < topic_alias_maximum=10; > publish a/b hi topic_alias=1 topic_alias=2 !properties.topic_alias
        two Subscription Identifiers in a SUBSCRIBE
            opened
            > subscribe 1 a:0 subscription_identifier=1 subscription_identifier=2 !properties.subscription_identifier
        Payload Format Indicator and Message Expiry Interval in a PUBLISH: a warning
            opened
            > publish a payload_format_indicator=1 payload_format_indicator=1 message_expiry_interval=5
                message_expiry_interval=6 message_expiry_interval=7 !properties.payload_format_indicator
                !properties.message_expiry_interval
        in a CONNECT
            > connect receive_maximum=10 session_expiry_interval=5 receive_maximum=10 !properties.receive_maximum
        in the Will Properties
            > connect will=a will_payload=gone will.payload_format_indicator=1 will.payload_format_indicator=1
                !will.properties.payload_format_indicator
        in packets from the server
            opened < maximum_qos=1 maximum_qos=1 !properties.maximum_qos; > publish a qos=1 id=1
            < puback 1 code=0 reason_string=a reason_string=b !properties.reason_string
            < disconnect code=0x9c server_reference=a server_reference=b !properties.server_reference
    """)

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Look for repeated identifiers, and count them only if there are any."""
        block = packet.properties
        items = () if block is None else block.items
        if (len(items) > 1 and len({number for number, _ in items}) < len(items)) or isinstance(packet, Connect):
            return self._count(packet, at)
        return None

    def _count(self, packet: Any, at: RuleContext) -> Iterable[Report]:
        """Count each identifier, in the packet and in its Will."""
        if packet.properties is not None:
            yield from self._block(packet, packet.properties, "", at)
        if isinstance(packet, Connect) and packet.will is not None and packet.will.properties is not None:
            yield from self._block(packet, packet.will.properties, "will.", at)

    def _block(self, packet: Any, block: Properties, prefix: str, at: RuleContext) -> Iterable[Report]:
        counts: dict[int, int] = {}
        for number, _ in block.items:
            counts[number] = counts.get(number, 0) + 1
        publish = isinstance(packet, Publish)
        for number, count in counts.items():
            if count == 1 or number == _USER_PROPERTY:
                continue
            if number == _SUBSCRIPTION_IDENTIFIER and publish and not at.from_client:
                continue
            name = property_name(number)
            where = "the Will Properties" if prefix else packet_name(packet)
            text = f"{where}: property {name} appears {count} times"
            if publish and number in _EXPLICIT_FOR_WILL_ONLY:
                text += " (the standard forbids it explicitly only for the Will)"
                yield self.report(f"{prefix}properties.{name}", text, severity=Severity.WARNING)
            else:
                yield self.report(f"{prefix}properties.{name}", text)
